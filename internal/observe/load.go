package observe

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
)

// Synthetic is a feed with counters that are made up for the host as it was seen first, the same
// for the same seed, and says so in its first record.
func Synthetic(o Options, seed uint64) *Feed {
	var load *syntheticLoad
	o.Start.Synthetic = fmt.Sprintf("counters (seed %d)", seed)
	o.Sample = func(_ context.Context, t *topo.Topology, at time.Duration) (*counters.Sample, error) {
		if load == nil {
			load = newSyntheticLoad(t, seed)
		}
		return load.at(at), nil
	}
	return New(o)
}

// shape is how a load changes with time.
type shape int

const (
	idle shape = iota
	steady
	bursts
	wave
)

// curve is a load as a part of the most that there can be. Its integral is known, so a
// counter at any moment is too.
type curve struct {
	shape  shape
	share  float64 // of the most, while it is busy
	period float64 // seconds
	busy   float64 // seconds of each period, of bursts
	phase  float64 // seconds
}

// seconds is what it comes to by a time, in seconds at the most.
func (c curve) seconds(t float64) float64 { return c.integral(t+c.phase) - c.integral(c.phase) }

func (c curve) integral(t float64) float64 {
	switch c.shape {
	case steady:
		return c.share * t
	case bursts:
		whole, rest := math.Floor(t/c.period), math.Mod(t, c.period)
		return c.share * (whole*c.busy + min(rest, c.busy))
	case wave:
		return c.share / 2 * (t + c.period/(2*math.Pi)*(1-math.Cos(2*math.Pi*t/c.period)))
	}
	return 0
}

// now is the part at a time.
func (c curve) now(t float64) float64 {
	t += c.phase
	switch c.shape {
	case steady:
		return c.share
	case bursts:
		if math.Mod(t, c.period) < c.busy {
			return c.share
		}
	case wave:
		return c.share / 2 * (1 + math.Sin(2*math.Pi*t/c.period))
	}
	return 0
}

// curveOf draws a curve from a hash.
func curveOf(h uint64) curve {
	draw := func(low, high float64) float64 {
		h = h*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
		return low + (high-low)*float64(h>>11)/(1<<53)
	}
	c := curve{shape: shape(draw(0, 4)), share: draw(0.2, 0.95), period: draw(8, 40)}
	c.busy, c.phase = c.period*draw(0.2, 0.7), draw(0, 40)
	return c
}

type syntheticPort struct {
	counters.Port
	line             float64 // bytes per second
	packet           float64 // bytes
	sent, received   curve
	up               bool
	hasErrors, flaps bool
}

type syntheticGPU struct {
	id                    topo.ID
	memory                *int64
	pcie, nvlink          float64 // bytes per second at most, 0 none
	busy, sent, recv, nvl curve
}

// syntheticLoad is the made-up traffic of a described host.
type syntheticLoad struct {
	ports []syntheticPort
	links []counters.Link
	gpus  []syntheticGPU
}

// The flap of one port: down for flapFor, after flapAfter of every flapEvery. The errors of
// another: errorStep each time errorEvery has passed. In seconds.
const (
	flapEvery, flapAfter, flapFor = 97.0, 60.0, 4.0
	errorEvery, errorStep         = 11.0, 3
)

// Of lines whose rate is not known, and of the largest packets: of InfiniBand and of
// Ethernet.
const (
	unknownLine             = 125e6 // 1 Gb/s
	rdmaPacket, etherPacket = 4096, 1500
)

func newSyntheticLoad(t *topo.Topology, seed uint64) *syntheticLoad {
	l := &syntheticLoad{}
	hash := func(parts ...any) uint64 {
		h := fnv.New64a()
		fmt.Fprintln(h, append([]any{seed}, parts...)...)
		return h.Sum64()
	}
	stands := map[string]bool{} // interfaces whose traffic is mostly that of an RDMA port
	for i := range t.Ports {
		p := &t.Ports[i]
		for _, n := range p.Netdevs {
			stands[n] = true
		}
		m := syntheticPort{Port: counters.Port{ID: p.ID, State: p.State, BytesPerSec: p.BytesPerSec}, up: p.State == "ACTIVE", packet: rdmaPacket}
		m.sent, m.received = curveOf(hash(p.ID, "sent")), curveOf(hash(p.ID, "received"))
		l.ports = append(l.ports, m)
	}
	for i := range t.Netdevs {
		n := &t.Netdevs[i]
		if n.Type == "loopback" {
			continue
		}
		m := syntheticPort{Port: counters.Port{ID: n.ID, State: n.State, BytesPerSec: n.BytesPerSec}, up: n.State == "up" || n.State == "unknown", packet: etherPacket}
		m.sent, m.received = curveOf(hash(n.ID, "sent")), curveOf(hash(n.ID, "received"))
		if stands[n.Name] {
			m.sent.share /= 1000
			m.received.share /= 1000
		}
		l.ports = append(l.ports, m)
	}
	slices.SortFunc(l.ports, func(a, b syntheticPort) int { return topo.NaturalCompare(string(a.ID), string(b.ID)) })
	l.addTrouble(hash("trouble"))
	for i := range t.PCIDevices {
		if d := &t.PCIDevices[i]; d.Link != nil {
			l.links = append(l.links, counters.Link{ID: d.ID, SpeedMTs: d.Link.SpeedMTs, Width: d.Link.Width})
		}
	}
	l.addGPUs(t, hash)
	return l
}

// addTrouble chooses a port whose errors count up, and another that goes down now and then.
func (l *syntheticLoad) addTrouble(h uint64) {
	var up []int
	for i := range l.ports {
		p := &l.ports[i]
		p.line = unknownLine
		if p.BytesPerSec != nil && *p.BytesPerSec > 0 {
			p.line = float64(*p.BytesPerSec)
		}
		if p.up {
			up = append(up, i)
		}
	}
	if len(up) == 0 {
		return
	}
	bad := int(h % uint64(len(up)))
	l.ports[up[bad]].hasErrors = true
	l.ports[up[bad]].sent = curve{shape: steady, share: 0.4}
	if n := uint64(len(up)); n > 1 {
		l.ports[up[(uint64(bad)+1+h/n%(n-1))%n]].flaps = true
	}
}

func (l *syntheticLoad) addGPUs(t *topo.Topology, hash func(...any) uint64) {
	for i := range t.GPUs {
		g := &t.GPUs[i]
		m := syntheticGPU{id: g.ID, memory: g.MemoryBytes, busy: curveOf(hash(g.ID, "busy")), sent: curveOf(hash(g.ID, "sent")),
			recv: curveOf(hash(g.ID, "received")), nvl: curveOf(hash(g.ID, "nvlink"))}
		for k := range t.Links {
			x := &t.Links[k]
			switch {
			case x.BytesPerSec == nil:
			case x.Kind == topo.LinkNVLink && (x.A == g.ID || x.B == g.ID):
				m.nvlink += float64(*x.BytesPerSec)
			case g.BDF != nil && x.ID == topo.PCIeLinkID(*g.BDF):
				m.pcie = float64(*x.BytesPerSec)
			}
		}
		l.gpus = append(l.gpus, m)
	}
}

// downTime is for how long a port that flaps was down by a time, and whether it is.
func downTime(t float64) (seconds float64, is bool) {
	whole, rest := math.Floor(t/flapEvery), math.Mod(t, flapEvery)
	return whole*flapFor + min(max(rest-flapAfter, 0), flapFor), rest >= flapAfter && rest < flapAfter+flapFor
}

// at is what the counters say at a time.
func (l *syntheticLoad) at(now time.Duration) *counters.Sample {
	s := &counters.Sample{AtNS: int64(now), Ports: make([]counters.Port, 0, len(l.ports)), Links: l.links}
	for i := range l.ports {
		s.Ports = append(s.Ports, l.ports[i].at(now.Seconds()))
	}
	for i := range l.gpus {
		s.GPUs = append(s.GPUs, l.gpus[i].at(now.Seconds()))
	}
	return s
}

func (p *syntheticPort) at(t float64) counters.Port {
	out := p.Port
	if p.flaps {
		gone, is := downTime(t)
		if t -= gone; is {
			out.State, out.BytesPerSec = "DOWN", nil
			if p.State != "ACTIVE" {
				out.State = "down"
			}
		}
	}
	sent, received := 0.0, 0.0
	if p.up {
		sent, received = p.line*p.sent.seconds(t), p.line*p.received.seconds(t)
	}
	count := func(v float64) *uint64 { n := uint64(v); return &n }
	out.SentBytes, out.ReceivedBytes = count(sent), count(received)
	out.SentPackets, out.ReceivedPackets = count(sent/p.packet), count(received/p.packet)
	name := "rx_crc_errors"
	if p.packet == rdmaPacket {
		name = "symbol_error"
	}
	out.Errors = map[string]uint64{name: 0}
	if p.hasErrors {
		out.Errors[name] = uint64(t/errorEvery) * errorStep
	}
	return out
}

func (g *syntheticGPU) at(t float64) counters.GPU {
	busy := g.busy.now(t)
	percent := int(math.Round(100 * busy))
	out := counters.GPU{ID: g.id, UtilizationPercent: &percent}
	if g.memory != nil {
		used := int64(float64(*g.memory) * (0.1 + 0.8*g.busy.share))
		out.MemoryUsedBytes = &used
	}
	if g.pcie > 0 {
		sent, received := topo.Rate(g.pcie*g.sent.now(t)), topo.Rate(g.pcie*g.recv.now(t))
		out.PCIeSentBytesPerSec, out.PCIeReceivedBytesPerSec = &sent, &received
	}
	if g.nvlink > 0 {
		n := uint64(g.nvlink * g.nvl.seconds(t))
		out.NVLinkSentBytes, out.NVLinkReceivedBytes = &n, &n
	}
	return out
}
