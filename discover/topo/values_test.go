package topo_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
)

func TestParseBDF(t *testing.T) {
	tests := []struct{ in, want string }{
		{"0000:1b:00.0", "0000:1b:00.0"},
		{"1B:1f.7", "0000:1b:1f.7"},
		{"00000000:13:00.0", "0000:13:00.0"}, // NVML
		{"10000:e1:00.0", "10000:e1:00.0"},   // VMD
		{"ffffffff:ff:1f.7", "ffffffff:ff:1f.7"},
		{"", ""}, {"0000:1b:00", ""}, {"0000:1b:00.8", ""}, {"0000:1b:20.0", ""}, {"0000:1b:0.0", ""},
		{"100000000:1b:00.0", ""}, {"0000:1b:00.0 ", ""}, {"0000:-1:00.0", ""}, {"0000:1g:00.0", ""}, {"a:b:c:d.0", ""},
	}
	for _, tt := range tests {
		got, err := topo.ParseBDF(tt.in)
		if (err != nil) != (tt.want == "") || err == nil && got.String() != tt.want {
			t.Errorf("ParseBDF(%q) = %v, %v; want %q", tt.in, got, err, tt.want)
		}
	}
}

func FuzzParseBDF(f *testing.F) {
	for _, s := range []string{"0000:1b:00.0", "1b:00.0", "10000:e1:00.0", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := topo.ParseBDF(s)
		if err != nil {
			return
		}
		again, err := topo.ParseBDF(b.String())
		if err != nil || again != b {
			t.Errorf("%q reads as %v, which reads as %v, %v", s, b, again, err)
		}
	})
}

func TestRateString(t *testing.T) {
	for rate, want := range map[topo.Rate]string{
		0: "0 GB/s", 50 * topo.GBPerSec: "50.0 GB/s", topo.PCIeRate(32000, 16): "63.0 GB/s", 20 * topo.MBPerSec: "20.0 MB/s",
	} {
		if got := rate.String(); got != want {
			t.Errorf("%d bytes/s print as %q, want %q", rate, got, want)
		}
	}
}

func TestPCIeRate(t *testing.T) {
	tests := []struct {
		speed, width int
		want         topo.Rate
	}{
		{2500, 1, 250_000_000},
		{5000, 16, 8_000_000_000},
		{8000, 16, 15_753_846_153},
		{16000, 16, 31_507_692_307},
		{32000, 16, 63_015_384_615},
		{64000, 16, 121_000_000_000},
		{0, 16, 0}, {32000, 0, 0}, {-1, 16, 0}, {1_000_001, 16, 0}, {32000, 33, 0}, {math.MaxInt, math.MaxInt, 0},
	}
	for _, tt := range tests {
		if got := topo.PCIeRate(tt.speed, tt.width); got != tt.want {
			t.Errorf("PCIeRate(%d, %d) = %d, want %d", tt.speed, tt.width, got, tt.want)
		}
	}
}

func TestClassText(t *testing.T) {
	for _, s := range []string{"X", "NV1", "NV18", "XGMI", "C2C", "PIX", "PXB", "PHB", "NODE", "SYS"} {
		c, err := topo.ParseClass(s)
		if err != nil || c.String() != s {
			t.Errorf("ParseClass(%q) = %v, %v", s, c, err)
		}
	}
	if c, err := topo.ParseClass("SOC"); err != nil || c.Kind != topo.ClassSYS {
		t.Errorf("SOC reads as %v, %v", c, err)
	}
	for _, s := range []string{"", "NV", "NV0", "NVx", "pix", "NV99999", "FOO"} {
		if c, err := topo.ParseClass(s); err == nil {
			t.Errorf("ParseClass(%q) = %v, want an error", s, c)
		}
	}
	data, err := json.Marshal([]topo.Class{{}, topo.NV(4)})
	if err != nil || string(data) != `[null,"NV4"]` {
		t.Errorf("JSON %s, %v", data, err)
	}
}

// Classes are totally ordered: near before far, more NVLinks first, unknown last.
func TestClassOrder(t *testing.T) {
	order := []topo.Class{{Kind: topo.ClassSelf}, topo.NV(18), topo.NV(4), {Kind: topo.ClassXGMI}, {Kind: topo.ClassC2C}, {Kind: topo.ClassPIX},
		{Kind: topo.ClassPXB}, {Kind: topo.ClassPHB}, {Kind: topo.ClassNODE}, {Kind: topo.ClassSYS}, {}}
	for i, a := range order {
		for j, b := range order {
			if got := a.Compare(b); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%q compared with %q: %d", a, b, got)
			}
		}
	}
}

func TestNaturalCompare(t *testing.T) {
	order := []string{"eth0", "mlx5_0", "mlx5_2", "mlx5_10", "mlx5_bond_0", "rxe0"}
	for i, a := range order {
		for j, b := range order {
			if got := topo.NaturalCompare(a, b); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%q compared with %q: %d", a, b, got)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.StringMatching(`[a0-2_]{0,6}`)
		a, b, c := gen.Draw(t, "a"), gen.Draw(t, "b"), gen.Draw(t, "c")
		if topo.NaturalCompare(a, b) != -topo.NaturalCompare(b, a) && sign(topo.NaturalCompare(a, b)) != -sign(topo.NaturalCompare(b, a)) {
			t.Fatalf("not antisymmetric: %q %q", a, b)
		}
		if topo.NaturalCompare(a, b) < 0 && topo.NaturalCompare(b, c) < 0 && topo.NaturalCompare(a, c) >= 0 {
			t.Fatalf("not transitive: %q %q %q", a, b, c)
		}
		if (topo.NaturalCompare(a, b) == 0) != (a == b) {
			t.Fatalf("equal only when equal: %q %q", a, b)
		}
	})
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

// Port names as the kernel's devlink_port_get_phys_port_name writes them: a physical port, the split
// part of one, and representors.
func TestPhysPortIsOwn(t *testing.T) {
	for port, want := range map[string]bool{
		"": true, "p0": true, "p0s1": true, "c": true, "pf0": false, "pf0vf3": false, "pf1sf88": false, "c1pf0": false, "c1pf0sf88": false,
	} {
		if n := (topo.Netdev{PhysPort: port}); n.PhysPortIsOwn() != want {
			t.Errorf("%q: %v", port, !want)
		}
	}
}

// Documents written before have other names for two bases.
func TestFormerNamesOfBases(t *testing.T) {
	var got []topo.Basis
	if err := json.Unmarshal([]byte(`["measured","read","assumed","bound","constant","typical","unknown"]`), &got); err != nil {
		t.Fatal(err)
	}
	want := []topo.Basis{topo.BasisMeasured, topo.BasisRead, topo.BasisBound, topo.BasisBound, topo.BasisTypical, topo.BasisTypical, topo.BasisUnknown}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
