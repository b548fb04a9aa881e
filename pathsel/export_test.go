package pathsel

// Local is the host that the pair was made for.
func (p *Pair) Local() *Host { return p.local }

// Remote is the host at the other end.
func (p *Pair) Remote() *Host { return p.remote }
