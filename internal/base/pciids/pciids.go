// Package pciids names PCI vendors and devices by their numbers. It has a
// small database of its own, so that names do not depend on what the host has
// installed, and can put a larger one before it. Files in the format of pci.ids
// are parsed by github.com/jaypipes/pcidb, the database of ghw.
package pciids

import (
	"bufio"
	"bytes"
	_ "embed"
	"fmt"
	"io"

	"github.com/jaypipes/pcidb"
)

//go:embed pci.ids
var embedded []byte

// Embedded is the database that the program carries, in pci.ids syntax.
func Embedded() []byte { return embedded }

// DB answers with names. The zero value knows none.
type DB struct{ dbs []*pcidb.DB }

// Open reads the given databases, in pci.ids syntax, the preferred one first.
// Lines that are not wanted (see Select), or that pcidb could not stand, are
// left out.
func Open(wanted func(vendor, device string) bool, texts ...[]byte) (*DB, error) {
	db := &DB{}
	for _, text := range texts {
		clean, err := Select(bytes.NewReader(text), wanted)
		if err != nil {
			return nil, err
		}
		path, remove, err := File(clean)
		if err != nil {
			return nil, err
		}
		parsed, err := pcidb.New(pcidb.WithPath(path))
		remove()
		if err != nil {
			return nil, fmt.Errorf("pciids: %w", err)
		}
		db.dbs = append(db.dbs, parsed)
	}
	return db, nil
}

// Vendor names a vendor by its number in four lower-case hexadecimal digits
// ("10de"); it is "" for one that no database has.
func (db *DB) Vendor(vendor string) string {
	for _, d := range db.dbs {
		if v := d.Vendors[vendor]; v != nil && v.Name != "" {
			return v.Name
		}
	}
	return ""
}

// Device names a device by its vendor's number and its own.
func (db *DB) Device(vendor, device string) string {
	for _, d := range db.dbs {
		if p := d.Products[vendor+device]; p != nil && p.Name != "" {
			return p.Name
		}
	}
	return ""
}

// Each calls f for every vendor, with an empty device, and for every device, in no order.
func (db *DB) Each(f func(vendor, device string)) {
	for _, d := range db.dbs {
		for vendor := range d.Vendors {
			f(vendor, "")
		}
		for product := range d.Products {
			f(product[:4], product[4:])
		}
	}
}

// maxLine is longer than any line of pci.ids.
const maxLine = 4096

// Select copies the lines of the vendors and devices that are wanted from a
// database, and leaves out classes and every line that is not well formed. A
// host's database has forty thousand lines of which it needs some dozen.
// wanted is asked with a vendor's number and an empty device for the vendor
// itself; nil wants all.
func Select(r io.Reader, wanted func(vendor, device string) bool) ([]byte, error) {
	var out bytes.Buffer
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, maxLine), maxLine)
	vendor, inDevice := "", false // vendor is "" below one that is not wanted
	for lines.Scan() {
		line := lines.Bytes()
		keep := false
		switch depth(line) {
		case 0:
			vendor, inDevice = "", false
			if wellFormed(line) && (wanted == nil || wanted(string(line[:4]), "")) {
				vendor, keep = string(line[:4]), true
			}
		case 1:
			keep = vendor != "" && wellFormed(line[1:]) && (wanted == nil || wanted(vendor, string(line[1:5])))
			inDevice = keep
		case 2:
			keep = inDevice && len(line) > 13 && isHex(line[2:6]) && line[6] == ' ' && wellFormed(line[7:])
		}
		if keep {
			out.Write(line)
			out.WriteByte('\n')
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("pciids: %w", err)
	}
	return out.Bytes(), nil
}

// depth is the number of leading tabs, -1 for a comment or an empty line.
func depth(line []byte) int {
	if len(line) == 0 || line[0] == '#' {
		return -1
	}
	n := 0
	for n < len(line) && line[n] == '\t' {
		n++
	}
	return n
}

// wellFormed is true for four hexadecimal digits, two blanks and a name.
func wellFormed(line []byte) bool {
	return len(line) > 6 && isHex(line[:4]) && line[4] == ' ' && line[5] == ' '
}

// isHex is true for lower-case hexadecimal digits, as pci.ids has them.
func isHex(s []byte) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
