// Package bitmap reads and writes the sets of CPUs and NUMA nodes that NCCL's
// and hwloc's files hold: groups of 32 bits in hexadecimal, the highest first.
package bitmap

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// MaxMember bounds the members of a set; Linux knows at most 8192 CPUs.
const MaxMember = 1<<15 - 1

// Set is a set of small numbers, 32 in a word, the lowest word first. Words
// at the end may be zero.
type Set []uint32

// Parse reads "00ff,00000001" (kernel, NCCL) and "0xff,,0x1" (hwloc, where an
// empty group is zero and "0xf...f" stands for endless ones, read as 32).
func Parse(text string) (Set, error) {
	groups := strings.Split(strings.TrimSpace(text), ",")
	if len(groups) > (MaxMember+1)/32 {
		return nil, fmt.Errorf("a mask of %d groups: at most %d are read", len(groups), (MaxMember+1)/32)
	}
	s := make(Set, len(groups))
	for i, g := range groups {
		word := &s[len(groups)-1-i]
		switch g = strings.TrimPrefix(g, "0x"); {
		case g == "" && len(groups) > 1:
		case g == "f...f" && i == 0:
			*word = ^uint32(0)
		default:
			v, err := strconv.ParseUint(g, 16, 32)
			if err != nil {
				return nil, fmt.Errorf("%.60q is no mask", text)
			}
			*word = uint32(v)
		}
	}
	return s, nil
}

// ParseList reads "0-47,96", as the kernel lists CPUs; "" is the empty set.
func ParseList(list string) (Set, error) {
	var s Set
	if strings.TrimSpace(list) == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		lo, hi, ranged := strings.Cut(strings.TrimSpace(part), "-")
		if !ranged {
			hi = lo
		}
		first, err1 := strconv.ParseUint(lo, 10, 32)
		last, err2 := strconv.ParseUint(hi, 10, 32)
		if err1 != nil || err2 != nil || last < first || last > MaxMember {
			return nil, fmt.Errorf("%.60q is no list of CPUs", list)
		}
		for n := first; n <= last; n++ {
			s.Add(int(n))
		}
	}
	return s, nil
}

// Add puts n into the set.
func (s *Set) Add(n int) {
	for n/32 >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[n/32] |= 1 << (n % 32)
}

// Len is the number of members.
func (s Set) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount32(w)
	}
	return n
}

// Members lists the members in order.
func (s Set) Members() []int {
	out := make([]int, 0, s.Len())
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			out = append(out, i*32+bits.TrailingZeros32(w))
		}
	}
	return out
}

// word is the i-th word, zero beyond the end.
func (s Set) word(i int) uint32 {
	if i < len(s) {
		return s[i]
	}
	return 0
}

// Has says whether n is a member.
func (s Set) Has(n int) bool { return n >= 0 && s.word(n/32)>>(n%32)&1 == 1 }

// Contains says whether every member of o is one of s.
func (s Set) Contains(o Set) bool {
	for i, w := range o {
		if w&^s.word(i) != 0 {
			return false
		}
	}
	return true
}

// Equal says whether both have the same members.
func (s Set) Equal(o Set) bool { return s.Contains(o) && o.Contains(s) }

// Union is the members of either.
func (s Set) Union(o Set) Set {
	out := make(Set, max(len(s), len(o)))
	for i := range out {
		out[i] = s.word(i) | o.word(i)
	}
	return out
}

// Minus is the members of s that are not in o.
func (s Set) Minus(o Set) Set {
	out := make(Set, len(s))
	for i := range s {
		out[i] = s[i] &^ o.word(i)
	}
	return out
}

// List writes the set as the kernel lists CPUs, "0-47,96".
func (s Set) List() string {
	var b strings.Builder
	members := s.Members()
	for i := 0; i < len(members); {
		end := i
		for end+1 < len(members) && members[end+1] == members[end]+1 {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(members[i]))
		if end > i {
			b.WriteString("-" + strconv.Itoa(members[end]))
		}
		i = end + 1
	}
	return b.String()
}

// Hex writes the set in groups of eight digits, each with the prefix ("0x" for
// hwloc, "" for NCCL). The empty set is one group.
func (s Set) Hex(prefix string) string {
	n := len(s)
	for n > 1 && s[n-1] == 0 {
		n--
	}
	groups := make([]string, max(n, 1))
	for i := range groups {
		groups[len(groups)-1-i] = fmt.Sprintf("%s%08x", prefix, s.word(i))
	}
	return strings.Join(groups, ",")
}
