package soak

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/topoctl/topoctl/engine"
)

const (
	zoneBytes   = 64 << 10
	zones       = 16
	stripeBytes = zones * zoneBytes
)

// stripe is the part of both regions that one worker has for itself, with shadows
// that say what each byte must be.
type stripe struct {
	peer         *engine.Peer
	rng          *rand.Rand
	base         int64
	local        *engine.Region
	remote       *engine.RemoteRegion
	here, far    []byte // the bytes themselves
	wantH, wantF []byte
	bytes        int64
	batches      int
	longest      time.Duration
	deadline     time.Duration
}

// newStripe is number n. there are the bytes of the remote region, as they can be seen here.
func newStripe(peer *engine.Peer, n int, local *engine.Region, there []byte, remote *engine.RemoteRegion) *stripe {
	base := int64(n) * stripeBytes
	return &stripe{
		peer: peer, rng: rand.New(rand.NewPCG(uint64(n), 99)), base: base, local: local, remote: remote,
		here: local.Bytes()[base : base+stripeBytes], far: there[base : base+stripeBytes],
		wantH: make([]byte, stripeBytes), wantF: make([]byte, stripeBytes), deadline: time.Minute,
	}
}

// noise fills a side and its shadow: whoever owns that memory uses it for
// something else now.
func (s *stripe) noise(side, shadow []byte) {
	x := s.rng.Uint64() | 1
	for at := 0; at < len(shadow); at += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(shadow[at:], x)
	}
	copy(side, shadow)
}

// ops are some for each zone of the local side, in any zone of the remote one.
func (s *stripe) ops(read bool) []engine.Op {
	var out []engine.Op
	for zone, to := range s.rng.Perm(zones) {
		local, remote := int64(zone)*zoneBytes, int64(to)*zoneBytes
		op := engine.Op{}
		if read {
			op.Kind = engine.Read
		}
		switch s.rng.IntN(4) {
		case 0: // contiguous
			size := 1 + s.rng.Int64N(zoneBytes)
			local += s.rng.Int64N(zoneBytes - size + 1)
			remote += s.rng.Int64N(zoneBytes - size + 1)
			op.Local.Length = size
		case 1: // strides
			size := 1 + s.rng.Int64N(2048)
			l := &engine.Layout{Bytes: size, LocalStride: size + s.rng.Int64N(512), RemoteStride: size + s.rng.Int64N(512)}
			l.Count = 1 + s.rng.IntN(int(zoneBytes/max(l.LocalStride, l.RemoteStride)))
			op.Layout = l
		default: // pages
			const page = 4096
			n := 1 + s.rng.IntN(zoneBytes/page)
			l := &engine.Layout{Bytes: 1 + s.rng.Int64N(page), Count: n, LocalStride: page, RemoteStride: page}
			for _, i := range s.rng.Perm(zoneBytes / page)[:n] {
				l.LocalPages = append(l.LocalPages, uint32(i))
			}
			for _, i := range s.rng.Perm(zoneBytes / page)[:n] {
				l.RemotePages = append(l.RemotePages, uint32(i))
			}
			op.Layout = l
		}
		s.apply(&op, local, remote)
		op.Local.Region, op.Local.Offset = s.local, s.base+local
		op.Remote = s.remote.At(s.base + remote)
		out = append(out, op)
	}
	return out
}

// apply does to the shadows what the op must do.
func (s *stripe) apply(op *engine.Op, local, remote int64) {
	l := op.Layout
	if l == nil {
		l = &engine.Layout{Bytes: op.Local.Length, Count: 1}
	}
	for k := range int64(l.Count) {
		i, j := k, k
		if l.LocalPages != nil {
			i, j = int64(l.LocalPages[k]), int64(l.RemotePages[k])
		}
		h := s.wantH[local+i*l.LocalStride:][:l.Bytes]
		f := s.wantF[remote+j*l.RemoteStride:][:l.Bytes]
		if op.Kind == engine.Read {
			copy(h, f)
		} else {
			copy(f, h)
		}
	}
	s.bytes += l.Bytes * int64(l.Count)
}

// round writes, looks, uses the peer's memory for something else, reads, looks. A
// WRITE of the first batch that lands late is found by the second look.
func (s *stripe) round() error {
	s.noise(s.here, s.wantH)
	if err := s.batch(false); err != nil {
		return err
	}
	s.noise(s.far, s.wantF)
	return s.batch(true)
}

// wrongByte is what no engine may ever do: a batch that is done, and memory that is not as it must be.
type wrongByte string

func (w wrongByte) Error() string { return string(w) }

func (s *stripe) batch(read bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.deadline)
	defer cancel()
	start := time.Now()
	b, err := s.peer.Submit(ctx, s.ops(read), engine.SubmitOptions{HighPriority: s.rng.IntN(8) == 0})
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	if err := b.Wait(context.Background()); err != nil {
		return fmt.Errorf("batch %d (read: %v): %w\n%s", s.batches, read, err, b.Explain().Text())
	}
	s.batches++
	s.longest = max(s.longest, time.Since(start))
	if at := differ(s.here, s.wantH); at >= 0 {
		return wrongByte(fmt.Sprintf("batch %d (read: %v): wrong byte at %d here: %#x, want %#x", s.batches, read, at, s.here[at], s.wantH[at]))
	}
	if at := differ(s.far, s.wantF); at >= 0 {
		return wrongByte(fmt.Sprintf("batch %d (read: %v): wrong byte at %d of the peer: %#x, want %#x", s.batches, read, at, s.far[at], s.wantF[at]))
	}
	return nil
}
