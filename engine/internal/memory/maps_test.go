package memory

import (
	"strings"
	"testing"
)

const mapsText = `00400000-004ac000 r-xp 00000000 fe:00 10306414                           /bin/x y
0059a000-005d0000 rw-p 00000000 00:00 0 
c000000000-c000400000 rw-p 00000000 00:00 0                              [anon: Go: heap]
c000400000-c004000000 ---p 00000000 00:00 0                              [anon: Go: heap reservation]
7f0000000000-7f0000001000 rw-s 00000000 00:01 99                         /memfd:x (deleted)
7f0000001000-7f0000003000 rw-p 00000000 00:00 0 
7f0000003000-7f0000004000 r--p 00000000 00:00 0 
not a line
7f0000005000-7f0000006000 rw-p 00000000 00:00 0                          [anon: Go: gc bits]
`

func TestCheckRange(t *testing.T) {
	list := parseMaps([]byte(mapsText))
	if len(list) != 8 || list[0].name != "/bin/x y" || list[4].inode != 99 {
		t.Fatalf("parsed %+v", list)
	}
	for _, c := range []struct {
		start, end, heap uint64
		says             string // "" fine
	}{
		{0x7f0000000000, 0x7f0000003000, 0xc000000010, ""},
		{0x7f0000000fff, 0x7f0000002001, 0xc000000010, ""},
		{0x7f0000000000, 0x7f0000003001, 0xc000000010, "not readable and writable"},
		{0x7f0000003fff, 0x7f0000004001, 0xc000000010, "not readable"},
		{0x7f0000004000, 0x7f0000004001, 0xc000000010, "nothing is mapped at 0x7f0000004000"},
		{0x7effffffffff, 0x7f0000000001, 0xc000000010, "nothing is mapped"},
		{0xc000000000, 0xc000000001, 0xc000000010, "Go's memory"},
		{0xc000000000, 0xc000000001, 0, "Go's memory ([anon: Go: heap])"},
		{0xc003ffffff, 0xc004000000, 0xc000000010, "Go's memory (heap"},
		{0x7f0000005000, 0x7f0000005001, 0xc000000010, "gc bits"},
		{0x8f0000005000, 0x8f0000005001, 0xc000000010, "nothing is mapped"},
	} {
		err := newMappings(list, c.heap).check(Range{uintptr(c.start), int64(c.end - c.start)})
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%#x-%#x: %v, want %q", c.start, c.end, err, c.says)
		}
	}
}

func TestHugeBytes(t *testing.T) {
	text := `7f0000000000-7f0000800000 rw-p 00000000 00:00 0 
Size:               8192 kB
AnonHugePages:      6144 kB
ShmemPmdMapped:        0 kB
7f0000800000-7f0000a00000 rw-p 00000000 00:00 0 
AnonHugePages:      2048 kB
`
	if n := hugeBytes([]byte(text), area{start: 0x7f0000000000, size: 8 << 20}); n != 6<<20 {
		t.Errorf("%d bytes", n)
	}
}

func FuzzMaps(f *testing.F) {
	f.Add([]byte(mapsText), uint64(0x7f0000000000), uint64(100), uint64(0xc000000000))
	f.Fuzz(func(t *testing.T, text []byte, start, size, heap uint64) {
		if start+size < start {
			return
		}
		list := parseMaps(text)
		for _, v := range list {
			if v.start >= v.end {
				t.Errorf("%+v", v)
			}
		}
		_ = newMappings(list, heap).check(Range{uintptr(start), int64(size >> 1)})
		_ = hugeBytes(text, area{start: uintptr(start), size: uintptr(size)})
	})
}
