package watch

import (
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// findingItems lists the doctor's findings, of each device for itself.
func (w *Watch) findingItems(r *doctor.Report) []item {
	var out []item
	for _, f := range r.Findings() {
		if f.Severity == doctor.Info && !w.o.Infos {
			continue
		}
		brief := f.Brief()
		group := string(f.Code) + "\x00" + masked(brief)
		e := Event{Severity: string(f.Severity), Code: string(f.Code), Text: f.Text}
		for i, x := range f.Evidence {
			if i == mostNamed {
				break
			}
			e.Detail = append(e.Detail, "seen "+x)
		}
		if f.Fix != "" {
			e.Detail = append(e.Detail, "fix "+f.Fix)
		}
		subjects := f.Subjects
		if len(subjects) == 0 {
			subjects = []topo.ID{""}
		}
		for _, id := range subjects {
			out = append(out, item{key: group + "\x00" + string(id), subject: id, group: group, event: e, gone: brief})
		}
	}
	return out
}

// masked is a text without its figures, which may change while it says the same.
func masked(text string) string {
	var b strings.Builder
	number := false
	for _, c := range text {
		digit := c >= '0' && c <= '9' || number && c == '.'
		if digit && !number {
			b.WriteByte('#')
		}
		if number = digit; !digit {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// unchecked gives, of a finding that is there no more, why the check could not be made for
// its device, "" where it was.
func unchecked(r *doctor.Report) func(*item) string {
	checks := map[string]*doctor.CheckResult{}
	for i := range r.Checks {
		checks[string(r.Checks[i].Code)] = &r.Checks[i]
	}
	return func(x *item) string {
		c := checks[x.event.Code]
		if c == nil {
			return ""
		}
		for _, m := range c.Missing {
			if len(m.Subjects) == 0 && c.Status == doctor.CouldNotCheck || slices.Contains(m.Subjects, x.subject) {
				return m.Text
			}
		}
		return ""
	}
}
