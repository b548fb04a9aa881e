package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/internal/audit/owners"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// DefaultTolerance is how far a port's share may differ from its planned share, as a fraction of the planned one. Engines that
// watch their ports give a slower one less, as they should.
const DefaultTolerance = 0.25

// idlePart is the part of its planned share below which a port counts as idle.
const idlePart = 0.05

// strayPart is the part of all traffic that a port outside of the plan may carry.
const strayPart = 0.05

// Unused ports carry management datagrams, neighbour discovery and remote shells. A port that carries less
// than this on average is quiet.
const (
	quietBytesPerSec   = 125_000 // 1 Mbit/s
	quietPacketsPerSec = 100
	leastBytes         = 256 << 10 // of a window that is short
	leastPackets       = 250
)

// Options say what is audited.
type Options struct {
	Host *pathsel.Host
	Plan *pathsel.Plan
	// PlanFrom says where the plan is from.
	PlanFrom string
	// Engine limits variables and logs to those of an engine, "" for all.
	Engine string
	// LogHost is what the logs call this host, "" for this host's own name.
	LogHost string
	// Tolerance is how far a share may be from the plan's; 0 is DefaultTolerance.
	Tolerance float64
}

// Audit collects readings. It is for one goroutine.
type Audit struct {
	o       Options
	shares  map[topo.ID]*planned
	tallies map[topo.ID]*tally
	began   int64
	ended   int64
	samples int
	held    owners.Snapshot
	base    map[uint64]owners.Connection // connections as they were at first
	looked  bool
	logs    []Use
	hosts   []Host // what each log of NCCL says about this host
	notes   []string
}

// New prepares an audit of a host against a plan for it.
func New(o Options) (*Audit, error) {
	if o.Tolerance == 0 {
		o.Tolerance = DefaultTolerance
	}
	shares := sharesOf(o.Plan)
	if len(shares) == 0 {
		return nil, pkgerr.New("audit", "the plan gives no port to anything")
	}
	for _, id := range slices.Sorted(maps.Keys(shares)) {
		if _, ok := o.Host.Port(id); !ok {
			return nil, pkgerr.Errorf("audit", "the plan is for another host: this one has no %s", id)
		}
	}
	return &Audit{o: o, shares: shares, tallies: map[topo.ID]*tally{}}, nil
}

// Topology is the host's.
func (a *Audit) Topology() *topo.Topology { return a.o.Host.Topology() }

// Sample takes in a reading of the host's counters. Readings come in order of time.
func (a *Audit) Sample(s *counters.Sample) {
	first := a.samples == 0
	if first {
		a.began = s.AtNS
	}
	a.samples++
	a.ended = s.AtNS
	seen := map[topo.ID]bool{}
	for i := range s.Ports {
		p := &s.Ports[i]
		seen[p.ID] = true
		if a.tallies[p.ID] == nil {
			a.tallies[p.ID] = &tally{}
		}
		a.tallies[p.ID].add(s.AtNS, first, p)
	}
	for id, t := range a.tallies {
		if !seen[id] {
			t.add(s.AtNS, false, nil)
		}
	}
	for _, n := range s.Notes {
		a.Note(n)
	}
}

// Owners takes in what processes hold.
func (a *Audit) Owners(s *owners.Snapshot) {
	if !a.looked {
		a.looked, a.base = true, map[uint64]owners.Connection{}
		for _, c := range s.Connections {
			a.base[c.Cookie] = c
		}
	}
	a.held.Absorb(s)
}

// LogHostError reports that none of the hosts in a log is known to be the audited one.
type LogHostError struct {
	Log   string
	Hosts []string // that the log is of
	Host  string   // the name that was looked for, "" if the host has none
}

// Error says so.
func (e *LogHostError) Error() string {
	host := "this host, which has no name"
	if e.Host != "" {
		host = e.Host
	}
	return fmt.Sprintf("%s: it is of %s, and none is %s", e.Log, text.Join(e.Hosts, 4), host)
}

// Log takes in what engines have logged. From a log of several hosts it takes the lines of this host. A log of a
// single host with another name is taken as this host's.
func (a *Audit) Log(name string, l *Log) error {
	hosts := slices.DeleteFunc(slices.Clone(l.Hosts), func(h Host) bool { return len(h.Uses)+len(h.Listed) == 0 })
	if len(hosts) == 0 {
		return pkgerr.Errorf("audit", "%s: no line says which network device NCCL or UCX uses", name)
	}
	host := a.o.Host.Topology().Host.Name
	want := cmp.Or(a.o.LogHost, host)
	i := slices.IndexFunc(hosts, func(h Host) bool { return h.Name == want })
	if i < 0 { // NCCL logs no domain
		i = slices.IndexFunc(hosts, func(h Host) bool { return want != "" && shortName(h.Name) == shortName(want) })
	}
	switch {
	case i >= 0:
	case len(hosts) > 1 || a.o.LogHost != "":
		e := &LogHostError{Log: name, Host: want}
		for _, h := range hosts {
			e.Hosts = append(e.Hosts, h.Name)
		}
		return e
	default:
		i = 0
		if host == "" {
			a.Note(fmt.Sprintf("%s was written on %s; this host has no name to compare", name, hosts[0].Name))
		} else {
			a.Note(fmt.Sprintf("%s was written on %s, this host is %s", name, hosts[0].Name, host))
		}
	}
	if l.Left > 0 {
		a.Note(fmt.Sprintf("%s: %s left out: too many devices", name, text.Plural(l.Left, "line")))
	}
	for _, u := range hosts[i].Uses {
		if engineLogs(a.o.Engine, u.Engine) {
			a.logs = append(a.logs, u)
		}
	}
	if engineLogs(a.o.Engine, NCCL) {
		a.hosts = append(a.hosts, hosts[i])
	}
	return nil
}

// shortName is a host's name without its domain.
func shortName(name string) string {
	short, _, _ := strings.Cut(name, ".")
	return short
}

// Note adds a note to the report, once.
func (a *Audit) Note(n string) { a.notes = withNew(a.notes, n) }

// Report is the answer to all that came in so far.
func (a *Audit) Report() *Report {
	h := a.o.Host
	r := &Report{
		Schema: Schema, Host: h.Topology().Host.Name, Plan: a.o.PlanFrom, Engine: a.o.Engine, Transport: h.Transport(),
		WindowNS: a.ended - a.began, Readings: a.samples, Tolerance: a.o.Tolerance,
		Ports: []Port{}, Interfaces: []Interface{}, Processes: a.processes(), Log: slices.Clone(a.logs), Notes: slices.Clone(a.notes),
	}
	if r.Log == nil {
		r.Log = []Use{}
	}
	j := judge{a: a, r: r}
	j.judge()
	r.Notes = append(r.Notes, a.held.Notes...)
	if r.Notes == nil {
		r.Notes = []string{}
	}
	return r
}

// processes are those that hold something or are told something, by PID.
func (a *Audit) processes() []Process {
	out := []Process{}
	for _, pid := range slices.Sorted(maps.Keys(a.held.Processes)) {
		p := a.held.Processes[pid]
		x := Process{PID: pid, Name: p.Name, Variables: []Variable{}}
		for _, name := range slices.Sorted(maps.Keys(p.Variables)) {
			if engineReads(a.o.Engine, name) {
				x.Variables = append(x.Variables, Variable{name, p.Variables[name]})
			}
		}
		if len(x.Variables) > 0 || a.holds(pid) {
			out = append(out, x)
		}
	}
	return out
}

func (a *Audit) holds(pid int) bool {
	return slices.ContainsFunc(a.held.QueuePairs, func(q owners.QueuePair) bool { return q.PID == pid }) ||
		slices.ContainsFunc(a.held.Connections, func(c owners.Connection) bool { return c.PID == pid })
}

// queuePairUsers are the processes that have queue pairs on a port.
func (a *Audit) queuePairUsers(device string, number int) []User {
	count := map[int]int{}
	for _, q := range a.held.QueuePairs {
		if q.Device == device && samePort(q.Port, number) {
			count[q.PID]++
		}
	}
	out := []User{}
	for pid, n := range count {
		out = append(out, User{PID: pid, Name: a.nameOf(pid), QueuePairs: n})
	}
	slices.SortFunc(out, func(x, y User) int { return cmp.Or(cmp.Compare(y.QueuePairs, x.QueuePairs), cmp.Compare(x.PID, y.PID)) })
	return out
}

// samePort says whether two numbers may mean the same port of a device. 0 is an unknown number, as in a matrix of
// classes and for merged devices.
func samePort(a, b int) bool { return a == b || a == 0 || b == 0 }

// tcpUsers are the processes whose connections from an interface's addresses moved data.
func (a *Audit) tcpUsers(n *topo.Netdev) []User {
	moved := map[int]uint64{}
	for _, c := range a.held.Connections {
		if !hasAddress(n, c.Local.String()) {
			continue
		}
		was := a.base[c.Cookie]
		if bytes := c.SentBytes - was.SentBytes + c.ReceivedBytes - was.ReceivedBytes; bytes > 0 {
			moved[c.PID] += bytes
		}
	}
	out := []User{}
	for pid, bytes := range moved {
		out = append(out, User{PID: pid, Name: a.nameOf(pid), TCPBytes: bytes})
	}
	slices.SortFunc(out, func(x, y User) int { return cmp.Or(cmp.Compare(y.TCPBytes, x.TCPBytes), cmp.Compare(x.PID, y.PID)) })
	return out
}

func hasAddress(n *topo.Netdev, address string) bool {
	return slices.ContainsFunc(n.Addresses, func(cidr string) bool {
		own, _, _ := strings.Cut(cidr, "/")
		return own == address
	})
}

// nameOf is what a process is called, "" where it belongs to another user.
func (a *Audit) nameOf(pid int) string {
	if p := a.held.Processes[pid]; p != nil {
		return p.Name
	}
	return ""
}
