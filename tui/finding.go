package tui

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/tui/internal/views"
)

// findings are what is wrong with the host that is shown, the errors first. What the doctor
// merely notes is not among them.
func (m *model) findings() []doctor.Finding {
	if m.shown.Doctor == nil {
		return nil
	}
	return slices.DeleteFunc(m.shown.Doctor.Findings(), func(f doctor.Finding) bool { return f.Severity == doctor.Info })
}

// openAtFinding begins where the worst finding is, which otherwise may be lines below what the
// screen shows.
func (m *model) openAtFinding() {
	if list := m.findings(); len(list) > 0 {
		m.finding, m.shared.Node = 0, device(&list[0])
	}
}

// nextFinding goes some findings on, and round from the last to the first: the cursors of the
// views that show devices go to its device, and the footer says what it is. Other views give way
// to the tree.
func (m *model) nextFinding(step int) {
	list := m.findings()
	if len(list) == 0 {
		m.say("no error and no warning")
		return
	}
	m.finding = (m.finding + step + len(list)) % len(list)
	f := &list[m.finding]
	m.filter, m.detailTop = "", 0
	m.shared.Node = device(f)
	m.shared.From, m.shared.To = m.shared.Node, ""
	if !m.showsDevices() {
		m.show(0)
	}
	style := views.StyleOf(f.Severity)
	m.say(fmt.Sprintf("%d of %d  %s %s: %s", m.finding+1, len(list), m.look.Mark(style), m.look.Safe(subjectOf(f)), m.look.Safe(f.Text)))
}

// device is the node that a finding names first, "" the host.
func device(f *doctor.Finding) topo.ID {
	if len(f.Subjects) == 0 {
		return ""
	}
	return f.Subjects[0]
}

// subjectOf names the devices of a finding.
func subjectOf(f *doctor.Finding) string {
	var names []string
	for _, id := range f.Subjects {
		names = append(names, doctor.SubjectName(id))
	}
	return cmp.Or(text.List(names, 1), "host")
}
