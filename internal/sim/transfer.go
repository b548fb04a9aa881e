package sim

import "github.com/topoctl/topoctl/internal/pkgerr"

// Transfer is a transfer from one end to another over one path.
type Transfer struct {
	From, To End
	Bytes    int64  // Endless: until it is stopped
	Entropy  uint64 // see Cluster.Path
	// Done is called when its last byte has arrived.
	Done func(*Flow)
}

// Move starts a transfer.
func (c *Cluster) Move(t Transfer) (*Flow, error) {
	path, err := c.Path(t.From, t.To, t.Entropy)
	if err != nil {
		return nil, err
	}
	if t.Bytes <= 0 {
		return nil, pkgerr.Errorf("sim", "a transfer of %d bytes: want more than 0", t.Bytes)
	}
	s := FlowSpec{Path: path, Bytes: t.Bytes}
	if t.Done != nil {
		s.End = func(f *Flow) { c.At(c.now+c.latency(path), func() { t.Done(f) }) }
	}
	return c.Start(s), nil
}

// latency is the sum of the latencies on a path, one way.
func (c *Cluster) latency(path []Link) int64 {
	sum := int64(0)
	for _, l := range path {
		sum += c.links[l].latency
	}
	return sum
}
