package verbs

import (
	"net"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// mtuBytes turns the ABI's number of an MTU into bytes; 0 if the ABI has no such number.
func mtuBytes(n int) int {
	if n < 1 || n > 5 {
		return 0
	}
	return 128 << n
}

// mtuNumber is the way back; false where the ABI has no such MTU.
func mtuNumber(bytes int) (int, bool) {
	for n := 1; n <= 5; n++ {
		if mtuBytes(n) == bytes {
			return n, true
		}
	}
	return 0, false
}

// Widths and speeds as InfiniBand numbers them (PortInfo LinkWidthActive, LinkSpeedActive).
var (
	lanesOfWidth = map[int]int64{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
	// Data rate of one lane in bit/s, after the line's coding: SDR, DDR, QDR, FDR10, FDR, EDR,
	// HDR, NDR. The 8 bits of the field end there: libibverbs reports faster ones as NDR.
	bitsOfSpeed = map[int]int64{
		1: 2_000_000_000, 2: 4_000_000_000, 4: 8_000_000_000, 8: 10_000_000_000,
		16: 13_636_363_636, 32: 25_000_000_000, 64: 50_000_000_000, 128: 100_000_000_000,
	}
)

// portBytesPerSec is a port's data rate, 0 where width or speed is unknown.
func portBytesPerSec(width, speed int) int64 {
	return lanesOfWidth[width] * bitsOfSpeed[speed] / 8
}

// parseGIDType reads ports/N/gid_attrs/types/I of sysfs (kernel: Documentation/ABI/stable/
// sysfs-class-infiniband).
func parseGIDType(text string, link LinkLayer) (GIDType, error) {
	switch strings.TrimSpace(text) {
	case "IB/RoCE v1":
		if link == LinkEthernet {
			return GIDRoCEv1, nil
		}
		return GIDInfiniBand, nil
	case "RoCE v2":
		return GIDRoCEv2, nil
	}
	return 0, pkgerr.Errorf("verbs", "GID type %q is unknown", text)
}

// interfaceIndex is the index of the netdev with a name, 0 if no netdev has it.
func interfaceIndex(name string) int {
	name = strings.TrimSpace(name)
	if name == "" {
		return 0
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0
	}
	return i.Index
}
