package diff

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/units"
)

// value is one attribute of one node. Two values are equal if their keys are.
type value struct {
	known bool
	key   string
	text  string // for people
	data  any    // for programs
	// rank orders values that can be better or worse; a higher one is better.
	rank *int64
}

// word is a text whose absence is unknown.
func word(s string) value { return value{known: s != "", key: s, text: s, data: s} }

// wordOrNone is a text whose absence says that there is none, where told.
func wordOrNone(s string, told bool) value {
	if s == "" && told {
		return none()
	}
	return word(s)
}

// absent says that there is no such thing.
const absent = "none"

func none() value { return value{known: true, text: absent} }

// number is a count or index; nil is unknown.
func number(p *int) value {
	if p == nil {
		return value{}
	}
	return value{known: true, key: strconv.Itoa(*p), text: strconv.Itoa(*p), data: *p}
}

// ranked is a number that is better when higher, with a prefix for people.
func ranked(n int, text string) value {
	r := int64(n)
	return value{known: true, key: strconv.Itoa(n), text: text, data: n, rank: &r}
}

func yes(b bool) value {
	text := "no"
	if b {
		text = "yes"
	}
	return value{known: true, key: text, text: text, data: b}
}

func maybe(b *bool) value {
	if b == nil {
		return value{}
	}
	return yes(*b)
}

// rateOf is a network rate; higher is better.
func rateOf(r *topo.Rate) value {
	if r == nil {
		return value{}
	}
	n := int64(*r)
	return value{known: true, key: strconv.FormatInt(n, 10), text: units.Rate(n, units.Gbit), data: n, rank: &n}
}

// memory is an amount of memory. Kernels and firmware keep a little for
// themselves, not always as much: memory compares such amounts.
func memory(p *int64) value {
	if p == nil {
		return value{}
	}
	return value{known: true, key: strconv.FormatInt(*p, 10), text: units.Bytes(*p), data: *p}
}

// sameMemory says whether two amounts differ by no more than what firmware and
// kernel keep: 1 % or 512 MiB.
func sameMemory(a, b *int64) bool {
	if a == nil || b == nil {
		return a == b
	}
	d := max(*a, *b) - min(*a, *b)
	return d <= max(max(*a, *b)/100, 512<<20)
}

// list is several words, in no order that matters. keys say which they are.
func list(words, keys []string) value {
	keys = slices.Sorted(slices.Values(keys))
	if len(words) == 0 {
		return value{known: true, text: absent, data: []string{}}
	}
	return value{known: true, key: strings.Join(keys, "\n"), text: strings.Join(words, ", "), data: slices.Clone(words)}
}

func numbers(list []int) []string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = strconv.Itoa(n)
	}
	return out
}

func numberText(p *int) string {
	if p == nil {
		return "?"
	}
	return strconv.Itoa(*p)
}

func speedText(mts int) string { return fmt.Sprintf("%g GT/s", float64(mts)/1000) }
