package vmlab

// The command line that makes a machine of stated hardware.

import (
	"fmt"
	"strconv"
	"strings"
)

// qemuProgram is the emulator.
const qemuProgram = "qemu-system-x86_64"

// Boot is what a machine boots from and is connected to.
type Boot struct {
	Host    int // which machine of the lab it is, 1 or 2
	KVM     bool
	Kernel  string // an ELF kernel: started at once, without the code that unpacks a bzImage
	Initrd  string
	Console string // file for what the kernel says
	// Sockets that QEMU dials: the monitor, the guest's ports by name, and the rails.
	Monitor string
	Ports   map[string]string
	Rail    func(rail int) string
	TSCKHz  int // see there; 0 leaves it to the kernel
}

// portNames are the guest's channels to the lab, each open to one process at a time.
var portNames = []string{"init", "suite", "output"}

// kernelWords are on every kernel's command line. A panic ends the machine; what takes
// an emulated processor long (self tests of ciphers, AppArmor) is left out.
const kernelWords = "console=ttyS0 loglevel=5 panic=-1 mitigations=off nokaslr tsc=reliable no_timer_check cryptomgr.notests apparmor=0 audit=0"

// qemuArgs is the command line without the program.
func qemuArgs(m *Machine, b Boot) ([]string, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	a := &args{}
	accel, cpu := "tcg,thread=multi,tb-size=256", "max"
	if b.KVM {
		accel, cpu = "kvm", "host"
	}
	words := fmt.Sprintf("%s vmlab.host=%d", kernelWords, b.Host)
	if b.TSCKHz > 0 && !b.KVM {
		words += fmt.Sprintf(" tsc_early_khz=%d", b.TSCKHz)
	}
	a.add("-accel", accel, "-cpu", cpu, "-M", "q35", "-m", fmt.Sprint(m.MemoryMB),
		"-smp", fmt.Sprintf("%d,sockets=%d,cores=%d,threads=1", m.CPUs, m.Nodes(), m.CPUs/m.Nodes()),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", b.Kernel, "-initrd", b.Initrd,
		"-append", words,
		"-serial", "file:"+b.Console,
		"-chardev", "socket,id=monitor,path="+b.Monitor, "-mon", "chardev=monitor,mode=control",
		"-device", "virtio-serial-pci,id=serial,addr=0x1e")
	for i, name := range portNames {
		a.add("-chardev", fmt.Sprintf("socket,id=port%d,path=%s", i, b.Ports[name]),
			"-device", fmt.Sprintf("virtserialport,bus=serial.0,chardev=port%d,name=%s", i, name))
	}
	a.nodes(m)
	a.bridges(m)
	a.functions(m, b)
	if m.Management {
		a.nic(b, NIC{Rail: ManagementRail, Model: Virtio}, "bus=pcie.0,addr=0x1d")
	}
	return a.list, nil
}

type args struct {
	list    []string
	chassis int
}

func (a *args) add(words ...string)                 { a.list = append(a.list, words...) }
func (a *args) device(format string, values ...any) { a.add("-device", fmt.Sprintf(format, values...)) }

func (a *args) nodes(m *Machine) {
	for n := range m.Nodes() {
		first, last := m.CPUsOf(n)
		a.add("-object", fmt.Sprintf("memory-backend-ram,id=mem%d,size=%dM", n, m.MemoryMB/m.Nodes()),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=mem%d", n, first, last, n))
	}
	for i, row := range m.Distances {
		for j := i + 1; j < len(row); j++ {
			a.add("-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", i, j, row[j]))
		}
	}
}

func (a *args) bridges(m *Machine) {
	for i, b := range m.Bridges {
		a.device("pxb-pcie,id=pxb%d,bus_nr=%d,bus=pcie.0,addr=%#x,numa_node=%d", i, b.Bus, 0x10+i, b.Node)
	}
}

func (a *args) functions(m *Machine, b Boot) {
	for _, f := range m.Functions() {
		switch f.Kind {
		case RootPort:
			a.chassis++
			a.device("pcie-root-port,id=%s,bus=%s,addr=%#x,chassis=%d,slot=%d,x-speed=16,x-width=16", f.ID, f.Parent, f.Slot, a.chassis, f.Slot)
		case Upstream:
			a.device("x3130-upstream,id=%s,bus=%s", f.ID, f.Parent)
		case Downstream:
			a.chassis++
			a.device("xio3130-downstream,id=%s,bus=%s,addr=%#x,chassis=%d,slot=%d", f.ID, f.Parent, f.Slot, a.chassis, f.Slot)
		case KindGPU:
			a.device("bochs-display,id=%s,bus=%s", f.ID, f.Parent)
		case KindNIC:
			a.nic(b, *f.NIC, "bus="+f.Parent)
		}
	}
}

func (a *args) nic(b Boot, n NIC, where string) {
	a.add("-netdev", fmt.Sprintf("stream,id=net%d,server=off,addr.type=unix,addr.path=%s", n.Rail, b.Rail(n.Rail)))
	words := []string{""}
	for _, p := range NICProperties(b.Host, n) {
		if p.Name == "driver" {
			words[0] = p.Value
			continue
		}
		words = append(words, p.Name+"="+p.Value)
	}
	a.add("-device", strings.Join(append(words, where), ","))
}

// property is one setting of a device.
type property struct{ Name, Value string }

// NICProperties are a NIC as -device and device_add have it, without the bus.
func NICProperties(host int, n NIC) []property {
	out := []property{
		{"driver", "e1000e"}, {"id", fmt.Sprintf("nic%d", n.Rail)}, {"netdev", fmt.Sprintf("net%d", n.Rail)},
		{"mac", MAC(host, n.Rail)}, {"romfile", ""},
	}
	if n.Model == Virtio {
		out[0].Value = "virtio-net-pci"
		// A large ring: Soft-RoCE sends 128 packets of each queue pair before it waits.
		out = append(out, property{"speed", "25000"}, property{"duplex", "full"}, property{"rx_queue_size", "1024"})
	}
	return out
}

// JSON is the value as QMP wants it.
func (p property) JSON() any {
	if n, err := strconv.Atoi(p.Value); err == nil {
		return n
	}
	return p.Value
}
