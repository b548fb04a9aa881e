package show_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/internal/probe/show"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const gb = 1_000_000_000

// small is a report of three hosts without pairs.
func small() *probe.Report {
	return &probe.Report{Schema: probe.Schema, Hosts: []probe.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
}

// measure adds a pair of the hosts with its mean in GB/s.
func measure(r *probe.Report, from, to string, mean int64, v probe.Verdict) *probe.Result {
	x := probe.Result{Verdict: v}
	x.ID, x.Kind = from+">"+to, probe.Port
	half := int64(gb / 10)
	x.Bandwidth = []probe.Bandwidth{{SizeBytes: 1 << 20, SamplesBytesPerSec: []int64{mean * gb, mean * gb}, MeanBytesPerSec: mean * gb, CI95BytesPerSec: &half}}
	r.Results = append(r.Results, x)
	return &r.Results[len(r.Results)-1]
}

const schemaFile = "../../../probe/schema/probe-diff.v1.schema.json"

var generator = schematest.Generator{Types: map[reflect.Type]schematest.Object{
	reflect.TypeFor[probe.Verdict](): {"enum": []any{probe.Pass, probe.Measured, probe.Warn, probe.Fail, probe.Inconclusive, probe.Waived, probe.Error}},
	reflect.TypeFor[show.Kind]():     {"enum": []any{show.Settings, show.Topology, show.Gone, show.New, show.Verdict, show.Slower, show.Faster, show.NotCompared}},
}}

// The published schema says what the types say.
func TestSchemaMatchesTheTypes(t *testing.T) {
	schematest.Compare(t, schemaFile, generator.Document(show.Schema, reflect.TypeFor[show.Document]()))
}

func TestCompare(t *testing.T) {
	a, b := small(), small()
	a.Hosts[0].Fingerprint, b.Hosts[0].Fingerprint = "sha256:1", "sha256:2"
	a.Hosts[1].Fingerprint, b.Hosts[1].Fingerprint = "sha256:1", ""
	b.Hosts[2].Name = "d"
	measure(a, "a", "b", 48, probe.Pass) // a little slower, intervals apart, below 2 %
	measure(b, "a", "b", 47, probe.Pass).Bandwidth[0].MeanBytesPerSec += gb / 5
	measure(a, "b", "a", 48, probe.Pass)
	slow := measure(b, "b", "a", 20, probe.Fail)
	slow.Reasons = []probe.Reason{{Code: "x", Text: "40 % of 50.0 GB/s"}, {Code: "y", Text: "another"}}
	measure(a, "a", "c", 20, probe.Fail)
	measure(b, "a", "c", 48, probe.Pass).From.Host = "a"
	measure(a, "c", "a", 48, probe.Pass)
	measure(b, "a", "d", 48, probe.Warn)
	wide := int64(30 * gb)
	measure(a, "b", "b", 48, probe.Pass) // the intervals overlap
	measure(b, "b", "b", 30, probe.Pass).Bandwidth[0].CI95BytesPerSec = &wide
	measure(a, "a", "a", 48, probe.Pass)
	measure(b, "a", "a", 20, probe.Pass).Bandwidth[0].CI95BytesPerSec = nil
	measure(a, "c", "c", 48, probe.Pass)
	measure(b, "c", "c", 20, probe.Pass).Bandwidth[0].SizeBytes = 4096
	measure(a, "c", "b", 48, probe.Pass)
	gone := measure(b, "c", "b", 48, probe.Waived)
	gone.Bandwidth, gone.Pair.Waived = nil, "no RDMA"
	got := ""
	changes := show.Reports(a, b)
	for _, c := range changes {
		text := string(c.Kind) + " " + c.Host + c.Pair
		if c.AVerdict != "" || c.BVerdict != "" {
			text += " " + string(c.AVerdict) + ">" + string(c.BVerdict)
		}
		got += text + " " + c.Reason + "\n"
	}
	want := `topology a 
gone c 
gone c>a PASS> 
new d 
new a>d >WARN 
verdict a>c FAIL>PASS 
verdict b>a PASS>FAIL 40 % of 50.0 GB/s
verdict c>b PASS>WAIVED no RDMA
slower b>a PASS>FAIL 40 % of 50.0 GB/s
faster a>c FAIL>PASS 
not-compared a>a PASS>PASS fewer than two samples: no interval
not-compared c>c PASS>PASS no size was measured in both
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !show.Differ(changes) || show.Differ(changes[len(changes)-2:]) || show.Differ(show.Reports(a, a)) && show.Differ(show.Reports(b, b)) {
		t.Error("what was not compared is a difference, or nothing is")
	}
	first, _ := json.Marshal(changes)
	for range 5 {
		if again, _ := json.Marshal(show.Reports(a, b)); string(again) != string(first) {
			t.Fatal("another order")
		}
	}
	schema := schematest.Open(t, schemaFile)
	for _, d := range []*show.Document{show.NewDocument(a, b, "a.json", "b.json"), show.NewDocument(a, a, "a", "a")} {
		data, err := json.Marshal(d)
		if err == nil {
			err = schema.Validate(data)
		}
		if err != nil || d.Equal != (d.B == "a") {
			t.Errorf("%v: %s", err, data)
		}
	}
	// From slower to faster: what was gone is new.
	back := map[show.Kind]int{}
	for _, c := range show.Reports(b, a) {
		back[c.Kind]++
	}
	if back[show.Slower] != 1 || back[show.Faster] != 1 || back[show.Gone] != 2 || back[show.New] != 2 {
		t.Errorf("the other way round: %v", back)
	}
}

// No report that can be read differs from itself.
func FuzzReports(f *testing.F) {
	for _, name := range []string{"all-waived", "interrupted"} {
		data, err := os.ReadFile("../../../probe/testdata/" + name + ".probe.json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"schema":"topoctl.probe/v1","results":[{"id":"a","verdict":"PASS"}],"hosts":[{"name":""}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := probe.Decode(data); err == nil && show.Differ(show.Reports(r, r)) {
			t.Fatal("a report differs from itself")
		}
	})
}

// Runs that measured differently are compared only where it makes no difference, and it is said.
func TestSettings(t *testing.T) {
	report := func(change func(r *probe.Report)) *probe.Report {
		r := small()
		r.Rules, r.Spec.SizesBytes, r.Plan.Schedule = probe.DefaultRules(), []int64{1 << 20}, "link"
		measure(r, "a", "b", 48, probe.Pass).From.Name = "a1"
		r.Results[0].Transport = probe.RDMA
		if change != nil {
			change(r)
		}
		return r
	}
	slower := func(r *probe.Report) {
		r.Results[0].Bandwidth[0].MeanBytesPerSec, r.Results[0].Verdict = 20*gb, probe.Fail
	}
	for name, tt := range map[string]struct {
		change func(r *probe.Report)
		want   []show.Change
	}{
		"slower": {slower, []show.Change{{Kind: show.Verdict}, {Kind: show.Slower}}},
		"rate limit": {func(r *probe.Report) { slower(r); r.Spec.RateLimit = 12_500_000 }, []show.Change{
			{Kind: show.Settings, Setting: "rate limit", ASetting: "none", BSetting: "0.1 Gb/s"},
			{Kind: show.NotCompared, Reason: "the rate limits differ: none and 0.1 Gb/s"}}},
		"limit of an agent": {func(r *probe.Report) { slower(r); r.Results[0].RateLimit = 12_500_000 }, []show.Change{
			{Kind: show.NotCompared, Reason: "the rate limits differ: none and 0.1 Gb/s"}}},
		"shared links": {func(r *probe.Report) { slower(r); r.Plan.Schedule = "endpoint" }, []show.Change{
			{Kind: show.Settings, Setting: "schedule", ASetting: "link", BSetting: "endpoint"},
			{Kind: show.NotCompared, Reason: "pairs shared links in one of the runs only"}}},
		"rules": {func(r *probe.Report) { slower(r); r.Rules.FailUnder = 0.5 }, []show.Change{
			{Kind: show.Settings, Setting: "rules of verdicts", ASetting: "fail under 80 %, warn under 90 %, outliers 93 %/2.1x, 1 retests", BSetting: "fail under 50 %, warn under 90 %, outliers 93 %/2.1x, 1 retests"},
			{Kind: show.Slower}}},
		"transport": {func(r *probe.Report) { slower(r); r.Results[0].Transport, r.Results[0].ID = probe.TCP, "a>b tcp" }, []show.Change{
			{Kind: show.Settings, Setting: "transports", ASetting: "rdma", BSetting: "tcp"},
			{Kind: show.NotCompared, Reason: "measured over rdma and over tcp"}}},
		"sizes": {func(r *probe.Report) {
			slower(r)
			r.Spec.SizesBytes, r.Results[0].Bandwidth[0].SizeBytes = []int64{4096}, 4096
		}, []show.Change{
			{Kind: show.Settings, Setting: "sizes of ops", ASetting: "1 MiB", BSetting: "4 KiB"},
			{Kind: show.NotCompared, Reason: "no size was measured in both"}}},
		"duration": {func(r *probe.Report) { slower(r); r.Spec.MinSamples = 3 }, []show.Change{
			{Kind: show.Settings, Setting: "duration", ASetting: "0 to 0 samples of 0s after 0s, interval 0 %", BSetting: "3 to 0 samples of 0s after 0s, interval 0 %"},
			{Kind: show.Verdict}, {Kind: show.Slower}}},
	} {
		got := show.Reports(report(nil), report(tt.change))
		for i := range got {
			c := &got[i]
			got[i] = show.Change{Kind: c.Kind, Setting: c.Setting, ASetting: c.ASetting, BSetting: c.BSetting, Reason: c.Reason}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
