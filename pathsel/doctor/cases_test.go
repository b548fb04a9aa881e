package doctor_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// A machine makes a topology for a case.
type machine func(testing.TB) *topo.Topology

// named is a fixture as it is.
func named(name string) machine {
	return func(tb testing.TB) *topo.Topology { tb.Helper(); return fixturetest.Topology(tb, name) }
}

// variant is a fixture with patches.
func variant(base string, patches ...string) machine {
	return func(tb testing.TB) *topo.Topology {
		tb.Helper()
		return fixturetest.Variant(tb, base, patches...)
	}
}

// edited is a machine whose topology is changed and derived again.
func edited(m machine, edit func(*topo.Topology)) machine {
	return func(tb testing.TB) *topo.Topology {
		tb.Helper()
		t := m(tb)
		edit(t)
		t.Derive()
		return t
	}
}

// throughNCCL is a fixture as NCCL's topology file tells it.
func throughNCCL(name string) machine {
	return func(tb testing.TB) *topo.Topology {
		tb.Helper()
		var buf bytes.Buffer
		if err := ncclxml.Encode(&buf, fixturetest.Topology(tb, name)); err != nil {
			tb.Fatal(err)
		}
		t, err := ncclxml.Decode(buf.Bytes())
		if err != nil {
			tb.Fatal(err)
		}
		return t
	}
}

// matrix is a host of which the text of nvidia-smi topo -m is all there is.
func matrix(tb testing.TB) *topo.Topology {
	tb.Helper()
	const text = "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n" +
		"GPU0\t X \tSYS\tPIX\tSYS\t0-7\t0\n" +
		"GPU1\tSYS\t X \tSYS\tPIX\t8-15\t1\n" +
		"NIC0\tPIX\tSYS\t X \tSYS\n" +
		"NIC1\tSYS\tPIX\tSYS\t X \n\n" +
		"NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
	t, err := texts.Decode([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// linksOfMatrix has four GPUs in a matrix of classes, one without NVLink.
func linksOfMatrix(tb testing.TB) *topo.Topology {
	tb.Helper()
	t, err := texts.Decode([]byte("\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n" +
		"GPU0\t X \tNODE\tNODE\tNODE\t0-7\t0\nGPU1\tNODE\t X \tNV18\tNV18\t0-7\t0\n" +
		"GPU2\tNODE\tNV18\t X \tNV18\t0-7\t0\nGPU3\tNODE\tNV18\tNV18\t X \t0-7\t0\n"))
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// dies is a host of AMD GPUs that are the two dies of a package each, with four links to each other: the
// further ones of each, up to a limit in all, lead to GPUs of other packages.
func dies(links ...int) machine {
	return edited(named("mi300x-8nic"), func(t *topo.Topology) {
		t.GPUs = t.GPUs[:len(links)]
		t.Links = slices.DeleteFunc(t.Links, func(l topo.Link) bool { return l.Kind == topo.LinkXGMI })
		join := func(a, b topo.ID, n int) {
			if n > 0 {
				t.Links = append(t.Links, topo.Link{ID: topo.XGMILinkID(a, b), Kind: topo.LinkXGMI, A: a, B: b, Count: n})
			}
		}
		for i := range t.GPUs {
			t.GPUs[i].Model, t.GPUs[i].ComputeCap = "MI250X", "gfx90a"
			id := t.GPUs[i].ID
			if links[i] == 0 {
				continue
			}
			if i%2 == 0 {
				join(id, t.GPUs[i+1].ID, 4)
			}
			join(id, topo.GPUID(90+i), links[i]-4) // a GPU of a package that is not looked at
		}
	})
}

// aces is a host whose configuration space could be read as a whole.
func aces(control string) machine {
	return func(tb testing.TB) *topo.Topology {
		tb.Helper()
		return fixturetest.Spec(tb, `machine: aces
description: one switch, read by root
host: {virtual: none, config: full}
cpu: {vendor: GenuineIntel, family: 6, model: 143, name: Intel(R) Xeon(R), threads: 2}
numa:
- {node: 0, package: 0, cpus: 0-7, mem: 64GiB}
nvidia: {driver: 550.54.15, cuda: 12.4}
pci:
- root: 0000:15
  numa: 0
  below:
  - port: 15:01.0
    below:
    - switch: 16:00.0
      part: broadcom-c030
      below:
      - down: 17:00.0
        acs: `+control+`
        below:
        - {gpu: 1a:00.0, part: h100-sxm}
      - down: 17:01.0
        below:
        - {nic: 18:00.0, part: connectx7, layer: ib, rdma: mlx5_0, net: ibp24s0, lid: 12}
`)
	}
}

// scattered has two GPUs and a NIC on one socket, and two NICs on the other.
const scattered = `machine: scattered
description: NICs that no GPU is near
host: {virtual: none, iommu: identity}
cpu: {vendor: GenuineIntel, family: 6, model: 143, name: Intel(R) Xeon(R), threads: 2}
numa:
- {node: 0, package: 0, cpus: 0-7, mem: 64GiB, distance: [10, 21]}
- {node: 1, package: 1, cpus: 8-15, mem: 64GiB, distance: [21, 10]}
nvidia: {driver: 550.54.15, cuda: 12.4}
pci:
- root: 0000:10
  numa: 0
  below:
  - port: 10:01.0
    below:
    - {gpu: 11:00.0, part: h100-pcie}
- root: 0000:20
  numa: 0
  below:
  - port: 20:01.0
    below:
    - {gpu: 21:00.0, part: h100-pcie}
- root: 0000:30
  numa: 0
  below:
  - port: 30:01.0
    below:
    - {nic: 31:00.0, part: connectx7, layer: ib, rdma: mlx5_0, net: ib0, lid: 11}
- root: 0000:80
  numa: 1
  below:
  - port: 80:01.0
    below:
    - {nic: 81:00.0, part: connectx7, layer: ib, rdma: mlx5_1, net: ib1, lid: 12}
- root: 0000:90
  numa: 1
  below:
  - port: 90:01.0
    below:
    - {nic: 91:00.0, part: connectx7, layer: ib, rdma: mlx5_2, net: ib2, lid: 13}
`

func written(text string) machine {
	return func(tb testing.TB) *topo.Topology { tb.Helper(); return fixturetest.Spec(tb, text) }
}

// without is the healthy host with some of its RDMA devices gone.
func without(names ...string) machine {
	return edited(named(healthy), func(t *topo.Topology) {
		t.RDMADevices = slices.DeleteFunc(t.RDMADevices, func(r topo.RDMADevice) bool { return slices.Contains(names, r.Name) })
		t.Ports = slices.DeleteFunc(t.Ports, func(p topo.Port) bool { return slices.Contains(names, p.RDMA.Name()) })
	})
}

// fewer is a host with every fourth of its RDMA devices.
func fewer(name string) machine {
	return edited(named(name), func(t *topo.Topology) {
		n := 0
		t.RDMADevices = slices.DeleteFunc(t.RDMADevices, func(topo.RDMADevice) bool { n++; return n%4 != 0 })
		t.Ports = slices.DeleteFunc(t.Ports, func(p topo.Port) bool {
			return !slices.ContainsFunc(t.RDMADevices, func(r topo.RDMADevice) bool { return r.ID == p.RDMA })
		})
	})
}

// noInterfaces hides the interfaces, as a network namespace does.
func noInterfaces(t *topo.Topology) {
	t.Netdevs = nil
	for i := range t.RDMADevices {
		t.RDMADevices[i].Netdevs = nil
	}
	for i := range t.Ports {
		t.Ports[i].Netdevs = nil
	}
}

// withoutAddress is a RoCE host of whose first port the address was taken away:
// its GIDs went with it.
func withoutAddress(tb testing.TB) *topo.Topology {
	tb.Helper()
	return edited(named(ethernet), func(t *topo.Topology) {
		t.Ports[0].GIDs = t.Ports[0].GIDs[:2]
		for i := range t.Netdevs {
			if n := &t.Netdevs[i]; n.Name == "ens1f0np0" {
				n.Addresses, n.Routes = slices.DeleteFunc(n.Addresses, func(a string) bool { return strings.HasPrefix(a, "10.") }), nil
			}
		}
	})(tb)
}

func noGIDTypes(t *topo.Topology) {
	for i := range t.Ports {
		for j := range t.Ports[i].GIDs {
			t.Ports[i].GIDs[j].Type = ""
		}
	}
}

// silentNVML is a patch: no recorded answers.
const silentNVML = "{remove: " + replies.NVMLPath + "}"

// tries is what trying the devices of a running host gave: all is well with each,
// then edit.
func tries(edit func(*replies.VerbsReport)) func(testing.TB, *topo.Topology) doctor.Options {
	return func(_ testing.TB, t *topo.Topology) doctor.Options {
		v := &replies.VerbsReport{}
		for _, r := range t.RDMADevices {
			a := replies.VerbsDevice{Name: r.Name, MaxMRBytes: new(int64(1 << 40)), DMABuf: new(true),
				Registrations: []replies.VerbsRegistration{{Bytes: 4096}, {Bytes: 16 << 20}}}
			for _, p := range t.Ports {
				if p.RDMA == r.ID {
					a.Ports = append(a.Ports, replies.VerbsPort{Number: p.Number, ActiveMTUBytes: 4096, MaxMTUBytes: 4096, GIDs: len(p.GIDs)})
				}
			}
			v.Devices = append(v.Devices, a)
		}
		if edit != nil {
			edit(v)
		}
		return doctor.Options{Verbs: v}
	}
}

// refuses is a report in which the first device fails to register some bytes.
func refuses(bytes int64, errno string) func(*replies.VerbsReport) {
	return func(v *replies.VerbsReport) {
		list := &v.Devices[0].Registrations
		if (*list)[0].Bytes == bytes {
			*list = (*list)[:1]
		}
		(*list)[len(*list)-1].Failed = &replies.VerbsError{Verb: "ibv_reg_mr", Errno: errno}
	}
}

// talksTo gives the host a peer.
func talksTo(m machine) func(testing.TB, *topo.Topology) doctor.Options {
	return func(tb testing.TB, _ *topo.Topology) doctor.Options { tb.Helper(); return doctor.Options{Peer: m(tb)} }
}

// told is a fixture whose programs are told something by the environment.
func told(m machine, nameValue ...string) machine {
	return edited(m, func(t *topo.Topology) {
		for i := 0; i < len(nameValue); i += 3 {
			t.Host.Software.Environment.Settings = append(t.Host.Software.Environment.Settings,
				topo.Setting{Name: nameValue[i], Value: nameValue[i+1], Where: nameValue[i+2]})
		}
	})
}

// limited is a machine whose process may lock so much and is exempt or not.
func limited(m machine, soft, hard int64, exempt *bool) machine {
	return edited(m, func(t *topo.Topology) {
		t.Host.Software.Memlock = &topo.Memlock{SoftBytes: &soft, HardBytes: &hard, Exempt: exempt}
		if hard < 0 {
			t.Host.Software.Memlock.HardBytes = nil
		}
	})
}

// A ruling is how a check must end on three machines.
type ruling struct {
	with      func(testing.TB, *topo.Topology) doctor.Options // beside the topology; nil: nothing
	found     machine                                         // there is something to find
	severity  doctor.Severity                                 // of the worst finding there
	text      string                                          // part of it
	subjects  []topo.ID                                       // of the worst finding; empty: not looked at
	fine      machine                                         // alike, and all is well
	fineWith  func(testing.TB, *topo.Topology) doctor.Options
	blind     machine // a fact is missing
	blindWith func(testing.TB, *topo.Topology) doctor.Options
	more      map[string]ruling // other findings of the same check
}

const healthy = "hgx-h100-8nic" // InfiniBand, every GPU with its NIC
const ethernet = "a10-2nic"     // RoCE, two GPUs with a NIC each

var rulings = map[doctor.Code]ruling{
	"link-degraded": {
		found: named("dgx-h100-gpu2-x8"), severity: doctor.Warning, text: "31.5 GB/s instead of 63.0 GB/s", subjects: []topo.ID{"gpu:2"},
		fine: named(healthy), blind: variant(healthy, "{change: 0000:18:00.0, at: gen1}"), // an idle GPU
		more: map[string]ruling{
			"an idle GPU on half of its lanes": {found: variant(healthy, "{change: 0000:18:00.0, at: gen1x8}"), severity: doctor.Warning, text: "runs at gen5 x8, both ends can do gen5 x16", subjects: []topo.ID{"gpu:0"}},
			"a NIC's speed":                    {found: named("dgx-h100-nic-gen1"), severity: doctor.Warning, text: "gen1 x16", subjects: []topo.ID{"rdma:mlx5_4"}},
			"a switch's uplink":                {found: variant(healthy, "{change: 0000:16:00.0, at: gen3}"), severity: doctor.Warning, subjects: []topo.ID{"sw:0000:16:00.0"}},
			"a drive":                          {found: variant("dgx-h100", "{change: 0000:1c:00.0, at: x2}"), severity: doctor.Info, subjects: []topo.ID{"nvme:nvme2"}},
		},
	},
	"link-disagrees": {
		found: variant(healthy, "{set: sys/bus/pci/devices/0000:17:00.0/current_link_width, to: 8}"), severity: doctor.Warning, text: "0000:18:00.0 says 32 GT/s x16", subjects: []topo.ID{"gpu:0"},
		fine: named(healthy), blind: variant(healthy, "{remove: sys/bus/pci/devices/0000:17:00.0/current_link_width}"),
	},
	"implausible-bridge-link": {
		found: named("aws-p5-44nic-synthetic"), severity: doctor.Warning, text: "which the hypervisor invented",
		fine: named(healthy), blind: throughNCCL(healthy),
		more: map[string]ruling{"only the current state": {found: named("vm-flat"), severity: doctor.Info, text: "report gen1 x1"}},
	},
	"nic-slot-limited": {
		found: variant(healthy, "{change: 0000:17:01.0, link: gen4x16}"), severity: doctor.Warning, text: "63 % of the port", subjects: []topo.ID{"port:mlx5_0/1"},
		fine: named(healthy), blind: variant(healthy, "{remove: sys/class/infiniband/mlx5_0/ports/1/rate}"),
		more: map[string]ruling{
			"a switch's uplink": {found: variant(healthy, "{change: 0000:16:00.0, link: gen4x8}"), severity: doctor.Info, text: "the switch uplink 0000:16:00.0"},
			"the card itself":   {found: variant(healthy, "{change: 0000:19:00.0, link: gen3x16}"), severity: doctor.Warning, text: "15.8 GB/s"},
		},
	},
	"shared-slot": {
		found: named("v100-8gpu"), severity: doctor.Warning, text: "25.0 GB/s together, their slot carries 15.8 GB/s", subjects: []topo.ID{"port:mlx5_0/1", "port:mlx5_1/1"},
		fine: named("dgx-h100"), blind: variant("dgx-h100", "{remove: sys/class/infiniband/mlx5_2/ports/1/rate}"),
		more: map[string]ruling{"a storage card": {found: named("dgx-a100"), severity: doctor.Info, text: "their role is storage"}},
	},
	"rdma-no-pci": {
		found: named("dgx-h100-rdma-no-pci"), severity: doctor.Warning, subjects: []topo.ID{"rdma:mlx5_9"},
		fine: named(healthy), blind: matrix,
	},
	"nvlink-missing": {
		found: variant("dgx-h100", "{change: 0000:1b:00.0, nvlink: 0}"), severity: doctor.Error, text: "4 NVSwitches", subjects: []topo.ID{"gpu:0"},
		fine: named(healthy), blind: variant(healthy, silentNVML),
		more: map[string]ruling{"no switches on PCI": {found: variant(healthy, "{change: 0000:18:00.0, nvlink: 0}"), severity: doctor.Warning, text: "gpu:1 of the same model"},
			"NCCL's file": {found: edited(throughNCCL(healthy), func(t *topo.Topology) {
				t.Links = slices.DeleteFunc(t.Links, func(l topo.Link) bool { return l.Kind == topo.LinkNVLink && l.A == "gpu:2" })
			}), severity: doctor.Warning, text: "gpu:0 of the same compute capability (9.0) has 18", subjects: []topo.ID{"gpu:2"}},
			"a matrix of classes": {found: linksOfMatrix, severity: doctor.Warning, text: "gpu:1 has 18; whether both are of one model is not known", subjects: []topo.ID{"gpu:0"}},
		},
	},
	"nvlink-uneven": {
		found: variant(healthy, "{change: 0000:18:00.0, nvlink: 17}"), severity: doctor.Warning, text: "17 of 18 links", subjects: []topo.ID{"gpu:0"},
		fine: named(healthy), blind: variant(healthy, silentNVML),
		more: map[string]ruling{
			"the die with fewer links":     {found: dies(7, 6, 7, 5), severity: doctor.Warning, text: "5 of 6 links", subjects: []topo.ID{"gpu:3"}},
			"a link between two packages":  {found: dies(6, 6, 7, 5), severity: doctor.Warning, text: "6 of 7 links"},
			"an AMD GPU without any links": {found: dies(7, 6, 0, 0), severity: doctor.Warning, text: "0 of 7 links", subjects: []topo.ID{"gpu:2", "gpu:3"}},
		},
	},
	"p2p-disabled": {
		found:    edited(named(healthy), func(t *topo.Topology) { t.GPUs[0].P2P["gpu:1"] = "disabled by regkey" }),
		severity: doctor.Error, text: "beside an NVLink", subjects: []topo.ID{"gpu:0", "gpu:1"},
		fine: named(healthy), blind: variant(healthy, silentNVML),
		more: map[string]ruling{"far apart": {found: named(ethernet), severity: doctor.Info, text: "chipset not supported"}},
	},
	"mig-enabled": {
		found:    edited(named(healthy), func(t *topo.Topology) { t.GPUs[3].MIG = &topo.MIG{Enabled: true} }),
		severity: doctor.Info, subjects: []topo.ID{"gpu:3"}, fine: named(healthy), blind: variant(healthy, silentNVML),
	},
	"gpu-driver-missing": {
		found:    edited(named(healthy), func(t *topo.Topology) { t.GPUs[1].KnownFrom, t.GPUs[1].Driver = "pci", "" }),
		severity: doctor.Error, text: "no driver is bound", subjects: []topo.ID{"gpu:1"}, fine: named(healthy),
		blind: edited(named(healthy), func(t *topo.Topology) { t.GPUs[1].KnownFrom, t.GPUs[1].Driver, t.GPUs[1].Facts = "pci", "", nil }),
		more: map[string]ruling{
			"nouveau":      {found: edited(named(healthy), func(t *topo.Topology) { t.GPUs[1].KnownFrom, t.GPUs[1].Driver = "pci", "nouveau" }), severity: doctor.Error, text: "nouveau"},
			"in a machine": {found: edited(named(healthy), func(t *topo.Topology) { t.GPUs[1].KnownFrom, t.GPUs[1].Driver = "pci", "vfio-pci" }), severity: doctor.Info, text: "vfio-pci"},
		},
	},
	"no-gdr-path": {
		found: variant(healthy, "{remove: sys/module/nvidia_peermem}"), severity: doctor.Error, text: "the kernel module is the proprietary one",
		fine: named(healthy), blind: variant(healthy, "{remove: sys/module}"),
		more: map[string]ruling{
			"dma-buf alone, and the NIC cannot": {found: variant(healthy, "{remove: sys/module/nvidia_peermem}",
				`{set: proc/driver/nvidia/version, to: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15}`), with: tries(func(v *replies.VerbsReport) { v.Devices[0].DMABuf = new(false) }),
				severity: doctor.Error, text: "their driver does not register dma-bufs", subjects: []topo.ID{"rdma:mlx5_0"}},
			"an old kernel": {found: variant(healthy, "{remove: sys/module/nvidia_peermem}",
				`{set: proc/driver/nvidia/version, to: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15}`, "{set: proc/sys/kernel/osrelease, to: 5.4.0-200-generic}"), severity: doctor.Error, text: "older than 5.12"},
			"dma-buf alone": {found: variant(healthy, "{remove: sys/module/nvidia_peermem}",
				`{set: proc/driver/nvidia/version, to: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15}`), severity: doctor.Info, text: "dma-buf is the only way"},
			"GeForce": {found: edited(named(healthy), func(t *topo.Topology) { t.GPUs[0].Model = "NVIDIA GeForce RTX 4090" }), severity: doctor.Error, text: "GeForce", subjects: []topo.ID{"gpu:0"}},
		},
	},
	"iommu-translate": {
		found: variant(healthy, "{set: sys/kernel/iommu_groups/*/type, to: DMA-FQ}"), severity: doctor.Warning, text: "16 devices",
		fine: named(healthy), blind: variant(healthy, "{remove: sys/kernel/iommu_groups/*/type}", "{remove: proc/cmdline}"),
	},
	"memlock": {
		found: named("lab-softrdma"), severity: doctor.Warning, text: "8 MiB", fine: named(healthy), blind: variant(healthy, "{remove: proc/self/limits}"),
		more: map[string]ruling{
			"too small for anything":   {found: limited(named(ethernet), 64<<10, 64<<10, new(false)), severity: doctor.Error, text: "may lock only 64 KiB of memory: registering more than that with an RDMA device fails; less than 16 MiB is too little"},
			"small":                    {found: limited(named(ethernet), 1<<30, -1, new(false)), severity: doctor.Warning, text: "may lock only 1 GiB"},
			"a process that is exempt": {found: limited(named(ethernet), 64<<10, 64<<10, new(true)), severity: doctor.Info, text: "does not apply to the process that ran topoctl (CAP_IPC_LOCK)"},
		},
	},
	"registration-refused": {
		found: named(ethernet), with: tries(refuses(16<<20, "ENOMEM")), severity: doctor.Error, subjects: []topo.ID{"rdma:mlx5_0"},
		text: "refuses to register 16 MiB with ENOMEM: the device or the kernel has no room for it: no free memory regions or pages (it accepts 4 KiB)",
		fine: named(ethernet), fineWith: tries(nil), blind: named(ethernet),
		more: map[string]ruling{
			"by the limit": {found: limited(named(ethernet), 8<<20, 8<<20, new(false)), with: tries(refuses(16<<20, "ENOMEM")), severity: doctor.Error,
				text: "the limit on locked memory, 8 MiB for everything that is locked, is too low for it"},
			"a limit that is not known": {found: variant(ethernet, "{remove: proc/self/limits}"), with: tries(refuses(16<<20, "ENOMEM")), severity: doctor.Error,
				text: "the limit on locked memory, which is not known, may be too low for it, or the device has no room for it"},
			"the limit does not hold": {found: limited(named(ethernet), 8<<20, 8<<20, new(true)), with: tries(refuses(16<<20, "ENOMEM")), severity: doctor.Error,
				text: "the device or the kernel has no room"},
			"no memory at all": {found: limited(named(ethernet), 0, 0, new(false)), with: tries(refuses(4096, "EPERM")), severity: doctor.Error, text: "register 4 KiB with EPERM: this process may not lock any memory"},
			"the driver":       {found: named(ethernet), with: tries(refuses(4096, "EOPNOTSUPP")), severity: doctor.Error, text: "the driver cannot do it"},
			"a small device": {found: named(ethernet), with: tries(func(v *replies.VerbsReport) {
				refuses(16<<20, "EINVAL")(v)
				v.Devices[0].MaxMRBytes = new(int64(1 << 20))
			}), severity: doctor.Error, text: "the largest region that it accepts is 1 MiB"},
			"it hangs": {found: named(ethernet), with: tries(func(v *replies.VerbsReport) {
				v.Devices[1] = replies.VerbsDevice{Name: "mlx5_1", Silent: true, Step: "ibv_open_device"}
			}), severity: doctor.Error, text: "did not answer in time when it was asked for ibv_open_device", subjects: []topo.ID{"rdma:mlx5_1"}},
			"it is gone": {found: named(ethernet), with: tries(func(v *replies.VerbsReport) {
				v.Devices[1] = replies.VerbsDevice{Name: "mlx5_1", Open: &replies.VerbsError{Verb: "ibv_open_device", Errno: "ENODEV"}}
			}), severity: doctor.Error, text: "opening the device failed with ENODEV: the device is gone", subjects: []topo.ID{"rdma:mlx5_1"}},
			"no domain": {found: named(ethernet), with: tries(func(v *replies.VerbsReport) {
				v.Devices[0] = replies.VerbsDevice{Name: "mlx5_0", Domain: &replies.VerbsError{Verb: "ibv_alloc_pd", Errno: "EAGAIN"}}
			}), severity: doctor.Error, text: "the rdma cgroup allows no more objects"},
		},
	},
	"acs-redirect": {
		found: aces("0x1d"), severity: doctor.Error, text: "0000:17:00.0", subjects: []topo.ID{"pci:0000:17:00.0"}, fine: aces("0x01"), blind: named(healthy),
		more: map[string]ruling{"direct translated": {found: aces("0x5d"), severity: doctor.Warning, text: "unless both devices use ATS"}},
	},
	"port-down": {
		found: named("dgx-h100-port-down"), severity: doctor.Error, subjects: []topo.ID{"port:mlx5_6/1"},
		text: "gpu:4 falls back to mlx5_9: NODE instead of PXB, at most 25.0 GB/s, shared with gpu:5",
		fine: named(healthy), blind: variant(healthy, "{remove: sys/class/infiniband/mlx5_0/ports/1/state}"),
		more: map[string]ruling{
			"one of two that are as near": {found: variant("b300-16nic", "{change: 0000:19:00.0, state: down}"), severity: doctor.Warning, text: "its bandwidth is lost"},
			"of a storage card":           {found: named("gb200-tray"), severity: doctor.Info, text: "its role is storage"},
			"the second of each card": {found: variant("v100-8gpu", "{change: 0000:1c:00.1, state: down}", "{change: 0000:3f:00.1, state: down}",
				"{change: 0000:8a:00.1, state: down}", "{change: 0000:b3:00.1, state: down}"), severity: doctor.Info, text: "no card here has all of its ports up"},
			"switched off": {found: variant(ethernet, "{change: 0000:1a:00.0, state: down}", "{set: sys/class/net/ens1f0np0/flags, to: 0x1002}"), severity: doctor.Error,
				text: "port is DOWN (Disabled), its interface is switched off", subjects: []topo.ID{"port:mlx5_0/1"}},
			"no carrier": {found: variant(ethernet, "{change: 0000:1a:00.0, state: down}"), severity: doctor.Error, text: "port is DOWN (Disabled), its interface has no carrier"},
			"below it": {found: variant(ethernet, "{change: 0000:1a:00.0, state: down}", "{set: sys/class/net/ens1f0np0/operstate, to: lowerlayerdown}"), severity: doctor.Error,
				text: "what is below its interface is down"},
			"not let in": {found: variant(ethernet, `{set: sys/class/infiniband/mlx5_0/ports/1/state, to: "1: DOWN"}`, "{set: sys/class/net/ens1f0np0/operstate, to: dormant}"), severity: doctor.Error,
				text: "its interface waits to be authorized"},
			"the driver": {found: variant(ethernet, `{set: sys/class/infiniband/mlx5_0/ports/1/state, to: "1: DOWN"}`), severity: doctor.Error, text: "though its interface is up and has carrier"},
			"half-way":   {found: variant(healthy, `{set: sys/class/infiniband/mlx5_0/ports/1/state, to: "3: ARMED"}`), severity: doctor.Error, text: "has begun and not finished"},
			"switched off, InfiniBand": {found: variant(healthy, `{set: sys/class/infiniband/mlx5_0/ports/1/state, to: "1: DOWN"}`, `{set: sys/class/infiniband/mlx5_0/ports/1/phys_state, to: "3: Disabled"}`),
				severity: doctor.Error, text: "port is DOWN (Disabled), it is switched off"},
			"training": {found: variant(healthy, `{set: sys/class/infiniband/mlx5_0/ports/1/state, to: "1: DOWN"}`, `{set: sys/class/infiniband/mlx5_0/ports/1/phys_state, to: "4: PortConfigurationTraining"}`),
				severity: doctor.Error, text: "cannot agree on speed and width"},
			"software": {found: variant("lab-softrdma", `{set: sys/class/infiniband/rxe0/ports/1/state, to: "1: DOWN"}`, `{set: sys/class/infiniband/rxe0/ports/1/phys_state, to: "3: Disabled"}`,
				"{set: sys/class/net/rail0/flags, to: 0x1002}", "{set: sys/class/net/rail0/operstate, to: down}"), severity: doctor.Warning, text: "its interface is switched off", subjects: []topo.ID{"port:rxe0/1"}},
			"no subnet manager": {found: variant(healthy, `{set: sys/class/infiniband/mlx5_0/ports/1/state, to: "2: INIT"}`), severity: doctor.Error, text: "port is INIT (LinkUp)",
				subjects: []topo.ID{"port:mlx5_0/1"}},
			"the last one": {found: variant(ethernet, "{change: 0000:1a:00.0, state: down}", "{change: 0000:9b:00.0, state: down}"), severity: doctor.Error, text: "falls back to eno1"},
		},
	},
	"no-usable-port": {
		found: edited(named(healthy), func(t *topo.Topology) {
			noInterfaces(t)
			t.Netdevs = []topo.Netdev{{Node: topo.Node{ID: "net:lo"}, Name: "lo", Virtual: true}}
			for i := range t.RDMADevices {
				t.RDMADevices[i].Uverbs = "denied"
			}
		}), severity: doctor.Error, text: "no port can be used",
		fine: named(healthy), blind: throughNCCL(healthy),
		more: map[string]ruling{"TCP is left": {found: variant(ethernet, "{change: 0000:1a:00.0, state: down}", "{change: 0000:9b:00.0, state: down}"), severity: doctor.Warning, text: "data goes by TCP"}},
	},
	"uverbs-inaccessible": {
		found: edited(named(ethernet), func(t *topo.Topology) {
			t.RDMADevices[0].Uverbs, t.RDMADevices[1].Uverbs = "denied", "rw"
		}), severity: doctor.Warning, subjects: []topo.ID{"rdma:mlx5_0"},
		fine: edited(named(ethernet), func(t *topo.Topology) {
			t.RDMADevices[0].Uverbs, t.RDMADevices[1].Uverbs = "rw", "rw"
		}), blind: named(ethernet),
		more: map[string]ruling{"all of them": {found: edited(named(ethernet), func(t *topo.Topology) {
			t.RDMADevices[0].Uverbs, t.RDMADevices[1].Uverbs = "none", "none"
		}), severity: doctor.Error, text: "no uverbs file"}},
	},
	"rdma-lag": {
		found: variant("bonds", "{set: sys/class/net/rdma0b/operstate, to: down}"), severity: doctor.Warning, text: "rdma0b is down", subjects: []topo.ID{"port:mlx5_bond_0/1"},
		fine: named(ethernet), blind: edited(named(ethernet), noInterfaces),
		more: map[string]ruling{"a bond that is up": {found: named("bonds"), severity: doctor.Info, text: "one connection uses one leg, 100 Gb/s of 200 Gb/s"}},
	},
	"pf-and-vf-visible": {
		found: named("sriov-pf-vf"), severity: doctor.Warning, text: "5 devices, one wire of 100 Gb/s", fine: named(ethernet), blind: throughNCCL(ethernet),
	},
	"software-rdma": {
		found: named("lab-softrdma"), severity: doctor.Info, subjects: []topo.ID{"rdma:rxe0", "rdma:rxe1", "rdma:siw0"}, fine: named(healthy), blind: matrix,
		more: map[string]ruling{"siw beside NVIDIA": {found: edited(named(healthy), func(t *topo.Topology) {
			t.RDMADevices = append(t.RDMADevices, topo.RDMADevice{Node: topo.Node{ID: "rdma:siw0"}, Name: "siw0", Software: true, Driver: "siw"})
		}), severity: doctor.Warning, text: "nvidia-smi"}},
	},
	"gid-missing": {
		found: edited(named(ethernet), func(t *topo.Topology) { t.Ports[0].GIDs = nil }), severity: doctor.Error, subjects: []topo.ID{"port:mlx5_0/1"},
		fine: named(ethernet), blind: edited(named(ethernet), func(t *topo.Topology) { t.Ports[0].GIDs, t.Ports[0].GIDTable = nil, nil }),
	},
	"gid-none-routable": {
		found: edited(named(ethernet), func(t *topo.Topology) {
			t.Ports[1].GIDs = []topo.GID{{Index: 0, GID: "fe80:0000:0000:0000:0000:0000:0000:0001", Type: "RoCE v2"}}
		}), severity: doctor.Warning, text: "all are link-local", subjects: []topo.ID{"port:mlx5_1/1"},
		fine: named(ethernet), blind: edited(named(ethernet), noGIDTypes),
		more: map[string]ruling{
			"the address is gone": {found: withoutAddress, severity: doctor.Warning, text: "(all are link-local); interface ens1f0np0 has no such address: it was taken away, or never given",
				subjects: []topo.ID{"port:mlx5_0/1"}},
			"the driver did not look": {found: edited(named(ethernet), func(t *topo.Topology) { t.Ports[0].GIDs = t.Ports[0].GIDs[:2] }), severity: doctor.Warning,
				text: "interface ens1f0np0 has 10.2.0.5/24, and the driver made no GID of it"},
		},
	},
	"gid-index-wrong": {
		found: told(named(ethernet), "NCCL_IB_GID_INDEX", "7", "/proc/self/environ"), severity: doctor.Error,
		text:     "NCCL_IB_GID_INDEX=7, but the port has no GID of that index: its address is gone or was never there, connections from here fail",
		subjects: []topo.ID{"port:mlx5_0/1", "port:mlx5_1/1"},
		fine:     told(named(ethernet), "UCX_IB_GID_INDEX", "3", "/proc/self/environ", "MC_GID_INDEX", "-1", "/proc/self/environ"),
		blind:    edited(named(ethernet), func(t *topo.Topology) { t.Host.Software.Environment = nil }),
		more: map[string]ruling{
			"in the host's files": {found: told(named(ethernet), "NCCL_IB_GID_INDEX", "400", "/etc/nccl.conf"), severity: doctor.Error, text: "the port's GID table has only 256 entries"},
			"in the environment":  {found: variant(ethernet, `{set: proc/self/environ, to: NCCL_IB_GID_INDEX=9}`), severity: doctor.Error, text: "NCCL_IB_GID_INDEX=9, but the port has no GID"},
			"RoCE v1":             {found: told(named(ethernet), "MC_GID_INDEX", "2", "/proc/self/environ"), severity: doctor.Warning, text: "MC_GID_INDEX=2, but that GID is of RoCE v1"},
			"link-local":          {found: told(named(ethernet), "UCX_IB_GID_INDEX", "1", "/proc/self/environ"), severity: doctor.Warning, text: "UCX_IB_GID_INDEX=1, but that GID is a link-local address"},
			"no number":           {found: told(named(ethernet), "UCX_IB_GID_INDEX", "three", "/etc/ucx/ucx.conf"), severity: doctor.Warning, text: "UCX_IB_GID_INDEX=three is not a GID index"},
			"of an engine":        {found: named(ethernet), with: func(testing.TB, *topo.Topology) doctor.Options { return doctor.Options{GIDIndex: new(5)} }, severity: doctor.Error, text: "--gid-index 5, but the port has no GID"},
			"its address is gone": {found: told(withoutAddress, "NCCL_IB_GID_INDEX", "3", "/proc/self/environ"), severity: doctor.Error, text: "NCCL_IB_GID_INDEX=3, but the port has no GID", subjects: []topo.ID{"port:mlx5_0/1"}},
			"of another address": {found: told(variant(ethernet, "{set: sys/class/infiniband/mlx5_0/ports/1/gids/3, to: 0000:0000:0000:0000:0000:ffff:0a63:6301}"), "NCCL_IB_GID_INDEX", "3", "/proc/self/environ"),
				severity: doctor.Warning, text: "that GID is of 10.99.99.1, which interface ens1f0np0 does not have", subjects: []topo.ID{"port:mlx5_0/1"}},
		},
	},
	"gid-index-differs": {
		found: edited(named(ethernet), func(t *topo.Topology) {
			for i := range t.Ports[1].GIDs {
				t.Ports[1].GIDs[i].Index += 2
			}
		}), severity: doctor.Warning, text: "3 on mlx5_0; 5 on mlx5_1",
		fine: named(ethernet), blind: edited(named(ethernet), noGIDTypes),
	},
	"traffic-class-unset": {
		found: variant(ethernet, "{change: 0000:1a:00.0, tc: unset}", "{change: 0000:9b:00.0, tc: 106}"), severity: doctor.Warning, subjects: []topo.ID{"port:mlx5_0/1"},
		fine: variant(ethernet, "{change: 0000:1a:00.0, tc: 106}", "{change: 0000:9b:00.0, tc: 106}"), blind: named(ethernet),
		more: map[string]ruling{"two classes": {found: variant(ethernet, "{change: 0000:1a:00.0, tc: 104}", "{change: 0000:9b:00.0, tc: 106}"), severity: doctor.Warning, text: "104 on mlx5_0; 106 on mlx5_1"}},
	},
	"mtu-mismatch": {
		found: variant(ethernet, "{change: 0000:1a:00.0, mtu: 9000}"), severity: doctor.Warning, text: "on mlx5_1; 9000 on mlx5_0",
		fine: named(ethernet), blind: edited(named(ethernet), noInterfaces),
		more: map[string]ruling{"a leg of a bond": {found: variant("bonds", "{set: sys/class/net/rdma0a/mtu, to: 1400}"), severity: doctor.Warning, text: "a leg with MTU 1400"}},
	},
	"mtu-small": {
		found: variant(ethernet, "{change: 0000:1a:00.0, mtu: 1500}", "{change: 0000:9b:00.0, mtu: 9000}"), severity: doctor.Info, text: "carry 1024 bytes", subjects: []topo.ID{"port:mlx5_0/1"},
		fine: variant(ethernet, "{change: 0000:1a:00.0, mtu: 4200}", "{change: 0000:9b:00.0, mtu: 9000}"), blind: edited(named(ethernet), noInterfaces),
	},
	"mtu-active": {
		found: named(ethernet), with: tries(func(v *replies.VerbsReport) { v.Devices[0].Ports[0].ActiveMTUBytes = 1024 }), severity: doctor.Warning,
		text: "RDMA packets carry 1024 bytes, though the MTU of ens1f0np0, 4200, holds 4096", subjects: []topo.ID{"port:mlx5_0/1"},
		fine: named(ethernet), fineWith: tries(nil), blind: named(ethernet),
		more: map[string]ruling{"too large": {found: variant(ethernet, "{change: 0000:1a:00.0, mtu: 1500}"), with: tries(nil), severity: doctor.Warning, text: "which the MTU of ens1f0np0, 1500, does not hold"}},
	},
	"mtu-peer": {
		found: named(ethernet), with: talksTo(variant(ethernet, "{change: 0000:1a:00.0, mtu: 1500}", "{change: 0000:9b:00.0, mtu: 1500}")), severity: doctor.Warning,
		text: "MTU 4200 here (mlx5_0 and mlx5_1) and 1500 at a10-2nic (mlx5_0 and mlx5_1): RDMA must use packets of 1024 bytes",
		fine: named(ethernet), fineWith: talksTo(named(ethernet)), blind: edited(named(ethernet), noInterfaces), blindWith: talksTo(named(ethernet)),
		more: map[string]ruling{"without RDMA": {found: written(bonded), with: talksTo(written(strings.ReplaceAll(bonded, "mtu: 9000", "mtu: 1500"))), severity: doctor.Warning,
			text: "packets of the larger size are lost"}},
	},
	"pkey-mismatch": {
		found: variant(healthy, `{change: 0000:19:00.0, pkeys: [0xffff, 0x8001]}`), severity: doctor.Warning, text: "different partitions",
		fine: named(healthy), blind: variant(healthy, "{remove: sys/class/infiniband/mlx5_0/ports/1/pkeys}"),
		more: map[string]ruling{"limited": {found: edited(named(healthy), func(t *topo.Topology) { t.Ports[0].PKeys = []topo.HexID{"0x7fff"} }), severity: doctor.Warning, text: "limited member"}},
	},
	"rate-mismatch": {
		found: variant(healthy, `{change: 0000:19:00.0, rate: 200 Gb/sec (4X HDR)}`), severity: doctor.Warning, text: "400 Gb/s on mlx5_1", subjects: []topo.ID{"port:mlx5_0/1"},
		fine: named(healthy), blind: variant(healthy, "{remove: sys/class/infiniband/mlx5_0/ports/1/rate}"),
	},
	"mixed-link-layer": {
		found:    edited(named(healthy), func(t *topo.Topology) { t.Ports[0].LinkLayer, t.RDMADevices[0].Transport = "Ethernet", "roce" }),
		severity: doctor.Warning, text: "Ethernet on mlx5_0; InfiniBand on mlx5_1",
		fine: named(healthy), blind: throughNCCL(healthy),
		more: map[string]ruling{"storage": {found: named("dgx-h100"), severity: doctor.Info, text: "Ethernet on mlx5_2 and mlx5_8 (storage)"}},
	},
	"firmware-differs": {
		found: edited(named(healthy), func(t *topo.Topology) { t.RDMADevices[2].Firmware = "28.43.1014" }), severity: doctor.Info, text: "28.43.1014 on mlx5_2",
		fine: named(healthy), blind: edited(named(healthy), func(t *topo.Topology) { t.RDMADevices[2].Board, t.RDMADevices[3].Board = "", "" }),
	},
	"rails-share-subnet": {
		found: named("gh200-4gpu"), severity: doctor.Info, text: "10.38.0.0/16", fine: named(ethernet), blind: variant(ethernet, "{remove: "+replies.NetlinkPath+"}"),
	},
	"gpu-without-near-nic": {
		found: without("mlx5_0"), severity: doctor.Warning, text: "; 7 of 8 GPUs here have one", subjects: []topo.ID{"gpu:0"},
		fine: named(healthy), blind: named("dgx-h100-rdma-no-pci"),
		more: map[string]ruling{
			"built so": {found: named("nd96asr-v4"), severity: doctor.Info},
			"four of eight switches": {found: named("h20-4ib-1roce"), severity: doctor.Info, text: "the nearest are NODE, at most 50.0 GB/s (for gpu:1 ibp14s0 and ibp71s0); 4 of 8 GPUs here have one",
				subjects: []topo.ID{"gpu:1", "gpu:3", "gpu:5", "gpu:7"}},
			"one card":            {found: named("h20-3e-8gpu-2nic"), severity: doctor.Info, text: "SYS"},
			"all on one socket":   {found: without("mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7", "mlx5_8", "mlx5_9", "mlx5_10", "mlx5_11"), severity: doctor.Warning, text: "4 of 8 GPUs"},
			"every second is off": {found: without("mlx5_1", "mlx5_3", "mlx5_5", "mlx5_7"), severity: doctor.Info, text: "4 of 8 GPUs"},
		},
	},
	"gpu-nic-index": {
		found: named("b300-16nic"), severity: doctor.Warning, text: "gpu:1 gets mlx5_1 (NODE), its nearest are mlx5_2 and mlx5_3 (PIX)",
		fine: named(healthy), blind: variant(healthy, "{remove: sys/class/infiniband/mlx5_7/device}", "{remove: sys/class/infiniband_verbs/uverbs7/device}",
			"{remove: sys/class/infiniband_mad/umad7/device}", "{move: sys/class/infiniband/mlx5_7, to: sys/devices/virtual/infiniband/mlx5_7}"),
		more: map[string]ruling{"with storage": {found: named("dgx-h100"), severity: doctor.Info, text: "all RDMA devices, storage and others included"},
			"fewer NICs than GPUs": {found: named("h20-4ib-1roce"), severity: doctor.Info, text: "gpu:2 gets ibp134s0 (SYS)"}},
	},
	"c2c-path": {
		found: named("gb200-tray"), severity: doctor.Info, text: "over C2C and the CPU (NODE, NCCL's P2C)", subjects: []topo.ID{"gpu:0", "gpu:1", "gpu:2", "gpu:3"},
		fine: named(healthy), blind: variant(healthy, silentNVML),
	},
	"nic-role": {
		found: named("b200"), severity: doctor.Info, text: "decoy: a ConnectX that manages NVLink", subjects: []topo.ID{"port:mlx5_1/1", "port:mlx5_2/1"}, fine: named(healthy), blind: matrix,
	},
	"dpu": {
		found: named("gb200-tray"), severity: doctor.Info, text: "4 functions of BlueField-3", fine: named(healthy), blind: matrix,
		more: map[string]ruling{"representors": {found: edited(named(ethernet), func(t *topo.Topology) {
			t.Netdevs = append(t.Netdevs, topo.Netdev{Node: topo.Node{ID: "net:pf0vf3"}, Name: "pf0vf3", PhysPort: "pf0vf3"})
		}), severity: doctor.Info, text: "1 representor", subjects: []topo.ID{"net:pf0vf3"}}},
	},
	"nic-unassigned": {
		found: written(scattered), severity: doctor.Warning, text: "no GPU has it among its nearest", fine: named(healthy), blind: throughNCCL(healthy),
	},
	"nic-oversubscribed": {
		found: named("h20-4ib-1roce"), severity: doctor.Info, text: "8 GPUs share 4 ports, up to 2 on one", fine: named(healthy), blind: throughNCCL(healthy),
		more: map[string]ruling{"all take the first": {found: named("dgx-a100"), severity: doctor.Info, text: "gpu:0 and gpu:1 on mlx5_0"}},
	},
	"numa-unknown": {
		found: named("dgx-h100-numa-unknown"), severity: doctor.Warning, text: "12 devices (-1)", fine: named(healthy), blind: matrix,
		more: map[string]ruling{"taken from elsewhere": {found: variant(healthy, "{set: sys/bus/pci/devices/0000:19:00.0/numa_node, to: -1}"), severity: doctor.Info, text: "takes it from", subjects: []topo.ID{"rdma:mlx5_0"}}},
	},
	"asymmetric-sockets": {
		found: named("h100-nvl-8gpu-2nic"), severity: doctor.Warning, text: "socket 1 has 4 GPUs and no data port", subjects: []topo.ID{"gpu:4", "gpu:5", "gpu:6", "gpu:7"},
		fine: named(healthy), blind: named("dgx-h100-numa-unknown"),
		more: map[string]ruling{"a difference": {found: named("pcie-4gpu-5nic-bf3"), severity: doctor.Info, text: "socket 1 has 2 GPUs and 1 data port"}},
	},
	"vm-flat": {
		found: named("vm-flat"), severity: doctor.Warning, text: "4 GPUs and 8 RDMA NICs stand side by side", fine: named("bonds"), blind: throughNCCL(healthy),
	},
	"partial-view": {
		found:    edited(named(healthy), func(t *topo.Topology) { t.Host.Container, t.GPUs[2].Visible = new(true), new(false) }),
		severity: doctor.Warning, text: "this container may use 7 of 8 GPUs", subjects: []topo.ID{"gpu:2"},
		fine: edited(named(healthy), func(t *topo.Topology) { t.Host.Container = new(false) }), blind: named(healthy),
		more: map[string]ruling{"another network namespace": {found: edited(named(ethernet), func(t *topo.Topology) {
			t.Host.Container = new(true)
			t.Netdevs = slices.DeleteFunc(t.Netdevs, func(n topo.Netdev) bool { return n.Name == "eno1" })
		}), severity: doctor.Info, text: "without an interface here"}, "fewer CPUs": {found: edited(named(healthy), func(t *topo.Topology) { t.Host.AllowedCPUs = "0-3" }), severity: doctor.Info, text: "CPUs 0-3"}},
	},
	"facts-unread": {
		found: named("dgx-h100-missing-files"), severity: doctor.Warning, text: "could not be read", fine: named(healthy), blind: throughNCCL(healthy),
	},
	"facts-conflict": {
		found: edited(named(healthy), func(t *topo.Topology) {
			t.Warnings = append(t.Warnings, topo.Warning{Code: topo.CodeConflict, Subject: "net:ib0", Detail: "mtu_bytes: sysfs says 2044, netlink 4092"})
		}), severity: doctor.Info, text: "netlink 4092", subjects: []topo.ID{"net:ib0"},
		fine: named(healthy), blind: throughNCCL(healthy),
	},
}

// bonded has a bond of two Ethernet ports without RDMA, and one port beside it.
const bonded = `machine: bonded
description: TCP over a bond
host: {virtual: none}
cpu: {vendor: GenuineIntel, family: 6, model: 143, name: Intel(R) Xeon(R), threads: 2}
numa:
- {node: 0, package: 0, cpus: 0-7, mem: 64GiB}
pci:
- root: 0000:10
  numa: 0
  below:
  - port: 10:01.0
    below:
    - {nic: 11:00.0, part: e810, net: eth0, mtu: 9000}
    - {nic: 11:00.1, part: e810, net: eth1, mtu: 9000}
  - port: 10:02.0
    below:
    - {nic: 12:00.0, part: e810, net: eth2, mtu: 9000, ip: 10.2.0.1/24}
interfaces:
- {name: bond0, kind: bond, legs: [eth0, eth1], mode: 802.3ad, hash: layer3+4, ip: 10.1.0.1/24, mtu: 9000}
`

// linked has two GPUs below one switch that redirects, with NVLinks between them.
const linked = `machine: linked
description: NVLink makes PCIe redirection harmless
host: {virtual: none, config: full}
cpu: {vendor: GenuineIntel, family: 6, model: 143, name: Intel(R) Xeon(R), threads: 2}
numa:
- {node: 0, package: 0, cpus: 0-7, mem: 64GiB}
nvidia: {driver: 550.54.15, cuda: 12.4}
pci:
- root: 0000:15
  numa: 0
  below:
  - port: 15:01.0
    below:
    - switch: 16:00.0
      part: broadcom-c030
      below:
      - down: 17:00.0
        acs: 0x1d
        below:
        - {gpu: 1a:00.0, part: h100-nvl}
      - down: 17:01.0
        acs: 0x1d
        below:
        - {gpu: 1b:00.0, part: h100-nvl}
nvlink:
- {gpus: all, links: 12}
`

// elsewhere are further machines on which a check must end in a certain way.
var elsewhere = []struct {
	name   string
	code   doctor.Code
	status doctor.Status
	on     machine
}{
	{"a GID index that is read beyond what was looked at", "gid-index-wrong", doctor.CouldNotCheck, edited(told(named(ethernet), "MC_GID_INDEX", "200", "/proc/self/environ"),
		func(t *topo.Topology) { t.Ports[0].GIDsRead, t.Ports[1].GIDsRead = new(20), new(20) })},
	{"types of GIDs that are not known", "gid-index-wrong", doctor.CouldNotCheck, told(edited(named(ethernet), noGIDTypes), "MC_GID_INDEX", "3", "/proc/self/environ")},
	{"the environment wins over files", "gid-index-wrong", doctor.OK, told(named(ethernet), "NCCL_IB_GID_INDEX", "7", "/etc/nccl.conf", "NCCL_IB_GID_INDEX", "3", "/proc/self/environ")},
	{"no index for InfiniBand", "gid-index-wrong", doctor.NotApplicable, told(named(healthy), "NCCL_IB_GID_INDEX", "7", "/proc/self/environ")},
	{"a narrow link whose upper end is invented", "link-degraded", doctor.CouldNotCheck, variant("vm-flat", "{change: 0000:06:00.0, at: x8}")},
	{"a guest whose switch reads clean", "acs-redirect", doctor.CouldNotCheck, edited(aces("0x01"), func(t *topo.Topology) { t.Host.Virtual = "kvm" })},
	{"GPUs that have NVLinks", "acs-redirect", doctor.NotApplicable, written(linked)},
	{"dies of packages, which differ by design", "nvlink-uneven", doctor.OK, dies(7, 6, 7, 6)},
	{"a GPU without links beside others", "nvlink-uneven", doctor.CouldNotCheck, variant(healthy, "{change: 0000:18:00.0, nvlink: 0}")},
	{"a matrix with NV18 and NODE", "nvlink-uneven", doctor.CouldNotCheck, linksOfMatrix},
	{"AMD without its driver's topology", "nvlink-uneven", doctor.CouldNotCheck, edited(named("mi300x-8nic"), func(t *topo.Topology) {
		t.Links = slices.DeleteFunc(t.Links, func(l topo.Link) bool { return l.Kind == topo.LinkXGMI })
		for i := range t.GPUs {
			t.GPUs[i].KnownFrom = "pci"
		}
	})},
	{"a bond without RDMA", "rails-share-subnet", doctor.OK, written(bonded)},
	{"a bond without RDMA and its legs", "mtu-mismatch", doctor.OK, written(bonded)},
	{"no switch at all", "acs-redirect", doctor.NotApplicable, written(scattered)},
	{"a GPU that may be a GeForce", "no-gdr-path", doctor.CouldNotCheck, edited(named(healthy), func(t *topo.Topology) {
		for i := range t.GPUs {
			t.GPUs[i].Model = ""
		}
		for i := range t.PCIDevices {
			t.PCIDevices[i].DeviceName = ""
		}
	})},
	{"EFA with its module", "no-gdr-path", doctor.OK, edited(named("aws-p5-44nic-synthetic"), func(t *topo.Topology) { t.Host.Software.Modules = []string{"efa", "efa_nv_peermem", "nvidia"} })},
	{"the open module, modules unknown", "no-gdr-path", doctor.OK, edited(named("gb200-tray"), func(t *topo.Topology) { t.Host.Software.Modules = nil })},
	{"booted with pass-through, types unknown", "iommu-translate", doctor.OK, variant(healthy, "{remove: sys/kernel/iommu_groups/*/type}", "{set: proc/cmdline, to: quiet iommu=pt}")},
	{"no IOMMU groups", "iommu-translate", doctor.OK, edited(named(healthy), func(t *topo.Topology) {
		for i := range t.PCIDevices {
			t.PCIDevices[i].IOMMUGroup, t.PCIDevices[i].IOMMUType = nil, ""
		}
	})},
	{"a limit above the host's memory", "memlock", doctor.OK, edited(named("lab-softrdma"), func(t *topo.Topology) { t.Host.Software.Memlock.SoftBytes = new(int64(1 << 50)) })},
	{"NVLinks to what is hidden", "nvlink-uneven", doctor.CouldNotCheck, edited(variant(healthy, "{change: 0000:18:00.0, nvlink: 17}"), func(t *topo.Topology) {
		t.Warnings = append(t.Warnings, topo.Warning{Code: topo.CodePartialView, Subject: "gpu:0", Evidence: "nvmlDeviceGetNvLinkRemotePciInfo", Detail: "hidden"})
	})},
	{"one GPU", "nvlink-uneven", doctor.NotApplicable, aces("0x01")},
	{"a hidden GPU is not asked", "p2p-disabled", doctor.OK, edited(named(healthy), func(t *topo.Topology) {
		t.GPUs[0].Visible, t.GPUs[0].P2P = new(false), nil
	})},
	{"no list of NUMA nodes", "numa-unknown", doctor.CouldNotCheck, variant("dgx-h100", "{remove: sys/devices/system/node}")},
	{"no list of NUMA nodes", "asymmetric-sockets", doctor.CouldNotCheck, variant("dgx-h100", "{remove: sys/devices/system/node}")},
	{"a kernel without NUMA", "numa-unknown", doctor.CouldNotCheck, variant("dgx-h100", "{remove: sys/devices/system/node}", "{set: sys/bus/pci/devices/*/numa_node, to: -1}")},
	{"a kernel without NUMA", "asymmetric-sockets", doctor.CouldNotCheck, variant("dgx-h100", "{remove: sys/devices/system/node}", "{set: sys/bus/pci/devices/*/numa_node, to: -1}")},
	{"a NUMA node that is not listed", "numa-unknown", doctor.CouldNotCheck, edited(named(healthy), func(t *topo.Topology) { t.NUMANodes = t.NUMANodes[:1] })},
	{"a NUMA node that is not listed", "asymmetric-sockets", doctor.CouldNotCheck, edited(named(healthy), func(t *topo.Topology) { t.NUMANodes = t.NUMANodes[:1] })},
	{"one socket", "asymmetric-sockets", doctor.NotApplicable, aces("0x01")},
	{"one NUMA node over two sockets", "asymmetric-sockets", doctor.CouldNotCheck, edited(aces("0x01"), func(t *topo.Topology) {
		t.NUMANodes[0].Package, t.Packages = nil, append(t.Packages, topo.Package{Node: topo.Node{ID: "pkg:1", Kind: topo.KindPackage}, Index: 1})
	})},
	{"a GID that cannot be read", "gid-none-routable", doctor.CouldNotCheck, variant(ethernet, "{unreadable: sys/class/infiniband/mlx5_0/ports/1/gids/3, error: EACCES}")},
	{"a GID that cannot be read", "gid-index-differs", doctor.CouldNotCheck, variant(ethernet, "{unreadable: sys/class/infiniband/mlx5_0/ports/1/gids/3, error: EACCES}")},
	{"no GID that can be read", "gid-missing", doctor.CouldNotCheck, edited(variant(ethernet, "{unreadable: sys/class/infiniband/mlx5_0/ports/1/gids/3, error: EACCES}"),
		func(t *topo.Topology) { t.Ports[0].GIDs = nil })},
	{"a data direct function beside the GPU", "gpu-without-near-nic", doctor.CouldNotCheck, direct("0x19", "0x15")},
	{"one source", "facts-conflict", doctor.CouldNotCheck, edited(named(healthy), func(t *topo.Topology) { t.Sources = t.Sources[:1] })},
	{"incomplete and not where", "facts-unread", doctor.CouldNotCheck, edited(named(healthy), func(t *topo.Topology) { t.Complete = false })},
}

// What was tried and told nothing is never ok.
func TestTriedInVain(t *testing.T) {
	for name, edit := range map[string]func(*replies.VerbsReport){
		"no library":      func(v *replies.VerbsReport) { *v = replies.VerbsReport{Unavailable: "not installed"} },
		"no device":       func(v *replies.VerbsReport) { v.Devices = nil },
		"one device less": func(v *replies.VerbsReport) { v.Devices = v.Devices[:1] },
		"shut out": func(v *replies.VerbsReport) {
			for i := range v.Devices {
				v.Devices[i] = replies.VerbsDevice{Name: v.Devices[i].Name, Open: &replies.VerbsError{Verb: "ibv_open_device", Errno: "EACCES"}}
			}
		},
		"nothing came of it": func(v *replies.VerbsReport) {
			for i := range v.Devices {
				v.Devices[i] = replies.VerbsDevice{Name: v.Devices[i].Name}
			}
		},
	} {
		for _, code := range []doctor.Code{"registration-refused", "mtu-active"} {
			if c := oneWith(t, named(ethernet), tries(edit), code); c.Status != doctor.CouldNotCheck {
				t.Errorf("%s: %s: %s %+v", name, code, c.Status, c.Findings)
			}
		}
	}
	if c := oneWith(t, named("cpu-2eth"), talksTo(named(ethernet)), "mtu-peer"); c.Status != doctor.CouldNotCheck {
		t.Errorf("a peer out of reach: %s %+v", c.Status, c.Findings)
	}
	if _, err := doctor.Run(named(ethernet)(t), doctor.Options{Peer: &topo.Topology{}}); err == nil {
		t.Error("a peer that is not derived is taken")
	}
}

// What a finding says and where it was seen, on machines that lack something.
func TestWords(t *testing.T) {
	invented := edited(named("vm-flat"), func(t *topo.Topology) {
		for i := range t.PCIDevices {
			if d := &t.PCIDevices[i]; d.Implausible {
				d.Link = &topo.PCILink{}
			}
		}
	})
	narrow := variant(healthy, "{change: 0000:17:01.0, link: gen4x16}")
	mute := edited(narrow, func(t *topo.Topology) {
		for i := range t.PCIDevices {
			if d := &t.PCIDevices[i]; d.BDF.String() == "0000:19:00.0" {
				d.Link.MaxSpeedMTs = nil
			}
		}
	})
	for name, c := range map[string]struct {
		code       doctor.Code
		on         machine
		has, lacks string
	}{
		"an empty link":            {"implausible-bridge-link", invented, "report a link, which the hypervisor invented", "report ,"},
		"small enough for NCCL":    {"implausible-bridge-link", fewer("aws-p5-44nic-synthetic"), "set NCCL_TOPO_FILE=topo.xml", "too many"},
		"an unknown maximum":       {"implausible-bridge-link", invented, "the maximum, which is not known here", "not that low"},
		"a card that is not known": {"nic-slot-limited", mute, "compare what the card and its slot can do", "can do no more"},
		"a card that can do more":  {"nic-slot-limited", narrow, "move the card, which can do gen5 x16", "compare"},
		"a card that cannot":       {"nic-slot-limited", variant(healthy, "{change: 0000:19:00.0, link: gen3x16}"), "the card itself can do no more", "compare"},
		"C2C of NCCL's file":       {"c2c-path", throughNCCL("gb200-tray"), "/c2c[0]", "nvml"},
		"sockets of NCCL's file":   {"asymmetric-sockets", throughNCCL("h100-nvl-8gpu-2nic"), "system/cpu[1]", "/sys/"},
		"sockets are not known":    {"asymmetric-sockets", throughNCCL("h100-nvl-8gpu-2nic"), "crosses the link between NUMA nodes; whether they are of one socket is not known", "that socket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text string
			for _, f := range one(t, c.on, c.code).Findings {
				text += f.Text + "\n" + strings.Join(f.Evidence, "\n") + "\n" + f.Fix + "\n"
			}
			if !strings.Contains(text, c.has) || strings.Contains(text, c.lacks) {
				t.Errorf("want %q and no %q in:\n%s", c.has, c.lacks, text)
			}
		})
	}
}

func TestElsewhere(t *testing.T) {
	for _, c := range elsewhere {
		t.Run(string(c.code)+" "+c.name, func(t *testing.T) {
			t.Parallel()
			if got := one(t, c.on, c.code); got.Status != c.status {
				t.Errorf("%s, want %s: %s %+v %+v", got.Status, c.status, got.Note, got.Findings, got.Missing)
			}
		})
	}
}

// Every check has something to find, a machine that is fine, and one on which
// it cannot tell; and it says so.
func TestEveryCheck(t *testing.T) {
	for _, c := range doctor.Checks() {
		r, ok := rulings[c.Code]
		if !ok || r.found == nil || r.fine == nil || r.blind == nil {
			t.Errorf("%s: needs a machine with a finding, one that is fine, and one that it cannot judge", c.Code)
			continue
		}
		t.Run(string(c.Code), func(t *testing.T) {
			t.Parallel()
			finds(t, c.Code, r)
			for name, other := range r.more {
				t.Run(name, func(t *testing.T) { finds(t, c.Code, other) })
			}
			if got := oneWith(t, r.fine, r.fineWith, c.Code); got.Status != doctor.OK {
				t.Errorf("%s, want ok: %s %+v %+v", got.Status, got.Note, got.Findings, got.Missing)
			}
			if got := oneWith(t, r.blind, r.blindWith, c.Code); got.Status != doctor.CouldNotCheck {
				t.Errorf("%s, want could_not_check: %s %+v %+v", got.Status, got.Note, got.Findings, got.Missing)
			}
		})
	}
	for code := range rulings {
		if !slices.Contains(doctor.Codes(), code) {
			t.Errorf("%s is no check", code)
		}
	}
}

// one makes one check on a machine.
func one(t *testing.T, m machine, code doctor.Code) doctor.CheckResult {
	t.Helper()
	return oneWith(t, m, nil, code)
}

// oneWith makes one check on a machine, with what is known beside it.
func oneWith(t *testing.T, m machine, with func(testing.TB, *topo.Topology) doctor.Options, code doctor.Code) doctor.CheckResult {
	t.Helper()
	host, o := m(t), doctor.Options{}
	if with != nil {
		o = with(t, host)
	}
	o.Codes = []doctor.Code{code}
	r, err := doctor.Run(host, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Checks) != 1 {
		t.Fatalf("%d results of one check", len(r.Checks))
	}
	return r.Checks[0]
}

// finds holds a check to what it must find.
func finds(t *testing.T, code doctor.Code, want ruling) {
	t.Helper()
	c := oneWith(t, want.found, want.with, code)
	if c.Status != doctor.Found {
		t.Fatalf("%s, want a finding: %s %+v", c.Status, c.Note, c.Missing)
	}
	worst := c.Findings[0]
	if worst.Severity != want.severity {
		t.Errorf("%s, want %s: %s", worst.Severity, want.severity, worst.Text)
	}
	if !slices.ContainsFunc(c.Findings, func(f doctor.Finding) bool { return strings.Contains(f.Text, want.text) }) {
		t.Errorf("no finding says %q: %+v", want.text, c.Findings)
	}
	if want.subjects != nil && !slices.Equal(worst.Subjects, want.subjects) {
		t.Errorf("it is about %v, want %v", worst.Subjects, want.subjects)
	}
}

// between is what stands between a phrase and the next end of it.
func between(s, phrase, end string) (string, bool) {
	_, rest, ok := strings.Cut(s, phrase)
	rest, _, _ = strings.Cut(rest, end)
	return rest, ok
}
