package faulty

// Taken is how many bytes are on the way from the sides that dialled.
func (p *Proxy) Taken() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pipes {
		n += c.up.bytes
	}
	return n
}
