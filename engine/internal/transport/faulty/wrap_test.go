package faulty_test

import (
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/internal/transport/faulty"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
)

func harness(plan faulty.Plan) transporttest.Harness {
	return transporttest.Harness{RegionBytes: 1 << 20, Requests: 2000, Cycles: 100, Virtual: true, New: func(testing.TB) *transporttest.Ends {
		n := fake.NewNetwork()
		active, passive := memory.NewTable(16), memory.NewTable(16)
		from := faulty.Wrap(n.Transport("a", active, fake.Options{}), plan)
		to := n.Transport("b", passive, fake.Options{})
		return &transporttest.Ends{
			Active:  transporttest.End{Transport: from, Regions: active, Endpoint: to.Endpoint("")},
			Passive: transporttest.End{Transport: to, Regions: passive, Endpoint: to.Endpoint("")},
			Stall: func(on bool) {
				for _, c := range from.Conns() {
					c.Stall(on)
				}
			},
			Hold: func(c transport.Conn) func() {
				conn := c.(*faulty.Conn)
				conn.HoldWrites()
				return conn.ReleaseWrites
			},
		}
	}}
}

// With faults that are none to the poster it is a transport like others.
func TestConformance(t *testing.T) {
	transporttest.Run(t, harness(faulty.Plan{Seed: 1, Delay: 0.1, DelayMax: time.Millisecond, Duplicate: 0.2}))
}
