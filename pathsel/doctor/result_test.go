package doctor

import (
	"slices"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

// What rests on a guess is never an error, and findings that say the same of
// several devices are one.
func TestResult(t *testing.T) {
	c := Check{Code: "x", Severity: Error}
	for basis, want := range map[topo.Basis]Severity{
		"": Error, topo.BasisRead: Error, topo.BasisMeasured: Error, topo.BasisTypical: Warning, topo.BasisBound: Warning, topo.BasisUnknown: Warning,
	} {
		r := c.result(outcome{findings: []Finding{{Severity: Error, Basis: basis}}})
		if got := r.Findings[0].Severity; got != want {
			t.Errorf("an error of basis %q is %s, want %s", basis, got, want)
		}
	}
	r := c.result(outcome{note: "note", absent: "absent", findings: []Finding{
		{Severity: Info, Text: "b", Subjects: []topo.ID{"b"}, Evidence: []string{"/sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/net/eth0/mtu = 1"}},
		{Severity: Error, Text: "a", Subjects: []topo.ID{"a"}},
		{Severity: Info, Text: "b", Subjects: []topo.ID{"c", "b"}, Evidence: []string{"/sys/devices/pci0000:17/0000:17:01.0/numa_node"}},
	}})
	if r.Status != Found || len(r.Findings) != 2 || r.Findings[0].Severity != Error || r.Note != "note" {
		t.Fatalf("got %+v", r)
	}
	f := r.Findings[1]
	if !slices.Equal(f.Subjects, []topo.ID{"b", "c"}) || !slices.Equal(f.Evidence, []string{"/sys/class/net/eth0/mtu = 1", "/sys/bus/pci/devices/0000:17:01.0/numa_node"}) {
		t.Errorf("merged: %+v", f)
	}
}

// How a check ends: what is missing is never ok.
func TestStatus(t *testing.T) {
	c := Check{Code: "x", Severity: Warning}
	lacking := couldNotCheck("a", "b")
	both := lacking
	both.find(Finding{Severity: Info, Text: "x"})
	absent := notApplicable("why")
	absent.unknown = lacking.unknown
	for want, o := range map[Status]outcome{OK: {note: "3 links"}, NotApplicable: notApplicable("why"), CouldNotCheck: lacking, Found: both} {
		if r := c.result(o); r.Status != want {
			t.Errorf("%s, want %s", r.Status, want)
		}
	}
	if r := c.result(absent); r.Status != CouldNotCheck {
		t.Errorf("%s: that nothing applies is not known where facts are missing", r.Status)
	}
	if r := c.result(both); len(r.Missing) != 1 {
		t.Error("what is missing beside a finding is lost")
	}
}

// The answer is one sentence: the worst problem, or how much was found well.
func TestHeadline(t *testing.T) {
	find := func(s Severity, text string, subjects ...topo.ID) CheckResult {
		return CheckResult{Status: Found, Findings: []Finding{{Code: "x", Severity: s, Text: text, Subjects: subjects}}}
	}
	ok, absent := CheckResult{Status: OK}, CheckResult{Code: "x", Status: NotApplicable, Note: "no GPU"}
	lacking := CheckResult{Code: "x", Status: CouldNotCheck, Missing: []Missing{{Text: "a", How: "b"}}}
	partly := find(Info, "a note", "gpu:0")
	partly.Missing = lacking.Missing
	slow := find(Warning, "its link runs at x8: half; the bottleneck", "gpu:2")
	down := find(Error, "port is DOWN, no carrier: gpu:0 falls back", "port:mlx5_0/1", "port:mlx5_1/2")
	for _, tt := range []struct {
		want   string
		checks []CheckResult
	}{
		{"No problem found on h: 2 checks passed.", []CheckResult{ok, ok, absent}},
		{"No problem found on h: 2 checks passed, 2 could not be made.", []CheckResult{ok, ok, lacking, lacking}},
		{"No problem found on h, but only 1 of 3 checks could be made.", []CheckResult{ok, lacking, lacking, absent}},
		{"No problem found on h: 1 check passed, 1 could not be made, 1 only in part.", []CheckResult{ok, lacking, partly}},
		{"No problem found on h: 2 checks passed, 1 could be made only in part.", []CheckResult{ok, ok, partly}},
		{"No problem found on h: 1 note.", []CheckResult{find(Info, "a note")}},
		{"Nothing is known of h: 1 check could not be made.", []CheckResult{lacking, absent}},
		{"x could not be checked on h: a.", []CheckResult{lacking}},
		{"x does not apply to h: no GPU.", []CheckResult{absent}},
		{"Nothing to check on h: 2 checks do not apply.", []CheckResult{absent, absent}},
		{"gpu:2: its link runs at x8.", []CheckResult{slow, ok, find(Info, "a note")}},
		{"mlx5_0 and mlx5_1/2: port is DOWN, no carrier; and 1 more problem.", []CheckResult{slow, down}},
		{"A limit is low; and 2 more problems.", []CheckResult{find(Error, "a limit is low"), slow, slow}},
		{"mlx5_0 and mlx5_1 share a wire.", []CheckResult{find(Warning, "mlx5_0 and mlx5_1 share a wire", "port:mlx5_0/1", "port:mlx5_1/1")}},
		{"gpu:0, gpu:1 and 3 more: no driver.", []CheckResult{find(Error, "no driver", "gpu:0", "gpu:1", "gpu:2", "gpu:3", "gpu:4")}},
	} {
		r := Report{Host: "h", Checks: tt.checks}
		for i := range r.Checks {
			r.Summary.add(&r.Checks[i])
		}
		if got := r.Headline(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
	if got := (&Report{}).Headline(); got != "Nothing to check on the host: 0 checks do not apply." {
		t.Error(got)
	}
}

// A check that judged nothing and lacks nothing does not apply; the note counts what was judged.
func TestNote(t *testing.T) {
	c := Check{Code: "x", Severity: Warning, noun: "port", none: "no port"}
	var seen, partly outcome
	seen.judged = 2
	partly.missing("state", "look", "port:a")
	partly.missing("state", "look", "port:b")
	partly.missing("rate", "look", "port:c", "port:d")
	partly.missing("state", "look", "port:b")
	partly.missing("rate", "look", "port:d")
	for _, tt := range []struct {
		o      outcome
		status Status
		note   string
	}{{outcome{}, NotApplicable, "no port"}, {seen, OK, "2 ports"}, {partly, CouldNotCheck, "0 ports"}, {couldNotCheck("a", "b"), CouldNotCheck, ""}} {
		if r := c.result(tt.o); r.Status != tt.status || r.Note != tt.note {
			t.Errorf("%s, %q; want %s, %q", r.Status, r.Note, tt.status, tt.note)
		}
	}
	r := c.result(partly)
	if len(r.Missing) != 2 || len(r.Missing[0].Subjects) != 2 || len(r.Missing[1].Subjects) != 2 {
		t.Errorf("%+v: want two facts of two devices each", r.Missing)
	}
}
