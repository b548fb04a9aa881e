package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

// judge makes a report's verdicts.
type judge struct {
	a     *Audit
	r     *Report
	ports []measured
	// total is what the ports of the plan's transport carried, in the report's unit.
	total uint64
	// tcp is what interfaces carried beside a plan for RDMA.
	tcp uint64
	// unnamed says how many channels use a device that the log does not name, "" if it names all of them.
	unnamed string
}

// measured is a port of the report, with the facts that it is judged by.
type measured struct {
	Port
	on      pathsel.Port
	tally   *tally // nil: no counters
	carried uint64 // in the report's unit
	doubt   string // why that is not all that it carried
}

func (j *judge) judge() {
	j.chooseUnit()
	j.unnamed = unnamed(j.a.logs)
	ports := j.a.o.Host.Ports()
	counted := slices.DeleteFunc(slices.Clone(ports), func(p pathsel.Port) bool { return j.r.Transport == pathsel.RDMA && !p.RDMA() })
	for _, legs := range group.By(counted, func(p pathsel.Port) string { return cmp.Or(j.bond(&p), string(p.ID)) }) {
		j.ports = append(j.ports, j.measure(legs))
	}
	if j.r.Transport == pathsel.RDMA && j.r.Unit != Channels {
		j.measureInterfaces(ports)
	}
	j.share()
	for i := range j.ports {
		j.decide(&j.ports[i])
	}
	j.blameIdle()
	j.answer()
	j.judgeGPUDirect()
	slices.SortStableFunc(j.ports, func(a, b measured) int { return btoi(a.planned() == 0) - btoi(b.planned() == 0) })
	for i := range j.ports { // those of the plan first
		j.r.Ports = append(j.r.Ports, j.ports[i].Port)
	}
}

// planned is the port's part of all traffic by the plan.
func (p *Port) planned() float64 { return *p.PlannedShare }

// meter names the counters that show what a port carried. Over TCP these are the counters of its interface; for the legs
// of a bond they are those of the bond, since the kernel chooses the leg.
func (j *judge) meter(p *pathsel.Port) topo.ID {
	if j.r.Transport == pathsel.TCP && p.RDMA() || j.bond(p) != "" {
		return topo.NetdevID(p.Netdev)
	}
	return p.ID
}

// bond is the bond that a port belongs to over TCP, "" if there is none. The legs of a bond are judged together.
func (j *judge) bond(p *pathsel.Port) string {
	if j.r.Transport != pathsel.TCP || len(p.Legs) == 0 {
		return ""
	}
	if n := j.a.o.Host.Index().NetdevNamed(p.Netdev); n == nil || n.Bond == nil && n.LinkKind != "bond" {
		return ""
	}
	return p.Netdev
}

// chooseUnit takes bytes if every port of the plan counts them, else packets. Without counters it takes the
// channels of the logs.
func (j *judge) chooseUnit() {
	j.r.Unit = Bytes
	if j.a.samples < 2 && len(j.a.logs)+len(j.a.hosts) > 0 {
		j.r.Unit = Channels
		return
	}
	bytes, packets := true, true
	for id := range j.a.shares {
		p, _ := j.a.o.Host.Port(id)
		t := j.a.tallies[j.meter(&p)]
		if t == nil {
			continue // it cannot be checked in either
		}
		_, hasBytes := t.total.in(Bytes)
		_, hasPackets := t.total.in(Packets)
		bytes, packets = bytes && hasBytes, packets && hasPackets
	}
	if !bytes && packets {
		j.r.Unit = Packets
		j.r.Notes = append(j.r.Notes, "shares are of packets: the driver of these ports counts packets and no bytes")
	}
}

// measure collects what is known about a port, or about the legs of a bond: the leg in the plan stands for all of them.
func (j *judge) measure(legs []pathsel.Port) measured {
	p := &legs[max(0, slices.IndexFunc(legs, func(l pathsel.Port) bool { return j.a.shares[l.ID] != nil }))]
	out := measured{on: *p, tally: j.a.tallies[j.meter(p)]}
	out.Port = Port{ID: p.ID, Name: cmp.Or(j.bond(p), p.Name), Reasons: []string{}, For: []string{},
		LineBytesPerSec: p.BytesPerSec, PlannedShare: new(float64), Users: []User{}}
	for _, l := range legs {
		if s := j.a.shares[l.ID]; s != nil {
			*out.PlannedShare += s.share
			out.For = append(out.For, s.of...)
		}
	}
	if t := out.tally; t != nil {
		out.Traffic = t.total
		if t.rate != nil && !p.Software {
			out.LineBytesPerSec = t.rate
		}
		out.Used = used(&t.total, out.LineBytesPerSec, j.r.WindowNS)
	}
	if len(j.a.logs)+len(j.a.hosts) > 0 {
		out.Channels = new(int)
		dataDirect := 0
		for _, u := range j.a.logs {
			if j.logged(p, &u) {
				*out.Channels += u.Channels
				if u.Device != p.Device && u.Way == RDMA {
					dataDirect += u.Channels
				}
			}
		}
		if dataDirect > 0 {
			out.Reasons = append(out.Reasons, fmt.Sprintf("%s by data direct (%s%s)", text.Plural(dataDirect, "channel"), p.Device, dataDirectSuffix))
		}
	}
	if j.r.Transport == pathsel.RDMA {
		out.Users = j.a.queuePairUsers(p.Device, p.Number)
	} else if n := j.a.o.Host.Index().NetdevNamed(p.Netdev); n != nil {
		out.Users = j.a.tcpUsers(n)
	}
	j.count(&out)
	return out
}

// count fills in what a port carried in the report's unit, and why that may not be all.
func (j *judge) count(p *measured) {
	switch {
	case j.r.Unit == Channels:
		p.carried, p.doubt = uint64(max(0, *p.Channels)), j.unnamed
	case p.tally == nil:
		p.doubt = "its counters could not be read"
	default:
		p.carried, _ = p.tally.total.in(j.r.Unit)
		if ip := j.ipOver(&p.on); ip != nil {
			over, _ := ip.total.in(j.r.Unit)
			p.carried -= min(p.carried, over) // TCP that the port carries as InfiniBand
		}
		p.doubt = p.tally.doubt(j.r.Unit, j.a.began)
	}
}

// dataDirectSuffix ends the name that NCCL gives to the second function of a ConnectX-8, which reaches GPU memory
// without the CPU: mlx5_0_dma is mlx5_0.
// Source: NVIDIA/nccl, src/transport/net_ib/init.cc.
const dataDirectSuffix = "_dma"

// logged says whether an engine's log is about a port.
func (j *judge) logged(p *pathsel.Port, u *Use) bool {
	switch {
	case u.Way == RDMA && j.r.Transport == pathsel.RDMA:
		return strings.TrimSuffix(u.Device, dataDirectSuffix) == strings.TrimSuffix(p.Device, dataDirectSuffix) && samePort(u.Port, p.Number)
	case u.Way == TCP && j.r.Transport == pathsel.TCP:
		return u.Device == p.Netdev
	}
	return false
}

// used is the part of a port's rate that its busier direction used.
func used(t *Traffic, line *topo.Rate, ns int64) *float64 {
	if t.SentBytes == nil || t.ReceivedBytes == nil || line == nil || *line <= 0 || ns <= 0 {
		return nil
	}
	v := float64(max(*t.SentBytes, *t.ReceivedBytes)) / (float64(ns) / float64(time.Second)) / float64(*line)
	return &v
}

// ipOver is the interface whose IP packets go through an InfiniBand port and count there.
func (j *judge) ipOver(p *pathsel.Port) *tally {
	if j.r.Transport != pathsel.RDMA || p.LinkLayer != "InfiniBand" || p.Netdev == "" {
		return nil
	}
	top := j.a.o.Host.Topology()
	for i := range top.Ports {
		if top.Ports[i].ID != p.ID {
			continue
		}
		for _, name := range top.Ports[i].Netdevs { // of a bond, what went by this leg
			if slices.Contains(p.Legs, name) {
				return j.a.tallies[topo.NetdevID(name)]
			}
		}
	}
	return j.a.tallies[topo.NetdevID(p.Netdev)]
}

// quiet is how much an unused port may carry.
func (j *judge) quiet() uint64 {
	seconds := float64(j.r.WindowNS) / float64(time.Second)
	switch j.r.Unit {
	case Channels:
		return 0
	case Packets:
		return max(leastPackets, uint64(quietPacketsPerSec*seconds))
	}
	return max(leastBytes, uint64(quietBytesPerSec*seconds))
}

// share adds up what all ports carried and gives each its part.
func (j *judge) share() {
	if j.r.Unit != Channels && j.a.samples < 2 {
		return
	}
	for i := range j.ports {
		j.total += j.ports[i].carried
	}
	j.r.Carried = &j.total
	for i := range j.ports {
		if p := &j.ports[i]; p.doubt == "" && j.total > 0 {
			p.CarriedShare = new(float64(p.carried) / float64(j.total))
		}
	}
}

// decide gives a port its verdict by its share.
func (j *judge) decide(p *measured) {
	plan, n, doubt := p.planned(), p.carried, p.doubt
	say := func(format string, args ...any) { p.Reasons = append(p.Reasons, fmt.Sprintf(format, args...)) }
	switch {
	case j.total <= j.quiet() && plan > 0:
		p.Verdict = CouldNotCheck
		say("%s", cmp.Or(doubt, "nothing moved, so there is no share to compare"))
	case doubt != "" && (plan > 0 || n <= j.quiet()):
		p.Verdict = CouldNotCheck
		say("%s", doubt)
	case plan == 0 && (float64(n) <= strayPart*float64(j.total) || n <= j.quiet()):
		p.Verdict = NotPlanned
	case plan == 0:
		p.Verdict = Above
		say("the plan leaves it out: %s", j.leftOut(p.ID))
		if doubt != "" {
			say("%s", doubt)
		}
	default:
		share := float64(n) / float64(j.total)
		switch {
		case share < plan*idlePart:
			p.Verdict = Idle
		case share < plan*(1-j.r.Tolerance):
			p.Verdict = Below
		case share > plan*(1+j.r.Tolerance):
			p.Verdict = Above
		default:
			p.Verdict = OK
		}
	}
	if t := p.tally; t != nil && plan > 0 && down(t.state) && p.Verdict != OK {
		say("it is %s now", t.state)
	}
	if p.on.VF {
		say("it is a virtual function: what others of its card carry is not in these counters")
	}
	if len(p.on.Legs) > 0 && p.Verdict != NotPlanned {
		say("%s", j.overLegs(&p.on))
	}
}

// overLegs says how a bond's traffic is split over its legs. The kernel or the card chooses that, so it gets no verdict.
func (j *judge) overLegs(p *pathsel.Port) string {
	of := "it is a bond of " + text.Join(p.Legs, 4)
	var sum float64
	var carried []uint64
	for _, name := range p.Legs {
		t := j.a.tallies[topo.NetdevID(name)]
		if t == nil || j.bond(p) == "" || t.doubt(j.r.Unit, j.a.began) != "" { // interfaces do not count what RDMA moves
			return of + ": how its traffic splits over them is not checked"
		}
		n, _ := t.total.in(j.r.Unit)
		carried, sum = append(carried, n), sum+float64(n)
	}
	if sum == 0 {
		return of
	}
	var parts []string
	for _, n := range carried {
		parts = append(parts, Percent(float64(n)/sum))
	}
	return of + ", which carried " + text.Join(parts, 4)
}

func down(state string) bool {
	switch state {
	case "DOWN", "INIT", "ARMED", "down", "lowerlayerdown", "dormant":
		return true
	}
	return false
}

// leftOut is why the plan leaves a port out.
func (j *judge) leftOut(id topo.ID) string {
	for i := range j.a.o.Plan.Rejected {
		if c := &j.a.o.Plan.Rejected[i]; c.Port == id && c.Reason.Text != "" {
			return c.Reason.Text
		}
	}
	return "it is in no consumer's part"
}

// measureInterfaces lists what went by TCP while RDMA was planned.
func (j *judge) measureInterfaces(ports []pathsel.Port) {
	index := j.a.o.Host.Index()
	seen := map[string]bool{}
	for i := range ports {
		p := &ports[i]
		n := index.NetdevNamed(p.Netdev)
		if n == nil || seen[n.Name] {
			continue
		}
		seen[n.Name] = true
		t := j.a.tallies[n.ID]
		if t == nil {
			continue
		}
		out := Interface{ID: n.ID, Name: n.Name, Verdict: NotPlanned, Reasons: []string{}, Traffic: t.total, Users: j.a.tcpUsers(n)}
		if moved, known := t.total.in(j.r.Unit); known {
			moved -= min(moved, j.rdmaIn(ports, n, &out))
			out.TCP = &moved
			if moved > j.quiet() {
				j.tcp += moved
			}
		}
		j.r.Interfaces = append(j.r.Interfaces, out)
	}
}

// apart lists the drivers whose interfaces do not count the traffic of their RDMA devices.
// Source: mlx5e_get_stats of drivers/net/ethernet/mellanox/mlx5/core/en_main.c (its own queues), and
// bnxt_get_stats64 of drivers/net/ethernet/broadcom/bnxt/bnxt.c (its rings).
var apart = []string{"mlx5_core", "mlx5_ib", "bnxt_en", "bnxt_re"}

// rdmaIn is how much of an interface's counters may be RDMA traffic. The rest is certainly TCP.
func (j *judge) rdmaIn(ports []pathsel.Port, n *topo.Netdev, out *Interface) uint64 {
	sum := uint64(0)
	for i := range ports {
		p := &ports[i]
		if !p.RDMA() || p.Netdev != n.Name || p.LinkLayer == "InfiniBand" || slices.Contains(apart, n.Driver) {
			continue
		}
		t := j.a.tallies[p.ID]
		if t == nil {
			continue
		}
		carried, known := t.total.in(j.r.Unit)
		if !known {
			out.Reasons = append(out.Reasons, fmt.Sprintf("it also counts what %s carries, which is not known", p.Name))
			return ^uint64(0)
		}
		sum += carried
	}
	return sum
}

// answer decides the report's answer.
func (j *judge) answer() {
	r := j.r
	if r.Carried == nil {
		r.Answer, r.Text = Unchecked, "Could not check: the counters were not read twice"
		return
	}
	if j.fallback() {
		return
	}
	count := map[Verdict][]string{}
	unchecked := 0
	for i := range j.ports {
		p := &j.ports[i]
		count[p.Verdict] = append(count[p.Verdict], p.Name)
		if p.Verdict == CouldNotCheck && p.planned() > 0 {
			unchecked++
		}
	}
	missed := len(count[Idle])+len(count[Above])+len(count[Below]) > 0
	beside, devices := j.elsewhere()
	if len(devices) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("devices of the log that are not among this host's ports for %s: %s", r.Transport, text.Join(devices, 32)))
	}
	switch {
	case r.Unit == Channels && j.unnamed != "":
		r.Answer, r.Text = Unchecked, "Could not check: "+j.unnamed
	case r.Unit == Channels && beside > 0 && !missed:
		r.Answer = Unchecked
		r.Text = fmt.Sprintf("Could not check %d of %s: %s not among this host's ports for %s (%s)", beside, j.amount(j.total+uint64(beside)), //nolint:gosec // bounded by the log
			text.Plural(len(devices), "device of the log is", "devices of the log are"), r.Transport, text.Join(devices, 4))
	case r.Unit == Channels && j.total == 0:
		r.Answer, r.Text = Unchecked, "Could not check: the log has no channel that leaves the host"
	case j.total <= j.quiet() && j.firstDoubt() == "":
		r.Answer = NothingSeen
		r.Text = fmt.Sprintf("Nothing moved in %s: the plan could not be checked", window(r.WindowNS))
	case missed:
		r.Answer = Missed
		r.Text = "Plan missed: " + j.missed(count)
	case unchecked > 0:
		r.Answer = Unchecked
		r.Text = fmt.Sprintf("Could not check %d of %s: %s", unchecked, text.Plural(len(j.a.shares), "planned port"), j.firstDoubt())
	default:
		r.Answer = AsPlanned
		r.Text = fmt.Sprintf("As planned: %s carried %s, each its part", text.Plural(len(j.a.shares), "port"), j.amount(j.total))
		if len(j.a.shares) == 1 {
			r.Text = fmt.Sprintf("As planned: the only port of the plan carried %s", j.amount(j.total))
		}
	}
}

// firstDoubt says why the traffic of a planned port is in doubt, for the first such port; "" if there is none.
func (j *judge) firstDoubt() string {
	for i := range j.ports {
		if p := &j.ports[i]; p.doubt != "" && p.planned() > 0 {
			return p.Name + ": " + p.doubt
		}
	}
	return ""
}

// unnamed says how many channels of a log use a device that the log does not name, "" if it names all of them.
func unnamed(log []Use) string {
	all, without := 0, 0
	var networks []string
	for _, u := range log {
		all += u.Channels
		if u.Way == Unnamed {
			without += u.Channels
			networks = withNew(networks, u.Device)
		}
	}
	if without == 0 {
		return ""
	}
	return fmt.Sprintf("the log does not say by which device %d of %s (%s)", without, text.Plural(all, "channel goes", "channels go"), text.Join(networks, 4))
}

// withNew adds a name to a list, unless the list has it already.
func withNew(list []string, name string) []string {
	if slices.Contains(list, name) {
		return list
	}
	return append(list, name)
}

// elsewhere lists the devices in the logs that are not among the ports of this host, and counts their channels. TCP beside
// a plan for RDMA is judged separately.
func (j *judge) elsewhere() (channels int, devices []string) {
	ports := j.a.o.Host.Ports()
	known := func(u *Use) bool {
		return slices.ContainsFunc(ports, func(p pathsel.Port) bool { return j.logged(&p, u) })
	}
	for i := range j.a.logs {
		if u := &j.a.logs[i]; (u.Way == RDMA || u.Way == TCP && j.r.Transport == pathsel.TCP) && !known(u) {
			channels += u.Channels
			devices = withNew(devices, u.Device)
		}
	}
	if j.r.Transport == pathsel.RDMA {
		for i := range j.a.hosts {
			for _, name := range j.a.hosts[i].Listed {
				if !known(&Use{Way: RDMA, Device: name}) {
					devices = withNew(devices, name)
				}
			}
		}
	}
	return channels, devices
}

// judgeGPUDirect adds what the logs say about GPUDirect RDMA. A job that goes without it is never as planned.
func (j *judge) judgeGPUDirect() {
	r := j.r
	g := &GPUDirect{Disabled: []string{}, Said: []string{}}
	var devices, far []string
	for i := range j.a.hosts {
		h := &j.a.hosts[i]
		g.Channels += h.Channels
		g.Without += h.Channels - h.Direct
		for _, d := range h.Disabled {
			if !slices.Contains(g.Disabled, d.Device) {
				g.Disabled, g.Said = append(g.Disabled, d.Device), append(g.Said, d.Said)
				devices = append(devices, strings.TrimPrefix(d.Said, "Disabled for "))
			}
		}
		for _, d := range h.Far {
			far = append(far, d.Said)
		}
		if h.NoGDR && len(far) == 0 {
			far = append(far, "GDR 0")
		}
	}
	if g.Channels > 0 || len(devices) > 0 {
		r.GPUDirect = g
	}
	said := ""
	switch {
	case g.Without > 0:
		why := "no line of the log says why"
		if len(devices) > 0 {
			why = "the log: Disabled for " + text.Join(devices, 2)
		} else if len(far) > 0 {
			g.Said, why = far, "the log: "+text.Join(far, 2)
		}
		said = fmt.Sprintf("%d of %s without GPUDirect RDMA (%s)", g.Without, text.Plural(g.Channels, "channel goes", "channels go"), why)
	case g.Channels == 0 && len(devices) > 0:
		said = "GPUDirect RDMA is disabled for " + text.Join(devices, 4)
	case r.Answer == AsPlanned && len(j.a.logs) > 0 && g.Channels == 0:
		r.Text += "; could not check GPUDirect RDMA: the log does not say"
	}
	if said == "" {
		return
	}
	switch r.Answer {
	case Missed, Fallback:
		r.Text += "; " + said
	default:
		shares := strings.TrimPrefix(r.Text, "As planned: ")
		r.Answer, r.Text = NoGPUDirect, said+"; "+strings.ToLower(shares[:1])+shares[1:]
	}
}

// missed says what is wrong with the shares: the port that carried too much first, then the idle.
func (j *judge) missed(count map[Verdict][]string) string {
	var parts []string
	var most *measured
	for i := range j.ports {
		p := &j.ports[i]
		if p.Verdict == Above && p.CarriedShare != nil && (most == nil || *p.CarriedShare > *most.CarriedShare) {
			most = p
		}
	}
	if most != nil {
		carried := Percent(*most.CarriedShare) + " of " + j.amount(j.total)
		parts = append(parts, fmt.Sprintf("%s carried %s (planned: %s)", most.Name, carried, Percent(most.planned())))
	}
	for _, v := range []Verdict{Idle, Below} {
		if names := count[v]; len(names) > 0 {
			what := "were idle"
			if v == Below {
				what = "carried less than planned"
			} else if len(names) == 1 {
				what = "was idle"
			}
			parts = append(parts, text.List(names, 4)+" "+what)
		}
	}
	if len(parts) == 0 {
		parts = append(parts, text.List(count[Above], 4)+" carried more than planned")
	}
	return strings.Join(parts, ", ")
}

// fallback reports TCP where RDMA was planned: interfaces carried more than the RDMA ports.
func (j *judge) fallback() bool {
	var names []string
	for _, u := range j.a.logs {
		if j.r.Unit == Channels && u.Way == TCP && j.r.Transport == pathsel.RDMA {
			j.tcp += uint64(u.Channels)
			names = withNew(names, u.Device)
		}
	}
	j.markInterfaces()
	if j.tcp <= j.quiet() || j.tcp <= j.total {
		return false
	}
	r := j.r
	r.Answer = Fallback
	for i := range r.Interfaces {
		if r.Interfaces[i].Verdict == TCPFallback {
			names = append(names, r.Interfaces[i].Name)
		}
	}
	rdma := "the RDMA ports nothing"
	if j.total > j.quiet() {
		rdma = "the RDMA ports " + j.amount(j.total)
	}
	r.Text = fmt.Sprintf("TCP fallback: %s carried %s, %s", text.List(names, 4), j.amount(j.tcp), rdma)
	for i := range j.ports { // it is known that they were idle, whatever moved over RDMA
		if p := &j.ports[i]; p.Verdict == CouldNotCheck && p.planned() > 0 && p.doubt == "" && p.carried <= j.quiet() {
			p.Verdict, p.Reasons = Idle, []string{"the data went by TCP"}
		}
	}
	j.blameIdle()
	return true
}

// markInterfaces gives verdicts to interfaces.
func (j *judge) markInterfaces() {
	for i := range j.r.Interfaces {
		n := &j.r.Interfaces[i]
		switch {
		case n.TCP == nil:
			n.Verdict = CouldNotCheck
		case *n.TCP > j.quiet() && j.tcp > j.total && *n.TCP > uint64(strayPart*float64(j.tcp)):
			n.Verdict = TCPFallback
		}
	}
}

// amount is a number of the report's unit, for people.
func (j *judge) amount(n uint64) string { return Amount(n, j.r.Unit) }

// Amount prints bytes, packets or channels.
func Amount(n uint64, u Unit) string {
	switch u {
	case Packets:
		return text.Plural(int64(n), "packet") //nolint:gosec // counters of this size do not exist
	case Channels:
		return text.Plural(int64(n), "channel") //nolint:gosec // bounded by the log
	}
	return units.Bytes(int64(min(n, 1<<62))) //nolint:gosec // bounded
}

// Percent prints a share.
func Percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

func window(ns int64) string { return time.Duration(ns).Round(100 * time.Millisecond).String() }
