package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/topoctl/topoctl/engine/trust"
)

func refusedDial() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// What is said where no route leads to the peer: what became of each, what says most first and loopback, which
// refuses on every host, last.
func TestNoRoute(t *testing.T) {
	noRoute := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}
	other := fmt.Errorf("%w: it calls itself %q", ErrOtherEngine, "nodeB")
	for _, tt := range []struct {
		routes map[string]error
		order  []string
		want   string
		is     []error
		not    []error
	}{
		{
			map[string]error{"127.0.0.1:9": refusedDial(), "172.17.0.1:9": noRoute, "10.91.1.2:9": noRoute},
			[]string{"172.17.0.1:9", "127.0.0.1:9", "10.91.1.2:9"},
			"peer is unreachable: 172.17.0.1:9: no route to host; 10.91.1.2:9: no route to host; 127.0.0.1:9: connection refused",
			[]error{ErrUnreachable, syscall.EHOSTUNREACH}, []error{syscall.ECONNREFUSED},
		},
		{
			map[string]error{"127.0.0.1:9": other, "10.66.0.1:9": refusedDial()},
			[]string{"127.0.0.1:9", "10.66.0.1:9"},
			`peer is unreachable: 10.66.0.1:9: connection refused; 127.0.0.1:9: another engine answers: it calls itself "nodeB"`,
			[]error{ErrUnreachable, syscall.ECONNREFUSED}, []error{ErrOtherEngine},
		},
		{
			map[string]error{"10.0.0.1:9": other, "10.0.0.2:9": context.DeadlineExceeded},
			[]string{"10.0.0.1:9", "10.0.0.2:9"},
			`peer is unreachable: 10.0.0.2:9: no answer in time; 10.0.0.1:9: another engine answers: it calls itself "nodeB"`,
			[]error{ErrUnreachable, context.DeadlineExceeded}, []error{ErrOtherEngine},
		},
		{
			map[string]error{"10.0.0.1:9": other}, []string{"10.0.0.1:9"},
			`10.0.0.1:9: another engine answers: it calls itself "nodeB"`,
			[]error{ErrOtherEngine}, []error{ErrUnreachable},
		},
		{
			map[string]error{"10.0.0.1:9": noRoute, "10.0.0.2:9": ErrToken, "127.0.0.1:9": trust.ErrCertificate},
			[]string{"10.0.0.1:9", "127.0.0.1:9", "10.0.0.2:9"},
			"10.0.0.2:9: tokens differ; 10.0.0.1:9: no route to host; 127.0.0.1:9: certificate refused",
			[]error{ErrToken}, []error{ErrUnreachable, trust.ErrCertificate},
		},
	} {
		var routes []Route
		for _, at := range tt.order {
			routes = append(routes, Route{Remote: netip.MustParseAddrPort(at)})
		}
		_, err := search(t.Context(), routes, func(_ context.Context, r Route) (established, error) {
			return established{}, tt.routes[r.Remote.String()]
		})
		if err == nil || err.Error() != tt.want {
			t.Errorf("%v\nwant %s", err, tt.want)
		}
		for _, is := range tt.is {
			if !errors.Is(err, is) {
				t.Errorf("%v: is not %v", err, is)
			}
		}
		for _, not := range tt.not {
			if errors.Is(err, not) {
				t.Errorf("%v: is %v", err, not)
			}
		}
	}
	var many []Route
	for i := range maxRoutes + 9 {
		many = append(many, Route{Remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 9)})
	}
	_, err := search(t.Context(), many, func(context.Context, Route) (established, error) { return established{}, refusedDial() })
	all, ok := errors.AsType[routeErrors](err)
	if !ok || len(all) != maxRoutes || len(err.Error()) > 400 || !strings.HasSuffix(err.Error(), "; and 56 other addresses") {
		t.Errorf("%v", err)
	}
}

// Whatever is at the other addresses, and however late the peer answers at its own: one of its own wins, and
// without any the error has every address once.
func TestSearchFindsThePeer(t *testing.T) { synctest.Test(t, testSearchFindsThePeer) }

func testSearchFindsThePeer(t *testing.T) {
	failures := []error{ErrOtherEngine, refusedDial(), ErrToken, errCut, context.DeadlineExceeded}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		var routes []Route
		var wrong sync.WaitGroup
		outcome := map[Route]error{}
		for i := range 1 + r.IntN(12) {
			route := Route{Remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 9)}
			if r.IntN(2) == 0 {
				route.Remote = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i)}), 9)
			}
			if r.IntN(4) != 0 {
				outcome[route] = failures[r.IntN(len(failures))]
				wrong.Add(1)
			}
			routes = append(routes, route)
		}
		var open atomic.Int64
		won, err := search(t.Context(), routes, func(_ context.Context, route Route) (established, error) {
			if err := outcome[route]; err != nil {
				defer wrong.Done()
				return established{}, err
			}
			wrong.Wait() // all others have answered before
			open.Add(1)
			return established{conn: closing{closed: func() { open.Add(-1) }}, route: route}, nil
		})
		if len(outcome) < len(routes) {
			if err != nil || outcome[won.route] != nil || open.Load() != 1 {
				t.Errorf("seed %d: %v, %d connections at %v", seed, err, open.Load(), won.route)
			}
			continue
		}
		all, ok := errors.AsType[routeErrors](err)
		if !ok || len(all) != len(routes) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, failed := range all {
			before := i > 0 && all[i-1].route.Remote.Addr().IsLoopback()
			if !errors.Is(failed.err, outcome[failed.route]) || before && !failed.route.Remote.Addr().IsLoopback() {
				t.Errorf("seed %d: %d: %v of %v", seed, i, failed, err)
			}
		}
	}
}

// closing is a connection that tells when it is closed.
type closing struct {
	net.Conn
	closed func()
}

func (c closing) Close() error { c.closed(); return nil }
