package topo

import "fmt"

// betweenSockets sets what is known of a link between two sockets: the rate that NCCL counts with, which
// is typical, and what the links of the processors can carry at most.
func (l *Link) betweenSockets(h *Host) {
	if r, name := ncclSocketRate(h); r > 0 {
		l.BytesPerSec, l.Basis = &r, BasisTypical
		l.Note = "NCCL's constant for " + name
	}
	for i := range socketLinks {
		s := &socketLinks[i]
		if h.CPUVendor == s.vendor && h.CPUFamily != nil && *h.CPUFamily == s.family && h.CPUModelID != nil && s.first <= *h.CPUModelID && *h.CPUModelID <= s.last {
			each := Rate(s.speedMTs*s.lanes) * 1_000_000 / 8
			l.Bound = new(Rate(s.most) * each)
			l.Note += fmt.Sprintf("; the CPU has up to %d links of %.1f GB/s", s.most, float64(each)/float64(GBPerSec))
		}
	}
}

// ncclSocketRate is what NCCL 2.30 assumes between two sockets, 0 where it has no
// figure that is worth keeping. Source: NCCL src/graph/topo.h.
func ncclSocketRate(h *Host) (Rate, string) {
	switch {
	case h.CPUVendor == "AuthenticAMD":
		return 16 * GBPerSec, "AMD"
	case h.CPUVendor == "GenuineIntel" && h.CPUFamily != nil && *h.CPUFamily == 6 && h.CPUModelID != nil:
		switch model := *h.CPUModelID; {
		case model >= 0xcf:
			return 40 * GBPerSec, "Intel Emerald Rapids and later"
		case model >= 0x8f:
			return 22 * GBPerSec, "Intel Sapphire Rapids"
		case model >= 0x55:
			return 10 * GBPerSec, "Intel Skylake and Ice Lake"
		default:
			return 6 * GBPerSec, "Intel Broadwell and earlier"
		}
	}
	return 0, ""
}

// socketLinks are the links that processors have for other sockets: how many at most, and their lanes.
// On a board there may be fewer, and a pair of four sockets has only some of them.
// Source: the vendors' product briefs (UPI of the 3rd to 5th generation of Xeon Scalable, xGMI of EPYC
// 7002, 7003 and 9004).
var socketLinks = []struct {
	vendor              string
	family, first, last int // CPU models
	most                int
	speedMTs, lanes     int // of one link
}{
	{"GenuineIntel", 6, 0x6a, 0x6a, 3, 11_200, 20},    // Intel Ice Lake-SP
	{"GenuineIntel", 6, 0x8f, 0x8f, 4, 16_000, 24},    // Intel Sapphire Rapids
	{"GenuineIntel", 6, 0xcf, 0xcf, 4, 20_000, 24},    // Intel Emerald Rapids
	{"AuthenticAMD", 0x17, 0x31, 0x31, 4, 18_000, 16}, // AMD EPYC 7002
	{"AuthenticAMD", 0x19, 0x00, 0x0f, 4, 18_000, 16}, // AMD EPYC 7003
	{"AuthenticAMD", 0x19, 0x10, 0x1f, 4, 32_000, 16}, // AMD EPYC 9004
}
