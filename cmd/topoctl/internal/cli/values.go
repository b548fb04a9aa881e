package cli

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// parsePart reads a part such as "2.5%" or "0.025".
func parsePart(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v > 0 && v <= 1) {
		return 0, fmt.Errorf("%q: want a percentage or fraction above 0 and up to 100%%, such as 85%% or 0.85", s)
	}
	return v, nil
}

// outlier are the bounds of outliers: a part of the best rate of equals, and a multiple of their smallest latency.
type outlier struct{ Under, Over float64 }

// parseOutlier reads such bounds: "93%/2.1x".
func parseOutlier(s string) (o outlier, err error) {
	part, multiple, both := strings.Cut(s, "/")
	if o.Under, err = parsePart(part); err == nil && both {
		number, times := strings.CutSuffix(multiple, "x")
		o.Over, err = strconv.ParseFloat(number, 64)
		if err == nil && (!times || !(o.Over > 1 && o.Over <= 1000)) {
			err = strconv.ErrRange
		}
	}
	if err != nil || !both {
		return outlier{}, fmt.Errorf("%q: want a percentage and a multiple, such as 93%%/2.1x", s)
	}
	return o, nil
}

// mostSizes bounds a sweep.
const mostSizes = 64

// parseSweep reads sizes from one to another by a factor, "4KiB:256MiB:x4". The last
// size is always one of them.
func parseSweep(s string) ([]int64, error) {
	bad := func() ([]int64, error) {
		return nil, fmt.Errorf("%q: want FROM:TO:xFACTOR, such as 4KiB:256MiB:x4", s)
	}
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return bad()
	}
	from, err := parseBytes(parts[0])
	if err != nil {
		return nil, err
	}
	to, err := parseBytes(parts[1])
	if err != nil {
		return nil, err
	}
	factor, err := strconv.ParseFloat(strings.TrimPrefix(parts[2], "x"), 64)
	if err != nil || !strings.HasPrefix(parts[2], "x") || !(factor > 1 && factor <= maxBytes) || to < from {
		return bad()
	}
	var out []int64
	for v := float64(from); int64(v) < to; v = math.Max(v*factor, math.Floor(v)+1) {
		if out = append(out, int64(v)); len(out) == mostSizes {
			return nil, fmt.Errorf("%q: more than %d sizes", s, mostSizes)
		}
	}
	return append(out, to), nil
}

// unit is a unit of a rate or a size.
type unit struct {
	name   string
	factor float64
}

// rateUnits are bits and bytes a second, byteUnits bytes; the longer ones come first where one ends in the other.
var (
	rateUnits = []unit{
		{"Tb/s", 1e12 / 8}, {"Gb/s", 1e9 / 8}, {"Mb/s", 1e6 / 8}, {"kb/s", 1e3 / 8},
		{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"kB/s", 1e3},
		{"GiB/s", 1 << 30}, {"MiB/s", 1 << 20}, {"KiB/s", 1 << 10}, {"B/s", 1},
	}
	byteUnits = []unit{
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50},
		{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15}, {"B", 1},
	}
)

// maxBytes bounds a size: 1 PiB.
const maxBytes = 1 << 50

// inUnits reads a number that may have a unit behind it. It returns NaN for anything else.
func inUnits(s string, units []unit) (v float64, given bool) {
	factor := 1.0
	if i := slices.IndexFunc(units, func(u unit) bool { return strings.HasSuffix(s, u.name) }); i >= 0 {
		s, factor, given = strings.TrimSuffix(s, units[i].name), units[i].factor, true
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		return math.NaN(), given
	}
	return v * factor, given
}

// parseRate reads a rate such as "10Gb/s" or "1.2 GB/s" as bytes a second.
func parseRate(s string) (int64, error) {
	v, given := inUnits(s, rateUnits)
	if !given || !(v >= 1 && v <= maxBytes) {
		return 0, fmt.Errorf("%q: want a rate, such as 10Gb/s or 1.25GB/s", s)
	}
	return int64(v), nil
}

// parseBytes reads a size such as "64MiB", "1.5 GB" or "4096".
func parseBytes(s string) (int64, error) {
	v, _ := inUnits(s, byteUnits)
	if !(v >= 1 && v <= maxBytes) || v != math.Trunc(v) {
		return 0, fmt.Errorf("%q: want a size from 1 byte to 1 PiB, such as 64MiB or 1GB", s)
	}
	return int64(v), nil
}

// bytesOrNone reads a size, or 0 for none.
func bytesOrNone(s string) (int64, error) {
	if s == "0" {
		return 0, nil
	}
	n, err := parseBytes(s)
	if err != nil {
		return 0, fmt.Errorf("%w, or 0 for none", err)
	}
	return n, nil
}

// partText is a part as it is typed: "2.5%".
func partText(v float64) string { return fmt.Sprintf("%g%%", float64(int64(v*1e6+0.5))/1e4) }

// sizeText is a size as it is typed: "1MiB".
func sizeText(n int64) string {
	for _, u := range byteUnits {
		if f := int64(u.factor); n >= f && n%f == 0 {
			if text := fmt.Sprintf("%d%s", n/f, u.name); n/f < 1<<10 {
				return text
			}
		}
	}
	return cmp.Or(fmt.Sprint(n), "0")
}
