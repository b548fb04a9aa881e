package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
)

// TextOptions say how a report is printed.
type TextOptions struct {
	Width int  // columns to break lines at, at least 60; 0 is 100
	All   bool // fold nothing: notes, what could not be checked, and the checks that are ok or do not apply
	Color bool // colour the words before findings, for a terminal
}

// The words before a finding. They say how bad it is without colour.
var labels = map[Severity]string{Error: "FAIL", Warning: "WARN", Info: "INFO"}

// Label is the word that stands before a finding of a severity.
func (s Severity) Label() string { return labels[s] }

// customary is the width of lines where nothing limits it.
const customary = 100

// mostFolded is how many names a sentence or a folded line has.
const mostFolded = 2

// Text is the report for people: the answer in a sentence, then the findings from the worst to the
// least. Notes and what could not be checked are a line each unless all is wanted.
func (r *Report) Text(o TextOptions) string {
	t := report.NewText(report.Look{Width: o.Width, Color: o.Color}, customary)
	t.Answer(r.Headline(), "")
	if problems := r.problems(); problems > 0 || o.All {
		t.Gap()
		for _, f := range r.Findings() {
			if f.Severity != Info || o.All {
				t.Finding(f.reported())
			}
		}
		if problems > 0 && !o.All {
			t.Gap()
		}
	}
	if o.All {
		t.Unchecked(r.unchecked())
		t.Table(r.rest(OK, "OK", report.Good))
		t.Table(r.rest(NotApplicable, "-", ""))
	} else {
		r.folded(t)
	}
	return t.String()
}

// problems counts the findings that are more than notes.
func (r *Report) problems() int { return r.Summary.Errors + r.Summary.Warnings }

// Headline is the answer in a sentence: the worst problem and how many more there are, or that there
// is none, and how much of the host that rests on.
func (r *Report) Headline() string {
	s := r.Summary
	host := cmp.Or(r.Host, "the host")
	if n := r.problems(); n > 0 {
		worst := r.Findings()[0]
		sentence := worst.sentence()
		if n > 1 {
			sentence += "; and " + text.Plural(n-1, "more problem")
		}
		return sentence + "."
	}
	notMade, partly := r.notMade()
	switch one := len(r.Checks) == 1; {
	case one && s.CouldNotCheck > 0 && len(notMade) > 0:
		return fmt.Sprintf("%s could not be checked on %s: %s.", r.Checks[0].Code, host, r.Checks[0].Missing[0].Text)
	case one && s.NotApplicable > 0:
		return fmt.Sprintf("%s does not apply to %s: %s.", r.Checks[0].Code, host, r.Checks[0].Note)
	case s.OK+s.Found == 0 && len(notMade) > 0:
		return fmt.Sprintf("Nothing is known of %s: %s could not be made.", host, text.Plural(len(notMade), "check"))
	case s.OK+s.Found == 0:
		return fmt.Sprintf("Nothing to check on %s: %s not apply.", host, text.Plural(len(r.Checks), "check does", "checks do"))
	case s.CouldNotCheck > s.OK+s.Found:
		return fmt.Sprintf("No problem found on %s, but only %d of %s could be made.", host, s.OK+s.Found, text.Plural(s.OK+s.Found+s.CouldNotCheck, "check"))
	}
	sentence := "No problem found on " + host + ": "
	if s.OK > 0 {
		sentence += text.Plural(s.OK, "check") + " passed"
	} else {
		sentence += text.Plural(s.Infos, "note")
	}
	switch {
	case s.CouldNotCheck > 0:
		sentence += fmt.Sprintf(", %d could not be made%s", s.CouldNotCheck, partly)
	case len(notMade) > 0:
		sentence += fmt.Sprintf(", %d could be made only in part", len(notMade))
	}
	return sentence + "."
}

// sentence is a finding in a clause that names its devices.
func (f *Finding) sentence() string {
	brief := f.Brief()
	var names []string
	for _, id := range f.Subjects {
		names = append(names, SubjectName(id))
	}
	switch {
	case len(names) == 0:
		return strings.ToUpper(brief[:1]) + brief[1:]
	case strings.HasPrefix(brief, names[0]+" "):
		return brief
	}
	return text.Join(names, mostFolded) + ": " + brief
}

// notMade lists the checks that lack facts; partly says how many of them judged a part beside others that
// judged nothing, "" if none did.
func (r *Report) notMade() (codes []string, partly string) {
	for _, c := range r.Checks {
		if len(c.Missing) > 0 {
			codes = append(codes, string(c.Code))
		}
	}
	if n := len(codes) - r.Summary.CouldNotCheck; n > 0 {
		partly = fmt.Sprintf(", %d only in part", n)
	}
	return codes, partly
}

// reported is a finding as reports print it.
func (f *Finding) reported() *report.Finding {
	return &report.Finding{Label: f.Severity.Label(), Code: string(f.Code), About: mapped(f.Subjects, SubjectName),
		Text: f.Text, Evidence: f.Evidence, Fix: f.Fix}
}

// folded says in a line of each sort what is not printed.
func (r *Report) folded(t *report.Text) {
	var notes []string
	for _, f := range r.Findings() {
		if code := string(f.Code); f.Severity == Info && !slices.Contains(notes, code) {
			notes = append(notes, code)
		}
	}
	notMade, partly := r.notMade()
	var advice []string
	if len(notes) > 0 {
		t.Say("", text.Plural(r.Summary.Infos, "note")+": "+text.Join(notes, mostFolded), "")
	}
	switch n := r.Summary.CouldNotCheck; {
	case n > 0:
		t.Say("", fmt.Sprintf("%s could not be made%s: %s", text.Plural(n, "check"), partly, text.Join(notMade, mostFolded)), "")
	case len(notMade) > 0:
		t.Say("", fmt.Sprintf("%s could be made only in part: %s", text.Plural(len(notMade), "check"), text.Join(notMade, mostFolded)), "")
	}
	if len(notes)+len(notMade) > 0 {
		advice = append(advice, "--all shows everything")
	}
	if n := r.Summary.OK; r.problems() > 0 && n > 0 {
		advice = slices.Insert(advice, 0, text.Plural(n, "check")+" passed")
	}
	if len(advice) > 0 {
		t.Say("", strings.Join(advice, "; ")+".", "")
	}
}

// unchecked is what could not be checked.
func (r *Report) unchecked() []report.Unchecked {
	var out []report.Unchecked
	for _, c := range r.Checks {
		for _, m := range c.Missing {
			sentence := m.Text
			if n := len(m.Subjects); n == 1 {
				sentence = SubjectName(m.Subjects[0]) + ": " + sentence
			} else if n > 1 {
				sentence = fmt.Sprintf("%s and %d more: %s", SubjectName(m.Subjects[0]), n-1, sentence)
			}
			out = append(out, report.Unchecked{Code: string(c.Code), Text: sentence, How: m.How})
		}
	}
	return out
}

// SubjectName is how people call a node: GPUs and sockets with their kind,
// others by their name or address alone.
func SubjectName(id topo.ID) string {
	kind, _, _ := strings.Cut(string(id), ":")
	switch kind {
	case "gpu", "numa", "pkg", "nvsw", "sw":
		return string(id)
	case "port": // "mlx5_0/1": the number says nothing on most devices
		return strings.TrimSuffix(id.Name(), "/1")
	}
	return id.Name()
}

// rest lists the checks that ended in a way that needs no words.
func (r *Report) rest(status Status, label, color string) *report.Table {
	out := &report.Table{Indent: "      "}
	for _, c := range r.Checks {
		if c.Status != status {
			continue
		}
		sentence := c.Title
		switch {
		case status == NotApplicable:
			sentence = c.Note
		case c.Note != "":
			sentence += " (" + c.Note + ")"
		}
		out.Rows = append(out.Rows, report.Row{Cells: []string{string(c.Code), sentence}, Label: label, Color: color})
	}
	return out
}

// perRank says how programs get the NIC that the plan gives to each rank. NCCL
// takes one list for all ranks of a host (NVIDIA/nccl issue 1478).
const perRank = "topoctl export env --for ucx (or vllm, nvshmem, mooncake) sets it for each rank; NCCL gets one list of all (--for nccl) and picks the nearest itself"
