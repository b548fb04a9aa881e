package judge_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/judge"
)

func shapes(t *rapid.T) shape {
	return shape{hosts: rapid.IntRange(2, 5).Draw(t, "hosts"), nics: rapid.IntRange(1, 3).Draw(t, "nics"),
		rails: rapid.Bool().Draw(t, "rails"), spines: rapid.IntRange(0, 2).Draw(t, "spines"),
		uplink: float64(rapid.IntRange(1, 2).Draw(t, "uplink")), cross: rapid.Bool().Draw(t, "cross")}
}

// Nobody is blamed in a fabric that is well.
func TestHealthy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(shapes(t), rapid.Uint64().Draw(t, "seed"))
		m.noise = rapid.SampledFrom([]float64{0, 0.005, 0.02}).Draw(t, "noise")
		m.measure()
		judge.Judge(m.r)
		if len(m.r.Blame) > 0 || m.r.Summary.Pass != len(m.r.Results) {
			t.Fatalf("blame %+v, summary %+v", m.r.Blame, m.r.Summary)
		}
	})
}

// With noise, and through the retests that a run makes: a planted part is the one that is
// blamed, or among its suspects. Two may look like a third that explains both (a leaf for two
// NICs on it), so there is some blame; that it is the smallest, TestBlameIsSmallest shows.
func TestPlanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(shapes(t), rapid.Uint64().Draw(t, "seed"))
		m.noise = rapid.SampledFrom([]float64{0.002, 0.01, 0.02}).Draw(t, "noise")
		m.r.Rules.Retests = rapid.IntRange(0, 2).Draw(t, "retests")
		var planted []fault
		all := m.faults()
		for range rapid.IntRange(1, 2).Draw(t, "faults") {
			f := rapid.SampledFrom(all).Draw(t, "fault")
			planted = append(planted, f)
			m.plant(f, rapid.SampledFrom([]float64{0.25, 0.5, 0.6, 0.75, 0.85}).Draw(t, "part"))
		}
		m.measure()
		judge.Verdicts(m.r)
		m.retest(t)
		judge.Judge(m.r)
		if m.r.Summary.Fail == 0 {
			return
		}
		if len(m.r.Blame) == 0 || len(m.r.Blame) > 1 && len(planted) == 1 {
			t.Fatalf("planted %+v, blame %+v", planted, m.r.Blame)
		}
		if len(planted) == 1 && !named(m.r.Blame, planted[0]) {
			t.Fatalf("planted %+v, blame %+v", planted, m.r.Blame)
		}
	})
}

// A link that answers late is among the suspects, where some pair does not cross it.
func TestLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(shapes(t), rapid.Uint64().Draw(t, "seed"))
		f := rapid.SampledFrom(slices.DeleteFunc(m.faults(), func(f fault) bool { return f.kind != "link" })).Draw(t, "fault")
		m.late[f.links[0]] = float64(rapid.IntRange(4000, 50000).Draw(t, "ns"))
		m.measure()
		judge.Verdicts(m.r)
		m.retest(t)
		judge.Judge(m.r)
		switch {
		case m.r.Summary.Fail > 0:
			t.Fatalf("no latency is expected, and one failed: %+v", m.r.Summary)
		case m.r.Summary.Warn > 0 && (len(m.r.Blame) != 1 || !named(m.r.Blame, f)):
			t.Fatalf("planted %+v, blame %+v", f, m.r.Blame)
		case m.r.Summary.Warn == 0 && len(m.r.Blame) > 0:
			t.Fatalf("no bad pair, blame %+v", m.r.Blame)
		}
	})
}

// Others use half of every uplink: hundreds of pairs are slow in rounds and fine alone. Not all
// are measured again, and still no part is called broken.
func TestManyContended(t *testing.T) {
	m := newModel(shape{hosts: 16, nics: 2, spines: 1, uplink: 2, cross: true}, 1)
	for _, part := range []float64{0.5, 2} {
		for _, l := range m.r.Links {
			if l.Kind == probe.LinkUplink {
				m.caps[l.Key] *= part
			}
		}
		if part < 1 {
			m.measure()
		}
	}
	judge.Verdicts(m.r)
	slow := m.r.Summary.Fail
	alone := m.retest(t)
	judge.Judge(m.r)
	if slow < 500 || alone > slow/2 || m.r.Summary.Warn != alone {
		t.Errorf("%d slow, %d measured again, summary %+v", slow, alone, m.r.Summary)
	}
	for _, b := range m.r.Blame {
		if !strings.HasPrefix(b.Evidence[0], "congested, not broken") {
			t.Errorf("blame %+v", b)
		}
	}
	if len(m.r.Blame) == 0 {
		t.Error("nothing is said of congestion")
	}
}

// A pair that failed was in its round all the same: what the other one got of a link
// that they share says little of the link.
func TestUnknownNeighbour(t *testing.T) {
	m := newModel(shape{hosts: 4, nics: 1, spines: 1, uplink: 2}, 1)
	up := probe.Key("", "leaf:l1/spine:s1", "up")
	m.caps[up] /= 2
	m.r.Rules.Retests = 0
	m.measure()
	m.r.Hosts[1].Error = "gone"
	for i := range m.r.Results {
		if res := &m.r.Results[i]; res.From.Host == "n2" && res.To.Host == "n4" {
			res.Measurement = probe.Measurement{Err: probe.Because(probe.CauseConnect, errors.New("gone"))}
		}
	}
	judge.Judge(m.r)
	if len(m.r.Blame) != 1 || len(m.r.Blame[0].Pairs) != 3 || !named(m.r.Blame, fault{kind: "direction", key: string(up)}) {
		t.Errorf("blame %+v", m.r.Blame)
	}
}

// Both sizes of goals: 3,584 pairs in well under a second, 32,256 in seconds.
func BenchmarkBlame(b *testing.B) {
	small := shape{hosts: 8, nics: 8, rails: true, spines: 4, uplink: 8, cross: true}
	large := shape{hosts: 64, nics: 8, rails: true}
	for _, bb := range []struct {
		name  string
		s     shape
		kinds []string
		count int // of faults
		part  float64
	}{
		{"8x8-all/nic", small, []string{"nic"}, 1, 0.5},
		{"8x8-all/host", small, []string{"host"}, 1, 0.5},
		{"8x8-all/mess", small, []string{"direction", "nic", "link"}, 25, 0},
		{"64x8-same/nic", large, []string{"nic"}, 1, 0.5},
		{"64x8-same/host", large, []string{"host"}, 1, 0.5},
		{"64x8-same/leaf", large, []string{"leaf"}, 1, 0.5},
		{"64x8-same/mess", large, []string{"direction", "nic", "host"}, 100, 0},
		{"64x8-same/all", large, []string{"direction"}, 1 << 20, 0.5},
	} {
		b.Run(bb.name, func(b *testing.B) {
			m := newModel(bb.s, 1)
			faults := slices.DeleteFunc(m.faults(), func(f fault) bool { return !slices.Contains(bb.kinds, f.kind) })
			if bb.count < len(faults) {
				m.rng.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
				faults = faults[:bb.count]
			}
			for _, f := range faults {
				part := bb.part
				if part == 0 {
					part = 0.2 + 0.6*m.rng.Float64()
				}
				m.plant(f, part)
			}
			m.measure()
			for b.Loop() {
				judge.Judge(m.r)
			}
			b.ReportMetric(float64(len(m.r.Results)), "pairs")
			b.ReportMetric(float64(len(m.r.Blame)), "blames")
		})
	}
}

// Errors that are not of the way accuse nobody: an agent refused, or had no memory.
func TestRefusedIsNoBlame(t *testing.T) {
	for why, want := range map[probe.Cause]bool{"": false, "of a newer writer": false, probe.CauseConnect: true, probe.CauseMove: true} {
		m := newModel(shape{hosts: 4, nics: 1, spines: 1, uplink: 2}, 1)
		m.measure()
		for i := range m.r.Results {
			if res := &m.r.Results[i]; res.From.Host == "n2" {
				res.Measurement = probe.Measurement{Err: probe.Because(why, errors.New("refused"))}
			}
		}
		judge.Judge(m.r)
		if blamed := len(m.r.Blame) > 0; blamed != want || m.r.Summary.Error != 3 {
			t.Errorf("%q: blame %+v, %+v", why, m.r.Blame, m.r.Summary)
		}
	}
}
