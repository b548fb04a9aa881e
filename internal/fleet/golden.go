package fleet

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/internal/text"
)

// CodeNotGolden is a finding about a host that differs from the host that all should be like.
const CodeNotGolden Code = "not-golden"

// Against compares each host with a golden one of its kind: a host of another fleet, or of a fleet
// made of one document. Where the golden fleet has several hosts of a kind, what most of them have
// counts.
func (f *Fleet) Against(golden *Fleet, label string) {
	for _, hosts := range kinds(f.known()) {
		var unlike []*Host
		for _, h := range hosts {
			models := slices.DeleteFunc(golden.known(), func(m *Host) bool { return !h.like(m) })
			if len(models) == 0 {
				unlike = append(unlike, h)
				continue
			}
			f.against(h, models, label)
		}
		if len(unlike) > 0 {
			f.unknown(CodeNotGolden, fmt.Sprintf("%s: %s has no host of this kind", text.Join(hostNames(unlike), mostNames), label), "", hostNames(unlike))
		}
	}
	f.sort()
}

// against compares one host.
func (f *Fleet) against(h *Host, models []*Host, label string) {
	c := comparison{among: label, golden: label}
	want := map[cell]map[string]int{}
	shown := map[cell]value{}
	by := map[cell]*Host{}
	for _, m := range models {
		for _, v := range m.valuesAgainst(h) {
			at := cell{v.attr, v.place}
			if want[at] == nil {
				want[at] = map[string]int{}
			}
			want[at][v.text]++
			shown[at], by[at] = v, m
		}
	}
	for _, v := range h.valuesAgainst(h) {
		at := cell{v.attr, v.place}
		counts := want[at]
		if counts == nil || counts[v.text] > 0 || v.attr.near && nearEnough(v.number, shown[at].number) {
			continue
		}
		if len(counts) > 1 {
			if _, ok := majorityOf(counts); !ok {
				continue // the golden hosts disagree themselves
			}
		}
		value := mostFrequent(counts)
		c.blamed = append(c.blamed, difference{holding{h, v}, by[at].named(value), by[at], counts[value], 1})
	}
	slices.SortStableFunc(c.blamed, func(a, b difference) int { return a.attr.rank() - b.attr.rank() })
	for _, x := range c.oddities() {
		x.Code = CodeNotGolden
		f.find(x)
	}
}

func nearEnough(a, b int64) bool {
	return float64(max(a, b)-min(a, b)) <= 0.02*float64(max(a, b))
}
