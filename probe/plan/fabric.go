package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

// Host is one host of a fabric.
type Host struct {
	Name     string // as the fabric file and the report call it
	Topology *topo.Topology
	// Transport is all that its pairs can use; Auto: what FabricOptions say.
	Transport pathsel.Transport
}

// Rails says which ports of two hosts make a pair.
type Rails string

// The choices of rails.
const (
	RailsAll   Rails = "all"
	RailsSame  Rails = "same"  // ports of one rail
	RailsCross Rails = "cross" // ports of different rails
)

// FabricOptions say which pairs between hosts are wanted.
type FabricOptions struct {
	Rails Rails // "": all
	// Transport: Auto is RDMA between hosts that both have it, else TCP.
	Transport pathsel.Transport
	Memory    Where // "": OnCPU
	BothWays  bool  // pairs keep the other direction as busy at the same time
	// Select picks pairs by patterns: "n1>n2", "n1/mlx5_0>*", "mlx5_0>mlx5_0"; a name
	// alone means either end. None: all.
	Select []string
	// Fabric is what the file says of rails, leaves and uplinks; nil: nothing is known.
	// Between leaves without uplinks a part of the way is not known.
	Fabric *pathsel.Fabric
}

// maxHosts bounds the hosts of a fabric.
const maxHosts = 4096

// hostPorts is a host with its ports for one transport.
type hostPorts struct {
	*host
	ph   *pathsel.Host
	ends []portEnd
}

// indexOfPorts maps Port.Index to the place in ends.
func (h *hostPorts) indexOfPorts() map[int]int {
	out := make(map[int]int, len(h.ends))
	for i := range h.ends {
		out[h.ends[i].port.Index] = i
	}
	return out
}

// Fabric lists the pairs of ports of every ordered pair of hosts. Ports that do not
// reach each other, or cannot be used, are in Rejected with the reason. Errors are SelectionError,
// DuplicateHostError, RailsError, FabricFileError, and those of a topology that is not derived.
func Fabric(hosts []Host, o FabricOptions) (*Pairs, error) {
	switch {
	case len(hosts) < 2:
		return nil, pkgerr.Errorf("plan", "fabric of %d hosts: want two or more", len(hosts))
	case len(hosts) > maxHosts:
		return nil, pkgerr.Errorf("plan", "fabric of %d hosts: want at most %d", len(hosts), maxHosts)
	}
	o.Rails = cmp.Or(o.Rails, RailsAll)
	b, err := newBuilder("fabric", o.Select, o.BothWays)
	if err != nil {
		return nil, err
	}
	f := fabric{b: b, o: &o, tcp: map[int]*hostPorts{}}
	if err := f.prepare(hosts); err != nil {
		return nil, err
	}
	if err := f.checkRails(); err != nil {
		return nil, err
	}
	if err := f.connect(); err != nil {
		return nil, err
	}
	f.noteMissingUplinks()
	f.addPairs()
	return b.finish()
}

// fabric makes the pairs of many hosts.
type fabric struct {
	b     *builder
	o     *FabricOptions
	hosts []*hostPorts
	tcp   map[int]*hostPorts // hosts whose better transport is RDMA, for peers without
	links uplinks
	// reached says which ports of two hosts reach each other, in either order of the hosts.
	reached map[[2]int]*reachable
}

// prepare opens the hosts, in the order of their names.
func (f *fabric) prepare(hosts []Host) error {
	hosts = slices.Clone(hosts)
	slices.SortStableFunc(hosts, func(x, y Host) int { return topo.NaturalCompare(x.Name, y.Name) })
	var err error
	if f.links, err = f.b.uplinks(f.o.Fabric); err != nil {
		return err
	}
	for i := range hosts {
		if i > 0 && hosts[i].Name == hosts[i-1].Name {
			return &DuplicateHostError{hosts[i].Name}
		}
		h, err := newHost(f.b, hosts[i].Name, hosts[i].Name+"/", hosts[i].Topology)
		if err != nil {
			return err
		}
		fh, err := f.prepareHost(h, cmp.Or(hosts[i].Transport, f.o.Transport))
		if err != nil {
			return err
		}
		f.hosts = append(f.hosts, fh)
		h.rejectPorts(fh.ph)
		if len(fh.ends) == 0 {
			f.b.reject(Rejection{Kind: probe.Port, From: h.name,
				Reason: pathsel.Reason{Code: CodeNone, Text: fmt.Sprintf("no port of this host can be used over %s", fh.ph.Transport())}})
		}
	}
	return nil
}

func (f *fabric) prepareHost(h *host, transport pathsel.Transport) (*hostPorts, error) {
	ph, err := pathsel.New(h.t, pathsel.Options{Transport: transport})
	if err != nil {
		return nil, pkgerr.Errorf("plan", "host %q: %w", h.name, err)
	}
	cabled, err := f.o.Fabric.Cabling(h.name, ph)
	if err != nil {
		return nil, &FabricFileError{err}
	}
	ends, err := h.portEnds(ph, f.o.Memory, cabled)
	if err != nil {
		return nil, err
	}
	return &hostPorts{host: h, ph: ph, ends: ends}, nil
}

// sides are two hosts, both prepared for the better transport that both have.
func (f *fabric) sides(i, j int) (a, b *hostPorts, err error) {
	a, b = f.hosts[i], f.hosts[j]
	if a.ph.Transport() == b.ph.Transport() {
		return a, b, nil
	}
	if a, err = f.overTCP(i); err != nil {
		return nil, nil, err
	}
	b, err = f.overTCP(j)
	return a, b, err
}

// overTCP makes a rate a bound that the processors at both ends may not reach: a healthy host must
// not fail because of it.
func (f *fabric) overTCP(i int) (*hostPorts, error) {
	h := f.hosts[i]
	if h.ph.Transport() == pathsel.TCP {
		return h, nil
	}
	if f.tcp[i] == nil {
		fh, err := f.prepareHost(h.host, pathsel.TCP)
		if err != nil {
			return nil, err
		}
		f.tcp[i] = fh
		f.b.out.Notes = append(f.b.out.Notes, fmt.Sprintf("%s has RDMA but a peer does not: they are measured over TCP", h.name))
	}
	return f.tcp[i], nil
}

// checkRails refuses a choice of rails if no rail is known.
func (f *fabric) checkRails() error {
	if f.o.Rails == RailsAll {
		return nil
	}
	known, example := false, ""
	for _, h := range f.hosts {
		for i := range h.ends {
			e := &h.ends[i]
			if e.rail != nil {
				known = true
				continue
			}
			if example == "" {
				example = h.name + "/" + e.end.Name
			}
			f.b.reject(Rejection{Kind: probe.Port, From: h.name + "/" + e.end.Name,
				Reason: pathsel.Reason{Code: CodeRailGap, Text: "the fabric file does not say which rail it is on"}})
		}
	}
	if !known && example != "" {
		return &RailsError{f.o.Rails, example}
	}
	return nil
}

// railsFit says whether two ports are on the requested rails.
func (f *fabric) railsFit(a, b *portEnd) bool {
	switch {
	case f.o.Rails == RailsAll:
		return true
	case a.rail == nil || b.rail == nil:
		return false
	}
	return (*a.rail == *b.rail) == (f.o.Rails == RailsSame)
}

// connect finds out which ports reach each other; the answer is the same in both directions.
func (f *fabric) connect() error {
	f.reached = map[[2]int]*reachable{}
	notes := map[string]bool{}
	total := 0
	for i := range f.hosts {
		for j := i + 1; j < len(f.hosts); j++ {
			a, b, err := f.sides(i, j)
			if err != nil {
				return err
			}
			if !f.b.sel.between(a.ends, b.ends) {
				continue
			}
			m, err := connect(a, b, f.o.Fabric)
			if err != nil {
				return err
			}
			f.reached[[2]int{i, j}], f.reached[[2]int{j, i}] = m, m.reversed()
			if total += f.countPairs(m); total > maxPairs {
				return pkgerr.Errorf("plan", "more than %d pairs of ports: measure one rail at a time, or fewer hosts", maxPairs)
			}
			for _, n := range m.notes {
				if !notes[n.Text] {
					notes[n.Text] = true
					f.b.out.Notes = append(f.b.out.Notes, n.Text)
				}
			}
			for _, r := range m.refused {
				f.b.rejectPairs(r, a.name, b.name, a.ends, b.ends, func(x, y int) bool { return f.railsFit(&a.ends[x], &b.ends[y]) })
			}
		}
	}
	return nil
}

// eachPair calls do for the ports of two hosts that reach each other and are on the requested rails.
func (f *fabric) eachPair(m *reachable, do func(from, to *portEnd)) {
	for x := range m.here.ends {
		for y := range m.there.ends {
			if from, to := &m.here.ends[x], &m.there.ends[y]; m.reach(x, y) && f.railsFit(from, to) {
				do(from, to)
			}
		}
	}
}

// countPairs is how many pairs two hosts have, in both directions.
func (f *fabric) countPairs(m *reachable) int {
	n := 0
	f.eachPair(m, func(from, to *portEnd) {
		for _, selected := range []bool{f.b.sel.pair(&from.end, &to.end), f.b.sel.pair(&to.end, &from.end)} {
			if selected {
				n++
			}
		}
	})
	return n
}

// addPairs makes the pairs, by host and port.
func (f *fabric) addPairs() {
	for i := range f.hosts {
		for j := range f.hosts {
			m := f.reached[[2]int{i, j}]
			if m == nil {
				continue
			}
			transport := string(m.here.ph.Transport())
			f.eachPair(m, func(from, to *portEnd) {
				between, distance := f.links.between(from.leaf, to.leaf)
				f.b.addPorts(from, to, transport, between, distance)
			})
		}
	}
}
