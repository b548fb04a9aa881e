package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/topoctl/topoctl/test/vmlab"
)

const pciDevices = "/sys/bus/pci/devices"

// standIns makes display controllers look like the GPUs that were stated: QEMU has no
// device with those IDs and no property to set them, so files are put over sysfs' own.
func standIns(m *vmlab.Machine) error {
	for _, f := range m.Functions() {
		if f.GPU == nil {
			continue
		}
		dir, err := filepath.EvalSymlinks(filepath.Join(pciDevices, f.BDF))
		if err != nil {
			return fmt.Errorf("stand-in: no function at %s: %w", f.BDF, err)
		}
		files, err := disguise(dir, f.GPU)
		if err != nil {
			return fmt.Errorf("stand-in %s: %w", f.BDF, err)
		}
		for name, data := range files {
			if err := cover(filepath.Join(dir, name), filepath.Join("/run/gpu", f.BDF, name), data); err != nil {
				return fmt.Errorf("stand-in %s: %w", f.BDF, err)
			}
		}
	}
	return nil
}

func cover(file, with string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(with), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(with, data, 0o444); err != nil {
		return err
	}
	return syscall.Mount(with, file, "", syscall.MS_BIND, "")
}

// disguise gives the files of a function that tell what it is.
func disguise(dir string, g *vmlab.GPU) (map[string][]byte, error) {
	config, err := os.ReadFile(filepath.Join(dir, "config"))
	if err != nil {
		return nil, err
	}
	if len(config) < 64 {
		return nil, fmt.Errorf("%d bytes of configuration space", len(config))
	}
	// The header of PCI configuration space, type 0.
	binary.LittleEndian.PutUint16(config[0x00:], g.Vendor)
	binary.LittleEndian.PutUint16(config[0x02:], g.Device)
	config[0x09], config[0x0a], config[0x0b] = byte(g.Class), byte(g.Class>>8), byte(g.Class>>16)
	binary.LittleEndian.PutUint16(config[0x2c:], g.SubsystemVendor)
	binary.LittleEndian.PutUint16(config[0x2e:], g.SubsystemDevice)
	modalias := fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X", g.Vendor, g.Device,
		g.SubsystemVendor, g.SubsystemDevice, g.Class>>16, g.Class>>8&0xff, g.Class&0xff)
	uevent, err := os.ReadFile(filepath.Join(dir, "uevent"))
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"vendor":           fmt.Appendf(nil, "0x%04x\n", g.Vendor),
		"device":           fmt.Appendf(nil, "0x%04x\n", g.Device),
		"class":            fmt.Appendf(nil, "0x%06x\n", g.Class),
		"subsystem_vendor": fmt.Appendf(nil, "0x%04x\n", g.SubsystemVendor),
		"subsystem_device": fmt.Appendf(nil, "0x%04x\n", g.SubsystemDevice),
		"modalias":         []byte(modalias + "\n"),
		"config":           config,
		"uevent":           newUevent(uevent, g, modalias),
	}, nil
}

func newUevent(old []byte, g *vmlab.GPU, modalias string) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(old)) {
		key, _, _ := strings.Cut(line, "=")
		switch key {
		case "PCI_CLASS":
			line = fmt.Sprintf("PCI_CLASS=%X\n", g.Class)
		case "PCI_ID":
			line = fmt.Sprintf("PCI_ID=%04X:%04X\n", g.Vendor, g.Device)
		case "PCI_SUBSYS_ID":
			line = fmt.Sprintf("PCI_SUBSYS_ID=%04X:%04X\n", g.SubsystemVendor, g.SubsystemDevice)
		case "MODALIAS":
			line = "MODALIAS=" + modalias + "\n"
		}
		out.WriteString(line)
	}
	return out.Bytes()
}
