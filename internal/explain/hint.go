package explain

import (
	"cmp"
	"fmt"

	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// Codes of the hints.
const (
	HintDegraded pathsel.Code = "link-degraded"  // a link on the way runs below what it could
	HintNearer   pathsel.Code = "nearer-port"    // a nearer port than the chosen one cannot be used
	HintFaster   pathsel.Code = "faster-port"    // a farther port carries much more
	HintNoAccess pathsel.Code = "no-peer-access" // peer access between two GPUs is refused
	HintDirect   pathsel.Code = "data-direct"    // a way that is not modelled
)

func (a *Answer) hint(code pathsel.Code, evidence, format string, args ...any) {
	a.Hints = append(a.Hints, pathsel.Reason{Code: code, Text: fmt.Sprintf(format, args...), Evidence: evidence})
}

// hints are what is worth knowing of the chosen port and its way.
func (a *Answer) hints() {
	a.nearness()
	a.direct()
	a.notForData()
	a.doubts()
	a.degraded()
	a.faster()
	a.nearer()
}

// nearness says how to learn which ports are near.
func (a *Answer) nearness() {
	if a.Nearness != nil {
		a.hint(a.Nearness.Code, "", "%s", a.h.HowToSee())
	}
}

// direct says of a GPU beside a data direct function that class and rate to NICs leave its way out.
func (a *Answer) direct() {
	x := a.h.Index()
	from, to := x.GPU(a.From), x.GPU(a.To)
	if (from == nil) == (to == nil) {
		return
	}
	g := cmp.Or(from, to)
	if d := x.DataDirectBeside(g.PCI); d != nil {
		a.hint(HintDirect, d.Evidence, "%s is the data direct function of a NIC and shares a PCIe switch with %s: data may go by it, straight over the switch and possibly faster; classes and rates here leave that path out", d.BDF, g.ID)
	}
}

// notForData says that the chosen port is there for something else: what the
// user says of a role counts only while there is a better one.
func (a *Answer) notForData() {
	p, ok := a.h.Port(a.Chosen.Port)
	if !ok || p.Role == pathsel.RoleData || p.Role == pathsel.RoleUnknown {
		return
	}
	why := p.RoleReason.Text
	if p.RoleReason.Code == pathsel.CodeOverride {
		why = "set by you"
	}
	a.hint(pathsel.CodeNotForData, p.RoleReason.Evidence, "%s is a %s port (%s): used because no data port is usable", p.Name, p.Role, why)
}

// doubts are what is uncertain or worth knowing of the chosen port.
func (a *Answer) doubts() {
	for _, n := range a.Chosen.Notes {
		switch n.Code {
		case pathsel.CodeStateUnknown, pathsel.CodeLinkLocal, pathsel.CodeBond, pathsel.CodeOneCable:
			a.hint(n.Code, n.Evidence, "%s: %s", a.Chosen.Name, n.Text)
		}
	}
}

// degraded gives a hint for each link of the route that runs below what it could.
func (a *Answer) degraded() {
	for i := range a.Route.Steps {
		s := &a.Route.Steps[i]
		if s.Degraded {
			a.hint(HintDegraded, s.Evidence, "%s carries %s of %s", LinkText(a.h, s.Link),
				s.BytesPerSec.String(), s.Max.BytesPerSec.String())
		}
	}
}

// muchFaster is how much more a farther port must carry to be worth a hint.
const muchFaster = 2

// faster points to a farther port that carries much more than the chosen one:
// nearness ranks before rate.
func (a *Answer) faster() {
	if a.Chosen.BytesPerSec == nil {
		return
	}
	least := max(muchFaster**a.Chosen.BytesPerSec, 1) // where the chosen one carries nothing, something
	for i := range a.Ranked {
		c := &a.Ranked[i]
		if c.BytesPerSec == nil || *c.BytesPerSec < least {
			continue
		}
		rate := c.Basis.Text(c.BytesPerSec.String())
		where := "farther (" + c.Class.String() + ")"
		if !c.Class.Known() {
			where = "at a place that is not known"
		}
		a.hint(HintFaster, "", "%s is %s and could carry %s: nearness ranks before rate", c.Name, where, rate)
		return
	}
}

// nearer points to ports that are nearer than the chosen one and out of order.
func (a *Answer) nearer() {
	var nearer []pathsel.Candidate
	for i := range a.Rejected {
		c := &a.Rejected[i]
		if c.Class.Known() && c.Class.Compare(a.Chosen.Class) < 0 && c.Reason.Code.Repairable() {
			nearer = append(nearer, *c)
		}
	}
	for _, group := range Groups(nearer) {
		names := make([]string, len(group))
		for i, c := range group {
			names[i] = c.Name
		}
		a.hint(HintNearer, group[0].Reason.Evidence, "nearer (%s) but not usable: %s: %s", group[0].Class, text.List(names, 4), GroupReason(group))
	}
}
