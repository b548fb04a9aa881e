package sysfs

import (
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
)

// Meter reads one device of a topology repeatedly. It finds the device's files at the first
// reading and reads only those later; files that appear later need a new meter, made from a
// newer topology.
type Meter struct {
	ID           topo.ID
	r            *reader
	class        string // where the device is found: "sys/class/net/eth0"
	read         func(*Meter, *Reading)
	softwarePort *topo.Port // the port, of a device without hardware

	ready   bool
	f       files
	present map[string]bool // the files in its directory
	counts  []counter
	errors  []string // files of error counters
}

// Reading is the result of a meter: Port or Link. Note says what could not be read; "" means
// that everything was.
type Reading struct {
	Port *counters.Port
	Link *counters.Link
	Note string
}

// Meters returns the meters of all ports and interfaces of a host, and of the PCIe links of its
// GPUs, NICs and the bridges above them, each kind in the topology's order.
func Meters(tree hosttree.Tree, t *topo.Topology) []*Meter {
	var all []*Meter
	add := func(id topo.ID, class string, read func(*Meter, *Reading)) {
		all = append(all, &Meter{ID: id, r: &reader{tree: tree, t: &topo.Topology{}}, class: class, read: read})
	}
	index := topo.NewIndex(t)
	for i := range t.Ports {
		p := &t.Ports[i]
		add(p.ID, "sys/class/infiniband/"+p.RDMA.Name()+"/ports/"+strconv.Itoa(p.Number), (*Meter).readPort)
		if d := index.RDMADevice(p.RDMA); d != nil && d.Software {
			all[len(all)-1].softwarePort = p
		}
	}
	for i := range t.Netdevs {
		add(t.Netdevs[i].ID, "sys/class/net/"+t.Netdevs[i].Name, (*Meter).readNetdev)
	}
	metered := linksToWatch(t, index)
	for i := range t.PCIDevices {
		if d := &t.PCIDevices[i]; metered[d.ID] && d.Link != nil {
			add(d.ID, pciDevices+"/"+d.BDF.String(), (*Meter).readLink)
		}
	}
	return all
}

// linksToWatch are the functions of GPUs and NICs, and the bridges above them.
func linksToWatch(t *topo.Topology, index *topo.Index) map[topo.ID]bool {
	var functions []topo.ID
	for i := range t.GPUs {
		functions = append(functions, t.GPUs[i].PCI)
	}
	for i := range t.NICs {
		functions = append(functions, t.NICs[i].Functions...)
	}
	marked := map[topo.ID]bool{}
	for _, id := range functions {
		for d := range index.Climb(id) {
			marked[d.ID] = true
		}
	}
	return marked
}

// Read reads the device once. A value that does not exist is nil. One that should exist but is
// unreadable or malformed is nil too, and the note names it.
func (m *Meter) Read() Reading {
	var out Reading
	if !m.ready {
		if err := m.find(); err != nil {
			return Reading{Note: fmt.Sprintf("%s: /%s: %s", m.ID, m.class, reason(err))}
		}
	}
	m.read(m, &out)
	out.Note = m.note()
	return out
}

// find resolves the device's directory, so that no reading walks through links.
func (m *Meter) find() error {
	if !fs.ValidPath(m.class) {
		return fmt.Errorf("%q is not the path of a device", clip(m.class))
	}
	dir, err := hosttree.RealPath(m.r.tree, m.class)
	if err != nil {
		return err
	}
	m.f = files{r: m.r, dir: dir, show: m.class, subject: m.ID}
	m.present = map[string]bool{}
	switch {
	case strings.HasPrefix(m.class, "sys/class/infiniband/"):
		m.findFiles("", "counters/", "hw_counters/")
		m.choose(portCounters)
	case strings.HasPrefix(m.class, "sys/class/net/"):
		m.findFiles("", "statistics/")
		m.choose(netdevCounters)
	default:
		m.findFiles("")
	}
	m.note() // what could not be listed is not there
	m.ready = true
	return nil
}

// findFiles lists some of the device's directories, and the error counters in them. Where
// two directories have the same error counter, the first counts.
func (m *Meter) findFiles(dirs ...string) {
	counted := map[string]bool{}
	for _, dir := range dirs {
		for _, e := range m.r.list(strings.TrimSuffix(m.f.dir+"/"+dir, "/")) {
			name := e.Name()
			m.present[dir+name] = true
			if counters.Trouble(name) && !counted[name] {
				counted[name] = true
				m.errors = append(m.errors, dir+name)
			}
		}
	}
}

// choose picks the preferred one of the existing counters for each quantity.
func (m *Meter) choose(from []counter) {
	var chosen [quantities]bool
	for _, c := range from {
		if !chosen[c.quantity] && m.present[c.file] && (c.plus == "" || m.present[c.plus]) {
			chosen[c.quantity] = true
			m.counts = append(m.counts, c)
		}
	}
}

// expect makes a file required if it existed when the device was found. A file that never
// existed was already reported with the topology.
func (m *Meter) expect(name string) need {
	if m.present[name] {
		return required
	}
	return optional
}

// note puts the warnings since the last call into one line, and forgets them.
func (m *Meter) note() string {
	warnings := m.r.t.Warnings
	m.r.t.Warnings = warnings[:0]
	switch len(warnings) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s: %s", m.ID, warnings[0].Detail)
	}
	return fmt.Sprintf("%s: %s (and %d more)", m.ID, warnings[0].Detail, len(warnings)-1)
}

// quantity is what a port counts.
type quantity int

const (
	sentBytes quantity = iota
	receivedBytes
	sentPackets
	receivedPackets
	quantities
)

// counter is a file that counts, or two files whose sum does. unit is what one step stands for.
type counter struct {
	quantity quantity
	file     string
	plus     string
	unit     uint64
}

// portCounters are in the order of preference. A port's bytes are words of four octets in
// counters, as InfiniBand defines them and all drivers have it: RoCE ones too, mlx5 and
// bnxt_re divide, hfi1 multiplies its flits. Drivers without a performance agent count
// octets in hw_counters: efa and bnxt_re whole packets, irdma and i40iw IP packets. rxe
// counts packets only, siw nothing.
// Source: Documentation/ABI/stable/sysfs-class-infiniband; drivers/infiniband: hw/mlx5/mad.c,
// hw/hfi1/mad.c, hw/efa/efa_verbs.c, hw/bnxt_re/hw_counters.c, hw/irdma/verbs.c,
// sw/rxe/rxe_hw_counters.c.
var portCounters = []counter{
	{sentBytes, "counters/port_xmit_data", "", 4},
	{receivedBytes, "counters/port_rcv_data", "", 4},
	{sentPackets, "counters/port_xmit_packets", "", 1},
	{receivedPackets, "counters/port_rcv_packets", "", 1},
	{sentBytes, "hw_counters/tx_bytes", "", 1},
	{receivedBytes, "hw_counters/rx_bytes", "", 1},
	{sentPackets, "hw_counters/tx_pkts", "", 1},
	{receivedPackets, "hw_counters/rx_pkts", "", 1},
	{sentBytes, "hw_counters/ip4OutOctets", "hw_counters/ip6OutOctets", 1},
	{receivedBytes, "hw_counters/ip4InOctets", "hw_counters/ip6InOctets", 1},
	{sentPackets, "hw_counters/ip4OutPkts", "hw_counters/ip6OutPkts", 1},
	{receivedPackets, "hw_counters/ip4InPkts", "hw_counters/ip6InPkts", 1},
	{sentPackets, "hw_counters/sent_pkts", "", 1},
	{receivedPackets, "hw_counters/rcvd_pkts", "", 1},
}

// Source: Documentation/ABI/testing/sysfs-class-net-statistics.
var netdevCounters = []counter{
	{sentBytes, "statistics/tx_bytes", "", 1},
	{receivedBytes, "statistics/rx_bytes", "", 1},
	{sentPackets, "statistics/tx_packets", "", 1},
	{receivedPackets, "statistics/rx_packets", "", 1},
}

// count reads the counters of a port into p.
func (m *Meter) count(p *counters.Port) {
	into := [quantities]**uint64{&p.SentBytes, &p.ReceivedBytes, &p.SentPackets, &p.ReceivedPackets}
	for _, c := range m.counts {
		n := m.number(c.file, c.unit)
		if n != nil && c.plus != "" {
			if more := m.number(c.plus, c.unit); more == nil || *n > math.MaxUint64-*more {
				n = nil
			} else {
				*n += *more
			}
		}
		*into[c.quantity] = n
	}
	for _, name := range m.errors {
		n := m.number(name, 1)
		if n == nil {
			continue
		}
		if p.Errors == nil {
			p.Errors = make(map[string]uint64, len(m.errors))
		}
		p.Errors[name[strings.LastIndexByte(name, '/')+1:]] = *n
	}
}

// saturated is where a 32-bit counter of words stops: InfiniBand's counters do not wrap. A
// counter of 64 bits stands there for one word out of 2^64.
const saturated = math.MaxUint32

// number reads a counter in steps of unit. It is nil if there is no such counter, or if it has
// reached its end.
func (m *Meter) number(name string, unit uint64) *uint64 {
	n, ok := value(m.f, name, optional, parseCounter)
	if !ok || n == nil || unit > 1 && (*n == saturated || *n > math.MaxUint64/unit) {
		return nil
	}
	*n *= unit
	return n
}

// parseCounter reads a decimal number; nil is the kernel's "N/A (no PMA)".
// Source: drivers/infiniband/core/sysfs.c (show_pma_counter).
func parseCounter(s string) (*uint64, error) {
	if strings.HasPrefix(s, "N/A") {
		return nil, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q: want a number", clip(s))
	}
	return &n, nil
}

func (m *Meter) readPort(out *Reading) {
	p := &counters.Port{ID: m.ID}
	p.State, _ = value(m.f, "state", m.expect("state"), parseNumbered)
	if m.softwarePort != nil { // the kernel rounds its rate up, see capRate; the topology knows better
		p.BytesPerSec = m.softwarePort.BytesPerSec
	} else if rate, ok := value(m.f, "rate", quiet, parseRate); ok && rate > 0 {
		p.BytesPerSec = &rate
	}
	m.count(p)
	out.Port = p
}

func (m *Meter) readNetdev(out *Reading) {
	p := &counters.Port{ID: m.ID}
	p.State, _ = value(m.f, "operstate", m.expect("operstate"), parseOperState)
	if mbps, ok := value(m.f, "speed", quiet, parseSpeed); ok && mbps > 0 {
		p.BytesPerSec = new(topo.FromMbps(int64(mbps)))
	}
	m.count(p)
	out.Port = p
}

func (m *Meter) readLink(out *Reading) {
	l := &counters.Link{ID: m.ID}
	if speed, ok := value(m.f, "current_link_speed", m.expect("current_link_speed"), parseLinkSpeed); ok && speed > 0 {
		l.SpeedMTs = &speed
	}
	if width, ok := value(m.f, "current_link_width", m.expect("current_link_width"), parseLinkWidth); ok && width > 0 {
		l.Width = &width
	}
	out.Link = l
}
