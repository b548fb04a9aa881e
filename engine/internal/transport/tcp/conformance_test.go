package tcp

import (
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/faulty"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
)

// newProxy forwards connections to a server until the test ends.
func newProxy(t testing.TB, server string) *faulty.Proxy {
	t.Helper()
	p, err := faulty.Listen("127.0.0.1:0", server, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestConformance(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{New: suiteEnds(transport.Open)})
}

func TestConformanceOverPayload(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{New: suiteEnds(transport.Payload), Requests: 300, Cycles: 20})
}

func TestConformanceOverTLS(t *testing.T) {
	transporttest.Run(t, transporttest.Harness{New: suiteEnds(transport.Sealed), Requests: 300, Cycles: 20})
}

// suiteEnds are two ends with a middle between them, which the suite closes.
func suiteEnds(level transport.Protection) func(t testing.TB) *transporttest.Ends {
	return func(t testing.TB) *transporttest.Ends { return protectedEnds(t, level) }
}

func protectedEnds(t testing.TB, level transport.Protection) *transporttest.Ends {
	a, regions := bare(t, level)
	a.dial = plainDial
	b := suiteEnd(t)
	way := newProxy(t, b.Endpoint.Address)
	b.Endpoint.Address = way.Address()
	return &transporttest.Ends{
		Active:  transporttest.End{Transport: a, Regions: regions},
		Passive: b,
		Stall:   func(on bool) { way.Update(func(up, _ *faulty.Line) { up.Stall = on }) },
		Hold: func(transport.Conn) func() {
			way.Update(func(up, _ *faulty.Line) { up.Hold = true })
			return func() { way.Update(func(up, _ *faulty.Line) { up.Hold = false }) }
		},
		Restart: suiteEnd,
	}
}

// suiteEnd is a passive end that the suite closes.
func suiteEnd(t testing.TB) transporttest.End {
	b, regions := bare(t, transport.Open)
	address := (&side{Transport: b}).listen(t)
	return transporttest.End{Transport: b, Regions: regions, Endpoint: transport.Endpoint{Transport: "tcp", Address: address}}
}

// bare is a transport that the suite closes.
func bare(t testing.TB, level transport.Protection) (*Transport, *memory.Table) {
	t.Helper()
	regions := memory.NewTable(64)
	x, err := New(Options{Regions: regions, Protection: level})
	if err != nil {
		t.Fatal(err)
	}
	return x, regions
}

var (
	_ transport.Transport  = (*Transport)(nil)
	_ transport.DataServer = (*Transport)(nil)
	_ transport.Conn       = (*conn)(nil)
)
