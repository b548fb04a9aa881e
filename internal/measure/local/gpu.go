package local

import (
	"errors"
	"fmt"
	"sync"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cuda"
	"github.com/topoctl/topoctl/internal/measure/lane"
)

// gpus are the GPUs of this host as CUDA shows them.
type gpus struct {
	lib *cuda.Lib

	mu       sync.Mutex
	contexts map[int]*cuda.Context  // by CUDA's ordinal
	peers    map[[2]int]*peerAccess // by ordinals, the smaller first
}

// peerAccess says what the current pairs need of two GPUs: access to each other, or none.
type peerAccess struct {
	on      bool
	users   int
	enabled [][2]*cuda.Context // by us
}

// cuda loads CUDA on the first call; the error says why there is none.
func (p *Prober) cuda() (*gpus, error) {
	p.cudaOnce.Do(func() {
		lib, err := p.o.CUDA()
		if err != nil {
			p.cudaErr = err
			return
		}
		p.gpus = &gpus{lib: lib, contexts: map[int]*cuda.Context{}, peers: map[[2]int]*peerAccess{}}
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

// setPeerAccess enables or prevents access of two GPUs to each other until done.
func (g *gpus) setPeerAccess(a, b *cuda.Context, on bool) (done func() error, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := [2]int{min(a.Info().Ordinal, b.Info().Ordinal), max(a.Info().Ordinal, b.Info().Ordinal)}
	p := g.peers[key]
	if p != nil && p.on != on {
		return nil, errors.New("peer access cannot be on and off at the same time: measure in separate rounds")
	}
	if p == nil {
		p = &peerAccess{on: on}
		if err := p.begin(a, b); err != nil {
			return nil, errors.Join(err, p.end())
		}
		g.peers[key] = p
	}
	p.users++
	return func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if p.users--; p.users > 0 {
			return nil
		}
		delete(g.peers, key)
		return p.end()
	}, nil
}

// begin enables access in the directions that exist. If access is to be off, it only checks that no other
// code of this process has enabled it, which would go unnoticed.
func (p *peerAccess) begin(a, b *cuda.Context) error {
	direct := 0
	for _, x := range [][2]*cuda.Context{{a, b}, {b, a}} {
		can, err := x[0].CanAccessPeer(x[1])
		if err != nil {
			return err
		}
		if !can {
			continue
		}
		direct++
		err = x[0].EnablePeer(x[1])
		switch {
		case err == nil:
			p.enabled = append(p.enabled, x)
		case errors.Is(err, cuda.PeerAlreadyEnabled) && p.on:
		case errors.Is(err, cuda.PeerAlreadyEnabled):
			return waivef("peer access between %s and %s was enabled by other code of this process", a.Info().PCIBusID, b.Info().PCIBusID)
		default:
			return err
		}
	}
	if p.on && direct == 0 {
		return waivef("the driver gives no peer access between %s and %s", a.Info().PCIBusID, b.Info().PCIBusID)
	}
	if !p.on {
		return p.end()
	}
	return nil
}

func (p *peerAccess) end() error {
	var errs []error
	for _, x := range p.enabled {
		errs = append(errs, x[0].DisablePeer(x[1]))
	}
	p.enabled = nil
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
