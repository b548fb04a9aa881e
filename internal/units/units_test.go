package units

import (
	"math"
	"testing"
)

func TestRate(t *testing.T) {
	tests := []struct {
		bytesPerSec int64
		system      System
		want        string
	}{
		{50_000_000_000, Gbit, "400 Gb/s"},
		{50_000_000_000, Gbyte, "50.0 GB/s"},
		{50_000_000_000, Auto, "50.0 GB/s"},
		{50_000_000_000, "", "50.0 GB/s"},
		{50_000_000_000, Gibyte, "46.6 GiB/s"},
		{63_015_384_615, Gbyte, "63.0 GB/s"},
		{63_015_384_615, Gbit, "504.1 Gb/s"},
		{312_500_000, Gbit, "2.5 Gb/s"},
		{312_500_000, Gbyte, "0.31 GB/s"},
		{12_500_000, Gbit, "0.1 Gb/s"},
		{12_499_999, Gbit, "100 Mb/s"},
		{1_237_500, Gbit, "9.9 Mb/s"},
		{1_250_000, Gbyte, "1.2 MB/s"},
		{1_310_720, Gibyte, "1.2 MiB/s"},
		{125, Gbit, "1 kb/s"},
		{11, Gbit, "88 b/s"},
		{1, Gbyte, "1.0 B/s"},
		{1, Gibyte, "1.0 B/s"},
		{-1_237_500, Gbit, "-9.9 Mb/s"},
		{0, Gbit, "0 Gb/s"},
		{999_999_999, Gbyte, "1.0 GB/s"},
		{-50_000_000_000, Gbyte, "-50.0 GB/s"},
		{math.MaxInt64, Gbyte, "9223372036.9 GB/s"},
	}
	for _, tt := range tests {
		if got := Rate(tt.bytesPerSec, tt.system); got != tt.want {
			t.Errorf("Rate(%d, %q) = %q, want %q", tt.bytesPerSec, tt.system, got, tt.want)
		}
	}
}

func TestBytes(t *testing.T) {
	tests := []struct {
		n    int64
		want string
	}{
		{0, "0 B"},
		{1023, "1023 B"},
		{1024, "1 KiB"},
		{1536, "1.5 KiB"},
		{1<<20 - 1, "1 MiB"},
		{80 << 30, "80 GiB"},
		{1_082_331_758_592, "1008 GiB"},
		{2 << 40, "2 TiB"},
		{math.MaxInt64, "8 EiB"},
		{-(80 << 30), "-80 GiB"},
	}
	for _, tt := range tests {
		if got := Bytes(tt.n); got != tt.want {
			t.Errorf("Bytes(%d) = %q, want %q", tt.n, got, tt.want)
		}
	}
}

func TestPCIe(t *testing.T) {
	tests := []struct {
		speedMTs, width int
		want            string
	}{
		{32000, 16, "gen5 x16"},
		{2500, 1, "gen1 x1"},
		{3125, 8, "3.125GT/s x8"},
		{0, 8, "gen? x8"},
		{16000, 0, "gen4 x?"},
		{0, 0, ""},
	}
	for _, tt := range tests {
		if got := PCIe(tt.speedMTs, tt.width); got != tt.want {
			t.Errorf("PCIe(%d, %d) = %q, want %q", tt.speedMTs, tt.width, got, tt.want)
		}
	}
}

func TestParseSystem(t *testing.T) {
	for _, name := range Systems() {
		if s, err := ParseSystem(name); err != nil || string(s) != name {
			t.Errorf("ParseSystem(%q) = %q, %v", name, s, err)
		}
	}
	for _, name := range []string{"", "GBIT", "mbit", "gbyte "} {
		if _, err := ParseSystem(name); err == nil {
			t.Errorf("ParseSystem(%q) was accepted", name)
		}
	}
}
