package fake

// Held is how many WRITEs are on the wire because of HoldWrites.
func (c *Conn) Held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held)
}
