package sched

import "testing"

// Slices of very many spans are not kept: their memory is given back.
func TestRecycle(t *testing.T) {
	c := New(DefaultConfig())
	c.recycle(&Slice{Spans: make([]Span, 10)})
	c.recycle(&Slice{Spans: make([]Span, mostSpans+1)})
	if len(c.free) != 1 || cap(c.free[0].Spans) != 10 {
		t.Errorf("%d slices are kept", len(c.free))
	}
}
