package remap

import (
	"fmt"
	"maps"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// Build gives the guest's topology with its paired devices where the host has them: below copies of
// the host's switches, ports and host bridges, at addresses that do not exist in the guest.
func Build(host, guest *topo.Topology, pairs []Pair) (t *topo.Topology, notes []string, err error) {
	b := &builder{host: host, guest: guest, x: topo.NewIndex(host), g: topo.NewIndex(guest), pairs: map[topo.ID]*Pair{},
		moved: map[topo.ID]topo.ID{}, numa: map[int]int{}, devices: map[topo.ID]topo.ID{}}
	for i := range pairs {
		b.pairs[topo.PCIID(pairs[i].Guest)] = &pairs[i]
	}
	if b.domain, err = freeDomain(guest); err != nil {
		return nil, nil, err
	}
	b.copyGuest()
	b.mapNUMA()
	if err := b.place(); err != nil {
		return nil, nil, err
	}
	b.dropEmpty()
	b.links()
	b.describe()
	b.t.Derive()
	return b.t, b.notes, nil
}

type builder struct {
	host, guest, t *topo.Topology
	x, g           *topo.Index // of host and guest
	pairs          map[topo.ID]*Pair
	domain         uint32
	made           int                 // bridges so far
	moved          map[topo.ID]topo.ID // from a node of the host to its copy in the guest
	devices        map[topo.ID]topo.ID // the guest's devices, by the host's
	numa           map[int]int         // the guest's NUMA node, by the host's
	notes          []string
}

// freeDomain is a PCI domain that the guest does not have. NCCL takes four digits; clouds that write
// such files use ffff.
func freeDomain(guest *topo.Topology) (uint32, error) {
	used := map[uint32]bool{}
	for i := range guest.PCIDevices {
		used[guest.PCIDevices[i].BDF.Domain] = true
	}
	for i := range guest.HostBridges {
		used[guest.HostBridges[i].Domain] = true
	}
	for d := uint32(0xffff); d > 0; d-- {
		if !used[d] {
			return d, nil
		}
	}
	return 0, fmt.Errorf("the guest has devices in all PCI domains up to ffff")
}

// copyGuest begins with a copy of the guest, without the facts that derive from the places of its devices.
func (b *builder) copyGuest() {
	t := *b.guest
	t.Packages, t.NUMANodes = slices.Clone(t.Packages), slices.Clone(t.NUMANodes)
	t.HostBridges, t.PCIDevices = slices.Clone(t.HostBridges), slices.Clone(t.PCIDevices)
	t.GPUs, t.RDMADevices = slices.Clone(t.GPUs), slices.Clone(t.RDMADevices)
	t.Ports, t.Netdevs, t.NVMes, t.NVSwitches = slices.Clone(t.Ports), slices.Clone(t.Netdevs), slices.Clone(t.NVMes), slices.Clone(t.NVSwitches)
	t.Host.Lacks = slices.Clone(t.Host.Lacks)
	t.Host.Facts = slices.Clone(t.Host.Facts)
	t.Asserted, t.Derived, t.Switches, t.NICs = nil, nil, nil, nil
	t.Links = nil
	t.Warnings = slices.DeleteFunc(slices.Clone(t.Warnings), func(w topo.Warning) bool {
		return w.Source == topo.SourceDerived // Derive says them again where they still hold
	})
	for i := range t.PCIDevices {
		t.PCIDevices[i].Facts = slices.Clone(t.PCIDevices[i].Facts)
	}
	b.t = &t
}

// mapNUMA finds out which NUMA node of the guest corresponds to which of the host. That is known if each node of
// the host shows as one node in the guest, and no two show as the same.
func (b *builder) mapNUMA() {
	used, from := map[int]bool{}, map[int]int{}
	known := true
	for id, p := range b.pairs {
		there, here := b.function(p).NUMA, b.g.PCIDevice(id).NUMA
		if there == nil {
			continue
		}
		used[*there] = true
		if here == nil {
			known = false
			continue
		}
		to, ok1 := b.numa[*there]
		back, ok2 := from[*here]
		known = known && (!ok1 || to == *here) && (!ok2 || back == *there)
		b.numa[*there], from[*here] = *here, *there
	}
	if known && len(b.numa) > 0 {
		return
	}
	// The guest's nodes do not correspond to the host's. So the host's are added, without CPUs, because the hypervisor
	// decides where the guest's CPUs run.
	clear(b.numa)
	if len(b.guest.NUMANodes) == 1 && len(used) == 1 { // all is on one node, in both
		for n := range used {
			b.numa[n] = b.guest.NUMANodes[0].Index
		}
		return
	}
	b.newNodes(used)
}

// newNodes adds the host's NUMA nodes to the guest's, by numbers that the guest does not have.
func (b *builder) newNodes(used map[int]bool) {
	free := 0
	for i := range b.guest.NUMANodes {
		free = max(free, b.guest.NUMANodes[i].Index+1)
	}
	for _, n := range slices.Sorted(maps.Keys(used)) {
		b.numa[n] = free
		node := topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(free), Evidence: b.evidence(string(topo.NUMAID(n)))}, Index: free}
		node.Facts.Set("index", topo.SourceRemap, string(topo.NUMAID(n))+" of the host")
		b.t.NUMANodes = append(b.t.NUMANodes, node)
		free++
	}
	for i := range b.t.NUMANodes { // distances to new nodes are not known
		b.t.NUMANodes[i].Distances = nil
	}
	b.notes = append(b.notes, fmt.Sprintf("which CPUs of the guest are near the devices is not known: %s of the host %s added without CPUs (numa:%d and on)",
		text.Plural(len(used), "NUMA node"), text.Noun(len(used), "is", "are"), free-len(used)))
}

// function is the host's function of a pair.
func (b *builder) function(p *Pair) *topo.PCIDevice { return b.x.PCIDevice(topo.PCIID(p.Host)) }

func (b *builder) numaOf(n *int) *int {
	if n == nil {
		return nil
	}
	if to, ok := b.numa[*n]; ok {
		return &to
	}
	return nil
}

// place puts the paired functions below copies of what is above the host's.
func (b *builder) place() error {
	for i := range b.guest.PCIDevices {
		p := b.pairs[b.guest.PCIDevices[i].ID]
		if p == nil {
			continue
		}
		at := b.function(p)
		parent, err := b.above(at.Parent, 0)
		if err != nil {
			return err
		}
		d := &b.t.PCIDevices[i] // the copies that above makes stand behind the guest's
		d.Parent, d.NUMA, d.LocalCPUs, d.PF = parent, b.numaOf(at.NUMA), "", ""
		d.Link, d.Implausible = at.Link, false
		d.Facts = slices.DeleteFunc(d.Facts, func(f topo.Fact) bool { return f.Name == "local_cpus" || f.Name == "pf" })
		where := fmt.Sprintf("%s of the host, by %s", p.Host, p.By[0])
		for _, name := range []string{"parent", "numa_node", "link"} {
			d.Facts.Set(name, topo.SourceRemap, where)
		}
		if p.HostDevice != "" {
			b.devices[p.HostDevice] = p.Device
		}
	}
	b.joinCards()
	b.placeDevices()
	return nil
}

// joinCards turns root ports with several devices below into bridges. On the host, these devices are functions of
// one slot, which implies that they are near each other. In the guest they have slots of their own, and NCCL's file
// has no root ports.
func (b *builder) joinCards() {
	below := map[topo.ID]int{}
	for i := range b.t.PCIDevices {
		if d := &b.t.PCIDevices[i]; b.pairs[d.ID] != nil {
			below[d.Parent]++
		}
	}
	for i := range b.t.PCIDevices {
		if d := &b.t.PCIDevices[i]; d.Role == topo.RoleRootPort && below[d.ID] > 1 {
			d.Role = topo.RoleBridge
		}
	}
}

// placeDevices gives the devices on the functions the NUMA nodes of these.
func (b *builder) placeDevices() {
	where := map[topo.ID]*topo.PCIDevice{}
	for i := range b.t.PCIDevices {
		if d := &b.t.PCIDevices[i]; b.pairs[d.ID] != nil {
			where[d.ID] = d
		}
	}
	cpus := map[int]string{}
	for i := range b.t.NUMANodes {
		cpus[b.t.NUMANodes[i].Index] = b.t.NUMANodes[i].CPUs
	}
	for i := range b.t.GPUs {
		if g := &b.t.GPUs[i]; where[g.PCI] != nil {
			g.NUMA, g.CPUAffinity = where[g.PCI].NUMA, ""
			if g.NUMA != nil {
				g.CPUAffinity = cpus[*g.NUMA]
			}
		}
	}
	onNode := func(pci topo.ID, numa **int) {
		if d := where[pci]; d != nil {
			*numa = d.NUMA
		}
	}
	for i := range b.t.RDMADevices {
		onNode(b.t.RDMADevices[i].PCI, &b.t.RDMADevices[i].NUMA)
	}
	for i := range b.t.Netdevs {
		onNode(b.t.Netdevs[i].PCI, &b.t.Netdevs[i].NUMA)
	}
	for i := range b.t.NVMes {
		onNode(b.t.NVMes[i].PCI, &b.t.NVMes[i].NUMA)
	}
}

// mostAbove bounds the climb of a tree that a hostile document made circular.
const mostAbove = 64

// above returns the copy in the guest of a bridge or host bridge of the host, and makes it if there is none yet.
func (b *builder) above(id topo.ID, depth int) (topo.ID, error) {
	if known, ok := b.moved[id]; ok {
		return known, nil
	}
	if depth > mostAbove {
		return "", fmt.Errorf("%s of the host is below more than %d bridges", id, mostAbove)
	}
	d := b.x.PCIDevice(id)
	if d == nil {
		return b.hostBridge(id)
	}
	parent, err := b.above(d.Parent, depth+1)
	if err != nil {
		return "", err
	}
	address, err := b.address()
	if err != nil {
		return "", err
	}
	was := d.BDF
	c := *d
	c.BDF, c.ID, c.Parent, c.NUMA = address, topo.PCIID(address), parent, b.numaOf(d.NUMA)
	c.LocalCPUs, c.IOMMUGroup, c.IOMMUType, c.SRIOV, c.PF, c.Driver = "", nil, "", nil, "", ""
	c.Evidence = b.evidence(d.Evidence)
	c.Facts = nil
	c.Facts.Set("bdf", topo.SourceRemap, "stands for "+was.String()+" of the host")
	b.t.PCIDevices = append(b.t.PCIDevices, c)
	b.moved[id] = c.ID
	return c.ID, nil
}

// hostBridge copies a root bus of the host.
func (b *builder) hostBridge(id topo.ID) (topo.ID, error) {
	i := slices.IndexFunc(b.host.HostBridges, func(h topo.HostBridge) bool { return h.ID == id })
	if i < 0 {
		return "", fmt.Errorf("%q, which is above a device of the host, is not in its topology", id)
	}
	address, err := b.address()
	if err != nil {
		return "", err
	}
	c := b.host.HostBridges[i]
	c.Domain, c.Bus, c.NUMA = address.Domain, address.Bus, b.numaOf(c.NUMA)
	c.ID = topo.HostBridgeID(fmt.Sprintf("%04x:%02x:%02x", address.Domain, address.Bus, address.Device))
	c.Evidence, c.Facts = b.evidence(c.Evidence), nil
	c.Facts.Set("bus", topo.SourceRemap, "stands for "+string(id)+" of the host")
	b.t.HostBridges = append(b.t.HostBridges, c)
	b.moved[id] = c.ID
	return c.ID, nil
}

// address is the next one that does not exist in the guest. Each has a slot of its own.
func (b *builder) address() (topo.BDF, error) {
	if b.made == 256*32 {
		return topo.BDF{}, fmt.Errorf("more than %d bridges above the devices", b.made)
	}
	n := b.made
	b.made++
	return topo.BDF{Domain: b.domain, Bus: uint8(n / 32), Device: uint8(n % 32)}, nil
}

func (b *builder) evidence(of string) string {
	return "remap of " + b.host.Host.Name + ": " + of
}

// dropEmpty removes the guest's bridges that had paired devices below and have nothing now.
func (b *builder) dropEmpty() {
	had := map[topo.ID]bool{}
	for id := range b.pairs {
		for d := range b.g.Climb(id) {
			if d.ID != id {
				had[d.ID] = true
			}
		}
	}
	for range mostAbove {
		below := map[topo.ID]bool{}
		for i := range b.t.PCIDevices {
			below[b.t.PCIDevices[i].Parent] = true
		}
		n := len(b.t.PCIDevices)
		b.t.PCIDevices = slices.DeleteFunc(b.t.PCIDevices, func(d topo.PCIDevice) bool { return had[d.ID] && !below[d.ID] && d.IsBridge() })
		if len(b.t.PCIDevices) == n {
			return
		}
	}
}

// direct are the links that sources give and no place implies.
func direct(k topo.LinkKind) bool {
	return k == topo.LinkNVLink || k == topo.LinkXGMI || k == topo.LinkC2C
}

// links keeps the guest's direct links between GPUs, and takes the host's where the guest knows none.
func (b *builder) links() {
	kinds := map[topo.LinkKind]bool{}
	for _, l := range b.guest.Links {
		if direct(l.Kind) {
			kinds[l.Kind] = true
			b.t.Links = append(b.t.Links, l)
		}
	}
	taken := 0
	end := func(id topo.ID) (topo.ID, bool) {
		if id == topo.FabricID {
			return id, true
		}
		if n := b.x.NUMANode(id); n != nil {
			if to := b.numaOf(&n.Index); to != nil {
				return topo.NUMAID(*to), true
			}
			return "", false
		}
		to, ok := b.devices[id]
		return to, ok
	}
	for _, l := range b.host.Links {
		if !direct(l.Kind) || kinds[l.Kind] {
			continue
		}
		a, okA := end(l.A)
		c, okB := end(l.B)
		if !okA || !okB {
			continue
		}
		l.ID = directID(l.Kind, a, c)
		l.A, l.B, l.Facts = a, c, nil
		b.t.Links = append(b.t.Links, l)
		taken++
	}
	if taken > 0 {
		b.notes = append(b.notes, fmt.Sprintf("%s between GPUs: taken from the host, the guest's topology has none", text.Plural(taken, "direct link")))
	}
}

func directID(k topo.LinkKind, a, b topo.ID) topo.LinkID {
	switch k {
	case topo.LinkNVLink:
		return topo.NVLinkID(a, b)
	case topo.LinkXGMI:
		return topo.XGMILinkID(a, b)
	}
	return topo.C2CLinkID(a)
}

// describe says in the document what it is.
func (b *builder) describe() {
	b.t.Host.Lacks = append(b.t.Host.Lacks,
		fmt.Sprintf("addresses of bridges in domain %04x are made up: they stand for those of the host %s", b.domain, b.host.Host.Name))
	b.t.Host.Facts.Set("fingerprint", topo.SourceRemap, "the guest's devices at the host's places")
}
