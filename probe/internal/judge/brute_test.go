package judge_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/judge"
)

// guess is a part that may be at fault, as the rules of docs/blame.md have it.
type guess struct {
	thing string // equal for the directions of a link and of a device
	links []probe.LinkKey
}

// brute is the rules again, by trying everything.
type brute struct {
	r       *probe.Report
	guesses []guess
	load    []map[probe.LinkKey]float64 // by result: what its round put on its links
	most    []map[probe.LinkKey]float64 // the same, infinite where the load of one is not known
	bad     []int
}

func newBrute(r *probe.Report) *brute {
	b := &brute{r: r, load: make([]map[probe.LinkKey]float64, len(r.Results)), most: make([]map[probe.LinkKey]float64, len(r.Results))}
	crossed := map[probe.LinkKey]bool{}
	for i := range r.Results {
		b.load[i], b.most[i] = map[probe.LinkKey]float64{}, map[probe.LinkKey]float64{}
		if r.Results[i].Round == 0 {
			continue
		}
		below := slices.ContainsFunc(r.Results[i].Reasons, func(r probe.Reason) bool {
			return r.Code == probe.CodeBelowFail || r.Code == probe.CodeBelowWarn || r.Code == probe.CodeError
		})
		if below { // what is an outlier only is not bad before a retest
			b.bad = append(b.bad, i)
		}
		for _, k := range r.Results[i].Path {
			crossed[k] = true
			for j := range r.Results {
				o := &r.Results[j]
				switch {
				case o.Round != r.Results[i].Round || !slices.Contains(o.Path, k):
				case o.Bandwidth == nil:
					b.most[i][k] = math.Inf(1)
				default:
					b.load[i][k] += rateOf(o)
					b.most[i][k] += rateOf(o)
				}
			}
		}
	}
	add := func(thing string, links []probe.LinkKey) {
		links = slices.DeleteFunc(links, func(k probe.LinkKey) bool { return !crossed[k] })
		if len(links) > 0 && !slices.ContainsFunc(b.guesses, func(g guess) bool { return g.thing == thing && slices.Equal(g.links, links) }) {
			b.guesses = append(b.guesses, guess{thing, links})
		}
	}
	for i, l := range r.Links {
		thing := "link " + l.Host + " " + string(l.Link)
		add(thing, []probe.LinkKey{l.Key})
		if i%2 == 0 {
			add(thing, []probe.LinkKey{l.Key, r.Links[i+1].Key})
		}
	}
	for _, d := range r.Devices {
		for _, directions := range [][]string{{"down"}, {"up"}, {"down", "up"}} {
			var links []probe.LinkKey
			for _, l := range r.Links {
				if slices.Contains(l.On, d.Key) && slices.Contains(directions, l.Direction) {
					links = append(links, l.Key)
				}
			}
			add(d.Kind+" "+d.Key, links)
		}
	}
	return b
}

func rateOf(r *probe.Result) float64 { return float64(r.Bandwidth[0].MeanBytesPerSec) }

// explains says whether a guess may have made a pair bad.
func (b *brute) explains(g guess, p int) bool {
	possible, most := false, 0.0
	for _, k := range b.r.Results[p].Path {
		if !slices.Contains(g.links, k) {
			continue
		}
		mine := b.most[p][k]
		if b.r.Results[p].Verdict == probe.Error {
			mine = 0
		}
		most = max(most, mine)
		cleared := false
		for q := range b.r.Results {
			if b.r.Results[q].Bandwidth == nil {
				continue
			}
			good := b.r.Results[q].Verdict == probe.Pass
			cleared = cleared || b.load[q][k] > 1.10*mine || good && b.load[q][k] > 1.03*mine
		}
		possible = possible || !cleared
	}
	if !possible || len(g.links) == 1 {
		return possible
	}
	for q := range b.r.Results {
		for _, k := range b.r.Results[q].Path {
			if b.r.Results[q].Verdict == probe.Pass && slices.Contains(g.links, k) && b.load[q][k] > 1.03*most {
				return false
			}
		}
	}
	return true
}

// smallest gives the size of the smallest sets of guesses that explain all bad pairs, and the
// guesses in them.
func (b *brute) smallest(t *rapid.T) (size int, in []guess) {
	masks := make([][]bool, len(b.guesses))
	for i, g := range b.guesses {
		masks[i] = make([]bool, len(b.bad))
		for j, p := range b.bad {
			masks[i][j] = b.explains(g, p)
		}
	}
	used := map[int]bool{}
	var try func(from int, set []int, size int)
	try = func(from int, set []int, size int) {
		if len(set) == size {
			for j := range b.bad {
				if !slices.ContainsFunc(set, func(i int) bool { return masks[i][j] }) {
					return
				}
			}
			for _, i := range set {
				used[i] = true
			}
			return
		}
		for i := from; i < len(masks); i++ {
			try(i+1, append(set, i), size)
		}
	}
	for size = 1; size <= 2; size++ {
		if try(0, nil, size); len(used) > 0 {
			for i := range b.guesses {
				if used[i] {
					in = append(in, b.guesses[i])
				}
			}
			return size, in
		}
	}
	t.Fatal("two planted faults are no explanation")
	return
}

func (b *brute) thingOf(s probe.Suspect) string {
	if s.Kind != "direction" && s.Kind != "link" {
		return s.Kind + " " + s.Key
	}
	for _, l := range b.r.Links {
		if l.Key == probe.LinkKey(s.Key) {
			return "link " + l.Host + " " + string(l.Link)
		}
	}
	return ""
}

// planted is the judged report of a small fabric with so many faults, some of whose pairs were never measured.
func planted(t *rapid.T, least, most int) (*brute, []fault) {
	s := shapes(t)
	s.hosts, s.nics = min(s.hosts, 4), min(s.nics, 2)
	m := newModel(s, rapid.Uint64().Draw(t, "seed"))
	m.noise = 0
	all := m.faults()
	var faults []fault
	for range rapid.IntRange(least, most).Draw(t, "faults") {
		f := rapid.SampledFrom(all).Draw(t, "fault")
		faults = append(faults, f)
		m.plant(f, rapid.SampledFrom([]float64{0, 0.2, 0.35, 0.5, 0.7}).Draw(t, "part"))
	}
	for i := range m.r.Results {
		if rapid.IntRange(0, 4).Draw(t, "left out") == 0 {
			m.r.Results[i].Round = 0
		}
	}
	m.measure()
	for i := range m.r.Results {
		if res := &m.r.Results[i]; res.Bandwidth != nil && rateOf(res) == 0 {
			res.Measurement = probe.Measurement{Err: probe.Because(probe.CauseMove, errors.New("timeout"))}
		}
	}
	judge.Judge(m.r)
	return newBrute(m.r), faults
}

// With one or two faults, and some pairs never measured, the blame is what trying every set
// of every part gives: as few faults, and the same suspects.
func TestBlameIsSmallest(t *testing.T) {
	sizes := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		b, faults := planted(t, 1, 2)
		if len(b.bad) == 0 {
			if len(b.r.Blame) > 0 {
				t.Fatalf("no bad pair, blame %+v", b.r.Blame)
			}
			return
		}
		size, in := b.smallest(t)
		compare(t, b, size, in, faults)
		sizes[fmt.Sprintf("%d planted, %d blamed", len(faults), size)]++
	})
	t.Log(sizes)
}

// With more faults there may be smaller sets than the one that is blamed. But every bad pair is in an entry, one
// suspect of each entry explains all of its pairs, every other one explains some (none is accused that is
// cleared of all), and where three faults or more explain pairs together, the entry says by what search they
// were found.
func TestManyFaults(t *testing.T) {
	more := 0
	rapid.Check(t, func(t *rapid.T) {
		b, faults := planted(t, 3, 6)
		listed := map[string]bool{}
		for _, blame := range b.r.Blame {
			for _, id := range blame.Pairs {
				listed[id] = true
			}
		}
		for _, i := range b.bad {
			if !listed[b.r.Results[i].ID] {
				t.Fatalf("%s is not explained\nplanted %+v\nblame %+v", b.r.Results[i].ID, faults, b.r.Blame)
			}
		}
		for _, blame := range b.r.Blame {
			whole := len(blame.Suspects) == 0
			for _, s := range blame.Suspects {
				pairs := 0
				for _, i := range b.bad {
					if slices.Contains(blame.Pairs, b.r.Results[i].ID) && b.explains(guess{b.thingOf(s), s.Links}, i) {
						pairs++
					}
				}
				if pairs == 0 {
					t.Fatalf("suspect %+v is cleared\nplanted %+v\nblame %+v", s, faults, b.r.Blame)
				}
				whole = whole || pairs == len(blame.Pairs)
			}
			if !whole {
				t.Fatalf("no suspect explains all pairs of %+v\nplanted %+v", blame, faults)
			}
			greedy := slices.ContainsFunc(blame.Evidence, func(e string) bool { return strings.HasPrefix(e, "found by greedy search") })
			if greedy && len(b.r.Blame) < 3 {
				t.Fatalf("%d faults by greedy search: %+v", len(b.r.Blame), b.r.Blame)
			}
			if greedy {
				more++
			}
		}
	})
	t.Logf("%d entries were found by greedy search", more)
}

func compare(t *rapid.T, b *brute, size int, in []guess, planted []fault) {
	if len(b.r.Blame) != size {
		t.Fatalf("%d blames, %d faults suffice\nplanted %+v\nblame %+v", len(b.r.Blame), size, planted, b.r.Blame)
	}
	things, want := map[string]bool{}, map[string]bool{}
	for _, blame := range b.r.Blame {
		for _, s := range blame.Suspects {
			thing := b.thingOf(s)
			things[thing] = true
			if !slices.ContainsFunc(in, func(g guess) bool { return g.thing == thing && equalSet(g.links, s.Links) }) {
				t.Fatalf("suspect %+v is in no smallest set\nplanted %+v\nblame %+v", s, planted, b.r.Blame)
			}
		}
	}
	for _, g := range in {
		want[g.thing] = true
		if !things[g.thing] {
			t.Fatalf("%s is in a smallest set and not named\nplanted %+v\nblame %+v", g.thing, planted, b.r.Blame)
		}
	}
	if len(planted) != size {
		return
	}
	for _, f := range planted {
		if thing := b.thingOf(probe.Suspect{Kind: f.kind, Key: f.key}); want[thing] && !named(b.r.Blame, f) {
			t.Fatalf("planted %+v is not named\nblame %+v", f, b.r.Blame)
		}
	}
}

func equalSet(a, b []probe.LinkKey) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}
