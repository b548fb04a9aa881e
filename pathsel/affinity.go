package pathsel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// Affinity is the order of a host's ports for one memory location.
type Affinity struct {
	Location Location `json:"location"`
	// Ranked are the usable ports, best first: the preferred ones, which are as
	// good as the best on role, class and rate, then the available ones.
	Ranked []Candidate `json:"ranked"`
	// Rejected are the others, in the order of names.
	Rejected []Candidate `json:"rejected"`
}

// Candidate is one port in a ranking for a memory location.
type Candidate struct {
	Port    topo.ID `json:"port"`
	NIC     topo.ID `json:"nic"`
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Role    Role    `json:"role"`

	Class       topo.Class     `json:"class"`
	NCCL        topo.NCCLClass `json:"nccl"`
	Hops        *int           `json:"hops"`
	BytesPerSec *topo.Rate     `json:"expected_bytes_per_sec"`
	Limit       topo.LinkID    `json:"limit_link,omitempty"`
	Basis       topo.Basis     `json:"basis"`
	Load        int64          `json:"load_bytes"`

	// Reason says why the port ranks where it does (the first criterion that puts it behind the
	// port before it), or why it is rejected.
	Reason Reason `json:"reason"`
	// Notes are further remarks: doubts, the reason for its role, the legs of a bond, other
	// reasons for its rejection.
	Notes []Reason `json:"notes,omitempty"`

	index   int
	doubt   int
	planned bool // the location has lost its nearest port, and the plan gives it this one
	foreign bool // it is assigned to another process
}

// Preferred lists the ports that are as good as the best.
func (a *Affinity) Preferred() []topo.ID { return a.ports(Preferred) }

// Available lists the usable ports that are farther or slower than the best, in order.
func (a *Affinity) Available() []topo.ID { return a.ports(Available) }

func (a *Affinity) ports(v Verdict) []topo.ID {
	out := []topo.ID{}
	for i := range a.Ranked {
		if a.Ranked[i].Verdict == v {
			out = append(out, a.Ranked[i].Port)
		}
	}
	return out
}

// Affinity ranks the ports for a memory location, by: how certainly usable,
// role, class, limiting rate, hops, load, name. Where the nearest port is out of use, what the plan for all
// gives the location comes before the order of names. load is the bytes already queued on each port, by
// Port.Index; nil means that nothing is queued.
func (h *Host) Affinity(location Location, load []int64) (*Affinity, error) {
	loc, err := h.location(location)
	if err != nil {
		return nil, err
	}
	a := &Affinity{Location: location, Ranked: []Candidate{}, Rejected: []Candidate{}}
	for i := range h.ports {
		p := &h.ports[i]
		c := h.candidate(loc, p)
		c.Load = pick.Load(load).Of(i)
		if p.Usable {
			a.Ranked = append(a.Ranked, c)
			continue
		}
		c.Verdict, c.Reason, c.Notes = Rejected, p.Reasons[0], append(slices.Clone(p.Reasons[1:]), c.Notes...)
		a.Rejected = append(a.Rejected, c)
	}
	slices.SortStableFunc(a.Ranked, func(x, y Candidate) int { _, order := compare(&x, &y); return order })
	for i := range a.Ranked {
		c := &a.Ranked[i]
		c.Notes = append(slices.Clone(h.ports[c.index].Reasons), c.Notes...)
		c.Verdict, c.Reason = h.judge(a.Ranked, i)
	}
	if f, ok := h.fallbacks[loc]; ok && h.routes[loc][f.lost.Index].class.Compare(a.Ranked[0].Class) < 0 {
		a.Ranked[0].Notes = append(a.Ranked[0].Notes, f.note(location, &a.Ranked[0]))
	}
	return a, nil
}

// candidate is a port as seen from a location, without a verdict.
func (h *Host) candidate(loc int, p *Port) Candidate {
	r := &h.routes[loc][p.Index]
	c := Candidate{Port: p.ID, NIC: p.NIC, Name: p.Name, Role: p.Role, Class: r.class, NCCL: r.nccl,
		BytesPerSec: r.expected(), Limit: r.limit, Basis: r.basis, index: p.Index, doubt: p.doubt}
	if f, ok := h.fallbacks[loc]; ok {
		c.planned = f.Port == p.ID
	}
	if r.hops >= 0 {
		hops := r.hops
		c.Hops = &hops
	}
	if len(p.Legs) > 0 {
		c.Notes = append(c.Notes, Reason{CodeBond, fmt.Sprintf("a bond of %s: one connection uses one leg", text.Join(p.Legs, len(p.Legs))), p.evidence})
	}
	if p.VF {
		c.Notes = append(c.Notes, Reason{codeVirtualFunction, "a virtual function: it shares its physical function's wire and slot", p.evidence})
	}
	if p.wire != "" && !p.VF {
		for i := range h.ports {
			if o := &h.ports[i]; o.ID != p.ID && o.wire == p.wire {
				c.Notes = append(c.Notes, Reason{CodeOneCable, "one cable with " + o.Name, p.evidence})
			}
		}
	}
	return c
}

// compare orders two candidates and names the first criterion that differs.
func compare(x, y *Candidate) (Code, int) {
	switch {
	case x.doubt != y.doubt:
		return codeUsable, cmp.Compare(x.doubt, y.doubt)
	case x.Role != y.Role:
		return codeRole, cmp.Compare(roleOrder[x.Role], roleOrder[y.Role])
	}
	if c := x.Class.Compare(y.Class); c != 0 {
		return codeClass, c
	}
	if c := knownFirst(x.BytesPerSec, y.BytesPerSec, higher); c != 0 {
		return codeRate, c
	}
	if c := knownFirst(x.Hops, y.Hops, cmp.Compare); c != 0 {
		return codeHops, c
	}
	if c := cmp.Compare(x.Load, y.Load); c != 0 {
		return codeLoad, c
	}
	if x.planned != y.planned {
		return CodeFallback, compareBools(!x.planned, !y.planned)
	}
	return codeName, cmp.Compare(x.index, y.index) // ports are in the order of names
}

// higher puts the higher rate first.
func higher(x, y topo.Rate) int { return cmp.Compare(y, x) }

// knownFirst orders two values, with what is not known last.
func knownFirst[T any](x, y *T, order func(T, T) int) int {
	switch {
	case x == nil && y == nil:
		return 0
	case x == nil:
		return 1
	case y == nil:
		return -1
	}
	return order(*x, *y)
}

// judge says how the i-th of ranked candidates stands to the first, and why it
// is behind the one before.
func (h *Host) judge(ranked []Candidate, i int) (Verdict, Reason) {
	c, first := &ranked[i], &ranked[0]
	if i == 0 {
		return Preferred, bestReason(h.firstText(ranked), c)
	}
	verdict := Available
	switch code, _ := compare(first, c); code {
	case codeHops, codeLoad, CodeFallback, codeName:
		verdict = Preferred
	}
	before := &ranked[i-1]
	code, _ := compare(before, c)
	return verdict, Reason{code, difference(code, before, c), ""}
}

// firstText says why the first candidate is the first.
func (h *Host) firstText(ranked []Candidate) string {
	first := &ranked[0]
	for i := range ranked {
		if c := &ranked[i]; first.Class.Known() && c.Class.Known() && c.Class.Compare(first.Class) < 0 {
			return "the port most certain to be usable"
		}
	}
	return h.nearest(first)
}

// nearest is the reason of a candidate that nothing is nearer than, as far as is known.
func (h *Host) nearest(c *Candidate) string {
	if c.Class.Known() {
		return "nearest usable port"
	}
	return "usable port; how near " + h.Unseen()
}

// bestReason is the reason of a candidate that nothing ranks before: why, and its class and rate.
func bestReason(why string, c *Candidate) Reason { return Reason{CodeBest, why + about(c), ""} }

// ShortReason is Reason.Text without the class and rate of the candidate itself, for a table
// that shows both beside it.
func (c *Candidate) ShortReason() string {
	if c.Reason.Code != CodeBest {
		return c.Reason.Text
	}
	return strings.TrimSuffix(c.Reason.Text, about(c))
}

// about is a candidate's class and rate in brackets, as far as they are known.
func about(c *Candidate) string {
	var facts []string
	if c.Class.Known() {
		facts = append(facts, c.Class.String())
	}
	if c.BytesPerSec != nil {
		facts = append(facts, c.rateText())
	}
	if len(facts) == 0 {
		return ""
	}
	return " (" + strings.Join(facts, ", ") + ")"
}

// difference explains what ranks a candidate behind the one before.
func difference(code Code, before, c *Candidate) string {
	switch code {
	case codeUsable:
		return fmt.Sprintf("less certainly usable than %s", before.Name)
	case codeRole:
		return fmt.Sprintf("%s, %s is %s", c.Role, before.Name, before.Role)
	case codeClass:
		return fmt.Sprintf("%s, %s is %s", classText(c.Class), before.Name, classText(before.Class))
	case codeRate:
		return fmt.Sprintf("%s, %s has %s", c.rateText(), before.Name, before.rateText())
	case codeHops:
		return fmt.Sprintf("%s links away, %s is %s", hopsText(c.Hops), before.Name, hopsText(before.Hops))
	case codeLoad:
		return fmt.Sprintf("%s queued already, %s has %s", units.Bytes(c.Load), before.Name, units.Bytes(before.Load))
	case CodeFallback:
		return fmt.Sprintf("equal to %s in all else, which the plan takes", before.Name)
	}
	return fmt.Sprintf("as good as %s, which comes first by name", before.Name)
}

func classText(c topo.Class) string {
	if !c.Known() {
		return "class unknown"
	}
	return c.String()
}

// rateText is an expected rate with how it is known.
func (c *Candidate) rateText() string {
	if c.BytesPerSec == nil {
		return "rate unknown"
	}
	return rateText(*c.BytesPerSec, c.Basis)
}

func rateText(r topo.Rate, basis topo.Basis) string {
	return basis.Text(r.String())
}

func hopsText(n *int) string {
	if n == nil {
		return "an unknown number of"
	}
	return fmt.Sprint(*n)
}
