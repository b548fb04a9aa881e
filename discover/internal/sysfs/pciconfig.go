package sysfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/topoctl/topoctl/discover/topo"
)

// configInfo is what configuration space tells.
type configInfo struct {
	vendor, device uint16
	bridge         bool         // header type 1
	role           topo.PCIRole // "" where the capabilities cannot be read
	secondary      uint8        // a bridge's secondary bus
	link           *topo.PCILink
	acs            *topo.ACS
	ats            string // as in topo.PCIDevice, "" for bridges
	size           int    // bytes that can be read, 0 where the device has no more than was read
}

// Offsets and numbers of the PCI Local Bus and PCI Express Base Specifications.
const (
	cfgStatus     = 0x06
	cfgHeaderType = 0x0e
	cfgSecondary  = 0x19
	cfgCapPointer = 0x34
	cfgHeaderSize = 64
	cfgLegacySize = 256
	cfgSize       = 4096

	statusCapList = 1 << 4
	capPCIe       = 0x10
	extCapACS     = 0x000d
	extCapATS     = 0x000f
	atsEnable     = 1 << 15 // in the ATS control register

	pcieFlags   = 0x02 // offsets in the PCI Express capability
	pcieLnkCap  = 0x0c
	pcieLnkSta  = 0x12
	pcieCapSize = 0x14
)

// readConfig opens a function's configuration space. It reads no further than
// it must: each word costs a bus cycle of the real device. It is nil where the
// file is missing or not believable.
func (r *reader) readConfig(f files, d *topo.PCIDevice) *configInfo {
	file, err := r.tree.Open(f.dir + "/config")
	if err != nil {
		f.readError("config", optional, err)
		return nil
	}
	defer func() { _ = file.Close() }()
	at, err := readerAt(file)
	if err != nil {
		f.readError("config", optional, err)
		return nil
	}
	info, err := parseConfig(at)
	if err == nil {
		err = info.check(d)
	}
	if err != nil {
		f.warn(topo.CodeMalformed, "config", err.Error())
		return nil
	}
	if have := r.t.Host.ConfigBytes; info.bridge && info.size > 0 && (have == nil || info.size < *have) {
		r.t.Host.ConfigBytes = new(info.size)
	}
	return info
}

// readerAt reads a file at offsets; one that cannot is read as a whole.
func readerAt(file fs.File) (io.ReaderAt, error) {
	if at, ok := file.(io.ReaderAt); ok {
		return at, nil
	}
	data, err := io.ReadAll(io.LimitReader(file, cfgSize))
	return bytes.NewReader(data), err
}

// parseConfig reads the header, the PCI Express capability and, of the extended
// ones, ACS for ports and ATS for others.
func parseConfig(at io.ReaderAt) (*configInfo, error) {
	var buf [cfgLegacySize]byte
	n, err := at.ReadAt(buf[:], 0)
	if n < cfgHeaderSize {
		if n > 0 || err == nil || errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%d bytes, less than a header", n)
		}
		return nil, errors.New(reason(err))
	}
	head := buf[:n]
	info := &configInfo{
		vendor: binary.LittleEndian.Uint16(head), device: binary.LittleEndian.Uint16(head[2:]),
	}
	info.bridge = head[cfgHeaderType]&0x7f == 1
	if info.bridge {
		info.secondary = head[cfgSecondary]
	}
	if n < cfgLegacySize {
		info.size = n
		if !info.bridge {
			info.role = topo.RoleEndpoint
		}
		return info, nil
	}
	express := findCapability(head, capPCIe)
	if express == nil {
		info.role = topo.RoleEndpoint
		if info.bridge {
			info.role = topo.RoleBridge
		}
		return info, nil
	}
	info.role = portRole(express)
	info.link = configLink(express)
	if info.bridge {
		word, size := findExtended(at, extCapACS)
		if info.size = size; word != nil {
			info.acs = parseACS(binary.LittleEndian.Uint16(word[6:]))
		}
		return info, nil
	}
	word, size := findExtended(at, extCapATS)
	switch info.size = size; {
	case word == nil && size == cfgSize:
		info.ats = "absent"
	case word != nil && binary.LittleEndian.Uint16(word[6:])&atsEnable != 0:
		info.ats = "on"
	case word != nil:
		info.ats = "off"
	}
	return info, nil
}

// check compares with the ID files: a garbled file, or a device that no longer
// answers (all ones), must not be believed.
func (c *configInfo) check(d *topo.PCIDevice) error {
	if c.vendor == 0xffff && d.Vendor != "0xffff" {
		return errors.New("reads as all ones: the device does not answer")
	}
	if d.Vendor != "" && d.Vendor.Uint() != uint32(c.vendor) || d.Device != "" && d.Device.Uint() != uint32(c.device) {
		return fmt.Errorf("says %04x:%04x, the files vendor and device say otherwise", c.vendor, c.device)
	}
	return nil
}

// findCapability walks the capability list and gives the capability's bytes to
// the end of the header area, nil if it is not there.
func findCapability(head []byte, id byte) []byte {
	if binary.LittleEndian.Uint16(head[cfgStatus:])&statusCapList == 0 {
		return nil
	}
	at := int(head[cfgCapPointer] &^ 3)
	for range (cfgLegacySize - cfgHeaderSize) / 4 { // no list is longer; a loop ends here
		if at < cfgHeaderSize || at+pcieCapSize > len(head) {
			return nil
		}
		if head[at] == id {
			return head[at:]
		}
		at = int(head[at+1] &^ 3)
	}
	return nil
}

// portRole is the device/port type of the PCI Express capabilities register.
func portRole(express []byte) topo.PCIRole {
	switch binary.LittleEndian.Uint16(express[pcieFlags:]) >> 4 & 15 {
	case 4:
		return topo.RoleRootPort
	case 5:
		return topo.RoleUpstream
	case 6:
		return topo.RoleDownstream
	case 7, 8:
		return topo.RoleBridge
	}
	return topo.RoleEndpoint
}

// configLink reads the link capabilities and status registers.
func configLink(express []byte) *topo.PCILink {
	capabilities := binary.LittleEndian.Uint32(express[pcieLnkCap:])
	status := uint32(binary.LittleEndian.Uint16(express[pcieLnkSta:]))
	if capabilities == 0 && status == 0 {
		return nil // a part of the root complex has no link
	}
	return &topo.PCILink{
		SpeedMTs: linkSpeedCode(status & 15), Width: laneCount(status >> 4 & 63),
		MaxSpeedMTs: linkSpeedCode(capabilities & 15), MaxWidth: laneCount(capabilities >> 4 & 63),
	}
}

// linkSpeedCode is the speed that a link register's code means, nil if none.
func linkSpeedCode(code uint32) *int {
	speeds := [...]int{0, 2500, 5000, 8000, 16000, 32000, 64000, 128000}
	if code == 0 || int(code) >= len(speeds) {
		return nil
	}
	return new(speeds[code])
}

func laneCount(n uint32) *int {
	if n == 0 || n > 32 {
		return nil
	}
	return new(int(n))
}

// findExtended walks the extended capabilities, which begin at byte 256; an
// ordinary user cannot read them, and nobody can where the host has no way to
// them. The size says so. It gives the first words of the capability, nil if it is not there.
func findExtended(at io.ReaderAt, id uint32) (capability []byte, size int) {
	var word [8]byte
	offset, size := int64(cfgLegacySize), cfgLegacySize
	for range (cfgSize - cfgLegacySize) / 4 { // no list is longer; a loop ends here
		if n, _ := at.ReadAt(word[:], offset); n < len(word) {
			return nil, size
		}
		size = cfgSize
		header := binary.LittleEndian.Uint32(word[:])
		if header == 0 || header == 0xffffffff {
			return nil, size
		}
		if header&0xffff == id {
			return word[:], size
		}
		offset = int64(header >> 20 &^ 3)
		if offset < cfgLegacySize {
			return nil, size
		}
	}
	return nil, size
}

// parseACS reads the bits of the ACS control register.
func parseACS(control uint16) *topo.ACS {
	return &topo.ACS{
		Control:         topo.HexID(fmt.Sprintf("0x%04x", control)),
		RequestRedirect: control&(1<<2) != 0,
		CompletionRedir: control&(1<<3) != 0,
		UpstreamForward: control&(1<<4) != 0,
	}
}
