package redact

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// mac keeps zero, multicast and broadcast addresses.
func (r *Redactor) mac(m [6]byte) [6]byte {
	if m == [6]byte{} || m[0]&1 == 1 {
		return m
	}
	var placeholder [8]byte
	binary.BigEndian.PutUint64(placeholder[:], 0x020000_000000|r.macs.number(m))
	return [6]byte(placeholder[2:])
}

// guid maps an EUI-64: one that is made from a device's MAC address (ff:fe in its
// middle) to one that is made from the placeholder.
func (r *Redactor) guid(g uint64) uint64 {
	switch m := macOf(g); {
	case g>>24&0xffff == 0xfffe && m[0]&1 == 0:
		return eui64(r.mac(m))
	case g < 1<<16: // zero, or an interface identifier that someone chose
		return g
	}
	return 0x0200_0000_0000_0000 | r.guids.number(g)
}

// eui64 is the interface identifier of a MAC address. Source: RFC 4291, appendix A.
func eui64(m [6]byte) uint64 {
	return binary.BigEndian.Uint64([]byte{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

func macOf(eui uint64) [6]byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], eui)
	return [6]byte{b[0] ^ 2, b[1], b[2], b[5], b[6], b[7]}
}

func (r *Redactor) uuid(u [16]byte) [16]byte {
	if u == [16]byte{} {
		return u
	}
	var placeholder [16]byte
	binary.BigEndian.PutUint64(placeholder[8:], r.uuids.number(u))
	return placeholder
}

// parseUniqueID reads the UUID of an AMD GPU, "GPU-" and 16 digits; its driver
// writes the same number in decimal, as unique_id.
func parseUniqueID(s string) (uint64, bool) {
	digits, ok := strings.CutPrefix(s, "GPU-")
	if !ok || len(digits) != 16 {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 16, 64)
	return id, err == nil
}

// uniqueID keeps 0, which is that of nodes without a GPU.
func (r *Redactor) uniqueID(id uint64) uint64 {
	if id == 0 {
		return id
	}
	return r.uniqueIDs.number(id)
}

// ip maps an address; an IPv4 address in its IPv6 form stays in that form.
func (r *Redactor) ip(a netip.Addr) netip.Addr {
	switch {
	case a.Is4In6():
		return netip.AddrFrom16(r.ip(a.Unmap()).As16())
	case a.Is4():
		return r.ip4(a)
	case a.IsUnspecified() || a.IsLoopback() || a.IsMulticast():
		return a
	}
	b := a.As16()
	high, low := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	if !a.IsLinkLocalUnicast() {
		high = 0x2001_0db8_0000_0000 | r.net6.number(high)
	}
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], r.guid(low))
	return netip.AddrFrom16(b).WithZone(r.text(a.Zone())) // an interface's name
}

func (r *Redactor) ip4(a netip.Addr) netip.Addr {
	if stays4(a) {
		return a
	}
	if known, ok := r.known4[a]; ok {
		return known
	}
	return r.place4(a, r.subnet4(a))
}

// stays4 says whether an IPv4 address says nothing about its owner.
func stays4(a netip.Addr) bool {
	broadcast := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	return a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a == broadcast
}

// subnet4 is the machine's own subnet that holds the address, if that is
// larger than a /24, else the address's /24.
func (r *Redactor) subnet4(a netip.Addr) netip.Prefix {
	best := netip.PrefixFrom(a, 0)
	for _, p := range r.onLink {
		if p.Contains(a) && p.Bits() > best.Bits() {
			best = p
		}
	}
	if best.Bits() > 0 && best.Bits() < 24 {
		return best
	}
	return netip.PrefixFrom(a, 24).Masked()
}

// place4 gives an address a place in its subnet's block of 256: its own last
// byte, or the next that is free. A full subnet goes on in another block.
func (r *Redactor) place4(a netip.Addr, subnet netip.Prefix) netip.Addr {
	used := r.octets[subnet]
	if used == nil {
		used = make(map[byte]netip.Addr)
		r.octets[subnet] = used
	}
	last := a.As4()[3]
	for range 256 {
		if holder, taken := used[last]; !taken || holder == a {
			used[last] = a
			b := block4(r.net4.number(subnet)).As4()
			b[3] = last
			c := netip.AddrFrom4(b)
			if _, known := r.known4[a]; !known { // perhaps of another subnet
				r.known4[a] = c
			}
			return c
		}
		last++
	}
	return r.place4(a, netip.PrefixFrom(a, 32))
}

// The blocks that stand for IPv4 subnets: three for documentation (RFC 5737),
// then those for benchmarks (RFC 2544), then the reserved class E.
var docBlocks = [...][4]byte{{192, 0, 2, 0}, {198, 51, 100, 0}, {203, 0, 113, 0}}

const (
	benchBlock = 198<<24 | 18<<16
	benchCount = 512
	lastBlocks = 240 << 24
)

func block4(n uint64) netip.Addr {
	var b [4]byte
	switch n--; {
	case n < uint64(len(docBlocks)):
		b = docBlocks[n]
	case n < uint64(len(docBlocks))+benchCount:
		binary.BigEndian.PutUint32(b[:], benchBlock|uint32(n-uint64(len(docBlocks)))<<8)
	default:
		n -= uint64(len(docBlocks)) + benchCount
		binary.BigEndian.PutUint32(b[:], lastBlocks|uint32(n)<<8)
	}
	return netip.AddrFrom4(b)
}

func (r *Redactor) learnSubnet(cidr string) {
	if p, err := netip.ParsePrefix(cidr); err == nil && p.Addr().Is4() {
		r.onLink = append(r.onLink, p.Masked())
	}
}

// cidr maps an address or an address with prefix length. A prefix shorter than
// a placeholder's block becomes as long as that: 24 bits, or 64 for IPv6.
func (r *Redactor) cidr(s string) (string, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return spellLike(r.ip(a), s), true
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return "", false
	}
	a, bits := p.Addr(), p.Bits()
	if a.Is4() {
		switch {
		case stays4(a):
			return s, true
		case bits < 24 && p == p.Masked(): // a whole subnet
			a = r.place4(a, p)
		default:
			a = r.ip4(a)
		}
		return netip.PrefixFrom(a, max(bits, 24)).String(), true
	}
	c := r.ip(a)
	if c == a {
		return s, true
	}
	return netip.PrefixFrom(c, max(bits, 64)).String(), true
}

// spellLike writes an address in the long form where like is in it, and an IPv4
// address in its IPv6 form in hexadecimal where like is.
func spellLike(a netip.Addr, like string) string {
	if a.Is6() && len(like) == len("0000:0000:0000:0000:0000:0000:0000:0000") && !strings.Contains(like, "::") {
		b := a.As16()
		return colons(b[:], 2)
	}
	if a.Is4In6() && !strings.Contains(like, ".") {
		b := a.As16()
		return fmt.Sprintf("::ffff:%x:%x", binary.BigEndian.Uint16(b[12:]), binary.BigEndian.Uint16(b[14:]))
	}
	return a.String()
}

// colons writes bytes in hexadecimal with a colon after each group.
func colons(b []byte, group int) string {
	var s strings.Builder
	for i := 0; i < len(b); i += group {
		if i > 0 {
			s.WriteByte(':')
		}
		s.WriteString(hex.EncodeToString(b[i : i+group]))
	}
	return s.String()
}

func guidBytes(g uint64) []byte { return binary.BigEndian.AppendUint64(nil, g) }

// uuidString writes a UUID's usual form.
func uuidString(u [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
