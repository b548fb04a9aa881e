package audit

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
)

// The limits of a log. What exceeds them is counted and left out.
const (
	maxLine   = 64 << 10 // bytes
	maxUses   = 4096     // devices of processes
	maxIndex  = 1024     // network devices of a process
	maxListed = 256      // devices in one line
	maxName   = 64       // bytes
	maxSaid   = 200      // bytes of a line that is quoted
)

// Engine is the engine that wrote a log.
type Engine string

// The engines.
const (
	NCCL Engine = "nccl"
	UCX  Engine = "ucx"
)

// Way is how a device moves data.
type Way string

// The ways. Of Unnamed the log says that a network carries data and not by which device.
const (
	RDMA    Way = "rdma"
	TCP     Way = "tcp"
	Unnamed Way = "unnamed"
)

// Use is a device that a process uses.
type Use struct {
	Engine Engine `json:"engine"`
	Host   string `json:"host"` // as the log has it
	PID    int    `json:"pid"`
	Way    Way    `json:"way"`
	Device string `json:"device"` // "mlx5_0", "eth0"; of Unnamed what the log says: "AWS Libfabric/0"
	Port   int    `json:"port"`   // of the RDMA device, 0 where the log does not say
	// Channels are NCCL's channels and UCX's lanes that go by it.
	Channels int `json:"channels"`
	// Direct are those of the channels that reach GPU memory without a copy (GDRDMA).
	Direct int `json:"direct"`
}

// Log is what a log says.
type Log struct {
	Hosts []Host // by name
	// Left counts the lines that were left out because of the limits.
	Left int
}

// Host is what a log says of a host.
type Host struct {
	Name string // as the log has it
	Uses []Use
	// Listed are the RDMA devices that NCCL lists, whether or not a channel goes by them.
	Listed []string
	// Channels are NCCL's channels over a network other than sockets, and Direct those of them that reach GPU
	// memory without a copy. A channel over merged devices counts once.
	Channels, Direct int
	// Disabled are the devices that NCCL cannot use GPUDirect RDMA with, and Far the pairs of a GPU and a device
	// that it does not.
	Disabled, Far []Disabled
	// NoGDR says that a communicator went without GPUDirect RDMA as a whole ("GDR 0").
	NoGDR bool
}

// Disabled is a device that NCCL says GPUDirect RDMA is disabled for.
type Disabled struct {
	Device string // "" where it is one of a pair
	Said   string // "Disabled for HCA 0 'mlx5_0' (no module)"
}

// Parse takes from a log which devices NCCL and UCX use: the lines of NCCL_DEBUG=INFO, and those of
// UCX_LOG_LEVEL=info and UCX_PROTO_INFO=y. A log may be of many processes and of both. It is text that
// others wrote: lines, hosts, processes and devices are bounded, and what has another form is passed over.
func Parse(data []byte) *Log {
	p := parser{log: &Log{}, uses: map[key]*Use{}, nccl: map[process]map[string]numbered{}, hosts: map[string]*Host{}}
	for line := range bytes.Lines(data) {
		text := strings.TrimRight(string(line[:min(len(line), maxLine)]), "\r\n")
		if strings.Contains(text, " NCCL INFO ") {
			p.ncclLine(text)
		} else {
			p.ucxLine(text)
		}
	}
	for _, u := range p.uses {
		h := p.hosts[u.Host]
		h.Uses = append(h.Uses, *u)
	}
	for _, name := range slices.Sorted(maps.Keys(p.hosts)) {
		h := p.hosts[name]
		slices.SortFunc(h.Uses, func(a, b Use) int {
			return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Engine, b.Engine),
				cmp.Compare(a.Way, b.Way), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Port, b.Port))
		})
		p.log.Hosts = append(p.log.Hosts, *h)
	}
	return p.log
}

type process struct {
	host string
	pid  int
}

// key identifies the uses that are counted together.
type key struct {
	process
	engine Engine
	way    Way
	device string
	port   int
}

type parser struct {
	log   *Log
	uses  map[key]*Use
	nccl  map[process]map[string]numbered // by what follows "NET/"
	hosts map[string]*Host
}

// host returns the entry of a host, nil if there are too many hosts.
func (p *parser) host(name string) *Host {
	h := p.hosts[name]
	if h == nil {
		if len(p.hosts) == maxUses || len(name) > maxName {
			p.log.Left++
			return nil
		}
		h = &Host{Name: name}
		p.hosts[name] = h
	}
	return h
}

// use counts a channel of a device; direct is 1 where it reaches GPU memory without a copy.
func (p *parser) use(k key, direct int) {
	u := p.uses[k]
	if u == nil {
		if len(p.uses) == maxUses || k.device == "" || len(k.device) > maxName {
			p.log.Left++
			return
		}
		if p.host(k.host) == nil {
			return
		}
		u = &Use{Engine: k.engine, Host: k.host, PID: k.pid, Way: k.way, Device: k.device, Port: k.port}
		p.uses[k] = u
	}
	u.Channels++
	u.Direct += direct
}
