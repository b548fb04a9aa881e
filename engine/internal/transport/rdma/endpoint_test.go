package rdma

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/verbs"
)

func g(index int, kind verbs.GIDType, addr string, bits int) gid {
	return gid{index: index, kind: kind, addr: netip.AddrFrom16(netip.MustParseAddr(addr).As16()), bits: bits}
}

// ethernet is a port as Soft-RoCE and RoCE NICs have it.
func ethernet(device string, gids ...gid) *port {
	return &port{device: device, number: 1, generation: 0xabc, link: verbs.LinkEthernet, state: verbs.PortActive, mtu: 4096, rate: 12_500_000_000, pkeys: []uint16{0xffff}, gids: gids}
}

func infiniband(device string, lid uint16, pkeys ...uint16) *port {
	return &port{device: device, number: 1, link: verbs.LinkInfiniBand, state: verbs.PortActive, mtu: 4096, lid: lid, smLID: 1, pkeys: pkeys,
		gids: []gid{g(0, verbs.GIDInfiniBand, "fe80::506b:4b03:1:2", 0)}}
}

func TestEndpointText(t *testing.T) {
	for _, c := range []struct {
		port *port
		text string
	}{
		{
			ethernet("mlx5_0", g(3, verbs.GIDRoCEv2, "10.0.0.1", 24), g(1, verbs.GIDRoCEv2, "fe80::1", 64), g(0, verbs.GIDRoCEv1, "fd00::1", 0)),
			"rdma1 mlx5_0/1 gen=abc link=eth state=active mtu=4096 rate=12500000000 pkeys=ffff gid=3/v2/10.0.0.1/24 gid=1/v2/fe80::1/64 gid=0/v1/fd00::1",
		},
		{
			infiniband("ib0", 7, 0x7fff, 0x8001),
			"rdma1 ib0/1 gen=0 link=ib state=active mtu=4096 lid=7 sm=1 pkeys=7fff,8001 gid=0/ib/fe80::506b:4b03:1:2",
		},
	} {
		if got := c.port.text(); got != c.text {
			t.Errorf("text\n%s, want\n%s", got, c.text)
		}
		back, err := parsePort(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
		} else if !reflect.DeepEqual(back, c.port) {
			t.Errorf("%q came back as %+v, want %+v", c.text, back, c.port)
		}
	}
}

func TestEndpointOfManyAddressesFits(t *testing.T) {
	p := ethernet(strings.Repeat("d", 63))
	for i := range 200 {
		p.gids = append(p.gids, g(i, verbs.GIDRoCEv2, "fd12:3456:789a:bcde:f012:3456:789a:bc"+string("0123456789abcdef"[i%16])+"0", 128))
		p.pkeys = append(p.pkeys, uint16(0x8000+i))
	}
	text := p.text()
	if len(text) > maxText {
		t.Errorf("%d bytes, want at most %d", len(text), maxText)
	}
	back, err := parsePort(text)
	if err != nil || len(back.gids) == 0 || len(back.pkeys) != maxPKeys {
		t.Errorf("%q came back as %+v, %v", text, back, err)
	}
}

func TestHostileEndpoints(t *testing.T) {
	const good = "rdma1 mlx5_0/1 gen=1 link=eth state=active mtu=4096"
	if _, err := parsePort(good + " later=1"); err != nil {
		t.Errorf("a word of a later version: %v", err)
	}
	for _, text := range []string{
		"", "rdma1", "rdma2 mlx5_0/1 link=eth state=active mtu=4096", "rdma1 mlx5_0 link=eth state=active mtu=4096",
		"rdma1 /1 link=eth state=active mtu=4096", "rdma1 a/0 link=eth state=active mtu=4096", "rdma1 a/256 link=eth state=active mtu=4096",
		"rdma1 a/1 state=active mtu=4096", "rdma1 a/1 link=eth mtu=4096", "rdma1 a/1 link=eth state=active",
		"rdma1 a\x00/1 link=eth state=active mtu=4096", "rdma1 " + strings.Repeat("a", 64) + "/1 link=eth state=active mtu=4096",
		good + " mtu=4096", good + " lid=70000", good + " lid", good + " gen=x", good + " rate=-1",
		good + " gid=1/v3/10.0.0.1", good + " gid=1/v2/10.0.0.1/33", good + " gid=1/v2/fe80::1%eth0", good + " gid=1/v2", good + " gid=99999/v2/::1",
		good + " pkeys=10000", good + " pkeys=", good + " link=ib", strings.Replace(good, "4096", "1500", 1), strings.Replace(good, "eth", "wifi", 1),
		good + strings.Repeat(" gid=1/v2/10.0.0.1", maxGIDs+1), good + " pkeys=1" + strings.Repeat(",1", maxPKeys), good + strings.Repeat(" ", maxText),
	} {
		if p, err := parsePort(text); err == nil {
			t.Errorf("%.80q was taken: %+v", text, p)
		}
	}
}

func FuzzEndpoint(f *testing.F) {
	f.Add("rdma1 mlx5_0/1 gen=abc link=eth state=active mtu=4096 rate=12500000000 pkeys=ffff gid=3/v2/10.0.0.1/24")
	f.Add("rdma1 ib0/1 gen=0 link=ib state=active mtu=4096 lid=7 sm=1 pkeys=7fff,8001 gid=0/ib/fe80::506b:4b03:1:2")
	local := []*port{ethernet("a", g(1, verbs.GIDRoCEv2, "10.0.0.1", 24)), infiniband("b", 3, 0xffff)}
	o, err := Options{}.withDefaults()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePort(text)
		if err != nil {
			return
		}
		back, err := parsePort(p.text())
		if err != nil {
			t.Fatalf("%q is %q, which is not taken: %v", text, p.text(), err)
		}
		if back.String() != p.String() || back.mtu != p.mtu || len(back.gids) > len(p.gids) {
			t.Errorf("%q: %+v came back as %+v", text, p, back)
		}
		for _, l := range local {
			if w, err := reach(l, p, &o, nil); err == nil && (w.mtu < 256 || w.mtu > 4096 || w.reason == "") {
				t.Errorf("%q: way %+v", text, w)
			}
		}
	})
}
