package session_test

import (
	"net/netip"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/transport/faulty"
)

// proxy passes bytes on until it is told otherwise.
type proxy struct {
	*faulty.Proxy
	addr netip.AddrPort
}

func newProxy(t *testing.T, to netip.AddrPort) *proxy {
	t.Helper()
	p, err := faulty.Listen("127.0.0.1:0", to.String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return &proxy{p, netip.MustParseAddrPort(p.Address())}
}

// swallow has the bytes of all connections go nowhere, or lets them on.
func (p *proxy) swallow(on bool) {
	p.Update(func(up, down *faulty.Line) { up.Hold, down.Hold = on, on })
}

// budget is how many bytes each connection carries in a direction until it is cut, 0 any number.
func (p *proxy) budget(bytes int64) {
	p.Update(func(up, down *faulty.Line) { up.CutAfter, down.CutAfter = bytes, bytes })
}
