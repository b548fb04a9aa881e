package fleet

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/internal/text"
)

// CodeNotGolden is a finding about a host that differs from the host that all should be like.
const CodeNotGolden Code = "not-golden"

// Against compares each host with a golden host of its kind, from another fleet or from a single document. If the
// golden fleet has several hosts of a kind, the values of most of them count.
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
	want := map[cell][]value{}
	for _, m := range models {
		for _, v := range m.valuesAgainst(h) {
			want[v.cell] = append(want[v.cell], v)
		}
	}
	for _, v := range h.valuesAgainst(h) {
		have := want[v.cell]
		if len(have) == 0 || slices.ContainsFunc(have, func(o value) bool { return o.same(&v) }) {
			continue
		}
		counts := map[string]int{}
		for _, o := range have {
			counts[o.text]++
		}
		majority, ok := majorityOf(counts)
		if len(counts) > 1 && !ok {
			continue // the golden hosts disagree themselves
		}
		model := &have[slices.IndexFunc(have, func(o value) bool { return o.text == majority })]
		c.blame([]value{v}, model, counts[majority])
	}
	slices.SortStableFunc(c.blamed, func(a, b difference) int { return compareCells(a.cell, b.cell) })
	for _, x := range c.oddities() {
		x.Code = CodeNotGolden
		f.find(x)
	}
}
