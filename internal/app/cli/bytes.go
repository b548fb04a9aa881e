package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteUnits are the units of a size, the longer ones first where one ends in
// the other.
var byteUnits = []struct {
	name   string
	factor float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15}, {"B", 1},
}

// maxBytes bounds a size: 1 PiB.
const maxBytes = 1 << 50

// parseBytes reads a size such as "64MiB", "1.5 GB" or "4096".
func parseBytes(s string) (int64, error) {
	number, factor := s, 1.0
	for _, u := range byteUnits {
		if n, ok := strings.CutSuffix(s, u.name); ok {
			number, factor = n, u.factor
			break
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	v *= factor
	if err != nil || !(v >= 1 && v <= maxBytes) || v != math.Trunc(v) {
		return 0, fmt.Errorf("%q: want a size from 1 byte to 1 PiB, such as 64MiB or 1GB", s)
	}
	return int64(v), nil
}
