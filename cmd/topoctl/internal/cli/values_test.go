package cli

import (
	"slices"
	"testing"
)

func TestParsePart(t *testing.T) {
	for text, want := range map[string]float64{"85%": 0.85, "0.5": 0.5, "100%": 1, "2.5 %": 0.025, "1": 1} {
		if got, err := parsePart(text); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "%", "0", "0%", "101%", "1.5", "-5%", "NaN", "85", "x%", "Inf%"} {
		if got, err := parsePart(text); err == nil {
			t.Errorf("%q: took it as %v", text, got)
		}
	}
}

func TestParseOutlier(t *testing.T) {
	if got, err := parseOutlier("93%/2.1x"); err != nil || got != (outlier{0.93, 2.1}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "93%", "93%/", "93%/2.1", "93%/1x", "93%/NaNx", "0%/2x", "93%/x", "/2x", "93%/2x/3x"} {
		if got, err := parseOutlier(text); err == nil {
			t.Errorf("%q: took it as %v", text, got)
		}
	}
}

func TestParseSweep(t *testing.T) {
	for text, want := range map[string][]int64{
		"4KiB:64KiB:x4":    {4096, 16384, 65536},
		"4KiB:100KiB:x4":   {4096, 16384, 65536, 102400},
		"1MiB:1MiB:x2":     {1 << 20},
		"1:4:x1.0001":      {1, 2, 3, 4},
		"1000B:3000B:x1.5": {1000, 1500, 2250, 3000},
	} {
		if got, err := parseSweep(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "4KiB", "4KiB:64KiB", "4KiB:64KiB:4", "4KiB:64KiB:x1", "64KiB:4KiB:x2", "4KiB:64KiB:xNaN", "0:4:x2",
		"1:1GiB:x1.001", "4KiB:64KiB:x4:x4", "4KiB:64KiB:xInf"} {
		if got, err := parseSweep(text); err == nil {
			t.Errorf("%q: took it as %v", text, got)
		}
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]int64{"8Gb/s": 1e9, "1.25GB/s": 1.25e9, "1 MiB/s": 1 << 20, "80B/s": 80, "400 Gb/s": 50e9} {
		if got, err := parseRate(text); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "8", "8GB", "GB/s", "-8Gb/s", "0B/s", "NaNGB/s", "1e99GB/s"} {
		if got, err := parseRate(text); err == nil {
			t.Errorf("%q: took it as %v", text, got)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]int64{
		"1": 1, "4096B": 4096, "64KiB": 65536, "64 MiB": 64 << 20, "1.5GiB": 3 << 29, "1TiB": 1 << 40, "1kB": 1000, "1KB": 1000, "2MB": 2e6, "1GB": 1e9, "1TB": 1e12, "1PB": 1e15, "1PiB": 1 << 50, "1024TiB": 1 << 50,
	} {
		if got, err := parseBytes(s); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "0", "-1", "MiB", "1.5", "1.0001KiB", "2000TiB", "2PiB", "2PB", "1e999", "NaN", "Inf", "1 GiB x", "0x10"} {
		if got, err := parseBytes(s); err == nil {
			t.Errorf("%q is taken as %d", s, got)
		}
	}
}
