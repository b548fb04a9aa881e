package predict

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/internal/app/sim"
)

// Places hands the GPUs of hosts out to instances, each GPU once and in the order of its host.
type Places struct {
	hosts []sim.HostSpec
	taken []int // GPUs of each host
}

// NewPlaces has all GPUs of all hosts free.
func NewPlaces(hosts []sim.HostSpec) *Places { return &Places{hosts, make([]int, len(hosts))} }

// Place gives an instance of tp ranks GPUs of the hosts with these numbers: of the first host that
// has as many free. Only an instance that none of these hosts could ever hold is split: it takes
// what is free of the first one, then of the next. With pp pipeline stages (0 is 1) each stage is placed so,
// on hosts behind those of the stage before. The error says what is free.
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

// stage finds GPUs for tp ranks, if whole on one host, and how many of the hosts that needs from the
// first on; it takes none.
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

// largest is how many GPUs the host has that has the most.
func (p *Places) largest(on []int) int {
	most := 0
	for _, h := range on {
		most = max(most, len(p.hosts[h].Kind.Host().GPUs()))
	}
	return most
}

// full says what is free of hosts that have no room.
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
