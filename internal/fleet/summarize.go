package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/redact"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// Summarize makes the summary of a host that a fleet keeps, and that hosts are compared by. The topology must be
// derived. The caller adds the source and the path of the document.
func Summarize(name string, t *topo.Topology) (*Host, error) {
	if t == nil || t.Derived == nil {
		return nil, pkgerr.New("fleet", "topology is not derived: call Derive first")
	}
	paths, err := pathsel.New(t, pathsel.Options{})
	if err != nil {
		return nil, pkgerr.Errorf("fleet", "%w", err)
	}
	report, err := doctor.Run(t, doctor.Options{})
	if err != nil {
		return nil, pkgerr.Errorf("fleet", "%w", err)
	}
	x := t.Host
	h := &Host{Host: name, Status: OK, Origin: t.Origin, CapturedAt: t.CapturedAt, Fingerprint: x.Fingerprint, Name: x.Name, MachineID: x.MachineIDSHA256,
		Arch: x.Arch, Vendor: x.Vendor, Product: x.Product, Virtual: x.Virtual, CPUModel: x.CPUModel, MemoryBytes: x.MemoryBytes,
		Kernel: x.Kernel, GPUDriver: x.GPUDriver}
	h.Anonymous = strings.HasPrefix(t.Origin, "fixture:") || redact.Host(t)
	if !t.Complete {
		h.Status, h.Reason = Partial, incomplete(t)
	}
	if set, err := cpuset.Parse(x.CPUs); err == nil && set.Len() > 0 {
		n := set.Len()
		h.CPUs = &n
	}
	if s := x.Software; s != nil {
		h.KernelOptions, h.Modules, h.GPUModule = s.KernelOptions, s.Modules, s.GPUModule
	}
	s := summarizer{host: h, t: t, paths: paths, index: paths.Index(), places: places(t)}
	s.numa()
	s.gpus()
	h.NVLinkDomain = nvlinkDomain(t)
	s.ports()
	if err := s.plan(); err != nil {
		return nil, pkgerr.Errorf("fleet", "%w", err)
	}
	s.doctor(report)
	return h, nil
}

// incomplete says what a topology lacks, in a line.
func incomplete(t *topo.Topology) string {
	for _, w := range t.Warnings {
		if w.Partial() {
			return fmt.Sprintf("%s: %s", w.Code, w.Detail)
		}
	}
	return "its document is incomplete"
}

type summarizer struct {
	host   *Host
	t      *topo.Topology
	paths  *pathsel.Host
	index  *topo.Index
	places map[topo.ID]string // of PCI functions
}

// places numbers the network functions of a host in PCI order, virtual ones left out.
func places(t *topo.Topology) map[topo.ID]string {
	const network = 0x02
	var list []*topo.PCIDevice
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		if d.Class.Uint()>>16 == network && d.PF == "" {
			list = append(list, d)
		}
	}
	slices.SortStableFunc(list, func(a, b *topo.PCIDevice) int { return a.BDF.Compare(b.BDF) })
	out := make(map[topo.ID]string, len(list))
	for i, d := range list {
		out[d.ID] = fmt.Sprintf("nic:%d", i)
	}
	return out
}

func (s *summarizer) numa() {
	for i := range s.t.NUMANodes {
		n := &s.t.NUMANodes[i]
		if n.Owner == "" { // a GPU's memory comes and goes with its driver
			s.host.NUMA = append(s.host.NUMA, NUMANode{Index: n.Index, MemoryBytes: n.MemoryBytes})
		}
	}
}

func (s *summarizer) gpus() {
	links := s.t.GPULinks()
	for i := range s.t.GPUs {
		g := &s.t.GPUs[i]
		out := GPU{GPU: string(g.ID), Model: g.Model, UUID: g.UUID, MemoryBytes: g.MemoryBytes, NUMA: g.NUMA}
		if g.BDF != nil {
			out.PCI = g.BDF.String()
		}
		if d := s.index.PCIDevice(g.PCI); d != nil && d.Link != nil {
			out.Width = d.Link.Width
		}
		if g.MIG != nil {
			out.MIG = &g.MIG.Enabled
		} else if g.KnownFrom == "driver" {
			out.MIG = new(bool)
		}
		if g.KnownFrom == "driver" || links.Stated && !links.Unknown[g.ID] {
			out.Links = new(links.Of(g.ID))
		}
		for _, p := range links.Apart {
			if p.A == g.ID {
				out.NoLinkTo = append(out.NoLinkTo, string(p.B))
			} else if p.B == g.ID {
				out.NoLinkTo = append(out.NoLinkTo, string(p.A))
			}
		}
		s.host.GPUs = append(s.host.GPUs, out)
	}
	if s.host.NICs = len(s.places); !s.host.tells() {
		s.host.NICs = max(s.host.NICs, len(s.t.MatrixAxis(topo.KindNIC)))
	}
	s.host.Parts = s.parts()
}

// parts counts the parts that the fingerprint covers, in words.
func (s *summarizer) parts() map[string]int {
	out := map[string]int{}
	for i := range s.t.PCIDevices {
		d := &s.t.PCIDevices[i]
		if d.PF != "" {
			continue
		}
		on, what := s.index.On(d.ID), "PCI function"
		switch class := d.Class.Uint() >> 8; {
		case len(on.GPUs) > 0:
			what = "GPU"
		case len(on.NVSwitches) > 0:
			what = "NVSwitch"
		case class>>8 == 0x02:
			what = "network function"
		case class>>8 == 0x01:
			what = "drive controller"
		case class == 0x0604:
			what = "PCIe bridge"
		}
		id := func(h topo.HexID) string { return strings.TrimPrefix(string(h), "0x") }
		what += " " + id(d.Vendor) + ":" + id(d.Device)
		if l := d.Link; l != nil && l.MaxSpeedMTs != nil && l.MaxWidth != nil {
			what += fmt.Sprintf(" (%s x%d)", units.PCIeGen(*l.MaxSpeedMTs), *l.MaxWidth)
		}
		out[what]++
	}
	for i := range s.t.GPUs {
		if g := &s.t.GPUs[i]; g.PCI == "" {
			out[strings.TrimSpace("GPU "+cmp.Or(g.Model, g.Vendor))]++
		}
	}
	if len(s.t.PCIDevices) == 0 {
		for _, id := range s.t.MatrixAxis(topo.KindNIC) {
			out["NIC "+id.Name()]++
		}
	}
	for i := range s.t.NUMANodes {
		if set, err := cpuset.Parse(s.t.NUMANodes[i].CPUs); err == nil && s.t.NUMANodes[i].Owner == "" {
			out["NUMA node of "+text.Plural(set.Len(), "CPU")]++
		}
	}
	return out
}

// nvlinkDomain is the NVLink domain of the host's GPUs, "" if they are in different ones or if the topology is redacted.
// GPUs whose domain is not known do not count.
func nvlinkDomain(t *topo.Topology) string {
	if redact.Host(t) {
		return ""
	}
	domain := ""
	for i := range t.GPUs {
		f := t.GPUs[i].NVLinkFabric
		if f == nil {
			continue
		}
		one := f.ClusterUUID + "." + strconv.Itoa(f.Clique)
		if domain != "" && domain != one {
			return ""
		}
		domain = one
	}
	return domain
}

func (s *summarizer) ports() {
	for _, p := range s.paths.Ports() {
		if p.Virtual && p.Device == "" {
			continue // a container's interface is nothing of the host
		}
		usable := p.Usable
		out := Port{Port: p.ID.Name(), Device: p.Device, Netdev: p.Netdev, LinkLayer: p.LinkLayer, Role: p.Role, Usable: &usable, BytesPerSec: p.BytesPerSec}
		function := topo.ID("")
		if r := s.index.RDMADevice(p.NIC); r != nil {
			function = r.PCI
			out.NodeGUID, out.Firmware, out.Driver, out.Board, out.NUMA = guid(r.NodeGUID), r.Firmware, r.Driver, r.Board, r.NUMA
		}
		if x := s.index.Port(p.ID); x != nil {
			out.State, out.MTU, out.TrafficClass = x.State, x.MTU, x.TrafficClass
			for _, k := range x.PKeys {
				out.PKeys = append(out.PKeys, string(k))
			}
			if x.LinkLayer == "InfiniBand" {
				out.GUID = portGUID(x)
			} else if gids := pathsel.RoCEGIDs(x); len(gids) > 0 {
				index := gids[0].Index
				out.GIDIndex, out.GIDType = &index, gids[0].Type
			}
		}
		if n := s.index.NetdevNamed(p.Netdev); n != nil {
			out.NetdevMTU, out.VFs = n.MTU, n.VFs
			if n.Type == "ether" {
				out.MAC = n.MAC
			}
			if p.Device == "" {
				function = n.PCI
				out.Driver, out.NUMA, out.State = n.Driver, n.NUMA, strings.ToUpper(n.State)
			}
		}
		if d := s.index.PCIDevice(function); d != nil {
			out.PCI, out.Switch = d.BDF.String(), s.topSwitch(function)
			if d.Link != nil {
				out.SpeedMTs, out.Width = d.Link.SpeedMTs, d.Link.Width
			}
			if d.SRIOV != nil && d.SRIOV.NumVFs != nil {
				out.VFs = d.SRIOV.NumVFs
			}
		}
		if out.Place = s.places[function]; out.Place != "" && p.Number > 1 {
			out.Place += fmt.Sprintf("/%d", p.Number)
		}
		out.Nearest, out.Class = s.nearest(p.NIC)
		s.host.Ports = append(s.host.Ports, out)
	}
}

// topSwitch is the address of the topmost upstream port of a PCIe switch above a function, "" if there is none.
func (s *summarizer) topSwitch(function topo.ID) (top string) {
	for up := range s.index.Climb(function) {
		if up.Role == topo.RoleUpstream {
			top = up.BDF.String()
		}
	}
	return top
}

// nearest returns the GPUs nearest to a NIC, and their class.
func (s *summarizer) nearest(nic topo.ID) (gpus []string, class string) {
	var best topo.Class
	for i := range s.t.GPUs {
		r, _ := s.index.Relation(s.t.GPUs[i].ID, nic)
		class := s.paths.Nearness().Of(r.Class)
		if !class.Known() {
			continue
		}
		switch {
		case !best.Known() || class.Compare(best) < 0:
			best, gpus = class, []string{string(s.t.GPUs[i].ID)}
		case class.Compare(best) == 0:
			gpus = append(gpus, string(s.t.GPUs[i].ID))
		}
	}
	if !best.Known() {
		return nil, ""
	}
	return gpus, best.String()
}

// plan gives every GPU the places of the ports that the plan for all GPUs assigns to it.
func (s *summarizer) plan() error {
	if len(s.host.GPUs) == 0 || len(s.host.Ports) == 0 {
		return nil
	}
	plan, err := s.paths.Plan(nil)
	if err != nil {
		return err
	}
	place := map[topo.ID]string{}
	for _, p := range s.paths.Ports() {
		i := slices.IndexFunc(s.host.Ports, func(q Port) bool { return q.Port == p.ID.Name() })
		if i >= 0 {
			place[p.ID] = cmp.Or(s.host.Ports[i].Place, s.host.Ports[i].Port)
		}
	}
	for i := range s.host.GPUs {
		g := &s.host.GPUs[i]
		a, ok := plan.Of(g.GPU)
		if !ok {
			continue
		}
		g.Plan = []string{}
		var farthest topo.Class
		for i, c := range a.Ports {
			g.Plan = append(g.Plan, place[c.Port])
			if i == 0 || c.Class.Compare(farthest) > 0 {
				farthest = c.Class
			}
		}
		g.PlanClass = farthest.String()
	}
	return nil
}

func (s *summarizer) doctor(r *doctor.Report) {
	for _, f := range r.Findings() {
		out := HostFinding{Code: f.Code, Severity: f.Severity, Text: f.Brief()}
		for _, id := range f.Subjects {
			out.Subjects = append(out.Subjects, doctor.SubjectName(id))
		}
		s.host.Doctor = append(s.host.Doctor, out)
	}
	for _, c := range r.Checks {
		if c.Status == doctor.CouldNotCheck {
			s.host.Unchecked = append(s.host.Unchecked, c.Code)
		}
	}
}

// guid is a GUID of sysfs, "a088:c203:00ea:b7a0", as the tools of InfiniBand write it; "" for none.
func guid(s string) string {
	hex := strings.ReplaceAll(strings.TrimPrefix(s, "0x"), ":", "")
	if len(hex) != 16 || strings.Trim(hex, "0") == "" || strings.Trim(hex, "0123456789abcdefABCDEF") != "" {
		return ""
	}
	return "0x" + strings.ToLower(hex)
}

// portGUID is the second half of the GID that an InfiniBand port has by itself.
func portGUID(p *topo.Port) string {
	for _, g := range p.GIDs {
		if g.Index == 0 {
			if parts := strings.Split(g.GID, ":"); len(parts) == 8 {
				return guid(strings.Join(parts[4:], ""))
			}
		}
	}
	return ""
}
