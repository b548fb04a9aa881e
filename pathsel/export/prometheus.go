package export

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// PrometheusOptions say what Prometheus writes.
type PrometheusOptions struct {
	// AllPairs writes the path of every GPU to every NIC, not only to those
	// that the GPU prefers.
	AllPairs bool
	// Checks are the results of a host's examination (pathsel/doctor), nil where
	// none was made.
	Checks []Check
}

// Check is how often one check found something of one severity, or that it
// could not be made.
type Check struct {
	Code, Severity string
	Findings       int
	Unknown        bool
}

// Prometheus writes what a monitoring system should know of a host in the text
// exposition format, for node_exporter's textfile collector. Units are base
// units. What is not known has no sample: neither 0 nor NaN stands for it.
func Prometheus(w io.Writer, h *pathsel.Host, o PrometheusOptions) error {
	c := collector{metrics: metrics{byName: map[string]*family{}}, h: h, t: h.Topology(), facts: newFacts(h.Topology())}
	c.host()
	c.gpus()
	c.links()
	c.ports()
	if err := c.paths(o.AllPairs); err != nil {
		return err
	}
	c.checks(o.Checks)
	if _, err := w.Write(c.text()); err != nil {
		return fmt.Errorf("export: write: %w", err)
	}
	return nil
}

// collector turns a host into metrics.
type collector struct {
	metrics
	h     *pathsel.Host
	t     *topo.Topology
	facts *facts
}

func (c *collector) host() {
	t := c.t
	c.gauge("topoctl_host_info", "The host and the program that looked at it. Hosts with one fingerprint are built alike.", 1,
		labels("fingerprint", t.Host.Fingerprint, "arch", t.Host.Arch, "vendor", t.Host.Vendor, "product", t.Host.Product,
			"virtual", t.Host.Virtual, "transport", string(c.h.Transport()), "rules", topo.Rules, "version", t.Tool.Version))
	c.gauge("topoctl_complete", "1 if everything that is there could be read.", truth(t.Complete), nil)
}

func (c *collector) gpus() {
	for i := range c.t.GPUs {
		g := &c.t.GPUs[i]
		c.gauge("topoctl_gpu_info", "GPUs, numbered in PCI order.", 1,
			labels("gpu", g.ID.Name(), "bdf", bdf(g.BDF), "numa_node", number(g.NUMA), "model", g.Model, "uuid", g.UUID))
	}
}

// links writes the PCIe link above each GPU, NIC, drive and switch. A link that
// a hypervisor invented is left out, and so are virtual functions, which have
// none of their own.
func (c *collector) links() {
	names := c.deviceNames()
	for i := range c.t.PCIDevices {
		d := &c.t.PCIDevices[i]
		n, known := names[d.ID]
		if !known && d.Role == topo.RoleUpstream {
			n, known = deviceName{"switch", ""}, true
		}
		if !known || d.Link == nil || d.Implausible || d.PF != "" {
			continue
		}
		l := labels("bdf", d.BDF.String(), "kind", n.kind, "name", n.name)
		above := &topo.PCILink{}
		if p := c.facts.pci[d.Parent]; p != nil && p.Link != nil && !p.Implausible && (p.Role == topo.RoleRootPort || p.Role == topo.RoleDownstream) {
			above = p.Link
		}
		const speed = "Lane speed of the PCIe link above a device"
		c.lane("topoctl_pcie_link_width", "Lanes of the PCIe link above a device.", 1, d.Link.Width, above.Width, l)
		c.lane("topoctl_pcie_link_width_max", "Lanes that both ends of the PCIe link could use.", 1, d.Link.MaxWidth, above.MaxWidth, l)
		c.lane("topoctl_pcie_link_transfers_per_second", speed+". An idle GPU lowers it.", 1e6, d.Link.SpeedMTs, above.SpeedMTs, l)
		c.lane("topoctl_pcie_link_transfers_per_second_max", speed+" that both ends could use.", 1e6, d.Link.MaxSpeedMTs, above.MaxSpeedMTs, l)
	}
}

// lane writes the lower of what both ends of a link say.
func (c *collector) lane(name, help string, unit int64, below, above *int, l []label) {
	v := below
	if v == nil || above != nil && *above > 0 && *above < *v {
		v = above
	}
	if v != nil && *v > 0 {
		c.gauge(name, help, int64(*v)*unit, l)
	}
}

// deviceName is what a PCI function is to people.
type deviceName struct{ kind, name string }

// deviceNames names the functions that carry data. A function with several
// RDMA devices or interfaces has the first one's name.
func (c *collector) deviceNames() map[topo.ID]deviceName {
	out := map[topo.ID]deviceName{}
	add := func(pci topo.ID, kind, name string) {
		if _, taken := out[pci]; pci != "" && !taken {
			out[pci] = deviceName{kind, name}
		}
	}
	for i := range c.t.GPUs {
		add(c.t.GPUs[i].PCI, "gpu", string(c.t.GPUs[i].ID))
	}
	for i := range c.t.RDMADevices {
		add(c.t.RDMADevices[i].PCI, "nic", c.t.RDMADevices[i].Name)
	}
	for i := range c.t.Netdevs {
		add(c.t.Netdevs[i].PCI, "nic", c.t.Netdevs[i].Name)
	}
	for i := range c.t.NVMes {
		add(c.t.NVMes[i].PCI, "nvme", c.t.NVMes[i].Name)
	}
	for i := range c.t.NVSwitches {
		add(c.t.NVSwitches[i].PCI, "nvswitch", string(c.t.NVSwitches[i].ID))
	}
	return out
}

func (c *collector) ports() {
	for _, p := range c.h.Ports() {
		l := labels("port", p.Name)
		address := ""
		if d := c.facts.rdma[p.NIC]; d != nil {
			address = bdf(d.BDF)
		} else if i := slices.IndexFunc(c.t.Netdevs, func(n topo.Netdev) bool { return n.ID == p.NIC }); i >= 0 {
			address = bdf(c.t.Netdevs[i].BDF)
		}
		rejected := ""
		if !p.Usable {
			rejected = string(p.Reasons[0].Code)
		}
		c.gauge("topoctl_port_info", "Network ports, what each is there for, and the first reason why one is rejected.", 1,
			append(slices.Clone(l), labels("bdf", address, "device", p.Device, "interface", p.Netdev, "link_layer", p.LinkLayer,
				"role", string(p.Role), "rejected", rejected)...))
		if up := c.up(&p); up != nil {
			c.gauge("topoctl_port_up", "1 if the port's link is up.", truth(*up), l)
		}
		c.gauge("topoctl_port_usable", "1 if data can leave by the port and should.", truth(p.Usable), l)
		if p.BytesPerSec != nil {
			c.gauge("topoctl_port_bytes_per_second", "What the port carries in one direction, 0 while it is down.", int64(*p.BytesPerSec), l)
		}
	}
}

// up is the state of a port's link, nil where it is not known.
func (c *collector) up(p *pathsel.Port) *bool {
	if port := c.facts.ports[p.ID]; port != nil {
		if port.State == "" {
			return nil
		}
		return new(port.State == "ACTIVE")
	}
	for i := range c.t.Netdevs {
		if n := &c.t.Netdevs[i]; n.ID == p.ID && (n.State == "up" || n.State == "down") {
			return new(n.State == "up")
		}
	}
	return nil
}

// paths writes the relation of GPUs to NICs, one series for each pair.
func (c *collector) paths(all bool) error {
	for _, l := range c.h.GPUs() {
		a, err := c.h.Affinity(l, nil)
		if err != nil {
			return err
		}
		candidates := a.Ranked
		if all {
			candidates = append(candidates, a.Rejected...)
		}
		for _, p := range candidates {
			if !all && p.Verdict != pathsel.Preferred {
				continue
			}
			pair := labels("gpu", l.Node().Name(), "port", p.Name)
			if p.Class.Known() {
				c.gauge("topoctl_path_class", "How near a GPU and a port are: PIX, PXB, PHB, NODE, SYS. Ports that the GPU prefers.", 1,
					append(slices.Clone(pair), labels("class", p.Class.String(), "nccl_class", string(p.NCCL))...))
			}
			if p.BytesPerSec != nil {
				c.gauge("topoctl_path_expected_bytes_per_second", "What the path of a GPU to a port should carry in one direction. Basis assumed: at most.",
					int64(*p.BytesPerSec), append(slices.Clone(pair), labels("basis", string(p.Basis))...))
			}
		}
	}
	return nil
}

// checks writes the findings, 0 where a check found nothing. A check that could
// not be made has none, and says so.
func (c *collector) checks(list []Check) {
	for _, k := range list {
		if !k.Unknown {
			c.gauge("topoctl_findings", "What topoctl doctor found, by check.", int64(k.Findings), labels("code", k.Code, "severity", k.Severity))
		}
	}
	for _, k := range list {
		if k.Unknown {
			c.gauge("topoctl_check_unknown", "1 for each check of topoctl doctor that lacks facts.", 1, labels("code", k.Code))
		}
	}
}

func truth(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

func bdf(b *topo.BDF) string {
	if b == nil {
		return ""
	}
	return b.String()
}

func number(v *int) string {
	if v == nil {
		return ""
	}
	return strconv.Itoa(*v)
}
