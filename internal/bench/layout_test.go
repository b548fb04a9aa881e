package bench

import (
	"slices"
	"testing"
)

// Every place is visited once before any is again, on both sides, inside the
// worker's own part; consecutive ops lie apart on the far side.
func TestLayout(t *testing.T) {
	for _, tt := range []struct {
		memory, size int64
		parts, batch int
	}{{1 << 20, 4096, 1, 128}, {1 << 20, 4096, 3, 16}, {1 << 20, 1000, 2, 8}, {1 << 20, 1 << 20, 1, 1}, {8192, 4096, 2, 1}, {100, 1, 4, 25}, {1 << 22, 1 << 16, 1, 32}} {
		l, err := newLayout(tt.memory, tt.size, tt.parts, tt.batch)
		if err != nil {
			t.Fatalf("%+v: %v", tt, err)
		}
		for part := range tt.parts {
			var near, far []int64
			for k := range l.slots {
				near, far = append(near, l.near(part, k)), append(far, l.far(part, k))
				if k > 0 && l.slots > 6 && far[k]-far[k-1] == tt.size {
					t.Errorf("%+v: ops %d and %d follow each other on both sides", tt, k-1, k)
				}
			}
			slices.Sort(far)
			if !slices.Equal(near, far) || len(slices.Compact(far)) != int(l.slots) {
				t.Errorf("%+v: part %d visits %d places, then %d", tt, part, len(near), len(far))
			}
			if first, end := int64(part)*tt.memory/int64(tt.parts), near[l.slots-1]+tt.size; near[0] > first || end > int64(part+1)*tt.memory/int64(tt.parts) {
				t.Errorf("%+v: part %d is %d to %d", tt, part, near[0], end)
			}
		}
		if l.near(0, l.slots+1) != l.near(0, 1) || l.far(0, l.slots+1) != l.far(0, 1) {
			t.Errorf("%+v: the second pass is another one", tt)
		}
	}
	if _, err := newLayout(1<<20, 1<<16, 2, 9); err == nil || err.Error() !=
		"bench: ops of 64 KiB, 9 in a batch and 2 batches at a time need 1.1 MiB on each side: there is 1 MiB" {
		t.Errorf("%v", err)
	}
}

func TestPattern(t *testing.T) {
	const size = 4096
	whole := make([]byte, size)
	pattern(7).fill(whole, 0)
	for _, at := range []int{0, 1, 7, 8, 9, 511, 512, 513, 4000} {
		for _, n := range []int{0, 1, 2, 7, 8, 9, 95} {
			piece := make([]byte, n)
			pattern(7).fill(piece, int64(at))
			if !slices.Equal(piece, whole[at:at+n]) {
				t.Errorf("%d bytes at %d are not those of the whole", n, at)
			}
			if wrong, _ := pattern(7).differs(whole[at:at+n], int64(at)); wrong != 0 {
				t.Errorf("%d bytes at %d: %d differ", n, at, wrong)
			}
		}
	}
	for at := range whole { // each byte counts
		whole[at] ^= 1 << (at % 8)
		if wrong, first := pattern(7).differs(whole, 0); wrong != 1 || first != at {
			t.Fatalf("byte %d is wrong: %d, first %d", at, wrong, first)
		}
		whole[at] ^= 1 << (at % 8)
	}
	if wrong, _ := pattern(8).differs(whole, 0); wrong < size*9/10 {
		t.Errorf("another seed differs in %d of %d bytes", wrong, size)
	}
	if wrong, _ := pattern(7).differs(whole[8:], 0); wrong < size*9/10 {
		t.Errorf("another offset differs in %d of %d bytes", wrong, size)
	}
}
