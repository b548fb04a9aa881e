package topo

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// BDF is a PCI function address: domain (segment), bus, device and function.
//
// Domains are 32 bits wide: Linux prints at least four hexadecimal digits and
// more where a domain needs them (VMD and Hyper-V use 10000 and above).
// Source: Documentation/ABI/testing/sysfs-bus-pci.
type BDF struct {
	Domain uint32
	Bus    uint8
	Device uint8
	Func   uint8
}

// ParseBDF reads "0000:1b:00.0", "10000:e1:00.0", "00000000:1B:00.0" (NVML) or
// the short form "1b:00.0" (domain 0).
func ParseBDF(s string) (BDF, error) {
	fail := func() (BDF, error) {
		return BDF{}, pkgerr.Errorf("topo", "pci address %q: want [domain:]bus:device.function in hexadecimal", s)
	}
	rest, fn, ok := strings.Cut(s, ".")
	if !ok || len(fn) != 1 {
		return fail()
	}
	parts := strings.Split(rest, ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 3 || len(parts[0]) > 8 || len(parts[1]) != 2 || len(parts[2]) != 2 {
		return fail()
	}
	domain, e1 := parseHex(parts[0], 32)
	bus, e2 := parseHex(parts[1], 8)
	dev, e3 := parseHex(parts[2], 5)
	f, e4 := parseHex(fn, 3)
	if e1 != nil || e2 != nil || e3 != nil || e4 != nil {
		return fail()
	}
	return BDF{Domain: uint32(domain), Bus: uint8(bus), Device: uint8(dev), Func: uint8(f)}, nil
}

// parseHex is strconv.ParseUint without the signs and underscores that no
// kernel prints.
func parseHex(s string, bits int) (uint64, error) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return 0, strconv.ErrSyntax
		}
	}
	return strconv.ParseUint(s, 16, bits)
}

// String gives the kernel's spelling: lower case, at least four domain digits.
func (b BDF) String() string {
	buf := make([]byte, 0, 16)
	domain := strconv.FormatUint(uint64(b.Domain), 16)
	for i := len(domain); i < 4; i++ {
		buf = append(buf, '0')
	}
	buf = append(buf, domain...)
	const digits = "0123456789abcdef"
	return string(append(buf, ':', digits[b.Bus>>4], digits[b.Bus&15],
		':', digits[b.Device>>4&15], digits[b.Device&15], '.', digits[b.Func&7]))
}

// Slot is the address without its function: functions of one slot share a card.
func (b BDF) Slot() string { s := b.String(); return s[:len(s)-2] }

// Compare orders addresses by domain, bus, device, function: "PCI order".
func (b BDF) Compare(o BDF) int {
	return cmp.Or(cmp.Compare(b.Domain, o.Domain), cmp.Compare(b.Bus, o.Bus),
		cmp.Compare(b.Device, o.Device), cmp.Compare(b.Func, o.Func))
}

// MarshalText writes the kernel's spelling.
func (b BDF) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads what ParseBDF reads.
func (b *BDF) UnmarshalText(text []byte) error {
	v, err := ParseBDF(string(text))
	if err == nil {
		*b = v
	}
	return err
}
