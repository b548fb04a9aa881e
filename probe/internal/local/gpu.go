package local

import (
	"errors"
	"fmt"
	"sync"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cuda"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

// gpus are the GPUs of this host as CUDA shows them.
type gpus struct {
	lib *cuda.Lib

	mu       sync.Mutex
	contexts map[int]*cuda.Context // by CUDA's ordinal
	peers    map[[2]int]bool       // two of one pair that is measured, by ordinals, the smaller first
}

// cuda loads CUDA on the first call; the error says why there is none.
func (p *Prober) cuda() (*gpus, error) {
	p.cudaOnce.Do(func() {
		lib, err := p.o.CUDA()
		if err != nil {
			p.cudaErr = err
			return
		}
		p.gpus = &gpus{lib: lib, contexts: map[int]*cuda.Context{}, peers: map[[2]int]bool{}}
	})
	switch {
	case errors.Is(p.cudaErr, cuda.ErrUnavailable):
		return nil, lane.Waive(p.cudaErr)
	case p.cudaErr != nil:
		return nil, p.cudaErr
	case p.gpus == nil:
		return nil, errors.New("the prober is closed")
	}
	return p.gpus, nil
}

// context is the context of a GPU of the topology, found by its PCI address.
func (g *gpus) context(t *topo.Topology, id topo.ID) (*cuda.Context, error) {
	var gpu *topo.GPU
	for i := range t.GPUs {
		if t.GPUs[i].ID == id {
			gpu = &t.GPUs[i]
		}
	}
	switch {
	case gpu == nil:
		return nil, fmt.Errorf("%s: the topology has no such GPU", id)
	case gpu.BDF == nil:
		return nil, waivef("the PCI address of %s is not known, by which CUDA is asked for it", id)
	}
	for _, d := range g.lib.Devices() {
		if at, err := topo.ParseBDF(d.PCIBusID); err == nil && at == *gpu.BDF {
			return g.retain(d.Ordinal)
		}
	}
	return nil, waivef("CUDA does not show %s (%s) to this process: look at CUDA_VISIBLE_DEVICES and nvidia-smi", id, gpu.BDF)
}

func (g *gpus) retain(ordinal int) (*cuda.Context, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.contexts[ordinal]; c != nil {
		return c, nil
	}
	c, err := g.lib.Retain(ordinal)
	if err != nil {
		return nil, err
	}
	g.contexts[ordinal] = c
	return c, nil
}

// setPeerAccess enables or prevents access of two GPUs to each other until done. Rounds have no GPU in two pairs.
func (g *gpus) setPeerAccess(a, b *cuda.Context, on bool) (done func() error, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := [2]int{min(a.Info().Ordinal, b.Info().Ordinal), max(a.Info().Ordinal, b.Info().Ordinal)}
	if g.peers[key] {
		return nil, errors.New("another pair of the round has these GPUs: measure in separate rounds")
	}
	enabled, err := enablePeers(a, b, on)
	if err != nil || !on {
		err, enabled = errors.Join(err, disablePeers(enabled)), nil
	}
	if err != nil {
		return nil, err
	}
	g.peers[key] = true
	return func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.peers, key)
		return disablePeers(enabled)
	}, nil
}

// enablePeers enables access in the directions that exist, and returns those that it changed. If access is to be
// off, that shows whether other code of this process has enabled it, which would go unnoticed.
func enablePeers(a, b *cuda.Context, on bool) (enabled [][2]*cuda.Context, err error) {
	direct := 0
	for _, x := range [][2]*cuda.Context{{a, b}, {b, a}} {
		can, err := x[0].CanAccessPeer(x[1])
		if err != nil {
			return enabled, err
		}
		if !can {
			continue
		}
		direct++
		err = x[0].EnablePeer(x[1])
		switch {
		case err == nil:
			enabled = append(enabled, x)
		case errors.Is(err, cuda.PeerAlreadyEnabled) && on:
		case errors.Is(err, cuda.PeerAlreadyEnabled):
			return enabled, waivef("peer access between %s and %s was enabled by other code of this process", a.Info().PCIBusID, b.Info().PCIBusID)
		default:
			return enabled, err
		}
	}
	if on && direct == 0 {
		err = waivef("the driver gives no peer access between %s and %s", a.Info().PCIBusID, b.Info().PCIBusID)
	}
	return enabled, err
}

func disablePeers(enabled [][2]*cuda.Context) error {
	var errs []error
	for _, x := range enabled {
		errs = append(errs, x[0].DisablePeer(x[1]))
	}
	return errors.Join(errs...)
}

// close releases the contexts.
func (g *gpus) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, c := range g.contexts {
		errs = append(errs, c.Release())
	}
	clear(g.contexts)
	return errors.Join(errs...)
}
