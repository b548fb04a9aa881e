package export

import (
	"io"
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
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
	c := collector{h: h, t: h.Topology(), index: h.Index()}
	c.host()
	c.gpus()
	c.links()
	c.ports()
	if err := c.paths(o.AllPairs); err != nil {
		return err
	}
	c.checks(o.Checks)
	if _, err := w.Write(c.Bytes()); err != nil {
		return pkgerr.Errorf("export", "write: %w", err)
	}
	return nil
}

// collector turns a host into metrics.
type collector struct {
	document.Metrics
	h     *pathsel.Host
	t     *topo.Topology
	index *topo.Index
}

// gauge adds a sample. All metrics here are gauges: states, not counts of events.
func (c *collector) gauge(name, help string, value document.MetricValue, labels ...string) {
	c.Add(name, document.Gauge, help, value, labels...)
}

func (c *collector) host() {
	t := c.t
	c.gauge("topoctl_host_info", "The host and the program that looked at it. Hosts with one fingerprint are built alike.", document.IntValue(1),
		"fingerprint", t.Host.Fingerprint, "arch", t.Host.Arch, "vendor", t.Host.Vendor, "product", t.Host.Product,
		"virtual", t.Host.Virtual, "transport", string(c.h.Transport()), "rules", topo.Rules, "version", t.Tool.Version)
	c.gauge("topoctl_complete", "1 if everything that is there could be read.", document.BoolValue(t.Complete))
}

func (c *collector) gpus() {
	for i := range c.t.GPUs {
		g := &c.t.GPUs[i]
		c.gauge("topoctl_gpu_info", "GPUs, numbered in PCI order.", document.IntValue(1),
			"gpu", g.ID.Name(), "bdf", bdf(g.BDF), "numa_node", number(g.NUMA), "model", g.Model, "uuid", g.UUID)
	}
}

// links writes the PCIe link above each GPU, NIC, drive and switch. A link that
// a hypervisor invented is left out, and so are virtual functions, which have
// none of their own.
func (c *collector) links() {
	for i := range c.t.PCIDevices {
		d := &c.t.PCIDevices[i]
		kind, name := c.deviceName(d)
		if kind == "" || d.Link == nil || d.Implausible || d.PF != "" {
			continue
		}
		labels := []string{"bdf", d.BDF.String(), "kind", kind, "name", name}
		above := &topo.PCILink{}
		if p := c.index.PCIDevice(d.Parent); p != nil && p.Link != nil && !p.Implausible && (p.Role == topo.RoleRootPort || p.Role == topo.RoleDownstream) {
			above = p.Link
		}
		const speed = "Lane speed of the PCIe link above a device"
		c.lane("topoctl_pcie_link_width", "Lanes of the PCIe link above a device.", 1, d.Link.Width, above.Width, labels)
		c.lane("topoctl_pcie_link_width_max", "Lanes that both ends of the PCIe link could use.", 1, d.Link.MaxWidth, above.MaxWidth, labels)
		c.lane("topoctl_pcie_link_transfers_per_second", speed+". An idle GPU lowers it.", 1e6, d.Link.SpeedMTs, above.SpeedMTs, labels)
		c.lane("topoctl_pcie_link_transfers_per_second_max", speed+" that both ends could use.", 1e6, d.Link.MaxSpeedMTs, above.MaxSpeedMTs, labels)
	}
}

// lane writes the lower of what both ends of a link say.
func (c *collector) lane(name, help string, unit int64, below, above *int, labels []string) {
	v := below
	if v == nil || above != nil && *above > 0 && *above < *v {
		v = above
	}
	if v != nil && *v > 0 {
		c.gauge(name, help, document.IntValue(int64(*v)*unit), labels...)
	}
}

// deviceName is what a PCI function is called: the device that carries data on it,
// the first of several.
func (c *collector) deviceName(d *topo.PCIDevice) (kind, name string) {
	switch on := c.index.On(d.ID); {
	case len(on.GPUs) > 0:
		return "gpu", string(on.GPUs[0].ID)
	case len(on.RDMADevices) > 0:
		return "nic", on.RDMADevices[0].Name
	case len(on.Netdevs) > 0:
		return "nic", on.Netdevs[0].Name
	case len(on.NVMes) > 0:
		return "nvme", on.NVMes[0].Name
	case len(on.NVSwitches) > 0:
		return "nvswitch", string(on.NVSwitches[0].ID)
	case d.Role == topo.RoleUpstream:
		return "switch", ""
	}
	return "", ""
}

func (c *collector) ports() {
	for _, p := range c.h.Ports() {
		address := ""
		if d := c.index.RDMADevice(p.NIC); d != nil {
			address = bdf(d.BDF)
		} else if n := c.index.Netdev(p.NIC); n != nil {
			address = bdf(n.BDF)
		}
		rejected := ""
		if !p.Usable {
			rejected = string(p.Reasons[0].Code)
		}
		c.gauge("topoctl_port_info", "Network ports, what each is there for, and the first reason why one is rejected.", document.IntValue(1),
			"port", p.Name, "bdf", address, "device", p.Device, "interface", p.Netdev, "link_layer", p.LinkLayer,
			"role", string(p.Role), "rejected", rejected)
		if up := c.up(&p); up != nil {
			c.gauge("topoctl_port_up", "1 if the port's link is up.", document.BoolValue(*up), "port", p.Name)
		}
		c.gauge("topoctl_port_usable", "1 if data can leave by the port and should.", document.BoolValue(p.Usable), "port", p.Name)
		if p.BytesPerSec != nil {
			c.gauge("topoctl_port_bytes_per_second", "What the port carries in one direction, 0 while it is down.", document.IntValue(int64(*p.BytesPerSec)), "port", p.Name)
		}
	}
}

// up is the state of a port's link, nil where it is not known.
func (c *collector) up(p *pathsel.Port) *bool {
	if port := c.index.Port(p.ID); port != nil {
		if port.State == "" {
			return nil
		}
		return new(port.State == "ACTIVE")
	}
	if n := c.index.Netdev(p.ID); n != nil && (n.State == "up" || n.State == "down") {
		return new(n.State == "up")
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
			gpu := l.Node().Name()
			if p.Class.Known() {
				c.gauge("topoctl_path_class", "How near a GPU and a port are: PIX, PXB, PHB, NODE, SYS. Ports that the GPU prefers.", document.IntValue(1),
					"gpu", gpu, "port", p.Name, "class", p.Class.String(), "nccl_class", string(p.NCCL))
			}
			if p.BytesPerSec != nil {
				c.gauge("topoctl_path_expected_bytes_per_second", "What the path of a GPU to a port should carry in one direction. Basis bound: at most that; typical: about that.",
					document.IntValue(int64(*p.BytesPerSec)), "gpu", gpu, "port", p.Name, "basis", string(p.Basis))
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
			c.gauge("topoctl_findings", "What topoctl doctor found, by check.", document.IntValue(int64(k.Findings)), "code", k.Code, "severity", k.Severity)
		}
	}
	for _, k := range list {
		if k.Unknown {
			c.gauge("topoctl_check_unknown", "1 for each check of topoctl doctor that lacks facts.", document.IntValue(1), "code", k.Code)
		}
	}
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
