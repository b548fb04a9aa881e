package machine

import (
	"cmp"
	"encoding/json"
	"path"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/replies"
)

// answers adds what a capture of the machine would have recorded of NVML and
// netlink.
func (e *expansion) answers() {
	if r := e.s.gpuReport(); r != nil {
		e.record(replies.NVMLPath, r)
	}
	e.record(replies.NetlinkPath, e.s.netlinkReport())
}

func (e *expansion) record(name string, v any) {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil && e.err == nil {
		e.err = err
	}
	e.raw(name, append(data, '\n'))
}

// gpuReport is NVML's side of the machine, nil where there is no NVIDIA driver.
func (s *Spec) gpuReport() *replies.GPUReport {
	r := &replies.GPUReport{Schema: replies.SchemaNVML, DriverVersion: s.nvidia.driver, CUDAVersion: s.nvidia.cuda, GPUs: []replies.GPU{}}
	gpus := s.gpus()
	byIndex := make(map[int]replies.GPU)
	for i, f := range gpus {
		if f.driver == "nvidia" {
			byIndex[f.gpu.index] = s.gpuAnswer(gpus, i)
		}
	}
	if len(byIndex) == 0 {
		return nil
	}
	for index := 0; len(r.GPUs) < len(byIndex); index++ {
		if a, ok := byIndex[index]; ok {
			r.GPUs = append(r.GPUs, a)
		}
	}
	if len(r.GPUs) > 0 {
		r.NVMLVersion = "12." + s.nvidia.driver
	}
	return r
}

func (s *Spec) gpuAnswer(gpus []*function, i int) replies.GPU {
	f := gpus[i]
	a := replies.GPU{
		Index: f.gpu.index, BDF: f.bdf, UUID: f.gpu.uuid, Serial: f.gpu.serial, Name: f.title,
		Minor: &f.gpu.minor, ComputeCap: f.part.cc, MemoryNUMA: f.gpu.memoryNUMA,
	}
	if f.part.memory > 0 {
		a.MemoryBytes = &f.part.memory
	}
	if f.cur.width > 0 {
		cur, most := f.cur, f.link
		a.PCIeGen, a.PCIeWidth, a.PCIeMaxGen, a.PCIeMaxWidth = &cur.gen, &cur.width, &most.gen, &most.width
	}
	if n := s.node(f.numa); n != nil {
		a.CPUAffinity, a.CPUNUMA = n.cpus.String(), &f.numa
	} else {
		a.CPUAffinity = s.cpus().String()
	}
	a.NVLinks = s.nvlinks(gpus, i)
	if f.gpu.c2c > 0 {
		a.C2C = &replies.C2C{Links: f.gpu.c2c}
		if f.gpu.c2cRate > 0 {
			a.C2C.BytesPerSec = &f.gpu.c2cRate
		}
	}
	if len(f.gpu.mig) > 0 {
		a.MIG = s.migOf(f)
	}
	a.P2P = s.peers(gpus, i)
	return a
}

// nvlinks lists a GPU's NVLinks: those to the switches, then those to GPUs.
func (s *Spec) nvlinks(gpus []*function, i int) []replies.NVLink {
	var switches []topo.BDF
	for _, f := range s.pci {
		if f.kind == "nvswitch" {
			switches = append(switches, f.bdf)
		}
	}
	version := nvlinkVersion(gpus[i].part.cc)
	var out []replies.NVLink
	add := func(kind string, remote *topo.BDF) {
		out = append(out, replies.NVLink{Link: len(out), Active: true, RemoteType: kind, RemoteBDF: remote, Version: version})
	}
	for k := range gpus[i].gpu.nvlink {
		var remote *topo.BDF
		if len(switches) > 0 {
			remote = &switches[k%len(switches)]
		}
		add("switch", remote)
	}
	for j, g := range gpus {
		if j == i {
			continue
		}
		for range s.linksBetween("nvlink", i, j) {
			add("gpu", &g.bdf)
		}
	}
	return out
}

func nvlinkVersion(cc string) *int {
	major, _, _ := strings.Cut(cc, ".")
	version, ok := map[string]int{"6": 1, "7": 2, "8": 3, "9": 4, "10": 5}[major]
	if !ok {
		return nil
	}
	return &version
}

// migOf makes one instance for each profile: "1g.10gb" has 10 GiB.
func (s *Spec) migOf(f *function) *topo.MIG {
	m := &topo.MIG{Enabled: true}
	for i, profile := range f.gpu.mig {
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

func (s *Spec) peers(gpus []*function, i int) map[int]string {
	out := map[int]string{}
	for _, b := range s.between {
		for j, g := range gpus {
			if j != i && g.driver == "nvidia" && b.is("p2p", i, j) {
				out[g.gpu.index] = b.answer
			}
		}
	}
	return out
}

func (s *Spec) netlinkReport() *replies.NetlinkReport {
	r := &replies.NetlinkReport{Schema: replies.SchemaNetlink}
	r.Links = append(r.Links, replies.Link{Index: 1, Name: "lo", Kind: "device", Encap: "loopback", MTU: 65536, OperState: "unknown"})
	r.Addresses = append(r.Addresses, replies.Address{Link: 1, CIDR: "127.0.0.1/8", Scope: "host"}, replies.Address{Link: 1, CIDR: "::1/128", Scope: "host"})
	for _, d := range s.netdevs {
		r.Links = append(r.Links, s.linkReply(d))
		for _, p := range s.addresses(d.name) {
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
	for i, d := range s.rdmaDevices() {
		r.RDMA = append(r.RDMA, replies.RDMA{Index: i, Name: d.name, Firmware: d.fw, NodeGUID: d.guid, SysImageGUID: d.imageGUID, Ports: 1})
	}
	for _, x := range s.routes {
		r.Routes = append(r.Routes, replies.Route{Link: s.netdev(x.dev).index, Dst: x.dst, Gateway: x.via, Metric: x.metric})
	}
	return r
}

func (s *Spec) linkReply(d *netdev) replies.Link {
	a := replies.Link{Index: d.index, Name: d.name, Kind: cmp.Or(d.kind, "device"), Encap: "ether", MTU: d.mtu, MAC: d.mac, OperState: "down"}
	if d.up {
		a.OperState = "up"
	}
	bond := s.bondOf(d.name)
	if bond != nil {
		a.Master = bond.index
	}
	switch d.kind {
	case "bond":
		a.Bond = &topo.Bond{Mode: d.mode, HashPolicy: d.hash, ActiveLeg: d.activeLeg()}
	case "vlan":
		a.Parent, a.VLANID = s.netdev(d.on).index, &d.vlan
	}
	f := d.function
	if f == nil {
		return a
	}
	a.PermMAC, a.ParentDev, a.ParentBus = d.mac, path.Base(f.carrier), "pci"
	if f.carrier != f.path {
		a.ParentBus = "virtio"
	}
	if f.nic.layer == "ib" {
		a.Encap, a.MAC, a.PermMAC, a.Kind = "infiniband", ipoibAddress(f.nic.guid), "", "ipoib"
	}
	if bond != nil {
		a.MAC = bond.mac
	}
	for i, vf := range f.vfs {
		x := replies.VF{ID: i}
		if vf.nic.layer != "ib" {
			x.MAC = vf.nic.mac
		}
		a.VFs = append(a.VFs, x)
	}
	return a
}
