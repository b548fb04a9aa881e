package enginelog

import (
	"regexp"
	"strconv"
	"strings"
)

// ncclProcess is what a process of NCCL has said of its network devices: they are numbered, and
// the lines of channels have the numbers.
type ncclProcess struct {
	rdma, tcp map[int][]device
}

type device struct {
	name string
	port int
}

// The lines of NCCL. Each begins with host:pid:thread [GPU] NCCL INFO.
// Source: NVIDIA/nccl, src/debug.cc (the prefix), src/transport/net_ib.cc ("NET/IB : Using", "Made
// virtual device"), src/transport/net_socket.cc, src/transport/net.cc ("Channel"); logs in issues
// 1412, 1814 and 1053 there.
var (
	ncclPrefix  = regexp.MustCompile(`(?:^|\s)([^\s:]+):(\d+):\d+ \[-?\d+\] NCCL INFO (.*)$`)
	ncclListed  = regexp.MustCompile(`\[(\d+)\]([^\s\[\]]+)`)
	ncclVirtual = regexp.MustCompile(`^NET/[^ ]+ : Made virtual device \[(\d+)\] name=(\S+)`)
	ncclChannel = regexp.MustCompile(`^Channel \d+(?:/\d+)? ?: .* via NET/(.+)$`)
	ncclVia     = regexp.MustCompile(`^(.+?)/(\d+)(?:\(\d+\))?((?:/.*)?)$`)
)

func (p *parser) ncclLine(line string) {
	m := ncclPrefix.FindStringSubmatch(line)
	if m == nil {
		return
	}
	pid, err := strconv.Atoi(m[2])
	if err != nil {
		return
	}
	at, said := process{m[1], pid}, m[3]
	switch {
	case strings.HasPrefix(said, "NET/"):
		p.ncclDevices(at, said)
	case strings.HasPrefix(said, "Channel "):
		p.ncclChannel(at, said)
	}
}

// ncclDevices reads how the network devices are numbered.
func (p *parser) ncclDevices(at process, said string) {
	known := p.nccl[at]
	if known == nil {
		if len(p.nccl) == maxUses {
			p.log.Left++
			return
		}
		known = &ncclProcess{rdma: map[int][]device{}, tcp: map[int][]device{}}
		p.nccl[at] = known
	}
	if m := ncclVirtual.FindStringSubmatch(said); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil && n < maxIndex {
			var members []device
			for name := range strings.SplitSeq(m[2], "+") {
				members = append(members, device{name: name})
			}
			known.rdma[n] = members[:min(len(members), maxListed)]
			p.log.Lines++
		}
		return
	}
	kind, list, ok := strings.Cut(said, " : Using ")
	if !ok {
		return
	}
	list, _, _ = strings.Cut(list, "; OOB") // the interface by which ranks find each other
	p.log.Lines++
	for _, m := range ncclListed.FindAllStringSubmatch(list, maxListed) {
		n, err := strconv.Atoi(m[1])
		if err != nil || n >= maxIndex {
			continue
		}
		switch { // "mlx5_0:1/RoCE", "eth0:10.0.0.1<0>"
		case strings.HasPrefix(kind, "NET/IB"):
			name, rest, _ := strings.Cut(m[2], ":")
			number, _, _ := strings.Cut(rest, "/")
			port, _ := strconv.Atoi(number) // 0 where there is none
			known.rdma[n] = []device{{name, port}}
		case kind == "NET/Socket":
			name, _, _ := strings.Cut(m[2], ":")
			known.tcp[n] = []device{{name: name}}
		}
	}
}

// ncclChannel reads by which device a channel goes. Others go by NVLink or shared memory.
func (p *parser) ncclChannel(at process, said string) {
	m := ncclChannel.FindStringSubmatch(said)
	if m == nil {
		return
	}
	p.log.Lines++
	via := ncclVia.FindStringSubmatch(m[1])
	if via == nil {
		p.use(key{at, NCCL, Unnamed, m[1], 0}, 0)
		return
	}
	kind, suffix := via[1], via[3]
	n, err := strconv.Atoi(via[2])
	direct := 0
	if strings.Contains(suffix, "/GDRDMA") {
		direct = 1
	}
	var devices []device
	way := Unnamed
	if known := p.nccl[at]; known != nil && err == nil {
		switch {
		case strings.HasPrefix(kind, "IB"): // also the plugins: IBext_v8
			devices, way = known.rdma[n], RDMA
		case kind == "Socket":
			devices, way = known.tcp[n], TCP
		}
	}
	if len(devices) == 0 {
		p.use(key{at, NCCL, Unnamed, kind + "/" + via[2], 0}, direct)
	}
	for _, d := range devices {
		p.use(key{at, NCCL, way, d.name, d.port}, direct)
	}
}
