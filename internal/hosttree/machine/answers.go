package machine

import (
	"cmp"
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
)

// addAnswers adds what a capture of the machine would have recorded of NVML and
// netlink.
func (e *expansion) addAnswers() {
	if r := e.gpuReport(); len(r.GPUs) > 0 { // else there is no NVIDIA driver
		e.record(replies.NVMLPath, r)
	}
	e.record(replies.NetlinkPath, e.netlinkReport())
}

func (e *expansion) record(name string, v any) {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil && e.err == nil {
		e.err = err
	}
	e.add(name, entry{data: append(data, '\n')})
}

// gpuReport is NVML's side of the machine, the GPUs in NVML's order.
func (s *Spec) gpuReport() *replies.GPUReport {
	r := &replies.GPUReport{Schema: replies.SchemaNVML, DriverVersion: s.NVIDIA.Driver, CUDAVersion: s.NVIDIA.CUDA, NVMLVersion: "12." + s.NVIDIA.Driver}
	gpus := s.gpus()
	for i, f := range gpus {
		if f.Driver == "nvidia" {
			r.GPUs = append(r.GPUs, s.gpuAnswer(gpus, i))
		}
	}
	slices.SortFunc(r.GPUs, func(a, b replies.GPU) int { return a.Index - b.Index })
	return r
}

func (s *Spec) gpuAnswer(gpus []*function, i int) replies.GPU {
	f := gpus[i]
	a := replies.GPU{
		Index: f.gpu.Index, BDF: f.bdf, UUID: f.gpu.UUID, Serial: f.gpu.Serial, Name: f.Title, Minor: &f.gpu.Minor, ComputeCap: f.part.CC,
		MemoryNUMA: f.gpu.MemoryNUMA, CPUAffinity: s.cpus().String(), NVLinks: s.nvlinks(gpus, i), MIG: s.migOf(f), P2P: map[int]string{},
	}
	if f.part.Memory > 0 {
		a.MemoryBytes = &f.part.Memory
	}
	if f.cur.width > 0 {
		cur, most := f.cur, f.Link
		a.PCIeGen, a.PCIeWidth, a.PCIeMaxGen, a.PCIeMaxWidth = &cur.gen, &cur.width, &most.gen, &most.width
	}
	if n := s.node(f.NUMA); n != nil {
		a.CPUAffinity, a.CPUNUMA = n.CPUs.String(), &f.NUMA
	}
	if f.gpu.C2C > 0 {
		a.C2C = &replies.C2C{Links: f.gpu.C2C}
		if f.gpu.C2CRate > 0 {
			a.C2C.BytesPerSec = &f.gpu.C2CRate
		}
	}
	for _, b := range s.P2P {
		for j, g := range gpus {
			if j != i && g.Driver == "nvidia" && b.joins(i, j) {
				a.P2P[g.gpu.Index] = b.Answer
			}
		}
	}
	return a
}

// nvlinks lists a GPU's NVLinks: those to the switches, then those to GPUs.
func (s *Spec) nvlinks(gpus []*function, i int) []replies.NVLink {
	var switches []*topo.BDF
	for _, f := range s.pci {
		if f.kind == "nvswitch" {
			switches = append(switches, &f.bdf)
		}
	}
	if len(switches) == 0 {
		switches = append(switches, nil) // one that the host does not see
	}
	// The generation of NVLink by that of the GPU.
	major, _, _ := strings.Cut(gpus[i].part.CC, ".")
	version := map[string]*int{"6": new(1), "7": new(2), "8": new(3), "9": new(4), "10": new(5)}[major]
	var out []replies.NVLink
	add := func(kind string, remote *topo.BDF) {
		out = append(out, replies.NVLink{Link: len(out), Active: true, RemoteType: kind, RemoteBDF: remote, Version: version})
	}
	for k := range gpus[i].gpu.NVLink {
		add("switch", switches[k%len(switches)])
	}
	for j, g := range gpus {
		for range linksBetween(s.NVLink, i, j) {
			if j != i {
				add("gpu", &g.bdf)
			}
		}
	}
	return out
}

// migOf makes one instance for each profile: "1g.10gb" has 10 GiB.
func (s *Spec) migOf(f *function) *topo.MIG {
	if len(f.gpu.MIG) == 0 {
		return nil
	}
	m := &topo.MIG{Enabled: true}
	for i, profile := range f.gpu.MIG {
		x := topo.MIGInstance{UUID: "MIG-" + uuid(s.made("mig "+f.bdf.String()+strconv.Itoa(i), 16)), Profile: profile}
		_, memory, _ := strings.Cut(profile, ".")
		digits, _, _ := strings.Cut(memory, "g")
		if n, err := strconv.ParseInt(digits, 10, 16); err == nil {
			n <<= 30
			x.MemoryBytes = &n
		}
		m.Instances = append(m.Instances, x)
	}
	return m
}

func (s *Spec) netlinkReport() *replies.NetlinkReport {
	r := &replies.NetlinkReport{Schema: replies.SchemaNetlink}
	r.Links = append(r.Links, replies.Link{Index: 1, Name: "lo", Kind: "device", Encap: "loopback", MTU: 65536, OperState: "unknown"})
	r.Addresses = append(r.Addresses, replies.Address{Link: 1, CIDR: "127.0.0.1/8", Scope: "host"}, replies.Address{Link: 1, CIDR: "::1/128", Scope: "host"})
	for _, d := range s.Netdevs {
		r.Links = append(r.Links, s.linkReply(d))
		for _, p := range d.addresses() {
			scope := "universe"
			if p.Addr().IsLinkLocalUnicast() {
				scope = "link"
			}
			r.Addresses = append(r.Addresses, replies.Address{Link: d.index, CIDR: p.String(), Scope: scope})
			if p.Addr().Is4() && p.Bits() < 32 { // the route that an address brings
				r.Routes = append(r.Routes, replies.Route{Link: d.index, Dst: p.Masked().String()})
			}
		}
	}
	for i, d := range s.rdma {
		r.RDMA = append(r.RDMA, replies.RDMA{Index: i, Name: d.name, Firmware: d.fw, NodeGUID: d.guid, SysImageGUID: d.imageGUID, Ports: 1})
	}
	for _, x := range s.Routes {
		r.Routes = append(r.Routes, replies.Route{Link: s.netdev(x.Dev).index, Dst: x.Dst, Gateway: x.Via, Metric: x.Metric})
	}
	return r
}

func (s *Spec) linkReply(d *netdev) replies.Link {
	a := replies.Link{Index: d.index, Name: d.Name, Kind: cmp.Or(d.Kind, "device"), Encap: "ether", MTU: d.MTU, MAC: d.mac, OperState: upOr(d.up)}
	bond := s.bondOf(d.Name)
	if bond != nil {
		a.Master = bond.index
	}
	switch d.Kind {
	case "bond":
		a.Bond = &topo.Bond{Mode: d.Mode, HashPolicy: d.Hash, ActiveLeg: d.activeLeg()}
	case "vlan":
		a.Parent, a.VLANID = s.netdev(d.On).index, &d.ID
	}
	f := d.function
	if f == nil {
		return a
	}
	a.PermMAC, a.ParentDev, a.ParentBus = d.mac, path.Base(f.carrier), "pci"
	if f.carrier != f.path {
		a.ParentBus = "virtio"
	}
	if f.nic.Layer == "ib" {
		a.Encap, a.MAC, a.PermMAC, a.Kind = "infiniband", ipoibAddress(f.nic.GUID), "", "ipoib"
	}
	if bond != nil {
		a.MAC = bond.mac
	}
	for i, vf := range f.vfs {
		x := replies.VF{ID: i}
		if vf.nic.Layer != "ib" {
			x.MAC = vf.nic.MAC
		}
		a.VFs = append(a.VFs, x)
	}
	return a
}
