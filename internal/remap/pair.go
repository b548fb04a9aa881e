// Package remap gives the guest of a hypervisor the PCIe switches of its host: it pairs the devices
// that are passed through with those of the host, and places them in the guest's topology where the
// host has them. It is pure: topologies in, a topology out.
package remap

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/redact"
	"github.com/topoctl/topoctl/internal/text"
)

// By is the way by which a pair is known.
type By string

// The ways, by how much they say. ByCard is a virtual function whose card is known and whose own place
// is that of its physical function.
const (
	ByMap     By = "--map"
	ByLibvirt By = "libvirt"
	ByUUID    By = "UUID"
	BySerial  By = "serial number"
	ByGUID    By = "node GUID"
	ByMAC     By = "MAC address"
	ByCard    By = "card's GUID"
)

// Pair is a PCI function of the guest and the host's that it is. Of a virtual function that the host
// does not show, it is the physical function.
type Pair struct {
	Guest, Host topo.BDF
	By          []By
	// Device is what the guest calls it: "gpu:0", "rdma:mlx5_0".
	Device topo.ID
	// HostDevice is what the host has there, "" where only the function is known.
	HostDevice topo.ID
}

// Options are what is known of pairs beside the devices' own identities.
type Options struct {
	Map     map[topo.BDF]topo.BDF // the guest's function to the host's
	Libvirt []Passed
	// Partial leaves devices without a partner where the guest has them.
	Partial bool
}

// Unpaired says which devices of the guest have no partner, or several.
type Unpaired struct {
	Devices []Open
	// Known is how many others have one. If it is 0, nothing can be remapped.
	Known int
}

// Open is a device without a partner.
type Open struct {
	Guest  topo.BDF
	Device topo.ID
	// Why says what was tried.
	Why string
	// Candidates are the host's devices of its kind that no other device has, by address and name.
	Candidates []string
}

// mostCandidates is how many candidates an error lists.
const mostCandidates = 16

// Error has a line for devices of which the same is known.
func (u *Unpaired) Error() string {
	return strings.Join(together(u.Devices, func(names []string, of Open) string {
		what := "the host has no free device of " + text.Noun(len(names), "its", "their") + " kind"
		if len(of.Candidates) > 0 {
			what = "candidates: " + text.List(of.Candidates, mostCandidates)
		}
		return text.List(names, mostCandidates) + ": " + of.Why + "; " + what
	}), "\n")
}

// together has a line for devices of which the same is known, in the order of the first of each.
func together(open []Open, line func(names []string, of Open) string) []string {
	var out []string
	for _, same := range group.By(open, func(d Open) string { return d.Why + "\x00" + strings.Join(d.Candidates, " ") }) {
		var names []string
		for _, d := range same {
			names = append(names, named(d.Guest, d.Device))
		}
		out = append(out, line(names, same[0]))
	}
	return out
}

// named is a function with what stands on it.
func named(at topo.BDF, id topo.ID) string {
	switch {
	case id == "" || id.Name() == at.String():
		return at.String()
	case strings.HasPrefix(string(id), "gpu:"):
		return fmt.Sprintf("%s (%s)", at, id)
	}
	return fmt.Sprintf("%s (%s)", at, id.Name())
}

// device is what stands on a PCI function that is to be paired.
type device struct {
	id       topo.ID
	function *topo.PCIDevice
	gpu      *topo.GPU
	rdma     *topo.RDMADevice
	netdevs  []*topo.Netdev // several where a function has several ports
	nvme     *topo.NVMe
	// needed says that without a partner nothing is right: GPUs and RDMA hardware.
	needed bool
}

// kind is what a device can be paired with.
func (d *device) kind() topo.Kind {
	switch {
	case d.gpu != nil:
		return topo.KindGPU
	case d.nvme != nil:
		return topo.KindNVMe
	}
	return topo.KindNIC
}

// devicesOf are a topology's devices on PCI functions, in the order of addresses.
func devicesOf(t *topo.Topology) []*device {
	x := topo.NewIndex(t)
	var out []*device
	for i := range t.PCIDevices {
		d := &device{function: &t.PCIDevices[i]}
		on := x.On(d.function.ID)
		if len(on.NVMes) > 0 {
			d.nvme, d.id = on.NVMes[0], on.NVMes[0].ID
		}
		for _, n := range on.Netdevs {
			// A representor is on its card's function, but the address is that of another's port.
			if !n.Virtual && n.PhysPortIsOwn() {
				d.netdevs = append(d.netdevs, n)
				d.id = d.netdevs[0].ID
			}
		}
		if i := slices.IndexFunc(on.RDMADevices, func(r *topo.RDMADevice) bool { return !r.Software }); i >= 0 {
			d.rdma, d.id, d.needed = on.RDMADevices[i], on.RDMADevices[i].ID, true
		}
		if len(on.GPUs) > 0 {
			d.gpu, d.id, d.needed = on.GPUs[0], on.GPUs[0].ID, true
		}
		if d.id != "" {
			out = append(out, d)
		}
	}
	return out
}

// identities lists the identities of a device, each in a form that no other sort of identity has.
func (d *device) identities() map[By][]string {
	out := map[By][]string{}
	add := func(by By, id string) { out[by] = append(out[by], id) }
	switch {
	case d.gpu != nil:
		if redact.UUID(d.gpu.UUID) {
			add(ByUUID, d.gpu.UUID)
		}
		if redact.Serial(d.gpu.Serial) {
			add(BySerial, "gpu "+d.gpu.Serial)
		}
	case d.nvme != nil && redact.Serial(d.nvme.Serial):
		add(BySerial, "nvme "+d.nvme.Model+" "+d.nvme.Serial)
	}
	if r := d.rdma; r != nil && redact.GUID(r.NodeGUID) {
		add(ByGUID, r.NodeGUID)
	}
	for _, n := range d.netdevs {
		if guid := redact.HardwareAddress(n); guid != "" && n.Type == "infiniband" {
			add(ByMAC, guid)
		} else if redact.MAC(n.MAC) && (n.Master == "" || n.Type != "ether") { // a bond gives its legs one address
			add(ByMAC, strings.ToLower(n.MAC))
		}
	}
	return out
}

// claim is a partner that a function may have, and how that is known.
type claim struct {
	by   By
	host topo.BDF
}

// pairing finds partners.
type pairing struct {
	o           Options
	host, guest *topo.Topology
	hosts       []*device
	guests      []*device
	byFunction  map[topo.BDF]*device // of the host
	functions   map[topo.BDF]*topo.PCIDevice
	claims      map[topo.BDF][]claim // of the guest's functions, those that say most first
	why         map[topo.BDF]string  // what did not decide
}

// Pairs pairs the guest's devices with the host's. Where a GPU or an RDMA device of the guest has no
// partner, or several, the error is an *Unpaired. Notes say what should be known beside it.
func Pairs(host, guest *topo.Topology, o Options) (pairs []Pair, notes []string, err error) {
	p := &pairing{o: o, host: host, guest: guest, hosts: devicesOf(host), guests: devicesOf(guest),
		byFunction: map[topo.BDF]*device{}, functions: map[topo.BDF]*topo.PCIDevice{}, claims: map[topo.BDF][]claim{}, why: map[topo.BDF]string{}}
	for i := range host.PCIDevices {
		p.functions[host.PCIDevices[i].BDF] = &host.PCIDevices[i]
	}
	for _, d := range p.hosts {
		p.byFunction[d.function.BDF] = d
	}
	if err := p.byUser(); err != nil {
		return nil, nil, err
	}
	if err := p.byLibvirt(); err != nil {
		return nil, nil, err
	}
	p.byIdentity()
	p.byCard()
	return p.settle()
}

func (p *pairing) add(guest topo.BDF, by By, host topo.BDF) {
	p.claims[guest] = append(p.claims[guest], claim{by, host})
}

// byUser takes over what --map says.
func (p *pairing) byUser() error {
	known := map[topo.BDF]bool{}
	for i := range p.guest.PCIDevices {
		known[p.guest.PCIDevices[i].BDF] = true
	}
	for _, g := range slices.SortedFunc(maps.Keys(p.o.Map), topo.BDF.Compare) {
		h := p.o.Map[g]
		if !known[g] {
			return fmt.Errorf("--map %s=%s: the guest has no PCI function %s", g, h, g)
		}
		if p.functions[h] == nil {
			return fmt.Errorf("--map %s=%s: the host has no PCI function %s", g, h, h)
		}
		p.add(g, ByMap, h)
	}
	return nil
}

// byLibvirt finds the guest's devices by the slots of the bridges above them.
func (p *pairing) byLibvirt() error {
	at := map[string]topo.BDF{}
	x := topo.NewIndex(p.guest)
	for i := range p.guest.PCIDevices {
		d := &p.guest.PCIDevices[i]
		place := Place{}
		for up := range x.Climb(d.ID) {
			place.Path = append([]Slot{{Device: up.BDF.Device, Func: up.BDF.Func}}, place.Path...)
			place.RootBus = up.BDF.Bus
		}
		at[place.String()] = d.BDF
	}
	for _, l := range p.o.Libvirt {
		g, ok := at[l.Guest.String()]
		switch {
		case !ok:
			return fmt.Errorf("--libvirt: line %d: the guest has no device at %s, where %s of the host is: is the guest's topology of this domain?", l.Line, l.Guest, l.Host)
		case p.functions[l.Host] == nil:
			return fmt.Errorf("--libvirt: line %d: the host has no PCI function %s: is this the domain's host?", l.Line, l.Host)
		}
		p.add(g, ByLibvirt, l.Host)
	}
	return nil
}

// identities are the ways that devices themselves give, the surest first.
var identities = []By{ByUUID, BySerial, ByGUID, ByMAC}

// byIdentity pairs devices that have an identity in common which neither side has twice.
func (p *pairing) byIdentity() {
	type key struct {
		kind topo.Kind
		by   By
		id   string
	}
	collect := func(devices []*device) map[key][]*device {
		out := map[key][]*device{}
		for _, d := range devices {
			for by, ids := range d.identities() {
				for _, id := range ids {
					k := key{d.kind(), by, id}
					if !slices.Contains(out[k], d) {
						out[k] = append(out[k], d)
					}
				}
			}
		}
		return out
	}
	ours, theirs := collect(p.guests), collect(p.hosts)
	for _, d := range p.guests {
		var foreign []string // ways that no device of the host answers
		var twice string
		known := d.identities()
		for _, by := range identities {
			var partners []*device
			shared := false
			for _, id := range known[by] {
				k := key{d.kind(), by, id}
				switch {
				case len(theirs[k]) > 1:
					shared, twice = true, fmt.Sprintf("%s of the host have the same %s", text.Plural(len(theirs[k]), "device"), by)
				case len(theirs[k]) == 1 && len(ours[k]) > 1:
					shared, twice = true, fmt.Sprintf("%s of the guest have the same %s", text.Plural(len(ours[k]), "device"), by)
				case len(theirs[k]) == 1 && !slices.Contains(partners, theirs[k][0]):
					partners = append(partners, theirs[k][0])
				}
			}
			switch {
			case len(partners) == 1:
				p.add(d.function.BDF, by, partners[0].function.BDF)
			case len(partners) > 1:
				twice = fmt.Sprintf("its %s are those of %s of the host", text.Noun(2, string(by)), text.Plural(len(partners), "device"))
			case !shared && len(known[by]) > 0:
				foreign = append(foreign, string(by))
			}
		}
		switch {
		case twice != "":
			p.why[d.function.BDF] = twice
		case len(foreign) > 0:
			p.why[d.function.BDF] = "no device of the host has the same " + strings.Join(foreign, " or ")
		}
	}
}

// byCard places virtual functions that the host does not show on the card that they belong to: all
// functions of a card share its system image GUID, and its slot.
func (p *pairing) byCard() {
	cards := map[string][]*device{}
	for _, d := range p.hosts { // virtual functions stand beside their physical one
		if d.rdma != nil && redact.GUID(d.rdma.SysImageGUID) {
			cards[d.rdma.SysImageGUID] = append(cards[d.rdma.SysImageGUID], d)
		}
	}
	for _, d := range p.guests {
		at := d.function.BDF
		if d.rdma == nil || len(p.claims[at]) > 0 || !redact.GUID(d.rdma.SysImageGUID) || len(cards[d.rdma.SysImageGUID]) == 0 {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(cards[d.rdma.SysImageGUID]), func(c *device) bool { return c.function.PF != "" })
		if len(own) == 0 || slices.ContainsFunc(own, func(c *device) bool { return c.function.Parent != own[0].function.Parent }) {
			p.why[at] = "its card has functions in several places of the host"
			continue
		}
		p.add(at, ByCard, own[0].function.BDF)
	}
}

// settle takes one partner for each device, or says what is open.
func (p *pairing) settle() (pairs []Pair, notes []string, err error) {
	taken := map[topo.BDF]topo.BDF{} // of the host's functions: the guest's
	devices := map[topo.BDF]*device{}
	for _, d := range p.guests {
		devices[d.function.BDF] = d
	}
	for _, g := range slices.SortedFunc(maps.Keys(p.claims), topo.BDF.Compare) {
		pair := Pair{Guest: g, Host: p.claims[g][0].host, Device: topo.PCIID(g)}
		if d := devices[g]; d != nil {
			pair.Device = d.id
		}
		for _, c := range p.claims[g] {
			if c.host != pair.Host {
				return nil, nil, fmt.Errorf("%s is %s of the host by %s, and %s by %s: one of them is not of these hosts",
					named(g, pair.Device), pair.Host, pair.By[0], c.host, c.by)
			}
			pair.By = append(pair.By, c.by)
		}
		if err := p.checkKind(&pair, devices[g]); err != nil {
			return nil, nil, err
		}
		if other, twice := taken[pair.Host]; twice && !slices.Contains(pair.By, ByCard) {
			return nil, nil, fmt.Errorf("%s and %s of the guest are both %s of the host", other, g, pair.Host)
		}
		taken[pair.Host] = g
		pairs = append(pairs, pair)
	}
	var open, stay []Open
	for _, d := range p.guests {
		at := d.function.BDF
		if len(p.claims[at]) > 0 {
			continue
		}
		o := Open{Guest: at, Device: d.id, Candidates: p.candidates(d, taken),
			Why: cmp.Or(p.why[at], "no usable identity (UUID, GUID, MAC address, serial number)")}
		if d.needed && !p.o.Partial {
			open = append(open, o)
		} else {
			stay = append(stay, o)
		}
	}
	if len(pairs)+len(open) == 0 { // even --partial needs one pair
		open = stay
	}
	switch {
	case len(open) > 0:
		return nil, nil, &Unpaired{Devices: open, Known: len(pairs)}
	case len(pairs) == 0:
		return nil, nil, errors.New("the guest has no GPU, NIC or NVMe drive on a PCI function")
	}
	for i := range stay {
		stay[i].Candidates = nil
	}
	notes = together(stay, func(names []string, of Open) string {
		return fmt.Sprintf("%s %s: %s", text.List(names, mostCandidates), text.Noun(len(names), "stays where the guest has it", "stay where the guest has them"), of.Why)
	})
	return pairs, notes, nil
}

// checkKind refuses a GPU that is a NIC, and fills in what the host has there.
func (p *pairing) checkKind(pair *Pair, guest *device) error {
	f := p.functions[pair.Host]
	if f.IsBridge() {
		return fmt.Errorf("%s of the host is a bridge, and no device of a guest", pair.Host)
	}
	there, name := kindOf(f), topo.ID(functionName(f))
	if host := p.byFunction[pair.Host]; host != nil {
		pair.HostDevice = host.id
		there, name = host.kind(), host.id
	}
	if guest != nil && there != "" && guest.kind() != there {
		return fmt.Errorf("%s of the guest is %s, and %s of the host is %s: they cannot be one device", pair.Guest, guest.id, pair.Host, name)
	}
	return nil
}

// kindOf is what a PCI function is by its class, "" if functions of that class are not paired. It is all
// that a host knows of a device that it has handed over to a guest.
func kindOf(f *topo.PCIDevice) topo.Kind {
	switch {
	case f.Accelerator():
		return topo.KindGPU
	case f.Class.Uint()>>16 == 0x02:
		return topo.KindNIC
	case f.Class.Uint()>>8 == 0x0108:
		return topo.KindNVMe
	}
	return ""
}

// functionName names a function without a device by its driver, which is vfio-pci while a guest has the function.
func functionName(f *topo.PCIDevice) string { return cmp.Or(f.Driver, "no driver") }

// candidates lists the devices of the host that are of a kind and are not paired: those that the host uses itself,
// and functions of that class without a device.
func (p *pairing) candidates(d *device, taken map[topo.BDF]topo.BDF) []string {
	var out []string
	for i := range p.host.PCIDevices {
		f := &p.host.PCIDevices[i]
		if _, gone := taken[f.BDF]; gone {
			continue
		}
		switch h := p.byFunction[f.BDF]; {
		case h == nil && kindOf(f) == d.kind():
			out = append(out, fmt.Sprintf("%s (%s)", f.BDF, functionName(f)))
		case h != nil && h.kind() == d.kind() && h.needed == d.needed:
			out = append(out, named(h.function.BDF, h.id))
		}
	}
	return out
}
