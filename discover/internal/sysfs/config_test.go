package sysfs

import (
	"encoding/binary"
)

// configSpace builds a configuration space with the PCI Express capability of
// a port type and, if control is not negative, ACS behind another capability.
func configSpace(vendor, device uint16, header, portType byte, size, control int) []byte {
	c := make([]byte, 4096)
	le := binary.LittleEndian
	le.PutUint16(c, vendor)
	le.PutUint16(c[2:], device)
	c[0x06], c[0x0e], c[0x19], c[0x34] = 0x10, header, 0x18, 0x40
	c[0x40], c[0x41] = 0x01, 0x60                   // power management, then
	c[0x60], c[0x62] = 0x10, portType<<4|2          // PCI Express
	le.PutUint32(c[0x60+0x0c:], 5|16<<4)            // 32 GT/s x16
	le.PutUint16(c[0x60+0x12:], 4|8<<4)             // 16 GT/s x8
	le.PutUint32(c[0x100:], 0x0001|1<<16|0x148<<20) // AER, then
	if control >= 0 {
		le.PutUint32(c[0x148:], 0x000d|1<<16)
		le.PutUint16(c[0x148+6:], uint16(control))
	}
	return c[:size]
}

// conventional is a bridge that has no more than 256 bytes to show, whoever asks.
func conventional() []byte {
	c := configSpace(0x8086, 0x352a, 1, 0, 256, 0)
	c[0x34] = 0
	return c
}
