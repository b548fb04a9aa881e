package probe_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/internal/base/schematest"
	"github.com/topoctl/topoctl/probe"
)

func TestCompare(t *testing.T) {
	a, b := small(), small()
	a.Hosts[0].Fingerprint, b.Hosts[0].Fingerprint = "sha256:1", "sha256:2"
	a.Hosts[1].Fingerprint, b.Hosts[1].Fingerprint = "sha256:1", ""
	b.Hosts[2].Name = "d"
	for i := range b.Links {
		if b.Links[i].Host == "c" {
			b.Links[i].Host = "d"
		}
	}
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
	changes := probe.Compare(a, b)
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
	if !probe.Differs(changes) || probe.Differs(changes[len(changes)-2:]) || probe.Differs(probe.Compare(a, a)) && probe.Differs(probe.Compare(b, b)) {
		t.Error("what was not compared is a difference, or nothing is")
	}
	first, _ := json.Marshal(changes)
	for range 5 {
		if again, _ := json.Marshal(probe.Compare(a, b)); string(again) != string(first) {
			t.Fatal("another order")
		}
	}
	schema := schematest.Open(t, diffFile)
	for _, d := range []*probe.Difference{probe.Diff(a, b, "a.json", "b.json"), probe.Diff(a, a, "a", "a")} {
		data, err := json.Marshal(d)
		if err == nil {
			err = schema.Validate(data)
		}
		if err != nil || d.Equal != (d.B == "a") {
			t.Errorf("%v: %s", err, data)
		}
	}
	// From slower to faster: what was gone is new.
	back := map[probe.ChangeKind]int{}
	for _, c := range probe.Compare(b, a) {
		back[c.Kind]++
	}
	if back[probe.ChangeSlower] != 1 || back[probe.ChangeFaster] != 1 || back[probe.ChangeGone] != 2 || back[probe.ChangeNew] != 2 {
		t.Errorf("the other way round: %v", back)
	}
}
