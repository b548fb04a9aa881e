package sysfs

import (
	"bufio"
	"bytes"
	_ "embed"
	"fmt"
)

// This file names PCI vendors and devices by their numbers. It has a
// small database of its own, so that names do not depend on what the host has
// installed, and can put a larger one before it.

//go:embed pci.ids
var embedded []byte

// EmbeddedIDs is the database that the program carries, in pci.ids syntax.
func EmbeddedIDs() []byte { return embedded }

// IDs answers with names. The zero value knows none.
type IDs struct{ names map[idNumber]string }

// idNumber is four lower-case hexadecimal digits each; a vendor's own name has no device.
type idNumber struct{ vendor, device string }

// OpenIDs reads the given databases, in pci.ids syntax, the preferred one first. It keeps the names
// that are wanted, since a host's database has forty thousand lines of which it needs some dozen:
// wanted is asked with a vendor's number and an empty device for the vendor itself; nil wants all.
// Classes, subsystems and lines that are not well formed are left out.
func OpenIDs(wanted func(vendor, device string) bool, texts ...[]byte) (*IDs, error) {
	db := &IDs{names: map[idNumber]string{}}
	for _, text := range texts {
		if err := db.read(text, wanted); err != nil {
			return nil, err
		}
	}
	return db, nil
}

// maxLine is longer than any line of pci.ids.
const maxLine = 4096

func (db *IDs) read(text []byte, wanted func(vendor, device string) bool) error {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(make([]byte, 0, maxLine), maxLine)
	vendor := "" // of the lines below, "" where it is not known or not wanted
	for lines.Scan() {
		line := lines.Bytes()
		var n idNumber
		switch {
		case len(line) == 0 || line[0] == '#':
			continue
		case line[0] != '\t':
			vendor = ""
			if !wellFormedID(line) || wanted != nil && !wanted(string(line[:4]), "") {
				continue
			}
			vendor = string(line[:4])
			n.vendor = vendor
		case vendor != "" && wellFormedID(line[1:]) && (wanted == nil || wanted(vendor, string(line[1:5]))):
			line = line[1:]
			n = idNumber{vendor, string(line[:4])}
		default:
			continue
		}
		if _, known := db.names[n]; !known {
			db.names[n] = string(line[6:])
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("pciids: %w", err)
	}
	return nil
}

// Vendor names a vendor by its number in four lower-case hexadecimal digits
// ("10de"); it is "" for one that no database has.
func (db *IDs) Vendor(vendor string) string { return db.names[idNumber{vendor, ""}] }

// Device names a device by its vendor's number and its own.
func (db *IDs) Device(vendor, device string) string {
	if device == "" {
		return ""
	}
	return db.names[idNumber{vendor, device}]
}

// Each calls f for every vendor, with an empty device, and for every device, in no order.
func (db *IDs) Each(f func(vendor, device string)) {
	for n := range db.names {
		f(n.vendor, n.device)
	}
}

// wellFormedID is true for four lower-case hexadecimal digits, two blanks and a name.
func wellFormedID(line []byte) bool {
	if len(line) <= 6 || line[4] != ' ' || line[5] != ' ' {
		return false
	}
	for _, c := range line[:4] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
