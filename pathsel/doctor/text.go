package doctor

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/text"
)

// TextOptions say how a report is printed.
type TextOptions struct {
	Width int  // columns to break lines at, at least 60; 0 is 100
	All   bool // also list the checks that are ok or do not apply
}

// The words before a finding. They say how bad it is without colour.
var labels = map[Severity]string{Error: "FAIL", Warning: "WARN", Info: "INFO"}

// Label is the word that stands before a finding of a severity.
func (s Severity) Label() string { return labels[s] }

// What stands before checks without findings.
const (
	labelUnknown = "????"
	labelOK      = "OK  "
	labelAbsent  = "-   "
)

const (
	indent    = "      "
	narrowest = 60
	customary = 100
)

// mostSeen is how many pieces of evidence are printed of one finding.
const mostSeen = 3

// Text is the report for people: findings from the worst to the least, then
// what could not be checked, then counts.
func (r *Report) Text(o TextOptions) string {
	w := writer{width: customary}
	if o.Width > 0 {
		w.width = max(o.Width, narrowest)
	}
	for _, f := range r.Findings() {
		w.finding(&f)
	}
	w.unchecked(r)
	if o.All {
		w.rest(r, OK, labelOK)
		w.rest(r, NotApplicable, labelAbsent)
	}
	if w.b.Len() > 0 {
		w.b.WriteByte('\n')
	}
	w.wrap("", "", r.counts(o.All))
	return strings.ReplaceAll(w.b.String(), "\u00a0", " ")
}

// counts is the last line of a report.
func (r *Report) counts(all bool) string {
	s := r.Summary
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{s.Errors, "error"}, {s.Warnings, "warning"}, {s.Infos, "note"}} {
		parts = append(parts, text.Plural(p.n, p.what))
	}
	sentence := strings.Join(parts, ", ")
	n := 0
	for _, c := range r.Checks {
		if len(c.Missing) > 0 {
			n++
		}
	}
	if n > 0 {
		sentence += fmt.Sprintf("; %s could not be made", text.Plural(n, "check"))
		if partly := n - s.CouldNotCheck; partly > 0 {
			sentence += fmt.Sprintf(" (%d of them in part)", partly)
		}
	}
	sentence += fmt.Sprintf("; %d ok", s.OK)
	if s.NotApplicable > 0 {
		sentence += fmt.Sprintf(", %d do not apply", s.NotApplicable)
	}
	if !all && s.OK+s.NotApplicable > 0 {
		sentence += " (--all lists them)"
	}
	return sentence
}

type writer struct {
	b     strings.Builder
	width int
}

func (w *writer) finding(f *Finding) {
	w.head(f.Severity.Label(), string(f.Code), f.Subjects)
	w.wrap(indent, indent, f.Text)
	for i, e := range f.Evidence {
		lead := indent + "seen  "
		if i > 0 {
			lead = indent + indent
		}
		if i == mostSeen && len(f.Evidence) > mostSeen+1 {
			w.wrap(lead, indent+indent, fmt.Sprintf("and %d more", len(f.Evidence)-i))
			break
		}
		w.wrap(lead, indent+indent, e)
	}
	if f.Fix != "" {
		w.wrap(indent+"fix   ", indent+indent, f.Fix)
	}
}

// unchecked lists what could not be checked, by what would help.
func (w *writer) unchecked(r *Report) {
	type entry struct {
		code, text string
	}
	var by groups[string, entry]
	for _, c := range r.Checks {
		for _, m := range c.Missing {
			sentence := m.Text
			if n := len(m.Subjects); n == 1 {
				sentence = SubjectName(m.Subjects[0]) + ": " + sentence
			} else if n > 1 {
				sentence = fmt.Sprintf("%s and %d more: %s", SubjectName(m.Subjects[0]), n-1, sentence)
			}
			by.add(m.How, entry{string(c.Code), sentence})
		}
	}
	by.each(func(how string, list []entry) {
		w.wrap(labelUnknown+"  ", indent, "could not be checked; "+how+":")
		longest := 0
		for _, e := range list {
			longest = max(longest, len(e.code))
		}
		for _, e := range list {
			lead := indent + text.Pad(e.code, longest) + "  "
			w.wrap(lead, text.Pad("", len(lead)), e.text)
		}
	})
}

// head is the first line of an entry: how bad, which check, which devices.
func (w *writer) head(label, code string, subjects []topo.ID) {
	line := label + "  " + code
	for i, id := range subjects {
		name := SubjectName(id)
		sep := "  "
		if i > 0 {
			sep = ", "
		}
		more := fmt.Sprintf(" and %d more", len(subjects)-i)
		room := w.width
		if i < len(subjects)-1 {
			room -= len(" and 999 more")
		}
		if i > 0 && text.Width(line+sep+name) > room {
			line += more
			break
		}
		line += sep + name
	}
	w.b.WriteString(line + "\n")
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
func (w *writer) rest(r *Report, status Status, label string) {
	longest := 0
	for _, c := range r.Checks {
		if c.Status == status {
			longest = max(longest, len(c.Code))
		}
	}
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
		lead := label + "  " + text.Pad(string(c.Code), longest) + "  "
		w.wrap(lead, text.Pad("", len(lead)), sentence)
	}
}

// wrap breaks a sentence into lines, the first after lead, the others after next, which is as wide.
func (w *writer) wrap(lead, next, sentence string) {
	for _, line := range text.Wrap(unitGap.ReplaceAllString(sentence, "$1\u00a0$2"), w.width-text.Width(lead)) {
		w.b.WriteString(strings.TrimRight(lead+line, " ") + "\n")
		lead = next
	}
}

// perRank says how programs get the NIC that the plan gives to each rank. NCCL
// takes one list for all ranks of a host (NVIDIA/nccl issue 1478).
const perRank = "topoctl export env --for ucx (or vllm, nvshmem, mooncake) sets it for each rank; NCCL gets one list of all (--for nccl) and picks the nearest itself"

// unitGap is the blank between a number and its unit, which no line ends at.
var unitGap = regexp.MustCompile(`(\d) ([GKMT]i?B(?:/s)?|Gb/s|GT/s|%)`)
