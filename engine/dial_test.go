package engine

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/registrytest"
)

// slowRelay leads to an address, and passes on all that it gets a while later.
func slowRelay(t *testing.T, to netip.AddrPort) netip.AddrPort {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	pass := func(to, from net.Conn) {
		defer to.Close()
		b := make([]byte, 1<<16)
		for {
			n, err := from.Read(b)
			time.Sleep(50 * time.Millisecond)
			if _, failed := to.Write(b[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to.String())
			if err != nil {
				c.Close()
				continue
			}
			go pass(far, c)
			go pass(c, far)
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// deadAddress is one where nothing listens.
func deadAddress(t *testing.T) netip.AddrPort {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// registered publishes a record of addresses, those of the peer's host where boot is.
func registered(t *testing.T, r registry.Registry, name string, epoch uint64, boot string, at ...netip.AddrPort) {
	t.Helper()
	must(t, errOf(r.Publish(t.Context(), registry.Record{Name: name, Epoch: epoch, Boot: boot, Addresses: at})))
}

// Two hosts have an address in common, such as 127.0.0.1 with the same port: whoever answers there is not the
// peer, and the peer's own address is waited for, however much later that answers.
func TestAnotherEngineAnswersFirst(t *testing.T) {
	checkLeaks(t)
	names := registrytest.NewMemory(0, nil).Client()
	for what, neighbour := range map[string]string{"another name": "node3", "an earlier start": "node2"} {
		t.Run(what, func(t *testing.T) {
			wrong := newEngine(t, Options{Name: neighbour})
			time.Sleep(2 * time.Millisecond) // epochs are in the order of milliseconds
			server := newEngine(t, Options{Name: "node2"})
			relay := slowRelay(t, server.Addrs()[0])
			registered(t, names, "node2", server.Epoch(), "", wrong.Addrs()[0], relay)
			client := newEngine(t, Options{Name: "node1", Registry: registry.ReadOnly(names)})
			p, err := client.Open(testContext(t), "node2")
			must(t, err)
			if p.Epoch() != server.Epoch() || p.EngineName() != "node2" || p.Address() != relay {
				t.Errorf("%s of epoch %d at %s, want node2 of %d at %s", p.EngineName(), p.Epoch(), p.Address(), server.Epoch(), relay)
			}
		})
	}
	t.Run("this engine itself", func(t *testing.T) {
		server := newEngine(t, Options{Name: "vm"})
		client := newEngine(t, Options{Name: "vm", Registry: registry.ReadOnly(names)}) // started later
		registered(t, names, "vm", server.Epoch(), "", client.Addrs()[0], slowRelay(t, server.Addrs()[0]))
		if p, err := client.Open(testContext(t), "vm"); err != nil || p.Epoch() != server.Epoch() {
			t.Errorf("%v: want the other one", err)
		}
	})
}

// A peer is not there, and at an address that is also this host's another engine answers: what is said is that
// the peer cannot be reached, and what became of each address.
func TestDeadPeerBesideAnotherEngine(t *testing.T) {
	checkLeaks(t)
	names := registrytest.NewMemory(0, nil).Client()
	wrong, dead := newEngine(t, Options{Name: "node3"}), deadAddress(t)
	client := newEngine(t, Options{Name: "node1", Registry: registry.ReadOnly(names)})
	registered(t, names, "node2", 7, "", wrong.Addrs()[0], dead)
	_, err := client.Open(testContext(t), "node2")
	want := fmt.Sprintf(`engine: peer "node2": peer is unreachable: %s: connection refused; %s: another engine answers: it calls itself "node3"`, dead, wrong.Addrs()[0])
	if !errors.Is(err, ErrUnreachable) || !errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, ErrOtherEngine) || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}

	// All that the registry has is loopback of another host: this host's engine there is not even asked.
	registered(t, names, "node4", 7, "another boot", wrong.Addrs()[0])
	_, err = client.Open(testContext(t), "node4")
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "for engines on its own host") || strings.Contains(err.Error(), "node3") {
		t.Errorf("%v", err)
	}
	// The same addresses in a record of this host, as a container's may be, do lead there.
	server := newEngine(t, Options{Name: "node5", Registry: names})
	if r, err := names.Lookup(t.Context(), "node5"); err != nil || r.Boot != client.boot {
		t.Errorf("%+v, %v: want boot %q", r, err, client.boot)
	}
	if p, err := client.Open(testContext(t), "node5"); err != nil || p.Epoch() != server.Epoch() {
		t.Error(err)
	}
}

// Which addresses of a record are dialled.
func TestAddressesFor(t *testing.T) {
	var all []netip.AddrPort
	for _, a := range []string{"[::1]:1", "127.0.0.1:1", "[::ffff:127.0.0.1]:1", "[fe80::1%eth0]:1", "[fe80::1]:1", "169.254.1.2:1", "10.0.0.1:1", "[2001:db8::1]:1"} {
		all = append(all, netip.MustParseAddrPort(a))
	}
	far := []netip.AddrPort{all[5], all[6], all[7]}
	for _, tt := range []struct {
		epoch       uint64
		theirs, our string
		want        []netip.AddrPort
	}{
		{0, "", "a", all}, // what a user has typed
		{1, "a", "a", all},
		{1, "a", "b", far},
		{1, "", "a", slices.Concat(far, all[:5])},
		{1, "a", "", slices.Concat(far, all[:5])},
		{1, "", "", slices.Concat(far, all[:5])},
	} {
		if got := addressesFor(&registry.Record{Epoch: tt.epoch, Boot: tt.theirs, Addresses: all}, tt.our); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}
