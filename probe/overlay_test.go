package probe_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

const gb = 1_000_000_000

// small is a report of three hosts, each with a wire "w" of 50 GB/s below a PCIe link
// "p" of 63, and a socket link "s" of which a constant says 20.
func small() *probe.Report {
	r := &probe.Report{Schema: probe.Schema, Mode: "fabric"}
	for _, h := range []string{"a", "b", "c"} {
		r.Hosts = append(r.Hosts, probe.Host{Name: h})
		r.Devices = append(r.Devices, probe.Device{Key: h, Kind: "host", Name: h}, probe.Device{Key: h + " nic", Kind: "nic", Name: "nic of " + h})
		for _, l := range []struct {
			id    topo.LinkID
			rate  topo.Rate
			basis topo.Basis
		}{{"w", 50 * gb, topo.BasisRead}, {"p", 63 * gb, topo.BasisRead}, {"s", 20 * gb, topo.BasisTypical}} {
			for _, d := range []string{"up", "down"} {
				rate := l.rate
				r.Links = append(r.Links, probe.Link{Key: probe.Key(h, l.id, d), Host: h, Link: l.id, Direction: d, On: []string{h + " nic", h}, BytesPerSec: &rate, Basis: l.basis})
			}
		}
	}
	return r
}

// measure adds a pair of the hosts over p and w of both, with its mean in GB/s.
func measure(r *probe.Report, from, to string, mean int64, v probe.Verdict) *probe.Result {
	rate := topo.Rate(50 * gb)
	x := probe.Result{Verdict: v, Round: len(r.Results) + 1}
	x.ID, x.Kind, x.PathKnown = from+">"+to, probe.Port, true
	x.From.Host, x.To.Host = from, to
	x.Path = []probe.LinkKey{probe.Key(from, "p", "down"), probe.Key(from, "w", "down"), probe.Key(to, "w", "up"), probe.Key(to, "p", "up")}
	x.Expected = probe.Expected{BytesPerSec: &rate, Basis: topo.BasisRead, Limit: x.Path[1]}
	half := int64(gb / 10)
	x.Bandwidth = []probe.Bandwidth{{SizeBytes: 1 << 20, SamplesBytesPerSec: []int64{mean * gb, mean * gb}, MeanBytesPerSec: mean * gb, MedianBytesPerSec: mean * gb, CI95BytesPerSec: &half, Stopped: probe.StoppedCI}}
	r.Results = append(r.Results, x)
	return &r.Results[len(r.Results)-1]
}

// accuse blames parts, each with its links, for the pairs that failed.
func accuse(r *probe.Report, suspects ...probe.Suspect) {
	b := probe.Blame{Suspects: suspects}
	for _, x := range r.Results {
		if x.Verdict == probe.Fail || x.Verdict == probe.Warn {
			b.Pairs = append(b.Pairs, x.ID)
		}
	}
	r.Blame = append(r.Blame, b)
}

func wire(host string) probe.Suspect {
	return probe.Suspect{Kind: "link", Name: "w of " + host, Key: string(probe.Key(host, "w", "down")), Links: []probe.LinkKey{probe.Key(host, "w", "down"), probe.Key(host, "w", "up")}}
}

// together puts all results in one round.
func together(r *probe.Report) {
	for i := range r.Results {
		r.Results[i].Round = 1
	}
}

func TestOverlay(t *testing.T) {
	type rates = map[string]topo.Overlay
	slowB := func(r *probe.Report) { // what b sends and receives is slow, a and c are well
		measure(r, "a", "b", 10, probe.Fail)
		measure(r, "b", "a", 11, probe.Fail)
		measure(r, "c", "b", 10, probe.Fail)
		measure(r, "b", "c", 10, probe.Fail)
	}
	for name, tt := range map[string]struct {
		make func(r *probe.Report)
		want rates
	}{
		"healthy: the limit, not what lies on the way": {func(r *probe.Report) { measure(r, "a", "b", 48, probe.Pass) }, rates{"a": {"w": 48 * gb}}},
		"the largest mean, of the directions the smaller": {func(r *probe.Report) {
			measure(r, "a", "b", 47, probe.Pass)
			measure(r, "a", "c", 49, probe.Pass)
			measure(r, "b", "a", 46, probe.Pass).Expected.Limit = probe.Key("a", "w", "up")
		}, rates{"a": {"w": 46 * gb}}},
		"faster than expected":                                {func(r *probe.Report) { measure(r, "a", "b", 52, probe.Warn) }, rates{"a": {"w": 52 * gb}}},
		"a slow pair of which nobody knows whose fault it is": {func(r *probe.Report) { measure(r, "a", "b", 10, probe.Fail) }, rates{}},
		"a degraded remote end": {func(r *probe.Report) {
			slowB(r)
			measure(r, "a", "c", 49, probe.Pass)
			measure(r, "c", "a", 48, probe.Pass)
			accuse(r, wire("b"))
		}, rates{"a": {"w": 49 * gb}, "b": {"w": 11*gb - gb}, "c": {"w": 48 * gb}}},
		"a degraded remote end, and no other partner": {func(r *probe.Report) {
			measure(r, "a", "b", 10, probe.Fail)
			accuse(r, wire("b"))
		}, rates{"b": {"w": 10 * gb}}},
		"two suspects: neither": {func(r *probe.Report) {
			measure(r, "a", "b", 10, probe.Fail)
			accuse(r, wire("a"), wire("b"))
		}, rates{}},
		"a device that is blamed: the limit only": {func(r *probe.Report) {
			measure(r, "a", "b", 10, probe.Fail)
			accuse(r, probe.Suspect{Kind: "nic", Name: "nic", Links: []probe.LinkKey{probe.Key("a", "p", "down"), probe.Key("a", "w", "down")}})
		}, rates{"a": {"w": 10 * gb}}},
		"a link that is blamed and was not expected to be the limit": {func(r *probe.Report) {
			measure(r, "a", "b", 10, probe.Fail)
			accuse(r, probe.Suspect{Kind: "direction", Name: "p", Links: []probe.LinkKey{probe.Key("a", "p", "down")}})
		}, rates{"a": {"p": 10 * gb}}},
		"with contention": {func(r *probe.Report) {
			measure(r, "a", "b", 46, probe.Pass)
			measure(r, "a", "c", 46, probe.Pass)
			together(r)
		}, rates{}},
		"with others elsewhere": {func(r *probe.Report) {
			measure(r, "a", "b", 48, probe.Pass)
			measure(r, "b", "a", 48, probe.Pass)
			together(r)
		}, rates{"a": {"w": 48 * gb}, "b": {"w": 48 * gb}}},
		"with contention, and again alone": {func(r *probe.Report) {
			x := measure(r, "a", "b", 20, probe.Pass)
			alone := int64(48 * gb)
			x.Retests = []probe.Retest{{How: probe.RetestAlone, Pair: x.ID, BytesPerSec: &alone}}
			measure(r, "a", "c", 20, probe.Fail)
			together(r)
		}, rates{"a": {"w": 48 * gb}}},
		"again with another partner": {func(r *probe.Report) {
			x := measure(r, "a", "b", 20, probe.Fail)
			other := int64(48 * gb)
			x.Retests = []probe.Retest{{How: probe.RetestOtherPartner, Pair: "a>c", BytesPerSec: &other}}
		}, rates{}},
		"a sweep that was interrupted before the largest ops": {func(r *probe.Report) {
			r.Spec.SizesBytes = []int64{4096, 1 << 20}
			measure(r, "a", "b", 10, probe.Pass).Bandwidth[0].SizeBytes = 4096
			x := measure(r, "b", "a", 9, probe.Pass)
			x.Bandwidth[0].SizeBytes = 4096
			x.Bandwidth = append(x.Bandwidth, probe.Bandwidth{SizeBytes: 1 << 20, Stopped: probe.StoppedInterrupted})
			measure(r, "c", "a", 48, probe.Pass)
		}, rates{"c": {"w": 48 * gb}}},
		"contention on purpose": {func(r *probe.Report) {
			r.Plan.Contend = "w"
			measure(r, "a", "b", 48, probe.Pass)
			measure(r, "b", "c", 48, probe.Pass)
			together(r)
		}, rates{}},
		"ways that are not known": {func(r *probe.Report) {
			measure(r, "a", "b", 60, probe.Warn)
			measure(r, "c", "a", 48, probe.Pass)
			for i := range r.Results {
				r.Results[i].PathKnown = false
			}
			together(r)
		}, rates{"c": {"w": 48 * gb}}},
		"both ways at once, errors, interrupted": {func(r *probe.Report) {
			measure(r, "a", "b", 48, probe.Pass).Variant = probe.VariantBothWays
			measure(r, "b", "a", 48, probe.Error)
			measure(r, "c", "a", 48, probe.Inconclusive).Bandwidth[0].Stopped = probe.StoppedInterrupted
		}, rates{}},
		"a constant, measured": {func(r *probe.Report) {
			for _, x := range []*probe.Result{measure(r, "a", "b", 15, probe.Warn)} {
				x.Path = append(x.Path, probe.Key("a", "s", "up"))
				x.Expected.Limit = probe.Key("a", "s", "up")
			}
		}, rates{"a": {"s": 15 * gb}}},
		"a constant, of a pair that something else slows": {func(r *probe.Report) {
			x := measure(r, "a", "b", 15, probe.Warn)
			x.Path = append(x.Path, probe.Key("a", "s", "up"))
			x.Expected.Limit = probe.Key("a", "s", "up")
			accuse(r, wire("b"))
		}, rates{"b": {"w": 15 * gb}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := small()
			tt.make(r)
			for _, host := range []string{"a", "b", "c", "", "x"} {
				if got := r.Overlay(host); !maps.Equal(got, tt.want[host]) {
					t.Errorf("%q: %v, want %v", host, got, tt.want[host])
				}
			}
		})
	}
}

// The cable of n3 is slow: so says its overlay, and nobody else's.
func TestOverlayOfReports(t *testing.T) {
	r := report(t, "bad-cable")
	for _, h := range r.Hosts {
		o := r.Overlay(h.Name)
		rate := o["port:mlx5_0/1"]
		if h.Name == "n3" && (rate < 12*gb || rate > 13*gb) || h.Name != "n3" && rate < 48*gb || len(o) != 1 {
			t.Errorf("%s: %v", h.Name, o)
		}
	}
	host := fixturetest.Topology(t, "dgx-h100")
	g := topo.NewGraph(host, r.Overlay("n3"))
	if l, ok := g.Link("port:mlx5_0/1"); !ok || l.Basis != topo.BasisMeasured || *l.BytesPerSec > 13*gb {
		t.Errorf("the graph has %v of it", l)
	}
}

func TestBetween(t *testing.T) {
	r := report(t, "local-cpu")
	got := r.Between("node17")
	if len(got) != 4 || got[[2]topo.ID{"numa:0", "numa:1"}] < 9*gb || got[[2]topo.ID{"numa:0", "numa:1"}] > 10*gb || got[[2]topo.ID{"numa:1", "numa:1"}] < 90*gb {
		t.Errorf("%v", got)
	}
	r.Spec.SizesBytes = append(r.Spec.SizesBytes, 1<<40)
	if got := r.Between("node17"); len(got) != 0 {
		t.Errorf("%v of smaller ops than were asked for", got)
	}
	if n := len(report(t, "bad-cable").Between("n1")); n != 0 {
		t.Errorf("%d pairs within a host that has none", n)
	}
	if got := report(t, "interrupted").Between("node17"); len(got) != 6 {
		t.Errorf("%d pairs, want those that were measured to the end: %v", len(got), got)
	}
}

func TestLevel(t *testing.T) {
	fast, slow := topo.Rate(50e9), topo.Rate(25e9)
	top := &topo.Topology{}
	add := func(kind topo.LinkKind, basis topo.Basis, rate *topo.Rate, ids ...topo.LinkID) {
		for _, id := range ids {
			top.Links = append(top.Links, topo.Link{ID: id, Kind: kind, BytesPerSec: rate, Basis: basis})
		}
	}
	add(topo.LinkPort, topo.BasisRead, &fast, "well", "enough", "faster", "a", "b", "c", "lone", "far")
	add(topo.LinkPort, topo.BasisRead, &slow, "other rate")
	add(topo.LinkPort, topo.BasisUnknown, nil, "open", "open too")
	add(topo.LinkPCIe, topo.BasisRead, &fast, "pcie", "slow pcie") // 45.3e9 without headers
	add(topo.LinkSocket, topo.BasisTypical, &slow, "socket")
	got := probe.Level(topo.Overlay{"well": 49e9, "enough": 46.5e9, "faster": 53e9, "a": 46e9, "b": 45e9, "c": 44e9, "lone": 30e9, "far": 80e9,
		"other rate": 20e9, "open": 10e9, "open too": 9.8e9, "pcie": 43e9, "slow pcie": 40e9, "socket": 24.9e9, "gone": 1}, top)
	want := topo.Overlay{"a": 45e9, "b": 45e9, "c": 45e9, "lone": 30e9, "far": 80e9,
		"other rate": 20e9, "open": 9.9e9, "open too": 9.9e9, "slow pcie": 40e9, "socket": 24.9e9}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := probe.Level(nil, top); len(got) != 0 {
		t.Error(got)
	}
}

// A port that was measured and is well is neither before nor behind its equals that
// were not; one that is slow comes last.
func TestLevelledPortsEqualOthers(t *testing.T) {
	host := fixturetest.Topology(t, "dgx-h100")
	first := func(rates topo.Overlay) []pathsel.Candidate {
		h, err := pathsel.New(host, pathsel.Options{Overlay: probe.Level(rates, host)})
		if err != nil {
			t.Fatal(err)
		}
		a, err := h.Affinity("cpu:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		return a.Ranked
	}
	names := func(list []pathsel.Candidate) (out []string) {
		for i := range list {
			out = append(out, string(list[i].Port))
		}
		return out
	}
	unmeasured := first(nil)
	best := topo.LinkID(unmeasured[0].Port)
	if diff := cmp.Diff(names(unmeasured), names(first(topo.Overlay{best: 48.8e9}))); diff != "" {
		t.Errorf("measured and well: (-before +after)\n%s", diff)
	}
	if got := names(first(topo.Overlay{best: 12e9})); got[0] == string(best) {
		t.Errorf("a slow port comes first: %v", got)
	}
}
