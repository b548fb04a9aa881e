package topo

import "github.com/topoctl/topoctl/internal/units"

// Rate is a speed in one direction, in bytes per second.
type Rate int64

// String is the rate in gigabytes per second, "50.0 GB/s"; below a tenth of one in a smaller unit.
func (r Rate) String() string { return units.Rate(int64(r), units.Gbyte) }

// Convenient rates.
const (
	MBPerSec Rate = 1_000_000
	GBPerSec Rate = 1_000_000_000
)

// FromMbps converts megabits per second (the unit of /sys/class/net/*/speed).
func FromMbps(mbps int64) Rate { return Rate(mbps * 125_000) }

// What a PCIe link says beyond these is no link's: 128 GT/s and 32 lanes are the most that any
// specification has.
const (
	maxPCIeSpeedMTs = 1_000_000
	maxPCIeWidth    = 32
)

// PCIeRate is what a PCIe link carries in one direction after line coding, in
// bytes per second: 8b/10b below 8 GT/s, 128b/130b up to 32 GT/s, and for
// 64 GT/s and above (PAM4, FLIT mode) 242 of 256 bytes of a flit. Packet
// headers are not taken off. It is 0 for a speed or width that is not positive, or that no link has.
// Source: PCI Express Base Specification 6.0, chapters 4.2 and 2.
func PCIeRate(speedMTs, width int) Rate {
	if speedMTs <= 0 || width <= 0 || speedMTs > maxPCIeSpeedMTs || width > maxPCIeWidth {
		return 0
	}
	bits := int64(speedMTs) * 1_000_000 * int64(width)
	switch {
	case speedMTs < 8000:
		return Rate(bits * 8 / 10 / 8)
	case speedMTs < 64000:
		return Rate(bits * 128 / 130 / 8)
	default:
		return Rate(bits * 242 / 256 / 8)
	}
}
