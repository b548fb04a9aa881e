package audit

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/text"
)

// numbered maps the numbers that NCCL gives to the network devices of a process, and uses in the lines of channels, to
// these devices. A number with several devices stands for a device that NCCL merged from them.
type numbered map[int][]device

type device struct {
	name string
	port int
}

// The lines of NCCL. Each begins with host:pid:thread [GPU] NCCL INFO, and before that stands whatever
// mpirun, pdsh or a container runtime puts there.
// Source: NVIDIA/nccl 2.4 to 2.30, src/debug.cc (the prefix), src/transport/net_ib.cc ("NET/IB : Using", "Made
// virtual device", GPUDirect RDMA "(no module)"), src/transport/net_socket.cc, src/transport/net.cc ("Channel",
// "Ring" before 2.5), src/graph/topo.cc ("NET/... : GPU Direct RDMA Enabled for HCA"), src/graph/paths.cc (the
// distance), src/transport/generic.cc ("GDR 0"); logs in issues 1412, 1814 and 1053 there.
var (
	ncclPrefix   = regexp.MustCompile(`(?:^|[\s:>|)\]])([^\s:>|)\]]+):(\d+):\d+ \[-?\d+\] NCCL INFO (.*)$`)
	ncclListed   = regexp.MustCompile(`\[(\d+)\]([^\s\[\]]+)`)
	ncclVirtual  = regexp.MustCompile(`^NET/([^ ]+) : Made virtual device \[(\d+)\] name=(\S+)`)
	ncclChannel  = regexp.MustCompile(`^(?:Channel|Ring) \d+(?:/\d+)? ?: .* via NET/(.+)$`)
	ncclVia      = regexp.MustCompile(`^(.+?)/(\d+)(?:\(\d+\))?((?:/.*)?)$`)
	ncclDirect   = regexp.MustCompile(`^(?:NET/(.+?) : )?GPU Direct RDMA ((Enabled|Disabled) for (?:GPU \S+ / )?HCA ([0-9a-f]+)(?: '([^']*)')?.*)$`)
	ncclConnects = regexp.MustCompile(`^Connected all rings, .*\bGDR 0\b`)
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
	if m := ncclDirect.FindStringSubmatch(said); m != nil {
		p.ncclGPUDirect(at, m)
		return
	}
	switch {
	case strings.HasPrefix(said, "NET/"):
		p.ncclDevices(at, said)
	case strings.HasPrefix(said, "Connected") && ncclConnects.MatchString(said):
		if h := p.host(at.host); h != nil {
			h.NoGDR = true
		}
	default:
		p.ncclChannel(at, said)
	}
}

// numbers are the devices of a process behind one of NCCL's networks, nil where there are too many processes.
// The plugins that are called IB too (IBext_v8) number devices as NCCL itself does.
func (p *parser) numbers(at process, network string) numbered {
	if strings.HasPrefix(network, "IB") {
		network = "IB"
	}
	known := p.nccl[at]
	if known == nil {
		if len(p.nccl) == maxUses || p.host(at.host) == nil {
			p.log.Left++
			return nil
		}
		known = map[string]numbered{}
		p.nccl[at] = known
	}
	if known[network] == nil {
		if len(known) == maxListed || len(network) > maxName {
			p.log.Left++
			return nil
		}
		known[network] = numbered{}
	}
	return known[network]
}

// list notes RDMA devices that NCCL names.
func (p *parser) list(host string, names ...string) {
	for _, name := range names {
		if h := p.host(host); h != nil && name != "" && len(name) <= maxName && len(h.Listed) < maxIndex && !slices.Contains(h.Listed, name) {
			h.Listed = append(h.Listed, name)
		}
	}
}

// ncclDevices reads how the network devices are numbered.
func (p *parser) ncclDevices(at process, said string) {
	if m := ncclVirtual.FindStringSubmatch(said); m != nil {
		numbers := p.numbers(at, m[1])
		if n, err := strconv.Atoi(m[2]); err == nil && n < maxIndex && numbers != nil {
			numbers[n] = merged(m[3])
		}
		return
	}
	network, list, ok := strings.Cut(strings.TrimPrefix(said, "NET/"), " : Using ")
	if !ok {
		return
	}
	numbers := p.numbers(at, network)
	list, _, _ = strings.Cut(list, "; OOB") // the interface by which ranks find each other
	for _, m := range ncclListed.FindAllStringSubmatch(list, maxListed) {
		n, err := strconv.Atoi(m[1])
		if err != nil || n >= maxIndex || numbers == nil {
			continue
		}
		name, rest, _ := strings.Cut(m[2], ":") // "mlx5_0:1/RoCE", "eth0:10.0.0.1<0>"
		d := device{name: name}
		if network != socket {
			number, _, _ := strings.Cut(rest, "/")
			d.port, _ = strconv.Atoi(number) // 0 if the log names none
			p.list(at.host, name)
		}
		numbers[n] = []device{d}
	}
}

// socket is NCCL's name of its network over TCP.
const socket = "Socket"

// merged lists the devices that NCCL merged into one.
func merged(name string) []device {
	var members []device
	for one := range strings.SplitSeq(name, "+") {
		members = append(members, device{name: one})
	}
	return members[:min(len(members), maxListed)]
}

// ncclGPUDirect reads whether a device can reach GPU memory. Where the line has the device's number and name, it
// also tells how a plugin numbers its devices. A line without a name is about one GPU and one device.
func (p *parser) ncclGPUDirect(at process, m []string) {
	network, said, disabled, name := m[1], m[2], m[3] == "Disabled", m[5]
	if network == socket {
		return
	}
	if n, err := strconv.Atoi(m[4]); err == nil && n < maxIndex && name != "" {
		if numbers := p.numbers(at, network); numbers != nil && len(numbers[n]) == 0 {
			numbers[n] = merged(name)
		}
		p.list(at.host, strings.Split(name, "+")...)
	}
	h := p.host(at.host)
	if h == nil || !disabled {
		return
	}
	kept := &h.Disabled
	if name == "" {
		kept = &h.Far
	}
	if d := (Disabled{name, text.Cut(said, maxSaid, "...")}); len(name) <= maxName && len(*kept) < maxListed && !slices.Contains(*kept, d) {
		*kept = append(*kept, d)
	}
}

// ncclChannel reads which device a channel uses. Other channels use NVLink or shared memory.
func (p *parser) ncclChannel(at process, said string) {
	m := ncclChannel.FindStringSubmatch(said)
	if m == nil {
		return
	}
	network, number, suffix := m[1], "", ""
	if via := ncclVia.FindStringSubmatch(m[1]); via != nil {
		network, number, suffix = via[1], via[2], via[3]
	}
	direct := 0
	if strings.Contains(suffix, "/GDRDMA") {
		direct = 1
	}
	if h := p.host(at.host); h != nil && network != socket {
		h.Channels++
		h.Direct += direct
	}
	var devices []device
	if n, err := strconv.Atoi(number); err == nil {
		devices = p.numbers(at, network)[n]
	}
	way := RDMA
	switch {
	case network == socket:
		way = TCP
	case len(devices) == 0:
		way = Unnamed
	}
	if len(devices) == 0 {
		devices = []device{{name: strings.TrimSuffix(network+"/"+number, "/")}}
	}
	for _, d := range devices {
		p.use(key{at, NCCL, way, d.name, d.port}, direct)
	}
}
