package route

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// docker is a host as they are: a bridge of containers first, a management
// interface with the default route, two for data, a link-local address.
func docker() Host {
	addr := netip.MustParseAddr
	routes := []struct{ to, from string }{
		{"172.17.0.0/16", "172.17.0.1"}, {"192.168.1.0/24", "192.168.1.7"}, {"10.0.0.0/24", "10.0.0.2"}, {"10.0.1.0/24", "10.0.1.2"},
		{"2001:db8:1::/64", "2001:db8:1::2"}, {"fe80::/10", "fe80::2%eth2"}, {"10.9.0.0/16", "10.0.1.2"}, {"0.0.0.0/0", "192.168.1.7"},
	}
	return Host{
		Addresses: []Address{{"lo", addr("127.0.0.1")}, {"lo", addr("::1")}, {"docker0", addr("172.17.0.1")}, {"eth0", addr("192.168.1.7")},
			{"eth2", addr("10.0.0.2")}, {"eth2", addr("fe80::2%eth2")}, {"eth3", addr("10.0.1.2")}, {"eth3", addr("2001:db8:1::2")}},
		Source: func(peer netip.Addr) (netip.Addr, error) {
			for _, r := range routes {
				if netip.MustParsePrefix(r.to).Contains(peer.WithZone("")) {
					return addr(r.from), nil
				}
			}
			return netip.Addr{}, errors.New("network is unreachable")
		},
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			switch host {
			case "n1":
				return []netip.Addr{addr("10.66.0.1"), addr("10.0.1.2")}, nil
			case "balancer":
				return []netip.Addr{addr("10.66.0.1")}, nil
			case "local":
				return []netip.Addr{addr("127.0.1.1")}, nil
			case "empty":
				return nil, nil
			}
			return nil, errors.New("no such host")
		},
	}
}

// dataPorts are the ports of docker's host.
func dataPorts() []pathsel.Port {
	prefix := netip.MustParsePrefix
	down := topo.Rate(0)
	return []pathsel.Port{
		{Index: 0, ID: "net:eth0", Name: "eth0", Addresses: []netip.Prefix{prefix("192.168.1.7/24")}},
		{Index: 1, ID: "net:eth1", Name: "eth1", Addresses: []netip.Prefix{prefix("10.0.7.2/24")}, BytesPerSec: &down},
		{Index: 2, ID: "net:eth3", Name: "eth3", Usable: true, Addresses: []netip.Prefix{prefix("10.0.1.2/24"), prefix("2001:db8:1::2/64")}},
		{Index: 3, ID: "port:mlx5_0/1", Name: "mlx5_0", Usable: true, Addresses: []netip.Prefix{prefix("10.0.0.2/24"), prefix("fe80::2/64")}},
	}
}

func listen(addrs ...string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range addrs {
		out = append(out, netip.MustParseAddrPort(a))
	}
	return out
}

const wildcard = "0.0.0.0:7411"

func TestAdvertise(t *testing.T) {
	for _, tt := range []struct {
		name    string
		listen  []netip.AddrPort
		want    string // --advertise
		ports   bool
		answer  string
		because string // in the reason and the warnings, in that order; or in the error
	}{
		// The engine chooses.
		{"a data port", listen(wildcard), "", true, "10.0.1.2:7411", "eth3 is a port for data"},
		{"the wildcard of IPv6 takes IPv4", listen("[::]:7411"), "", true, "10.0.1.2:7411", "eth3 is a port for data"},
		{"the default route", listen(wildcard), "", false, "192.168.1.7:7411", "the default route leaves by eth0"},
		{"what is bound", listen("127.0.0.1:1", "10.0.0.2:7411"), "", true, "10.0.0.2:7411", "bound to 10.0.0.2"},
		{"nothing but loopback", listen("127.0.0.1:7411"), "", true, "127.0.0.1:7411", "peers of this host only"},
		{"IPv6 by data port", listen("[2001:db8:1::2]:7411"), "", true, "[2001:db8:1::2]:7411", "bound to"},

		// What the user says.
		{"an address", listen(wildcard), "10.0.1.2", false, "10.0.1.2:7411", `advertise "10.0.1.2" is given`},
		{"an address and a port", listen(wildcard), "10.0.1.2:7411", false, "10.0.1.2:7411", "is given"},
		{"a mapped port", listen(wildcard), "10.0.1.2:9000", false, "10.0.1.2:9000", "is given; nothing listens at 10.0.1.2:9000"},
		{"a mapped address", listen(wildcard), "203.0.113.5:9000", false, "203.0.113.5:9000", "is given; 203.0.113.5 is not an address of this host: right only where something forwards"},
		{"ours, and nothing listens there", listen("10.0.0.2:7411"), "10.0.1.2", false, "10.0.1.2:7411", "is given; nothing listens at 10.0.1.2:7411"},
		{"IPv6", listen("[::]:7411"), "2001:db8:1::2", false, "[2001:db8:1::2]:7411", "is given"},
		{"the wildcard of IPv4 takes no IPv6", listen(wildcard), "2001:db8:1::2", false, "[2001:db8:1::2]:7411", "is given; nothing listens at [2001:db8:1::2]:7411"},
		{"IPv6 in brackets", listen("[::]:7411"), "[2001:db8:1::2]", false, "[2001:db8:1::2]:7411", "is given"},
		{"IPv6 with a port", listen("[::]:7411"), "[2001:db8:1::2]:7411", false, "[2001:db8:1::2]:7411", "is given"},
		{"the port of the listener that has it", listen("10.0.0.2:7411", "10.0.1.2:7412"), "10.0.1.2", false, "10.0.1.2:7412", "is given"},
		{"which of two ports", listen("10.0.0.2:7411", "10.0.1.2:7412"), "203.0.113.5", false, "", "the listeners have several ports (7411, 7412): give host:port"},
		{"a name, one address is ours", listen(wildcard), "n1:7411", false, "n1:7411", "is given"},
		{"a name of somebody else", listen(wildcard), "balancer", false, "balancer:7411", "is given; 10.66.0.1 is not an address of this host"},
		{"a name for loopback, as Debian has it", listen(wildcard), "local", false, "local:7411", "is given; 127.0.1.1 is for peers of this host only"},
		{"no such name", listen(wildcard), "n7", false, "", `advertise "n7": no such host: give an address`},
		{"a name without address", listen(wildcard), "empty", false, "", "the name has no address"},
		{"a wildcard", listen(wildcard), "0.0.0.0", false, "", "0.0.0.0 is not an address of a host"},
		{"link-local", listen("[::]:7411"), "[fe80::2%eth2]:7411", false, "", "fe80::2%eth2 is link-local"},
		{"port 0", listen(wildcard), "10.0.1.2:0", false, "", `port "0": want 1 to 65535`},
		{"no host", listen(wildcard), ":7411", false, "", "want host or host:port"},
		{"no brackets", listen(wildcard), "a:b:7411", false, "", "with an IPv6 address in brackets"},
		{"nothing listens", nil, "", false, "", "nothing listens"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := Query{Listen: tt.listen, Want: tt.want}
			if tt.ports {
				q.Ports = dataPorts()
			}
			c, err := Advertise(t.Context(), docker(), q)
			if tt.answer == "" {
				if err == nil || !strings.Contains(err.Error(), tt.because) {
					t.Fatalf("%+v, %v: want %q", c, err, tt.because)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(append([]string{c.Reason}, c.Warnings...), "; "); c.String() != tt.answer || !strings.Contains(got, tt.because) {
				t.Errorf("%s because %s\nwant %s because %s", c, got, tt.answer, tt.because)
			}
			if len(c.Warnings) > 0 != (strings.Contains(tt.because, "given;")) {
				t.Errorf("warnings %v", c.Warnings)
			}
		})
	}
}

// A host without any network serves itself.
func TestAdvertiseWithoutNetwork(t *testing.T) {
	h := Host{Addresses: []Address{{"lo", netip.MustParseAddr("127.0.0.1")}}, Source: func(netip.Addr) (netip.Addr, error) { return netip.Addr{}, errors.New("unreachable") }}
	c, err := Advertise(t.Context(), h, Query{Listen: listen(wildcard)})
	if err != nil || c.String() != "127.0.0.1:7411" {
		t.Errorf("%v, %v", c, err)
	}
	if _, err = Advertise(t.Context(), h, Query{Listen: listen("[fe80::1]:7411")}); err == nil || !strings.Contains(err.Error(), "--advertise") {
		t.Errorf("%v", err)
	}
	// Interfaces that are known though no route tells.
	h.Addresses = append(h.Addresses, Address{"eth9", netip.MustParseAddr("fe80::1%eth9")}, Address{"eth9", netip.MustParseAddr("10.0.9.1")})
	if c, err = Advertise(t.Context(), h, Query{Listen: listen(wildcard)}); err != nil || c.String() != "10.0.9.1:7411" || !strings.Contains(c.Reason, "eth9 is the first interface") {
		t.Errorf("%v, %v", c, err)
	}
}

// What the lanes' peers dial.
func TestEndpoints(t *testing.T) {
	for _, tt := range []struct {
		name   string
		listen []netip.AddrPort
		want   string
	}{
		{"everything", listen("[::]:7411"), "net:eth0 192.168.1.7:7411, net:eth3 10.0.1.2:7411, net:eth3 [2001:db8:1::2]:7411, port:mlx5_0/1 10.0.0.2:7411, - 127.0.0.1:7411, - [::1]:7411"},
		{"IPv4", listen(wildcard), "net:eth0 192.168.1.7:7411, net:eth3 10.0.1.2:7411, port:mlx5_0/1 10.0.0.2:7411, - 127.0.0.1:7411"},
		{"loopback", listen("127.0.0.1:7411"), "- 127.0.0.1:7411"},
		{"an odd loopback address", listen("127.0.0.9:7411"), "- 127.0.0.9:7411"},
		{"two, one of no port", listen("10.0.0.2:7411", "172.17.0.1:7412"), "port:mlx5_0/1 10.0.0.2:7411, - 172.17.0.1:7412"},
		{"one that is down", listen("10.0.7.2:7411"), ""},
		{"link-local", listen("[fe80::2%eth2]:7411"), ""},
		{"twice", listen("10.0.0.2:7411", "10.0.0.2:7411"), "port:mlx5_0/1 10.0.0.2:7411"},
		{"nothing", nil, ""},
	} {
		var got []string
		for _, e := range Endpoints(tt.listen, dataPorts()) {
			port := string(e.Port)
			if port == "" {
				port = "-"
			}
			got = append(got, port+" "+e.Address)
			if e.Transport != "tcp" {
				t.Errorf("%s: %+v", tt.name, e)
			}
		}
		if s := strings.Join(got, ", "); s != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, s, tt.want)
		}
	}
}
