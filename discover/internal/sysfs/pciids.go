package sysfs

import (
	"bufio"
	"bytes"
	_ "embed"
	"fmt"
)

//go:embed pci.ids
var embedded []byte

// Embedded is the database that the program carries, in pci.ids syntax.
func Embedded() []byte { return embedded }

// DB answers with names. The zero value knows none.
type DB struct{ names map[pciidsNumber]string }

// pciidsNumber is four lower-case hexadecimal digits each; a vendor's own name has no device.
type pciidsNumber struct{ vendor, device string }

// Open reads the given databases, in pci.ids syntax, the preferred one first. It keeps the names
// that are wanted, since a host's database has forty thousand lines of which it needs some dozen:
// wanted is asked with a vendor's number and an empty device for the vendor itself; nil wants all.
// Classes, subsystems and lines that are not well formed are left out.
func Open(wanted func(vendor, device string) bool, texts ...[]byte) (*DB, error) {
	db := &DB{names: map[pciidsNumber]string{}}
	for _, text := range texts {
		if err := db.read(text, wanted); err != nil {
			return nil, err
		}
	}
	return db, nil
}

// maxLine is longer than any line of pci.ids.
const maxLine = 4096

func (db *DB) read(text []byte, wanted func(vendor, device string) bool) error {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(make([]byte, 0, maxLine), maxLine)
	vendor := "" // of the lines below, "" where it is not known or not wanted
	for lines.Scan() {
		line := lines.Bytes()
		var n pciidsNumber
		switch {
		case len(line) == 0 || line[0] == '#':
			continue
		case line[0] != '\t':
			vendor = ""
			if !wellFormed(line) || wanted != nil && !wanted(string(line[:4]), "") {
				continue
			}
			vendor = string(line[:4])
			n.vendor = vendor
		case vendor != "" && wellFormed(line[1:]) && (wanted == nil || wanted(vendor, string(line[1:5]))):
			line = line[1:]
			n = pciidsNumber{vendor, string(line[:4])}
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
func (db *DB) Vendor(vendor string) string { return db.names[pciidsNumber{vendor, ""}] }

// Device names a device by its vendor's number and its own.
func (db *DB) Device(vendor, device string) string {
	if device == "" {
		return ""
	}
	return db.names[pciidsNumber{vendor, device}]
}

// Each calls f for every vendor, with an empty device, and for every device, in no order.
func (db *DB) Each(f func(vendor, device string)) {
	for n := range db.names {
		f(n.vendor, n.device)
	}
}

// wellFormed is true for four lower-case hexadecimal digits, two blanks and a name.
func wellFormed(line []byte) bool {
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
