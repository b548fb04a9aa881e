package tcp

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// TestNoAllocations counts those of both ends, which are in this process.
func TestNoAllocations(t *testing.T) {
	for level := transport.Open; level <= transport.Payload; level++ { // crypto/tls makes some
		t.Run(level.String(), func(t *testing.T) { noAllocations(t, level) })
	}
}

func noAllocations(t *testing.T, level transport.Protection) {
	a, b := newSide(t, Options{Protection: level}), newSide(t, Options{})
	mine := a.region(t, 4<<20, memory.None, memory.Options{})
	theirs := remote(b.region(t, 4<<20, both, memory.Options{}))
	address := b.listen(t)
	for _, op := range []transport.Op{transport.Write, transport.Read} {
		for _, s := range []struct{ spans, bytes int64 }{{1, 4096}, {128, 4096}, {16, 64 << 10}, {1, 4 << 20}} {
			for _, check := range []bool{false, true} {
				if check && level > transport.Open {
					continue // that was tried, or there is none
				}
				t.Run(fmt.Sprintf("%d/%dx%d/%v", op, s.spans, s.bytes, check), func(t *testing.T) {
					over := make(chan struct{}, 16)
					c := dial(t, a, b, address)
					defer c.gone(t)
					defer c.Close(nil)
					eventually(t, "the peer has only this connection", func() bool { return b.Served().Conns == 1 })
					c.Conn.(*conn).events.Done = func(_ transport.Conn, list []transport.Completion) {
						for _, x := range list {
							if x.Err != nil {
								panic(x.Err)
							}
							over <- struct{}{}
						}
					}
					req := &transport.Request{Op: op, Check: check, Bytes: s.spans * s.bytes}
					for i := range s.spans {
						req.Spans = append(req.Spans, transport.Span{Local: mine, LocalOffset: i * s.bytes, Remote: theirs, RemoteOffset: i * s.bytes, Bytes: s.bytes})
					}
					reqs := []*transport.Request{req}
					const runs = 40
					var least uint64
					// The runtime's own objects for waiting are made now and then, and
					// used again: it settles.
					for range 10 {
						var before, after runtime.MemStats
						runtime.ReadMemStats(&before)
						for range runs {
							c.Post(reqs, nil)
							<-over
						}
						runtime.ReadMemStats(&after)
						if least = after.Mallocs - before.Mallocs; least < runs/10 {
							return
						}
					}
					t.Errorf("%d allocations in %d requests", least, runs)
				})
			}
		}
	}
}
