package machine

import "encoding/binary"

// Offsets in configuration space that expansion uses.
// Source: PCI Express Base Specification, chapters 7.5 and 7.7.
const (
	capPCIe   = 0x40 // PCI Express capability
	capSSVID  = 0x80 // subsystem IDs of a bridge
	extAER    = 0x100
	extACS    = 0x148
	configAll = 4096
	configTop = 64 // what a reader without privilege sees
)

// config is the function's configuration space: its header, or all of it where
// the spec says so (host config full) or gives the function's ACS register.
func (f *function) config(full bool) []byte {
	b := make([]byte, configAll)
	f.header(b)
	if !full && f.acs == nil {
		return b[:configTop:configTop]
	}
	f.capabilities(b)
	return b
}

func put16(b []byte, at int, v uint16) { binary.LittleEndian.PutUint16(b[at:], v) }

func put32(b []byte, at int, v uint32) { binary.LittleEndian.PutUint32(b[at:], v) }

func (f *function) header(b []byte) {
	put16(b, 0x00, f.vendor)
	put16(b, 0x02, f.device)
	if f.pf != nil { // a virtual function answers with ones here
		put32(b, 0x00, 0xffffffff)
	}
	if f.driver != "" {
		put16(b, 0x04, 0x0406) // bus master, memory, no INTx
	}
	b[0x08] = f.rev
	b[0x09], b[0x0a], b[0x0b] = byte(f.class), byte(f.class>>8), byte(f.class>>16)
	b[0x0c] = 0x10
	if f.link != (lane{}) {
		put16(b, 0x06, 0x0010) // has capabilities
		b[0x34] = capPCIe
	}
	if f.multi && f.pf == nil {
		b[0x0e] = 0x80
	}
	if !f.isBridge() {
		put16(b, 0x2c, f.subVendor)
		put16(b, 0x2e, f.subDevice)
		return
	}
	b[0x0e] |= 0x01
	b[0x18], b[0x19], b[0x1a] = f.bdf.Bus, f.secondary, f.last
}

// portType is the device or port type of the PCI Express capability.
func (f *function) portType() uint16 {
	switch f.kind {
	case "port":
		return 4
	case "switch":
		return 5
	case "down":
		return 6
	case "bridge":
		return 7
	}
	if f.parent == nil && f.cur == (lane{}) {
		return 9 // integrated in the root complex
	}
	return 0
}

func (f *function) capabilities(b []byte) {
	if f.link == (lane{}) {
		return
	}
	b[capPCIe] = 0x10
	flags := 2 | f.portType()<<4
	if f.kind == "port" || f.kind == "down" {
		flags |= 1 << 8 // has a slot
	}
	put16(b, capPCIe+0x02, flags)
	put32(b, capPCIe+0x0c, uint32(f.link.gen)|uint32(f.link.width)<<4)
	put16(b, capPCIe+0x12, uint16(f.cur.gen)|uint16(f.cur.width)<<4)
	put32(b, capPCIe+0x2c, 1<<(f.link.gen+1)-2) // every speed up to the highest
	if f.isBridge() {
		b[capPCIe+1] = capSSVID
		b[capSSVID] = 0x0d
		put16(b, capSSVID+4, f.subVendor)
		put16(b, capSSVID+6, f.subDevice)
	}
	next := uint32(0)
	if f.acs != nil {
		next = extACS
		put32(b, extACS, 0x0001_000d)
		put16(b, extACS+4, 0x001f)
		put16(b, extACS+6, uint16(*f.acs))
	}
	put32(b, extAER, 0x0002_0001|next<<20)
}
