package fake_test

import (
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
)

func harness(o fake.Options) transporttest.Harness {
	return transporttest.Harness{New: func(testing.TB) *transporttest.Ends {
		n := fake.NewNetwork()
		end := func(address string) (transporttest.End, *fake.Transport) {
			regions := memory.NewTable(16)
			t := n.Transport(address, regions, o)
			return transporttest.End{Transport: t, Regions: regions, Endpoint: t.Endpoint("")}, t
		}
		active, from := end("a")
		passive, _ := end("b")
		return &transporttest.Ends{
			Active: active, Passive: passive,
			Restart: func(testing.TB) transporttest.End {
				e, _ := end("b")
				return e
			},
			Stall: func(on bool) {
				for _, c := range from.Conns() {
					c.Stall(on)
				}
			},
			Hold: func(c transport.Conn) func() {
				conn := c.(*fake.Conn)
				conn.HoldWrites()
				return func() { conn.ReleaseWrites() }
			},
		}
	}}
}

func TestConformance(t *testing.T) {
	transporttest.Run(t, harness(fake.Options{}))
}

// The limits that RDMA labs have: small slices of one span, few at a time.
func TestConformanceSmall(t *testing.T) {
	h := harness(fake.Options{MaxSpans: 1, MaxBytes: 3000, MaxPosted: 3, Latency: 10 * time.Microsecond})
	h.RegionBytes, h.Requests, h.Cycles, h.Virtual = 1<<18, 300, 50, true
	transporttest.Run(t, h)
}
