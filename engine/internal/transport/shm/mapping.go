package shm

import (
	"fmt"
	"os"
	"sync/atomic"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

const (
	// prefaultStep is what is made known to our page tables at once.
	prefaultStep = 2 << 20
	// maxRegion is the largest that is mapped: a peer's word must not use up our
	// addresses.
	maxRegion = 1 << 42
)

// mapping is a peer's region as one connection sees it. All but touched is under
// the connection's mutex; block stays while refs is above 0.
type mapping struct {
	id     memory.ID
	state  mapState
	err    error // refused, closed
	grant  memory.Grant
	bytes  int64
	block  *memory.Block
	refs   int        // spans of requests that use it
	device *farDevice // of device memory: block is nil

	touched []atomic.Uint64 // a bit for each prefaultStep
}

type mapState uint8

const (
	asking mapState = iota // the peer was asked for it
	ready
	refused // or revoked
)

// answer fills in what the peer answered. fd is -1 without a descriptor, at finds a device of
// the peer's.
func (m *mapping) answer(f frame, fd int, at func(place uint8) *farDevice) {
	m.state = refused
	reached := f.status == windowed
	switch {
	case f.status != ok && !reached:
		m.err = f.status.err()
	case (fd < 0) != reached || reached && f.place >= maxPlaces || f.bytes == 0 || f.bytes > maxRegion || f.grant == 0 || f.grant&^(memory.PeerRead|memory.PeerWrite) != 0:
		m.err = fmt.Errorf("a wrong answer (%d bytes, grant %#x, descriptor %t)", f.bytes, uint8(f.grant), fd >= 0)
	case reached:
		m.state, m.device, m.grant, m.bytes = ready, at(f.place), f.grant, int64(f.bytes)
	default:
		block, err := memory.Map(fd, int64(f.bytes), f.grant&memory.PeerWrite != 0)
		if err != nil {
			m.err = err
			return
		}
		m.state, m.block, m.grant, m.bytes = ready, block, f.grant, int64(f.bytes)
		m.touched = make([]atomic.Uint64, m.bytes/prefaultStep/64+1)
	}
}

// revoke refuses the region from now on; it is unmapped after its last use.
func (m *mapping) revoke(err error) {
	m.state, m.err = refused, err
	m.unmapUnused()
}

func (m *mapping) unmapUnused() {
	if m.state == refused && m.refs == 0 && m.block != nil {
		if err := m.block.Free(); err != nil {
			m.err = fmt.Errorf("%w; %w", m.err, err)
		}
		m.block, m.touched = nil, nil
	}
}

// check says why a span cannot be moved.
func (m *mapping) check(op transport.Op, s *transport.Span) error {
	if m.state == refused {
		return refusal(s, m.err)
	}
	if s.RemoteOffset < 0 || s.Bytes < 0 {
		return refusal(s, memory.ErrRange)
	}
	if m.state == asking {
		return nil
	}
	want := memory.PeerRead
	if op == transport.Write {
		want = memory.PeerWrite
	}
	if m.grant&want == 0 {
		return refusal(s, memory.ErrDenied)
	}
	if s.RemoteOffset > m.bytes || s.Bytes > m.bytes-s.RemoteOffset {
		return refusal(s, memory.ErrRange)
	}
	return nil
}

func refusal(s *transport.Span, err error) error {
	return pkgerr.Errorf("shm", "%w: region %#x: %d bytes at %d: %w", transport.ErrRefused, uint64(s.Remote.ID), s.Bytes, s.RemoteOffset, err)
}

// at are the bytes of a span's part, with their pages made known.
func (m *mapping) at(offset, length int64) []byte {
	for i := offset / prefaultStep; i*prefaultStep < offset+length; i++ {
		if m.touched[i/64].Load()&(1<<(i%64)) == 0 {
			m.touch(i)
		}
	}
	return m.block.Bytes()[offset : offset+length]
}

// touch makes one step's pages known. Two that do it at once do no harm.
func (m *mapping) touch(i int64) {
	end := min((i+1)*prefaultStep, m.bytes)
	// Page tables know whole pages; the last one is there although Bytes ends in it.
	page := int64(os.Getpagesize())
	if end = end / page * page; end > i*prefaultStep {
		prefault(m.block.Bytes()[i*prefaultStep:end], m.grant&memory.PeerWrite != 0)
	}
	m.touched[i/64].Or(1 << (i % 64))
}
