package cli

import (
	"fmt"
	"math"
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
		return 0, fmt.Errorf("%q: want a part above 0 and up to 100%%, such as 85%% or 0.85", s)
	}
	return v, nil
}

// parseOutlier reads the two bounds of outliers, "93%/2.1x": a part of the best rate
// of equals, and a multiple of their smallest latency.
func parseOutlier(s string) (under, over float64, err error) {
	part, multiple, both := strings.Cut(s, "/")
	if under, err = parsePart(part); err == nil && both {
		number, times := strings.CutSuffix(multiple, "x")
		over, err = strconv.ParseFloat(number, 64)
		if err == nil && (!times || !(over > 1 && over <= 1000)) {
			err = strconv.ErrRange
		}
	}
	if err != nil || !both {
		return 0, 0, fmt.Errorf("%q: want a part and a multiple, such as 93%%/2.1x", s)
	}
	return under, over, nil
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

// rateUnits are the units of a rate: bits and bytes a second.
var rateUnits = []struct {
	name   string
	factor float64
}{
	{"Tb/s", 1e12 / 8}, {"Gb/s", 1e9 / 8}, {"Mb/s", 1e6 / 8}, {"kb/s", 1e3 / 8},
	{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"kB/s", 1e3},
	{"GiB/s", 1 << 30}, {"MiB/s", 1 << 20}, {"KiB/s", 1 << 10}, {"B/s", 1},
}

// parseRate reads a rate such as "10Gb/s" or "1.2 GB/s" as bytes a second.
func parseRate(s string) (int64, error) {
	for _, u := range rateUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if v *= u.factor; err == nil && v >= 1 && v <= maxBytes {
			return int64(v), nil
		}
		break
	}
	return 0, fmt.Errorf("%q: want a rate, such as 10Gb/s or 1.25GB/s", s)
}
