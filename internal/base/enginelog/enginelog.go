// Package enginelog reads from the logs of NCCL and UCX which devices they use: the lines of
// NCCL_DEBUG=INFO, and those of UCX_LOG_LEVEL=info and UCX_PROTO_INFO=y. A log is text that others
// wrote: lines, hosts, processes and devices are bounded, and what has another form is passed over.
package enginelog

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// The limits of a log. What is beyond is counted and left out.
const (
	maxLine   = 64 << 10 // bytes
	maxUses   = 4096     // devices of processes
	maxIndex  = 1024     // network devices of a process
	maxListed = 256      // devices in one line
	maxName   = 64       // bytes
)

// Engine is whose log it is.
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
	Uses []Use
	// Lines is how many lines said something, and Left how many said more than is kept.
	Lines, Left int
}

// Hosts are those that a log is of.
func (l *Log) Hosts() []string {
	var out []string
	for i := range l.Uses {
		out = append(out, l.Uses[i].Host)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Parse reads a log, which may be of many processes and of both engines.
func Parse(data []byte) *Log {
	p := parser{log: &Log{}, uses: map[key]*Use{}, nccl: map[process]*ncclProcess{}}
	for line := range bytes.Lines(data) {
		text := strings.TrimRight(string(line[:min(len(line), maxLine)]), "\r\n")
		switch {
		case strings.Contains(text, " NCCL INFO "):
			p.ncclLine(text)
		case strings.HasPrefix(strings.TrimLeft(text, " "), "["):
			p.ucxLine(text)
		}
	}
	for _, u := range p.uses {
		p.log.Uses = append(p.log.Uses, *u)
	}
	slices.SortFunc(p.log.Uses, func(a, b Use) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Engine, b.Engine),
			cmp.Compare(a.Way, b.Way), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Port, b.Port))
	})
	return p.log
}

type process struct {
	host string
	pid  int
}

// key is what is counted together.
type key struct {
	process
	engine Engine
	way    Way
	device string
	port   int
}

type parser struct {
	log  *Log
	uses map[key]*Use
	nccl map[process]*ncclProcess
}

// use counts a channel of a device; direct is 1 where it reaches GPU memory without a copy.
func (p *parser) use(k key, direct int) {
	u := p.uses[k]
	if u == nil {
		if len(p.uses) == maxUses || k.device == "" || len(k.device) > maxName || len(k.host) > maxName {
			p.log.Left++
			return
		}
		u = &Use{Engine: k.engine, Host: k.host, PID: k.pid, Way: k.way, Device: k.device, Port: k.port}
		p.uses[k] = u
	}
	u.Channels++
	u.Direct += direct
}
