package serve

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/internal/sim"
)

// Places assigns the GPUs of hosts to instances, each GPU once and in the order of its host.
type Places struct {
	hosts []sim.HostSpec
	taken []int // GPUs of each host
}

// NewPlaces starts with all GPUs of all hosts free.
func NewPlaces(hosts []sim.HostSpec) *Places { return &Places{hosts, make([]int, len(hosts))} }

// Place assigns an instance of tp ranks GPUs of the hosts with these indices: those of the first host
// with enough free. Only an instance that is too large for every one of these hosts is split: it gets
// the free GPUs of the first host, then those of the next. With pp pipeline stages (0 is 1) each stage
// is placed that way, on hosts after those of the previous stage. The error says what is free.
func (p *Places) Place(on []int, tp, pp int) (Instance, error) {
	var out Instance
	left, whole := on, p.largest(on) >= tp
	for range max(pp, 1) {
		ranks, used := p.stage(left, tp, whole)
		if ranks == nil {
			return nil, p.full(on, tp, pp)
		}
		out, left = append(out, ranks...), left[used:]
	}
	for _, r := range out {
		p.taken[r.Host]++
	}
	return out, nil
}

// stage finds GPUs for tp ranks, on one host if whole is set, and how many of the hosts that uses,
// counted from the first. It does not assign them.
func (p *Places) stage(on []int, tp int, whole bool) (Instance, int) {
	var out Instance
	for i, h := range on {
		free := p.hosts[h].Kind.Host().GPUs()[p.taken[h]:]
		if whole && len(free) < tp {
			continue
		}
		for _, at := range free[:min(len(free), tp-len(out))] {
			out = append(out, Rank{Host: h, Location: at})
		}
		if len(out) == tp {
			return out, i + 1
		}
	}
	return nil, 0
}

// largest is the number of GPUs of the largest host.
func (p *Places) largest(on []int) int {
	most := 0
	for _, h := range on {
		most = max(most, len(p.hosts[h].Kind.Host().GPUs()))
	}
	return most
}

// full is the error that lists what is free.
func (p *Places) full(on []int, tp, pp int) error {
	const named = 4
	var free []string
	for i, h := range on {
		if i == named && len(on) > named+1 {
			free = append(free, fmt.Sprintf("and %d more", len(on)-named))
			break
		}
		gpus := len(p.hosts[h].Kind.Host().GPUs())
		free = append(free, fmt.Sprintf("%s has %d of %d GPUs free", p.hosts[h].Name, gpus-p.taken[h], gpus))
	}
	what, where := fmt.Sprintf("TP%d", tp), "no host has"
	if pp > 1 {
		what += fmt.Sprintf(" PP%d", pp)
	}
	if pp > 1 || p.largest(on) < tp {
		where = "there is no"
	}
	return fmt.Errorf("%s room for %s: %s", where, what, strings.Join(free, ", "))
}
