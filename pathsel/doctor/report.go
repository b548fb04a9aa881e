package doctor

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// Schema is the name and major version of a report document.
const Schema = "topoctl.doctor/v1"

// Code names a check. Codes are stable: scripts match on them.
type Code string

// Severity says how bad a finding is.
type Severity string

// The severities, worst first.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

// rank orders severities: 0 is the worst, and anything that is not a severity comes last.
func (s Severity) rank() int {
	switch s {
	case Error:
		return 0
	case Warning:
		return 1
	case Info:
		return 2
	}
	return 3
}

// AtLeast says whether s is as bad as o or worse.
func (s Severity) AtLeast(o Severity) bool { return s.rank() <= o.rank() }

// Status is how a check ended.
type Status string

// How a check can end.
const (
	OK            Status = "ok"
	Found         Status = "finding"
	CouldNotCheck Status = "could_not_check"
	NotApplicable Status = "not_applicable"
)

// Report is what all checks say of a host.
type Report struct {
	Schema   string        `json:"schema"`
	Host     string        `json:"host"`     // its name, "" unknown
	Origin   string        `json:"origin"`   // of the topology
	Complete bool          `json:"complete"` // of the topology
	Summary  Summary       `json:"summary"`
	Checks   []CheckResult `json:"checks"` // in the order of codes
}

// Summary counts the checks by how they ended, and the findings by severity.
type Summary struct {
	OK            int `json:"ok"`
	Found         int `json:"finding"`
	CouldNotCheck int `json:"could_not_check"`
	NotApplicable int `json:"not_applicable"`
	Errors        int `json:"errors"`
	Warnings      int `json:"warnings"`
	Infos         int `json:"infos"`
}

// CheckResult is what one check says.
type CheckResult struct {
	Code   Code   `json:"code"`
	Title  string `json:"title"` // what is true where the check is ok
	Status Status `json:"status"`
	// Worst is the worst severity that the check can give.
	Worst Severity `json:"worst_severity"`
	// Note says what was looked at, or why the check does not apply.
	Note     string    `json:"note,omitempty"`
	Findings []Finding `json:"findings"`
	Missing  []Missing `json:"missing"` // facts that the check lacked; there may be findings nevertheless
}

// Finding is one thing that is wrong, or good to know.
type Finding struct {
	Code     Code      `json:"code"`
	Severity Severity  `json:"severity"`
	Subjects []topo.ID `json:"subjects"`
	Text     string    `json:"text"`     // what is wrong, then what that means after a colon or semicolon
	Evidence []string  `json:"evidence"` // files with what they say, or other places
	Fix      string    `json:"fix"`
	// Basis says how the rate is known that the finding rests on, "" for none.
	Basis topo.Basis `json:"basis,omitempty"`
}

// Brief says what is wrong without the consequences: the part of the text before a colon or semicolon.
// It stays the same while the finding does.
func (f *Finding) Brief() string {
	brief, _, _ := strings.Cut(f.Text, ";")
	brief, _, _ = strings.Cut(brief, ": ")
	return brief
}

// Missing is a fact that a check needs and the topology lacks.
type Missing struct {
	Subjects []topo.ID `json:"subjects"` // empty: the host as a whole
	Text     string    `json:"text"`
	How      string    `json:"how"` // how to get it
}

// Worst is the worst severity of all findings, "" if there is none.
func (r *Report) Worst() Severity {
	switch s := &r.Summary; {
	case s.Errors > 0:
		return Error
	case s.Warnings > 0:
		return Warning
	case s.Infos > 0:
		return Info
	}
	return ""
}

// Findings lists the findings of all checks, the worst first. Findings of one severity are in the
// order of Checks: what is broken comes before wrong settings, the way the host is built, and
// what cannot be seen.
func (r *Report) Findings() []Finding {
	var out []Finding
	for _, c := range r.Checks {
		out = append(out, c.Findings...)
	}
	place := map[Code]int{}
	for i, c := range Checks() {
		place[c.Code] = i
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(a.Severity.rank()-b.Severity.rank(), place[a.Code]-place[b.Code])
	})
	return out
}

// outcome is the result of a check's function. The function goes through the devices that the
// check is about. It passes a device to missing if the fact is absent; it counts the others as
// judged, and calls find for those with a fault. The rest follows from the counts (Check.result).
type outcome struct {
	judged   int    // how many devices were looked at
	note     string // what was looked at, where that is more than a number of devices
	absent   string // why the check does not apply; used if there are no findings and nothing is missing
	findings []Finding
	unknown  []Missing
}

func notApplicable(why string) outcome { return outcome{absent: why} }

// couldNotCheck is the outcome of a check that lacks a fact about the whole host.
func couldNotCheck(what, how string) outcome {
	return outcome{unknown: []Missing{{Text: what, How: how}}}
}

func (o *outcome) find(f Finding) { o.findings = append(o.findings, f) }

// missing notes a fact that is not known for some devices. Devices that lack the same fact are
// listed together, each once.
func (o *outcome) missing(what, how string, devices ...topo.ID) {
	if len(devices) == 0 {
		return
	}
	i := slices.IndexFunc(o.unknown, func(m Missing) bool { return len(m.Subjects) > 0 && m.Text == what && m.How == how })
	if i < 0 {
		i, o.unknown = len(o.unknown), append(o.unknown, Missing{Text: what, How: how})
	}
	o.unknown[i].Subjects = unique(append(o.unknown[i].Subjects, devices...))
}

// missingOfHost notes a fact about the whole host that is not known.
func (o *outcome) missingOfHost(what, how string) {
	o.unknown = append(o.unknown, Missing{Text: what, How: how})
}

// result turns an outcome into an entry of the report. A finding that rests on a rate
// that was neither read nor measured is a warning at most.
func (c *Check) result(o outcome) CheckResult {
	r := CheckResult{Code: c.Code, Title: c.Title, Worst: c.Severity, Note: o.note, Findings: o.findings, Missing: o.unknown}
	ofDevices := slices.ContainsFunc(o.unknown, func(m Missing) bool { return len(m.Subjects) > 0 })
	if o.note == "" && c.noun != "" && (o.judged > 0 || ofDevices) {
		r.Note = text.Plural(o.judged, c.noun)
	}
	if o.judged == 0 && o.absent == "" {
		o.absent = c.none
	}
	switch {
	case len(o.findings) > 0:
		r.Status = Found
	case len(o.unknown) > 0:
		r.Status = CouldNotCheck
	case o.absent != "":
		r.Status, r.Note = NotApplicable, o.absent
	default:
		r.Status = OK
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Code = c.Code
		if f.Basis != "" && !f.Basis.Sure() && f.Severity == Error {
			f.Severity = Warning
		}
		f.Subjects, f.Evidence = notNil(f.Subjects), notNil(distinct(mapped(f.Evidence, short)...))
	}
	for i := range r.Missing {
		r.Missing[i].Subjects = notNil(r.Missing[i].Subjects)
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return a.Severity.rank() - b.Severity.rank() })
	r.Findings, r.Missing = notNil(merged(r.Findings)), notNil(r.Missing)
	return r
}

// merged joins findings that say the same about several devices. They get the fix of
// the first.
func merged(list []Finding) []Finding {
	var out []Finding
	for _, f := range list {
		i := slices.IndexFunc(out, func(o Finding) bool { return o.Severity == f.Severity && o.Text == f.Text && o.Basis == f.Basis })
		if i < 0 {
			out = append(out, f)
			continue
		}
		out[i].Subjects = unique(append(out[i].Subjects, f.Subjects...))
		out[i].Evidence = distinct(append(out[i].Evidence, f.Evidence...)...)
	}
	return out
}

// The directories of devices, whose paths lead through the whole PCI tree, and
// the links by which people find them.
var (
	classDir    = regexp.MustCompile(`^/sys/devices/\S+/(infiniband|net)/([^/\s]+)`)
	functionDir = regexp.MustCompile(`^/sys/devices/\S*?/([0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7])(/[a-z]\S*)?$`)
)

// short returns a device's path by its link in /sys/class or /sys/bus.
func short(path string) string {
	if m := classDir.FindStringSubmatchIndex(path); m != nil {
		return "/sys/class/" + path[m[2]:m[3]] + "/" + path[m[4]:m[5]] + path[m[1]:]
	}
	return functionDir.ReplaceAllString(path, "/sys/bus/pci/devices/$1$2")
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (s *Summary) add(c *CheckResult) {
	switch c.Status {
	case OK:
		s.OK++
	case Found:
		s.Found++
	case CouldNotCheck:
		s.CouldNotCheck++
	case NotApplicable:
		s.NotApplicable++
	}
	for _, f := range c.Findings {
		switch f.Severity {
		case Error:
			s.Errors++
		case Warning:
			s.Warnings++
		case Info:
			s.Infos++
		}
	}
}
