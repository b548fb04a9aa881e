package rdma

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/verbs"
)

const (
	v1 = verbs.GIDRoCEv1
	v2 = verbs.GIDRoCEv2
)

func TestReachOverEthernet(t *testing.T) {
	yes := func(gid, netip.Addr) (bool, bool) { return true, true }
	no := func(gid, netip.Addr) (bool, bool) { return false, true }
	linkLocal := func(i int) gid { return g(i, v2, "fe80::1:2", 64) }
	for _, c := range []struct {
		name         string
		here, there  []gid
		route        routed
		o            Options
		local, other int // indices that are chosen
		maybe        bool
		says         string // reason, or error where local is -1
	}{
		{"v2 before v1", []gid{g(2, v1, "10.0.0.1", 24), g(3, v2, "10.0.0.1", 24)}, []gid{g(4, v1, "10.0.0.2", 24), g(5, v2, "10.0.0.2", 24)}, nil, Options{}, 3, 5, false, "RoCE v2, 10.0.0.1 to 10.0.0.2: same subnet (/24)"},
		{"an address before link-local", []gid{linkLocal(0), g(1, v2, "10.0.0.1", 24)}, []gid{linkLocal(0), g(1, v2, "10.0.0.2", 24)}, nil, Options{}, 1, 1, false, "same subnet"},
		{"same subnet before routed", []gid{g(1, v2, "10.0.1.1", 24), g(2, v2, "10.0.2.1", 24)}, []gid{g(7, v2, "10.0.2.9", 24)}, yes, Options{}, 2, 7, false, "same subnet"},
		{"routed", []gid{g(1, v2, "10.0.1.1", 24)}, []gid{g(1, v2, "10.0.2.1", 24)}, yes, Options{}, 1, 1, true, "has a route from that interface"},
		{"not known whether routed", []gid{g(1, v2, "10.0.1.1", 24)}, []gid{g(1, v2, "10.0.2.1", 24)}, nil, Options{}, 1, 1, true, "may be routed"},
		{"subnets not known", []gid{g(1, v2, "10.0.1.1", 0)}, []gid{g(1, v2, "10.0.2.1", 0)}, nil, Options{}, 1, 1, true, "subnets are not known"},
		{"the peer's prefix is enough", []gid{g(1, v2, "10.0.1.1", 0)}, []gid{g(1, v2, "10.0.1.2", 24)}, nil, Options{}, 1, 1, false, "same subnet"},
		{"no route", []gid{linkLocal(0), g(1, v2, "10.0.1.1", 24)}, []gid{linkLocal(0), g(1, v2, "10.0.2.1", 24)}, no, Options{}, -1, 0, false, "no route leads there"},
		{"only link-local", []gid{linkLocal(0)}, []gid{g(0, v2, "fe80::3:4", 64), g(1, v2, "10.0.0.2", 24)}, nil, Options{}, 0, 0, true, "link-local"},
		{"v1 in one subnet", []gid{g(1, v1, "10.0.0.1", 24)}, []gid{g(1, v1, "10.0.0.2", 24)}, nil, Options{}, 1, 1, false, "RoCE v1"},
		{"v1 is not routed", []gid{g(1, v1, "10.0.0.1", 24)}, []gid{g(1, v1, "10.0.1.2", 24)}, yes, Options{}, -1, 0, false, "RoCE v1 does not cross"},
		{"v1 and v2", []gid{g(1, v1, "10.0.0.1", 24)}, []gid{g(1, v2, "10.0.0.2", 24)}, nil, Options{}, -1, 0, false, "RoCE v1 here, v2 there"},
		{"IPv6", []gid{g(2, v2, "fd00:1::1", 64)}, []gid{g(2, v2, "fd00:1::2", 64)}, nil, Options{}, 2, 2, false, "fd00:1::1 to fd00:1::2: same subnet (/64)"},
		{"IPv4 and IPv6", []gid{g(2, v2, "fd00:1::1", 64)}, []gid{g(2, v2, "10.0.0.1", 24)}, nil, Options{}, -1, 0, false, "different kinds"},
		{"the index that is wanted", []gid{g(1, v2, "10.0.0.1", 24), g(3, v2, "10.0.0.3", 24)}, []gid{g(1, v2, "10.0.0.2", 24)}, nil, Options{GIDIndex: new(3)}, 3, 1, false, "10.0.0.3"},
		{"a wrong index", []gid{g(1, v2, "10.0.0.1", 24)}, []gid{g(1, v2, "10.0.0.2", 24)}, nil, Options{GIDIndex: new(5)}, -1, 0, false, "GID index 5, set in the options, is not in use"},
		{"no GID here", nil, []gid{g(1, v2, "10.0.0.2", 24)}, nil, Options{}, -1, 0, false, "our port has no GID"},
		{"no GID there", []gid{g(1, v2, "10.0.0.2", 24)}, nil, nil, Options{}, -1, 0, false, "the peer's port has no GID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := c.o.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			w, err := reach(ethernet("here", c.here...), ethernet("there", c.there...), &o, c.route)
			if c.local < 0 {
				if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "here/1 does not reach the peer's there/1") {
					t.Errorf("%+v, %v: want an error with %q", w, err, c.says)
				}
				return
			}
			if err != nil || !w.global || w.local.index != c.local || w.remote.index != c.other || w.maybe != c.maybe || !strings.Contains(w.reason, c.says) {
				t.Errorf("%+v, %v: want %d to %d, maybe %v, %q", w, err, c.local, c.other, c.maybe, c.says)
			}
		})
	}
}

func TestReachOverInfiniBand(t *testing.T) {
	other := infiniband("there", 9, 0xffff)
	other.gids[0] = g(0, verbs.GIDInfiniBand, "fec0::9", 0)
	noLID := infiniband("there", 0, 0xffff)
	bare := infiniband("there", 0, 0xffff)
	bare.gids = nil
	for _, c := range []struct {
		name        string
		here, there *port
		o           Options
		want        way // index and key, global
		says        string
		fails       bool
	}{
		{"by LID", infiniband("here", 7, 0xffff), infiniband("there", 9, 0xffff), Options{}, way{pkey: 0xffff}, "LID 7 to 9", false},
		{"full and limited", infiniband("here", 7, 0, 0xffff, 0x8005), infiniband("there", 9, 0x0005), Options{}, way{pkeyIndex: 2, pkey: 0x8005}, "partition 0x8005", false},
		{"both limited", infiniband("here", 7, 0x0005), infiniband("there", 9, 0x0005), Options{}, way{}, "both are limited members", true},
		{"no partition", infiniband("here", 7, 0x8005), infiniband("there", 9, 0x8006), Options{}, way{}, "no partition in common", true},
		{"key index that is wanted", infiniband("here", 7, 0xffff, 0x8005), infiniband("there", 9, 0xffff, 0x8005), Options{PKeyIndex: new(1)}, way{pkeyIndex: 1, pkey: 0x8005}, "0x8005", false},
		{"key index without use", infiniband("here", 7, 0xffff, 0x8005), infiniband("there", 9, 0xffff), Options{PKeyIndex: new(1)}, way{}, "index 1, set in the options", true},
		{"another subnet", infiniband("here", 7, 0xffff), other, Options{}, way{}, "subnet prefix fe80000000000000 here, fec0000000000000 there", true},
		{"by GID", infiniband("here", 7, 0xffff), noLID, Options{}, way{global: true, pkey: 0xffff}, "by GID", false},
		{"neither", infiniband("here", 7, 0xffff), bare, Options{}, way{}, "subnet manager", true},
		{"another link layer", infiniband("here", 7, 0xffff), ethernet("there"), Options{}, way{}, "ours is InfiniBand, the peer's Ethernet", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := c.o.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			w, err := reach(c.here, c.there, &o, nil)
			if c.fails {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%+v, %v: want an error with %q", w, err, c.says)
				}
				return
			}
			if err != nil || w.global != c.want.global || w.pkeyIndex != c.want.pkeyIndex || w.pkey != c.want.pkey || !strings.Contains(w.reason, c.says) {
				t.Errorf("%+v, %v: want %+v, %q", w, err, c.want, c.says)
			}
		})
	}
}

func TestReachNeedsActivePortsAndTakesTheLowerMTU(t *testing.T) {
	o, err := Options{MTU: 2048}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	here, there := ethernet("here", g(1, v2, "10.0.0.1", 24)), ethernet("there", g(1, v2, "10.0.0.2", 24))
	if w, err := reach(here, there, &o, nil); err != nil || w.mtu != 2048 {
		t.Errorf("%+v, %v: want the options' MTU", w, err)
	}
	there.mtu = 1024
	if w, err := reach(here, there, &o, nil); err != nil || w.mtu != 1024 {
		t.Errorf("%+v, %v: want the peer's MTU", w, err)
	}
	there.state = verbs.PortDown
	if _, err := reach(here, there, &o, nil); err == nil || !strings.Contains(err.Error(), "the peer's port is down") {
		t.Errorf("a peer's port that is down: %v", err)
	}
	here.state = verbs.PortInit
	if _, err := reach(here, there, &o, nil); err == nil || !strings.Contains(err.Error(), "our port is init") {
		t.Errorf("our port is not active: %v", err)
	}
}

func TestOptions(t *testing.T) {
	o, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if o.RetryCount != 6 || o.QueuePairs != 2 || o.Timeout != 17 || o.MTU != 4096 || o.GIDIndex != nil {
		t.Errorf("defaults %+v", o)
	}
	for _, c := range []struct {
		o    Options
		says string
	}{
		{Options{RetryCount: 7}, "retry count 7: want 1 to 6: 7 is for ever"},
		{Options{RNRRetry: 7}, "RNR retry count 7"},
		{Options{Timeout: 32}, "timeout exponent 32"},
		{Options{ServiceLevel: 16}, "service level 16"},
		{Options{QueuePairs: 17}, "queue pairs of a lane 17"},
		{Options{QueuePairs: 4, MaxQueuePairs: 3}, "queue pairs of all lanes 3: want 4"},
		{Options{Depth: 1}, "depth 1"},
		{Options{Reads: 256}, "READs at a time 256"},
		{Options{MTU: 1500}, "MTU 1500"},
		{Options{KeepAlive: -1}, "keep-alive time"},
		{Options{Devices: []string{"a/b"}}, `device "a/b"`},
		{Options{GIDIndex: new(-2)}, "GID index -2"},
	} {
		if _, err := c.o.withDefaults(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.says)
		}
	}
}
