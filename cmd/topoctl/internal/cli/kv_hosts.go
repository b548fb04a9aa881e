package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/sim"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// kvSite is where a workload is worked off.
type kvSite struct {
	hosts           []sim.HostSpec
	sources         []string // what describes each host
	prefill, decode sidePool
	fabric          *sim.Fabric
	notes           []string
}

// sidePool is where the instances of a side are.
type sidePool struct {
	side      string // "prefill" or "decode", as its flags are called
	hosts     []int
	gpu       string
	shape     kvShape
	instances []serve.Instance
}

// site reads the hosts and puts instances on their GPUs.
func (o *predictOptions) site(ctx context.Context) (*kvSite, error) {
	s := &kvSite{prefill: sidePool{side: "prefill", shape: o.prefillShape}, decode: sidePool{side: "decode", shape: o.decodeShape}}
	if err := o.readHosts(ctx, s); err != nil {
		return nil, err
	}
	second := min(1, len(s.hosts)-1)
	var err error
	if s.prefill.hosts, err = s.pool("prefill", o.prefillHosts, 0); err != nil {
		return nil, err
	}
	if o.decodeShape.instances > 0 {
		s.decode.hosts, err = s.pool("decode", o.decodeHosts, second)
	}
	if err != nil {
		return nil, err
	}
	for i := range s.hosts {
		if !slices.Contains(s.prefill.hosts, i) && !slices.Contains(s.decode.hosts, i) {
			return nil, withHint(fmt.Errorf("--host %s: not used for prefill or decode", s.hosts[i].Name), "add it to --prefill-hosts or --decode-hosts")
		}
	}
	places := serve.NewPlaces(s.hosts)
	for _, p := range []*sidePool{&s.prefill, &s.decode} {
		if err := errors.Join(s.place(p, places), s.findGPU(p, o.gpu)); err != nil {
			return nil, err
		}
	}
	return s, o.cable(ctx, s)
}

// readHosts reads the hosts; those of one source are of one kind.
func (o *predictOptions) readHosts(ctx context.Context, s *kvSite) error {
	if len(o.hostFlags) == 0 {
		return withHint(errors.New("no hosts: want --host NAME=FILE"), "for two built-in machines, use --host p=%sa10-2nic --host d=%sa10-2nic", fixturePrefix, fixturePrefix)
	}
	kinds := map[string]*sim.Kind{}
	for _, line := range o.hostFlags {
		name, source, _ := strings.Cut(line, "=")
		if source == "" || name == "" || strings.ContainsAny(name, " \t\r\n:/>,") || text.Printable(name) != name {
			return fmt.Errorf("--host %q: want NAME=FILE or NAME=%sNAME, with a name that has no space and none of : / , >", line, fixturePrefix)
		}
		if slices.ContainsFunc(s.hosts, func(h sim.HostSpec) bool { return h.Name == name }) {
			return fmt.Errorf("--host %q: the name %s is given twice", line, name)
		}
		if kinds[source] == nil {
			t, err := o.Named(ctx, source)
			if err == nil {
				kinds[source], err = sim.NewKind(t, "")
			}
			if err != nil {
				return fmt.Errorf("--host %s: %w", name, pkgerr.Plain(err))
			}
		}
		s.hosts = append(s.hosts, sim.HostSpec{Name: name, Kind: kinds[source]})
		s.sources = append(s.sources, source)
	}
	return nil
}

func (s *kvSite) names() []string {
	var out []string
	for _, h := range s.hosts {
		out = append(out, h.Name)
	}
	return out
}

// pool finds the hosts of a side.
func (s *kvSite) pool(side string, given []string, otherwise int) ([]int, error) {
	if given == nil {
		return []int{otherwise}, nil
	}
	var out []int
	for _, name := range given {
		i := slices.Index(s.names(), name)
		switch {
		case i < 0:
			return nil, suggest(fmt.Errorf("--%s-hosts %q: there is no --host %s", side, strings.Join(given, ","), name), name, s.names(), "")
		case slices.Contains(out, i):
			return nil, fmt.Errorf("--%s-hosts %q: %s is given twice", side, strings.Join(given, ","), name)
		}
		out = append(out, i)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--%s-hosts is empty", side)
	}
	return out, nil
}

// hasRoom says whether the hosts have the GPUs for another shape of one side beside the other side.
func (s *kvSite) hasRoom(p *sidePool, other kvShape) bool {
	places := serve.NewPlaces(s.hosts)
	for _, x := range []*sidePool{&s.prefill, &s.decode} {
		would := sidePool{side: x.side, hosts: x.hosts, shape: x.shape}
		if x == p {
			would.shape = other
		}
		if s.place(&would, places) != nil {
			return false
		}
	}
	return true
}

// place gives each instance GPUs that no other instance has.
func (s *kvSite) place(p *sidePool, places *serve.Places) error {
	for n := range p.shape.instances {
		ranks, err := places.Place(p.hosts, p.shape.tp, 1)
		if err != nil {
			return withHint(fmt.Errorf("--%s %s: instance %d: %w", p.side, p.shape, n+1, err), "use fewer instances or ranks, or more hosts in --%s-hosts", p.side)
		}
		p.instances = append(p.instances, ranks)
	}
	return nil
}

// findGPU says what the instances of a side compute with.
func (s *kvSite) findGPU(p *sidePool, given string) error {
	if p.gpu = given; given != "" {
		return nil
	}
	for _, ranks := range p.instances {
		for _, r := range ranks {
			h := s.hosts[r.Host]
			t := h.Kind.Topology()
			model := t.GPUs[slices.Index(h.Kind.Host().GPUs(), r.Location)].Model
			name, known := knownGPUs[model]
			if !known {
				return withHint(fmt.Errorf("the speed of GPU %q is unknown (%s of %s)", model, r.Location, h.Name), "use --gpu NAME to choose one: %s", either(gpuNames()))
			}
			if p.gpu != "" && p.gpu != name {
				return withHint(fmt.Errorf("%s instances would run on different GPUs, %s and %s", p.side, p.gpu, name), "use --gpu NAME to treat all as the same")
			}
			p.gpu = name
		}
	}
	return nil
}

// cable joins the ports: as --fabric says, else by one switch.
func (o *predictOptions) cable(ctx context.Context, s *kvSite) error {
	file, err := o.ReadFabric(ctx, o.fabricFile)
	if err != nil {
		return err
	}
	if file == nil {
		s.fabric = &sim.Fabric{Leaves: 1}
		for h := range s.hosts {
			for _, id := range s.hosts[h].Kind.DataPorts() {
				s.fabric.Cables = append(s.fabric.Cables, sim.Cable{Host: h, Port: id, Rail: -1})
			}
		}
	} else {
		if s.fabric, s.notes, err = fabricOf(file, s.hosts); err != nil {
			return fmt.Errorf("--fabric %s: %w", o.fabricFile, pkgerr.Plain(err))
		}
	}
	for _, c := range s.fabric.Cables {
		h := s.hosts[c.Host]
		if p, ok := h.Kind.Host().Port(c.Port); ok && p.BytesPerSec == nil {
			s.notes = append(s.notes, fmt.Sprintf("the rate of %s/%s is unknown, and not limited here", h.Name, p.Name))
		}
	}
	s.notes = append(s.notes, typicalNotes(s.hosts)...)
	return nil
}

// typicalNotes say with which typical rates the links between sockets count, and on which hosts.
func typicalNotes(hosts []sim.HostSpec) (notes []string) {
	var rates []string
	of := map[string][]string{}
	for i := range hosts {
		seen := map[string]bool{}
		for _, l := range hosts[i].Kind.Host().Topology().Links {
			if l.Kind != topo.LinkSocket || l.Basis != topo.BasisTypical {
				continue
			}
			rate := l.Basis.Text(l.BytesPerSec.String())
			if of[rate] == nil {
				rates = append(rates, rate)
			}
			if !seen[rate] {
				seen[rate] = true
				of[rate] = append(of[rate], hosts[i].Name)
			}
		}
	}
	for _, rate := range rates {
		notes = append(notes, fmt.Sprintf("data that crosses the sockets of %s is counted with %s there: typical of such hardware, not measured", text.Join(of[rate], 4), rate))
	}
	return notes
}

// portName is what people call a port.
func portName(h sim.HostSpec, id topo.ID) string {
	p, _ := h.Kind.Host().Port(id)
	return p.Name
}

// ports finds the ports of a flag: HOST/PORT, or, where any host will do, PORT of each host that has it.
func (s *kvSite) ports(flag, line string, anyHost bool) (map[int][]topo.ID, error) {
	host, name, both := strings.Cut(line, "/")
	if both && !slices.Contains(s.names(), host) { // mlx4_0/2
		both = false
	}
	if !both {
		host, name = "", line
	}
	if name == "" || !both && !anyHost {
		return nil, fmt.Errorf("--%s %q: want HOST/PORT, with one of the hosts %s", flag, line, text.List(s.names(), 4))
	}
	out := map[int][]topo.ID{}
	var known []string
	for i, h := range s.hosts {
		if both && h.Name != host {
			continue
		}
		for _, p := range h.Kind.Host().Ports() {
			known = append(known, p.Name)
			if p.Name == name || p.ID.Name() == name || p.Device != "" && p.Device == name {
				out[i] = append(out[i], p.ID)
			}
		}
	}
	if len(out) == 0 {
		err := fmt.Errorf("--%s %q: no host has such a port", flag, line)
		if both {
			err = fmt.Errorf("--%s %q: %s has no such port", flag, line, host)
		}
		slices.Sort(known)
		return nil, suggest(err, name, known, "known ports: "+text.List(slices.Compact(known), 12))
	}
	return out, nil
}

// fabricOf makes the simulator's fabric of a fabric file. Usable ports are cabled to their
// leaves. Where the file names none, a rail is a switch of its own if rails are separate,
// else one switch joins all.
func fabricOf(file *pathsel.Fabric, hosts []sim.HostSpec) (*sim.Fabric, []string, error) {
	f := &sim.Fabric{RailOnly: file.RailOnly}
	var cables []sim.Cable
	var leaves []string // of each cable
	var notes []string
	named := false
	for i, h := range hosts {
		cabled, err := file.Cabling(h.Name, h.Kind.Host())
		if err != nil {
			return nil, nil, err
		}
		for k, p := range h.Kind.Host().Ports() {
			c := cabled[k]
			if !p.Usable || c.Leaf == "" && c.Rail == nil {
				continue
			}
			rail, leaf := -1, c.Leaf
			if c.Rail != nil {
				rail = *c.Rail
			}
			named = named || leaf != ""
			if leaf == "" && file.RailOnly {
				leaf = fmt.Sprintf("rail %d", rail)
			}
			cables, leaves = append(cables, sim.Cable{Host: i, Port: p.ID, Rail: rail}), append(leaves, leaf)
		}
	}
	if len(cables) == 0 {
		return nil, nil, errors.New("fabric: no leaf or rail for any usable port of these hosts")
	}
	number := map[string]int{}
	for _, name := range slices.Sorted(slices.Values(leaves)) {
		if _, ok := number[name]; !ok && !(named && name == "") {
			number[name] = len(number)
		}
	}
	for i, c := range cables {
		leaf, ok := number[leaves[i]]
		if !ok {
			notes = append(notes, fmt.Sprintf("the fabric file has no leaf for %s/%s, but for others; the port is not connected here", hosts[c.Host].Name, portName(hosts[c.Host], c.Port)))
			continue
		}
		c.Leaf = leaf
		f.Cables = append(f.Cables, c)
	}
	f.Leaves = len(number)
	return f, append(notes, joinLeaves(f, file, number)...), nil
}

// joinLeaves takes the uplinks of leaves that have ports over. A leaf and a spine that the file does not
// join are not joined, unless it joins none at all.
func joinLeaves(f *sim.Fabric, file *pathsel.Fabric, number map[string]int) (notes []string) {
	if f.Leaves < 2 || f.RailOnly {
		return nil
	}
	type pair struct{ leaf, spine string }
	joined := map[pair]*pathsel.FabricUplink{}
	spines := map[string]bool{}
	unknown := 0
	for i := range file.Uplinks {
		u := &file.Uplinks[i]
		if _, here := number[u.Leaf]; !here {
			continue
		}
		joined[pair{u.Leaf, u.Spine}], spines[u.Spine] = u, true
		if u.BytesPerSec == nil {
			unknown++
		}
	}
	if len(joined) == 0 {
		f.Spines = 1
		for leaf := range f.Leaves {
			f.Uplinks = append(f.Uplinks, sim.Uplink{Leaf: leaf, Links: 1})
		}
		return []string{"the fabric file has no uplinks of these leaves; traffic between leaves is not limited here"}
	}
	f.Spines = len(spines)
	for _, name := range slices.Sorted(maps.Keys(number)) {
		for spine, other := range slices.Sorted(maps.Keys(spines)) {
			if u := joined[pair{name, other}]; u != nil {
				f.Uplinks = append(f.Uplinks, sim.Uplink{Leaf: number[name], Spine: spine, Links: u.Links(), BytesPerSec: rateOr(u.BytesPerSec)})
			}
		}
	}
	switch {
	case unknown == len(joined):
		notes = append(notes, "the fabric file has no rates of uplinks; traffic between leaves is not limited here")
	case unknown > 0:
		notes = append(notes, fmt.Sprintf("uplinks without a rate in the fabric file (%d) are not limited here", unknown))
	}
	return notes
}

// rateOr is a rate, 0 where it is not known, as the simulator takes it.
func rateOr(r *topo.Rate) topo.Rate {
	if r == nil {
		return 0
	}
	return *r
}
