package memory

import (
	"errors"
	"os"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the kernel says of single mappings is what the file of all has.
func TestQuery(t *testing.T) {
	if _, err := readMappings(nil); err != nil { // where the heap is
		t.Fatal(err)
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := mappingAt(f, 0); errors.Is(err, unix.ENOTTY) {
		t.Skip("could not check: this kernel has no PROCMAP_QUERY (Linux 6.11)")
	}
	page := os.Getpagesize()
	b, err := unix.Mmap(-1, 0, 8*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	if err := unix.Mprotect(b[2*page:3*page], unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	base := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	all := parseMaps(text)
	r := Range{base, int64(8 * page)}
	m := query([]Range{r})
	if m == nil {
		t.Fatal("the kernel was not asked")
	}
	want := slices.DeleteFunc(slices.Clone(all), func(v vma) bool { return v.end <= uint64(base) || v.start >= uint64(r.end()) })
	if len(want) < 3 || !slices.Equal(m.list, want) {
		t.Errorf("the kernel says %+v, the file %+v", m.list, want)
	}
	whole := newMappings(all, m.heap)
	if m.heap != whole.heap || m.heapBehind < whole.heapBehind {
		t.Errorf("the heap is at %#x-%#x, the file says %#x-%#x", m.heap, m.heapBehind, whole.heap, whole.heapBehind)
	}
	for _, c := range []struct {
		r  Range
		ok bool
	}{
		{Range{base, int64(2 * page)}, true}, {r, false}, {Range{base + uintptr(3*page), int64(5 * page)}, true}, {Range{16, 100}, false},
		{Range{uintptr(m.heap), 8}, false},
	} {
		m := query([]Range{c.r})
		if m == nil {
			t.Fatal("the kernel was not asked")
		}
		if got := m.check(c.r) == nil; got != c.ok || got != (whole.check(c.r) == nil) {
			t.Errorf("%#x, %d bytes: %v", c.r.Address, c.r.Bytes, m.check(c.r))
		}
	}
}
