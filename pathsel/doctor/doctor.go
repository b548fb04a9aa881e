package doctor

import (
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// Options say what to look at and how to say it.
type Options struct {
	// Codes are the checks to make; none means all.
	Codes []Code
	// Units is the unit of rates in texts: "gbit", "gbyte" or "gibyte"; "" or "auto" is what is customary, gigabits
	// for network ports and gigabytes for the rest.
	Units string
	// Verbs is how trying the RDMA devices of the running host went; nil where
	// they were not tried.
	Verbs *replies.VerbsReport
	// GIDIndex is the index that a program will be set to use; nil none.
	GIDIndex *int
	// Peer is another host that this one talks to, derived; nil none.
	Peer *topo.Topology
}

// Check describes one check; docs/doctor.md says how each is judged, by which facts, and what can be done.
type Check struct {
	Code     Code
	Severity Severity // the worst that it gives
	Title    string   // what is true where it is ok
	// AsksDevices says that the check uses Options.Verbs.
	AsksDevices bool
	run         func(*host) outcome
	noun        string // the kind of thing that it judges, "port", for the note "8 ports"; "" if the function sets the note
	none        string // why it does not apply if the function judged no device
}

// Codes lists the codes of all checks, sorted.
func Codes() []Code {
	var out []Code
	for _, c := range checks {
		out = append(out, c.Code)
	}
	slices.Sort(out)
	return out
}

// Run makes the checks on a derived topology. The error is for a topology
// that is not derived and for unknown codes; what is wrong with the host
// is in the report.
func Run(t *topo.Topology, o Options) (*Report, error) {
	if t == nil || t.Derived == nil {
		return nil, pkgerr.New("doctor", "topology is not derived: call Derive first")
	}
	checks, err := selected(o.Codes)
	if err != nil {
		return nil, err
	}
	paths, err := pathsel.New(t, pathsel.Options{})
	if err != nil {
		return nil, pkgerr.Errorf("doctor", "%w", err)
	}
	if o.Peer != nil && o.Peer.Derived == nil {
		return nil, pkgerr.New("doctor", "the peer's topology is not derived: call Derive first")
	}
	h := newHost(t, paths, o)
	r := &Report{Schema: Schema, Host: t.Host.Name, Origin: t.Origin, Complete: t.Complete, Checks: []CheckResult{}}
	for i := range checks {
		c := checks[i].result(checks[i].run(h))
		r.Summary.add(&c)
		r.Checks = append(r.Checks, c)
	}
	return r, nil
}

// selected returns the checks of some codes in the order of codes, all for none.
func selected(codes []Code) ([]Check, error) {
	all := Checks()
	for _, code := range codes {
		if !slices.ContainsFunc(all, func(c Check) bool { return c.Code == code }) {
			return nil, pkgerr.Errorf("doctor", "no check is called %q", code)
		}
	}
	if len(codes) > 0 {
		all = slices.DeleteFunc(all, func(c Check) bool { return !slices.Contains(codes, c.Code) })
	}
	slices.SortFunc(all, func(a, b Check) int { return strings.Compare(string(a.Code), string(b.Code)) })
	return all, nil
}
