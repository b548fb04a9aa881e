package stage

import (
	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// cutUp cuts parts off the parents in their order, as long as there are buffers. mu
// is held.
func (c *Conn) cutUp() {
	for len(c.queue) > 0 && c.held == nil {
		p := c.queue[0]
		if c.dead && p.err == nil {
			p.err = c.closedError()
		}
		if p.err != nil {
			p.cut = true // what is left of it would be in vain
		}
		if p.cut {
			c.queue[0] = nil
			c.queue = c.queue[1:]
			if p.parts == 0 {
				c.finish(p)
			}
			continue
		}
		x := c.next(p)
		p.parts++
		_, device := Needs(x.spans)
		if device == nil {
			x.begin(nil)
			continue
		}
		pool, err := c.t.pool(device)
		if err != nil {
			c.end(x, err, false)
			continue
		}
		b := pool.Get(&c.want)
		if b == nil {
			c.held = x
			return
		}
		x.begin(b)
	}
}

// next cuts a part off a parent. mu is held.
func (c *Conn) next(p *parent) *part {
	var x *part
	if n := len(c.free); n > 0 {
		x, c.free = c.free[n-1], c.free[:n-1]
	} else {
		x = &part{c: c}
		x.copied = x.landed
	}
	x.parent = p
	left := int64(memory.PieceBytes)
	bytes := int64(0)
	for p.span < len(p.req.Spans) {
		s := p.req.Spans[p.span]
		n := min(s.Bytes-p.offset, left-bytes)
		if n == 0 && s.Bytes > p.offset {
			break
		}
		s.LocalOffset += p.offset
		s.RemoteOffset += p.offset
		s.Bytes = n
		x.spans = append(x.spans, s)
		bytes += n
		if p.offset += n; p.offset == p.req.Spans[p.span].Bytes {
			p.span, p.offset = p.span+1, 0
		}
	}
	p.cut = p.span == len(p.req.Spans)
	x.req = transport.Request{Op: p.req.Op, Bytes: bytes, Check: p.req.Check, Tag: x}
	return x
}

// begin starts a part with its buffer, nil where it needs none. mu is held.
func (x *part) begin(b *memory.Buffer) {
	c := x.c
	if b == nil {
		x.req.Spans = x.spans
	} else {
		x.window.Lay(x.spans, b)
		x.req.Spans = x.window.Spans
	}
	if x.req.Op == transport.Write && x.window.Staged() {
		c.copying++
		x.window.Copy(true, x.copied)
		return
	}
	c.pending = append(c.pending, &x.req)
}

// ready brings the buffer that a part waited for.
func (c *Conn) ready(b *memory.Buffer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.held
	c.held = nil
	if c.dead || x.parent.err != nil {
		b.Release()
		c.end(x, c.closedError(), false)
	} else {
		x.begin(b)
	}
	c.goOn()
}

// landed is the end of a part's copy.
func (x *part) landed(err error) {
	c := x.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copying--
	switch {
	case err != nil:
		c.end(x, err, false)
	case x.req.Op == transport.Read:
		c.end(x, nil, false)
	case c.dead:
		c.end(x, c.closedError(), false)
	default:
		c.pending = append(c.pending, &x.req)
	}
	c.goOn()
}

// end is the end of a part. mu is held.
func (c *Conn) end(x *part, err error, mayLand bool) {
	p := x.parent
	p.parts--
	if err != nil && p.err == nil {
		p.err = err
	}
	p.mayLand = p.mayLand || mayLand
	x.window.Release()
	clear(x.spans)
	x.spans, x.parent, x.req = x.spans[:0], nil, transport.Request{}
	c.free = append(c.free, x)
	if p.parts > 0 || !p.cut && p.err == nil {
		return
	}
	if len(c.queue) == 0 || c.queue[0] != p { // else cutUp ends it
		c.finish(p)
	}
}

// finish is the end of a parent. mu is held.
func (c *Conn) finish(p *parent) {
	c.open--
	c.reports.Add(transport.Completion{
		Request: p.req, Err: p.err,
		MayLand: p.err != nil && p.mayLand && p.req.Op == transport.Write,
	})
}

// flush posts what waits, as far as the inner connection takes it. One goroutine at a
// time does it; mu is held, but not while it posts.
func (c *Conn) flush() {
	if c.posting {
		return
	}
	c.posting = true
	for len(c.pending) > 0 {
		batch, rooms := c.pending, c.rooms
		if c.dead {
			c.pending = nil
			c.refuse(batch)
			c.cutUp()
			continue
		}
		c.pending = nil
		c.mu.Unlock()
		n, done := c.inner.Post(batch, nil)
		c.mu.Lock()
		c.pending = append(batch[n:len(batch):len(batch)], c.pending...)
		c.take(done)
		c.cutUp() // what was done at once gave its buffers back
		if n < len(batch) && len(done) == 0 && rooms == c.rooms && !c.dead {
			break
		}
	}
	c.posting = false
}

// refuse ends requests that the connection did not live to take. mu is held.
func (c *Conn) refuse(list []*transport.Request) {
	for _, r := range list {
		if x, ok := r.Tag.(*part); ok {
			c.end(x, c.closedError(), false)
		} else {
			c.reports.Add(transport.Completion{Request: r, Err: c.closedError()})
		}
	}
}
