package sysfs

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// maxCPU bounds CPU numbers: the kernel's own limit (NR_CPUS) is far below, and
// a hostile "0-4294967295" must not cost memory.
const maxCPU = 1<<16 - 1

// cpuSet is a set of CPU numbers, one bit each.
type cpuSet []uint64

// parseCPUList reads the list form "0-3,8"; the empty string is the empty set.
// Source: Documentation/admin-guide/cputopology.rst.
func parseCPUList(s string) (cpuSet, error) {
	var set cpuSet
	if s == "" {
		return set, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		a, e1 := parseUint(lo, maxCPU)
		b, e2 := parseUint(hi, maxCPU)
		if e1 != nil || e2 != nil || a > b {
			return nil, fmt.Errorf("%q: want a list of CPUs like 0-3,8", clip(s))
		}
		for n := a; n <= b; n++ {
			set.add(n)
		}
	}
	return set, nil
}

// parseCPUMask reads the mask form "00000000,0000ffff": comma-separated groups
// of up to eight hexadecimal digits, the last group holding CPUs 0 to 31.
func parseCPUMask(s string) (cpuSet, error) {
	groups := strings.Split(s, ",")
	var set cpuSet
	for i, group := range groups {
		word, err := strconv.ParseUint(group, 16, 32)
		base := 32 * (len(groups) - 1 - i)
		if err != nil || len(group) > 8 || (word != 0 && base+31 > maxCPU) {
			return nil, fmt.Errorf("%q: want a mask of CPUs like 00000000,0000ffff", clip(s))
		}
		for ; word != 0; word &= word - 1 {
			set.add(base + bits.TrailingZeros64(word))
		}
	}
	return set, nil
}

func (s *cpuSet) add(n int) {
	for len(*s) <= n/64 {
		*s = append(*s, 0)
	}
	(*s)[n/64] |= 1 << (n % 64)
}

func (s cpuSet) has(n int) bool { return n >= 0 && n/64 < len(s) && s[n/64]&(1<<(n%64)) != 0 }

func (s cpuSet) empty() bool { return s.count() == 0 }

func (s cpuSet) count() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// within says whether every CPU of s is in o.
func (s cpuSet) within(o cpuSet) bool {
	for i, w := range s {
		if i >= len(o) {
			if w != 0 {
				return false
			}
			continue
		}
		if w&^o[i] != 0 {
			return false
		}
	}
	return true
}

// and is the intersection.
func (s cpuSet) and(o cpuSet) cpuSet {
	out := make(cpuSet, min(len(s), len(o)))
	for i := range out {
		out[i] = s[i] & o[i]
	}
	return out
}

// remove takes the CPUs of o out of s.
func (s cpuSet) remove(o cpuSet) {
	for i := range min(len(s), len(o)) {
		s[i] &^= o[i]
	}
}

// union adds the CPUs of o to s.
func (s *cpuSet) union(o cpuSet) {
	for len(*s) < len(o) {
		*s = append(*s, 0)
	}
	for i, w := range o {
		(*s)[i] |= w
	}
}

// first is the smallest CPU, -1 for the empty set.
func (s cpuSet) first() int {
	for i, w := range s {
		if w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// String gives the list form.
func (s cpuSet) String() string {
	var buf []byte
	for n := 0; n < len(s)*64; n++ {
		if !s.has(n) {
			continue
		}
		end := n
		for s.has(end + 1) {
			end++
		}
		if len(buf) > 0 {
			buf = append(buf, ',')
		}
		buf = strconv.AppendInt(buf, int64(n), 10)
		if end > n {
			buf = strconv.AppendInt(append(buf, '-'), int64(end), 10)
		}
		n = end
	}
	return string(buf)
}

var errNumber = errors.New("not a number in range")

// parseUint reads a decimal number without sign, from 0 to limit.
func parseUint(s string, limit int) (int, error) {
	if s == "" || len(s) > 18 {
		return 0, errNumber
	}
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, errNumber
		}
		n = n*10 + int(s[i]-'0')
	}
	if n > limit {
		return 0, errNumber
	}
	return n, nil
}
