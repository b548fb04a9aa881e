package session

import (
	"fmt"
	"net"
	"testing"
)

// flood is strangers that come at a rate, in virtual time, and go only when they make room.
type flood struct {
	name   string
	perSec int
	stage  stage // that they reach at once
	held   stage // that of so many before they come
	addrs  int
	atOnce float64 // of good peers that get in by the first try, at least
	atLast float64 // by the tries that a dialler makes
}

// A good peer that comes through the flood gets in: from the address of the flood, however fast
// that is, and whether the strangers say something or not.
func TestFlood(t *testing.T) {
	const slots, peers = 128, 100
	for _, f := range []flood{
		{"silent", 4_500, silent, silent, 1, 1, 1},
		{"silent, from many addresses", 4_500, silent, silent, 40_000, 1, 1},
		{"silent, beside others that have spoken", 4_500, silent, speaking, 1, 0.98, 1},
		{"silent, beside TLS connections", 4_500, silent, secure, 1, 0.98, 1},
		{"speaking", 4_500, speaking, speaking, 1, 0.3, 0.97},
		{"speaking, from many addresses", 4_500, speaking, speaking, 40_000, 0.3, 0.97},
		{"TLS connections", 500, secure, secure, 1, 0.3, 0.97},
	} {
		w := crowd{by: map[net.Conn]*comer{}}
		strangers := 0
		come := func(c net.Conn) {
			if len(w.by) >= slots {
				delete(w.by, w.crowding(addressOf(c)).conn)
			}
			w.add(c)
		}
		stranger := func(reached stage) {
			strangers++
			c := &located{at: fmt.Sprintf("10.0.%d.%d", strangers%f.addrs/250, strangers%f.addrs%250)}
			come(c)
			w.by[c].stage = reached
		}
		for range slots {
			stranger(f.held)
		}
		// A good peer of an address that strangers use, too: what it reaches, and when.
		tries := func() int {
			for try := 1; ; try++ {
				good := &located{at: "10.0.0.0"}
				come(good)
				clock := 0 // in microseconds
				for _, next := range []struct {
					at int
					stage
				}{{1_000, speaking}, {4_000, secure}, {8_000, proven}, {12_000, proven}} {
					for ; clock < next.at; clock += 1_000_000 / f.perSec {
						stranger(f.stage)
					}
					if x := w.by[good]; x != nil {
						x.stage = next.stage
					}
				}
				if w.by[good] != nil || try > maxBusyRetries {
					if w.by[good] == nil {
						try++
					}
					delete(w.by, good)
					return try
				}
			}
		}
		first, all := 0, 0
		for range peers {
			n := tries()
			if n == 1 {
				first++
			}
			if n <= maxBusyRetries+1 {
				all++
			}
		}
		t.Logf("%s: %d of %d at once, %d by all tries", f.name, first, peers, all)
		if float64(first) < f.atOnce*peers || float64(all) < f.atLast*peers {
			t.Errorf("%s: %d of %d get in at once, %d by all tries", f.name, first, peers, all)
		}
	}
}

// One host has all addresses of a network of IPv6, if it wants to.
func TestAddressOfIPv6(t *testing.T) {
	for at, want := range map[string]string{
		"10.0.0.7": "10.0.0.7", "::ffff:10.0.0.7": "10.0.0.7",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "2001:db8:1:2::9": "2001:db8:1:2::/64", "2001:db8:1:3::9": "2001:db8:1:3::/64",
	} {
		if got := addressOf(&located{at: at}); string(got) != want {
			t.Errorf("%s: %q, want %q", at, got, want)
		}
	}
}
