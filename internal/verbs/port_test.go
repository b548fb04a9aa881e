package verbs

import (
	"strings"
	"testing"
)

func TestMTUNumbers(t *testing.T) {
	for n := -1; n < 8; n++ {
		bytes := mtuBytes(n)
		if back, ok := mtuNumber(bytes); (n >= 1 && n <= 5) != ok || ok && back != n {
			t.Errorf("MTU %d is %d bytes, is %d, %v", n, bytes, back, ok)
		}
	}
	if mtuBytes(1) != 256 || mtuBytes(5) != 4096 {
		t.Error("256 to 4096")
	}
}

func TestPortRates(t *testing.T) {
	for _, c := range []struct {
		width, speed int
		gbit         int64
	}{{2, 4, 32}, {2, 32, 100}, {2, 64, 200}, {2, 128, 400}, {1, 32, 25}, {8, 32, 300}, {4, 128, 800}, {16, 64, 100}, {0, 32, 0}, {2, 0, 0}, {2, 3, 0}} {
		if got := portBytesPerSec(c.width, c.speed); got != c.gbit*1e9/8 {
			t.Errorf("width %d, speed %d: %d bytes/s, not %d Gbit/s", c.width, c.speed, got, c.gbit)
		}
	}
}

func TestParseGIDType(t *testing.T) {
	for _, c := range []struct {
		text string
		link LinkLayer
		want GIDType
		ok   bool
	}{
		{"RoCE v2\n", LinkEthernet, GIDRoCEv2, true}, {"IB/RoCE v1\n", LinkEthernet, GIDRoCEv1, true},
		{"IB/RoCE v1", LinkInfiniBand, GIDInfiniBand, true}, {"RoCE v3", LinkEthernet, 0, false}, {"", LinkEthernet, 0, false},
	} {
		got, err := parseGIDType(c.text, c.link)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: %d, %v", c.text, got, err)
		}
	}
	if interfaceIndex("lo\n") == 0 || interfaceIndex("") != 0 || interfaceIndex("topoctl-none") != 0 {
		t.Error("index of lo, and of none")
	}
}

func FuzzParseGIDType(f *testing.F) {
	f.Add("RoCE v2\n", uint8(2))
	f.Add("IB/RoCE v1\n", uint8(1))
	f.Fuzz(func(t *testing.T, text string, link uint8) {
		got, err := parseGIDType(text, LinkLayer(link))
		if err == nil && (got > GIDRoCEv2 || !strings.Contains(text, "RoCE")) {
			t.Errorf("%q is %d", text, got)
		}
		if err != nil && got != 0 {
			t.Errorf("%q: %d and %v", text, got, err)
		}
	})
}

// Words for people.
func TestNames(t *testing.T) {
	if a := (1<<4 | LocalWrite | RemoteRead).String(); a != "local read, local write, remote read, 0x10" {
		t.Error(a)
	}
	if QPState(9).String() != "QP state 9" || QPError.String() != "ERR" || QPReset.String() != "RESET" || QPInit.String() != "INIT" || QPRTS.String() != "RTS" {
		t.Error("states")
	}
}
