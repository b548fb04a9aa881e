package memory

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// vma is a line of /proc/self/maps.
type vma struct {
	start, end uint64
	perms      string
	inode      uint64
	name       string
}

// parseVMA reads "start-end perms offset device inode [name]".
func parseVMA(line string) (vma, bool) {
	addresses, rest, ok := strings.Cut(line, " ")
	if !ok {
		return vma{}, false
	}
	from, to, ok := strings.Cut(addresses, "-")
	if !ok {
		return vma{}, false
	}
	start, err1 := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if err1 != nil || err2 != nil || start >= end {
		return vma{}, false
	}
	fields := strings.SplitN(rest, " ", 5)
	if len(fields) < 4 || len(fields[0]) != 4 {
		return vma{}, false
	}
	inode, err := strconv.ParseUint(fields[3], 10, 64)
	if err != nil {
		return vma{}, false
	}
	v := vma{start: start, end: end, perms: fields[0], inode: inode}
	if len(fields) == 5 {
		v.name = strings.TrimLeft(fields[4], " ")
	}
	return v, true
}

// parseMaps reads the lines of maps in the order of addresses. Lines that are
// none are left out.
func parseMaps(text []byte) []vma {
	var list []vma
	for line := range bytes.Lines(text) {
		if v, ok := parseVMA(string(bytes.TrimRight(line, "\n"))); ok {
			list = append(list, v)
		}
	}
	return list
}

// runAround is the range of anonymous mappings without a gap that an address
// lies in; empty where it is not mapped.
func runAround(list []vma, address uint64) (start, end uint64) {
	for _, v := range list {
		if v.inode != 0 {
			if address < v.start {
				break
			}
			start, end = 0, 0
			continue
		}
		if v.start != end {
			if start <= address && address < end {
				break
			}
			start = v.start
		}
		end = v.end
	}
	if address < start || address >= end {
		return 0, 0
	}
	return start, end
}

// hugeBytes adds up, over the mappings of smaps that lie in the area, what huge
// pages stand for.
func hugeBytes(smaps []byte, a area) int64 {
	var total int64
	inside := false
	for line := range bytes.Lines(smaps) {
		text := string(bytes.TrimSpace(line))
		if v, ok := parseVMA(text); ok {
			inside = v.start < uint64(a.start+a.size) && v.end > uint64(a.start)
			continue
		}
		key, value, ok := strings.Cut(text, ":")
		if !inside || !ok || key != "AnonHugePages" && key != "ShmemPmdMapped" {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err == nil && kib > 0 && kib < 1<<50 {
			total += kib << 10
		}
	}
	return total
}

// mappings are what is mapped in a process. If the system does not tell, every range passes.
type mappings struct {
	unknown          bool
	list             []vma // in the order of addresses
	heap, heapBehind uint64
}

// newMappings takes the lines of maps and an address in Go's heap.
func newMappings(list []vma, heap uint64) *mappings {
	m := &mappings{list: list}
	m.heap, m.heapBehind = runAround(list, heap)
	return m
}

// from is the place of the first mapping that ends behind an address.
func (m *mappings) from(address uint64) int {
	return sort.Search(len(m.list), func(i int) bool { return m.list[i].end > address })
}

// inside says whether the byte at an address and the one before it are of one mapping.
func (m *mappings) inside(address uintptr) bool {
	i := m.from(uint64(address))
	return i < len(m.list) && m.list[i].start < uint64(address)
}

// check refuses a range that is not wholly mapped for reading and writing, and one that the
// Go runtime manages.
func (m *mappings) check(r Range) error {
	if m.unknown {
		return nil
	}
	start, end := uint64(r.Address), uint64(r.end())
	if start < m.heapBehind && end > m.heap {
		return errors.New("it is Go's memory (heap or stacks), which the garbage collector frees and moves: use Alloc")
	}
	next := start // the first byte that no mapping covers yet
	for _, v := range m.list[m.from(start):] {
		if v.start > next || next >= end {
			break
		}
		if !strings.HasPrefix(v.perms, "rw") {
			return fmt.Errorf("%#x is mapped %q, not readable and writable", next, v.perms)
		}
		if strings.HasPrefix(v.name, "[anon: Go:") {
			return fmt.Errorf("it is Go's memory (%s): use Alloc", v.name)
		}
		next = v.end
	}
	if next < end {
		return fmt.Errorf("nothing is mapped at %#x", next)
	}
	return nil
}
