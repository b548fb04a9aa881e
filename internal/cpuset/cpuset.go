// Package cpuset is sets of CPU numbers (or NUMA node numbers) in the forms in which the
// kernel, NCCL, hwloc and NVML write them, and what a process's control groups let it have.
package cpuset

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Max is the highest member of a set. The kernel's own limit (NR_CPUS) is far below, and a
// hostile "0-4294967295" must not cost memory: a set takes at most 8 KiB.
const Max = 1<<16 - 1

// Set is a set of numbers from 0 to Max. It is a value: no method changes it. The zero Set
// is empty.
type Set struct {
	words []uint64 // the lowest numbers first; the last word is not zero
}

// Of is the set of the given numbers. Those that are not in 0 to Max are left out.
func Of(members ...int) Set {
	var s Set
	for _, n := range members {
		if n >= 0 && n <= Max {
			s.add(n)
		}
	}
	return s
}

// FromWords is the set whose members are the bits that are set, the lowest word first, as
// NVML fills them. Bits above Max are left out.
func FromWords(words []uint) Set {
	var s Set
	for i, w := range words[:min(len(words), (Max+1)/bits.UintSize)] {
		for ; w != 0; w &= w - 1 {
			s.add(i*bits.UintSize + bits.TrailingZeros(w))
		}
	}
	return s
}

// Parse reads the list form, "0-3,8", in any order and with blanks around the parts; an
// empty or blank text is the empty set.
// Source: Documentation/admin-guide/cputopology.rst of the kernel.
func Parse(list string) (Set, error) {
	var s Set
	if strings.TrimSpace(list) == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		lo, hi, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			hi = lo
		}
		first, err1 := strconv.ParseUint(lo, 10, 32)
		last, err2 := strconv.ParseUint(hi, 10, 32)
		if err1 != nil || err2 != nil || first > last || last > Max {
			return Set{}, fmt.Errorf("%.64q: want a list of CPUs like 0-3,8", list)
		}
		for n := first; n <= last; n++ {
			s.add(int(n))
		}
	}
	return s, nil
}

// ParseMask reads the kernel's mask form, "00000000,0000ffff": groups of at most eight
// hexadecimal digits, the last one of them for 0 to 31.
func ParseMask(mask string) (Set, error) {
	s, ok := parseGroups(mask, func(group string, _ bool) (uint64, bool) {
		word, err := strconv.ParseUint(group, 16, 32)
		return word, err == nil && len(group) <= 8
	})
	if !ok {
		return Set{}, fmt.Errorf("%.64q: want a mask of CPUs like 00000000,0000ffff", mask)
	}
	return s, nil
}

// ParseHwlocMask reads hwloc's mask form, "0xff,,0x1": groups as in ParseMask, with or
// without prefix, an empty one of several is zero. A first group "0xf...f" stands for
// endless ones, which are read as 32.
func ParseHwlocMask(mask string) (Set, error) {
	mask = strings.TrimSpace(mask)
	const most = (Max + 1) / 32
	groups := 1 + strings.Count(mask, ",")
	if groups > most {
		return Set{}, fmt.Errorf("a mask of %d groups: at most %d are read", groups, most)
	}
	s, ok := parseGroups(mask, func(group string, first bool) (uint64, bool) {
		switch group = strings.TrimPrefix(group, "0x"); {
		case group == "" && groups > 1:
			return 0, true
		case group == "f...f" && first:
			return 1<<32 - 1, true
		}
		word, err := strconv.ParseUint(group, 16, 32)
		return word, err == nil
	})
	if !ok {
		return Set{}, fmt.Errorf("%.60q is no mask", mask)
	}
	return s, nil
}

// parseGroups reads groups of 32 bits from the last one, which is the lowest, to the first.
func parseGroups(mask string, parse func(group string, first bool) (word uint64, ok bool)) (Set, bool) {
	var s Set
	for base := 0; ; base += 32 {
		comma := strings.LastIndexByte(mask, ',')
		word, ok := parse(mask[comma+1:], comma < 0)
		if !ok || word != 0 && base+31 > Max {
			return Set{}, false
		}
		for ; word != 0; word &= word - 1 {
			s.add(base + bits.TrailingZeros64(word))
		}
		if comma < 0 {
			return s, true
		}
		mask = mask[:comma]
	}
}

// add is for a set that nobody else has yet.
func (s *Set) add(n int) {
	for n/64 >= len(s.words) {
		s.words = append(s.words, 0)
	}
	s.words[n/64] |= 1 << (n % 64)
}

func (s Set) word(i int) uint64 {
	if i < len(s.words) {
		return s.words[i]
	}
	return 0
}

// IsEmpty reports whether s has no members.
func (s Set) IsEmpty() bool { return len(s.words) == 0 }

// Len is the number of members.
func (s Set) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Contains reports whether n is a member.
func (s Set) Contains(n int) bool { return n >= 0 && s.word(n/64)>>(n%64)&1 == 1 }

// First is the smallest member, -1 of an empty set.
func (s Set) First() int {
	for n := range s.All() {
		return n
	}
	return -1
}

// Last is the largest member, -1 of an empty set.
func (s Set) Last() int {
	if s.IsEmpty() {
		return -1
	}
	return len(s.words)*64 - 1 - bits.LeadingZeros64(s.words[len(s.words)-1])
}

// All gives the members, the smallest first. A slice of them is slices.Collect(s.All()).
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s.words {
			for ; w != 0; w &= w - 1 {
				if !yield(i*64 + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// Equal reports whether both have the same members.
func (s Set) Equal(o Set) bool { return slices.Equal(s.words, o.words) }

// SubsetOf reports whether every member of s is one of o.
func (s Set) SubsetOf(o Set) bool { return s.Minus(o).IsEmpty() }

// Overlaps reports whether s and o have a member in common.
func (s Set) Overlaps(o Set) bool { return !s.Intersect(o).IsEmpty() }

// Union is the members of either.
func (s Set) Union(o Set) Set {
	return combine(max(len(s.words), len(o.words)), func(i int) uint64 { return s.word(i) | o.word(i) })
}

// Intersect is the members of both.
func (s Set) Intersect(o Set) Set {
	return combine(min(len(s.words), len(o.words)), func(i int) uint64 { return s.word(i) & o.word(i) })
}

// Minus is the members of s that are not in o.
func (s Set) Minus(o Set) Set {
	return combine(len(s.words), func(i int) uint64 { return s.word(i) &^ o.word(i) })
}

func combine(words int, word func(i int) uint64) Set {
	for words > 0 && word(words-1) == 0 {
		words--
	}
	if words == 0 {
		return Set{}
	}
	out := Set{make([]uint64, words)}
	for i := range out.words {
		out.words[i] = word(i)
	}
	return out
}

// String is the list form, "0-3,8", rising; "" for the empty set.
func (s Set) String() string {
	var out []byte
	first, last := -1, -1
	flush := func() {
		if first < 0 {
			return
		}
		if len(out) > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(first), 10)
		if last > first {
			out = strconv.AppendInt(append(out, '-'), int64(last), 10)
		}
	}
	for n := range s.All() {
		if first < 0 || n != last+1 {
			flush()
			first = n
		}
		last = n
	}
	flush()
	return string(out)
}

// Mask is the mask form of NCCL, "00000000,0000ffff", as short as it can be in whole
// groups; one group of zeros for the empty set.
func (s Set) Mask() string { return s.mask(8, s.groups()) }

// KernelMask is the mask form as the kernel writes it, width bits wide: no group is left
// out, and the first one has only the digits that its bits need. A width that is too small
// for the members of s is raised.
// Source: bitmap_string in lib/vsprintf.c.
func (s Set) KernelMask(width int) string {
	width = max(width, s.Last()+1, 1)
	digits := (width%32 + 3) / 4
	if width%32 == 0 {
		digits = 8
	}
	return s.mask(digits, (width+31)/32)
}

// groups is how many groups of 32 the members take, at least one.
func (s Set) groups() int { return max(1, s.Last()/32+1) }

func (s Set) mask(firstDigits, groups int) string {
	var b strings.Builder
	digits := firstDigits
	for i := groups - 1; i >= 0; i-- {
		word := strconv.FormatUint(uint64(uint32(s.word(i/2)>>(i%2*32))), 16)
		b.WriteString("00000000"[:max(0, digits-len(word))])
		b.WriteString(word)
		if digits = 8; i > 0 {
			b.WriteByte(',')
		}
	}
	return b.String()
}
