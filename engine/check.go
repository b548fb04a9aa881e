package engine

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/internal/sched"
)

// checkOf is what a batch wants, and if it leaves that open, the engine.
func (e *Engine) checkOf(want Check) Check {
	if want == CheckAuto {
		return e.o.Check
	}
	return want
}

// checks says whether the slices of a job carry checksums; by default they do if bytes leave this host.
func (e *Engine) checks(want Check, r *route) bool {
	want = e.checkOf(want)
	return want == CheckAlways || want == CheckDigest || want == CheckAuto && r.leaves.Load()
}

// uncheckedOver are the transports that carry bytes away and make no checksums.
func (p *Peer) uncheckedOver(r *route) []string {
	return p.carriersOf(r, func(g *group) bool { return g.leaves && !g.carrier.caps.Checks })
}

// carriersOf are the transports of a route that have lanes and what is wanted.
func (p *Peer) carriersOf(r *route, wanted func(*group) bool) []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var out []string
	for i := range r.groups {
		if g := &r.groups[i]; len(g.lanes) > 0 && wanted(g) {
			out = append(out, g.carrier.name)
		}
	}
	return out
}

// notOver adds to the reason of checks what they do not cover.
func notOver(reason string, unchecked []string, digest bool) string {
	if len(unchecked) == 0 || strings.HasPrefix(reason, "no checksums") {
		return reason
	}
	over := strings.Join(dedupe(unchecked), " and ")
	if digest {
		return fmt.Sprintf("%s; over %s it is the digest", reason, over)
	}
	return fmt.Sprintf("%s; over %s there is none but what the network itself checks", reason, over)
}

// checkReason puts in words what checks says.
func (e *Engine) checkReason(want Check, leaves bool) string {
	who, always := "the batch", ""
	if want == CheckAuto {
		who, always = "the engine", "always "
	}
	switch e.checkOf(want) {
	case CheckAlways:
		return "a checksum for each slice: " + who + " " + always + "wants it"
	case CheckDigest:
		return "a checksum for each slice, or a digest of the batch: " + who + " " + always + "wants it"
	case CheckNever:
		return "no checksums: " + who + " wants none"
	}
	if leaves {
		return "a checksum for each slice: bytes leave this host"
	}
	return "no checksums: bytes stay on this host"
}

// A digest compares a range here with one of a peer without moving it: both ends make tags of
// their bytes with a key that is used once (docs/wire.md, Calls between engines).
const (
	digestKeyBytes   = 32
	digestTagBytes   = 16
	digestRangeBytes = 3 * 8 // of a range in the call
	// digestPiece is what of a range one tag is for at most.
	digestPiece = 128 << 10
	// One call asks for this much at most, so that it takes milliseconds.
	maxDigestRanges = 4096
	maxDigestBytes  = 64 << 20
)

// place is a range in a region, as the call has it.
type place struct {
	region         mem.ID
	offset, length uint64
}

// digestBody: the key, then region, offset and length of each range.
func digestBody(key []byte, places []place) []byte {
	b := append(make([]byte, 0, len(key)+len(places)*digestRangeBytes), key...)
	for _, p := range places {
		b = binary.BigEndian.AppendUint64(b, uint64(p.region))
		b = binary.BigEndian.AppendUint64(b, p.offset)
		b = binary.BigEndian.AppendUint64(b, p.length)
	}
	return b
}

func parseDigest(b []byte) (key []byte, places []place, tags int, err error) {
	if len(b) < digestKeyBytes || (len(b)-digestKeyBytes)%digestRangeBytes != 0 {
		return nil, nil, 0, fmt.Errorf("digest: %w", errMalformed)
	}
	key, b = b[:digestKeyBytes], b[digestKeyBytes:]
	if n := len(b) / digestRangeBytes; n > maxDigestRanges {
		return nil, nil, 0, fmt.Errorf("digest of %d ranges: %w: %d", n, ErrLimit, maxDigestRanges)
	}
	left := uint64(maxDigestBytes)
	for ; len(b) > 0; b = b[digestRangeBytes:] {
		p := place{mem.ID(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])}
		if p.length > left {
			return nil, nil, 0, fmt.Errorf("digest of more than %d bytes: %w", maxDigestBytes, ErrLimit)
		}
		left -= p.length
		places, tags = append(places, p), tags+digestTags(p.length)
	}
	return key, places, tags, nil
}

// digestTags is how many tags a range has.
func digestTags(length uint64) int { return int((length + digestPiece - 1) / digestPiece) }

// digester makes the tags of one call: AES-256-GCM of no plaintext, with the number of the tag in
// the call as the nonce.
type digester struct {
	aead   cipher.AEAD
	nonce  [12]byte
	buffer []byte // for memory that the processor does not reach
}

func newDigester(key []byte) *digester {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // a key of 32 bytes is one
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return &digester{aead: aead}
}

// add appends the tags of a range. The caller holds a pin and has checked the range.
func (d *digester) add(ctx context.Context, tags []byte, r *mem.Region, offset, length uint64) ([]byte, error) {
	for length > 0 {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		n := min(length, digestPiece)
		b := r.Bytes(int64(offset), int64(n))
		if b == nil {
			if d.buffer == nil {
				d.buffer = make([]byte, digestPiece)
			}
			b = d.buffer[:n]
			if _, err := r.Block().ReadAt(b, int64(offset)); err != nil {
				return nil, err
			}
		}
		tags = d.aead.Seal(tags, d.nonce[:], nil, b)
		binary.BigEndian.PutUint32(d.nonce[8:], binary.BigEndian.Uint32(d.nonce[8:])+1)
		offset, length = offset+n, length-n
	}
	return tags, nil
}

// digest answers a peer with the tags of what it may read.
func (e *Engine) digest(ctx context.Context, rights *mem.Rights, body []byte) ([]byte, error) {
	key, places, count, err := parseDigest(body)
	if err != nil {
		return nil, err
	}
	d, tags := newDigester(key), make([]byte, 0, count*digestTagBytes)
	for _, p := range places {
		r, err := e.table.PinFor(rights, p.region, p.offset, p.length, mem.PeerRead)
		if err == nil {
			tags, err = d.add(ctx, tags, r, p.offset, p.length)
			r.Unpin()
		}
		if err != nil {
			return nil, err
		}
	}
	return tags, nil
}

// wantsDigest says whether a batch's bytes are to be compared at its end where they went over a
// transport that makes no checksums.
func (e *Engine) wantsDigest(want Check) bool {
	return e.checkOf(want) == CheckDigest
}

// compares says whether CheckDigest compares what goes over the transport.
func (c *carrier) compares() bool { return !c.caps.SameHost && !c.caps.Checks }

// uncompared are the parts of which bytes have left by transports that make no checksums.
func (b *Batch) uncompared() (out []*part) {
	for _, p := range b.parts {
		if slices.ContainsFunc(p.result.Lanes, func(u sched.LaneUse) bool { return u.User.(*lane).carrier.compares() }) {
			out = append(out, p)
		}
	}
	return out
}

// checkDigest refuses a batch that could not be compared at its end.
func (b *Batch) checkDigest() error {
	for _, p := range b.parts {
		over := b.peer.carriersOf(p.route, func(g *group) bool { return g.carrier.compares() })
		for i := range p.ops {
			if r := b.remotes[p.ops[i].Remote]; len(over) > 0 && r.t.Grant&mem.PeerRead == 0 {
				return &OpError{Op: int(p.places[i].op), Err: fmt.Errorf("region %q of the peer: it may not be read, and a digest of what goes over %s tells what is there: %w", r.name, over[0], ErrDenied)}
			}
		}
	}
	return nil
}

// comparison is a call that is being put together.
type comparison struct {
	batch  *Batch
	ctx    context.Context
	places []place
	own    []comparand
	bytes  uint64
}

// comparand is the side here of a place.
type comparand struct {
	region *mem.Region
	offset uint64
	part   *part
	op     int
}

// compare compares all bytes of parts with the peer's.
func (b *Batch) compare(ctx context.Context, parts []*part) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(b.deadline-b.engine.now()), sched.ErrDeadline)
	defer cancel()
	c := &comparison{batch: b, ctx: ctx}
	for _, p := range parts {
		for i := range p.ops {
			if err := c.op(p, i); err != nil {
				return err
			}
		}
	}
	return c.call()
}

// op adds the pieces of an op, and calls where they are enough.
func (c *comparison) op(p *part, i int) error {
	o := &p.ops[i]
	near, far := sideOf(o, 0, byteRange{}, false), sideOf(o, 0, byteRange{}, true)
	local, remote := c.batch.locals[o.Local].r, c.batch.remotes[o.Remote].t.ID
	for k := range o.Count {
		here, there := uint64(near.piece(k).lo), uint64(far.piece(k).lo)
		for left := uint64(o.Bytes); left > 0; {
			n := min(left, maxDigestBytes-c.bytes)
			c.places = append(c.places, place{remote, there, n})
			c.own = append(c.own, comparand{local, here, p, i})
			c.bytes += n
			here, there, left = here+n, there+n, left-n
			if c.bytes == maxDigestBytes || len(c.places) == maxDigestRanges {
				if err := c.call(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// call asks for the peer's tags and compares them with those of the bytes here.
func (c *comparison) call() error {
	if len(c.places) == 0 {
		return nil
	}
	b := c.batch
	key := make([]byte, digestKeyBytes)
	_, _ = rand.Read(key) // it does not fail
	theirs, err := b.peer.callEngine(c.ctx, methodDigest, digestBody(key, c.places))
	if err != nil {
		if c.ctx.Err() != nil {
			err = context.Cause(c.ctx)
		}
		return fmt.Errorf("the bytes were moved, but they could not be compared with the peer's: %w", b.peer.because(err))
	}
	d, own := newDigester(key), []byte(nil)
	for i, at := range c.own {
		p := c.places[i]
		if own, err = d.add(c.ctx, own[:0], at.region, at.offset, p.length); err != nil {
			return fmt.Errorf("the bytes were moved, but they could not be compared with the peer's: %w", err)
		}
		if len(theirs) < len(own) {
			return errors.New("the bytes were moved, but they could not be compared with the peer's: its digest is too short")
		}
		if subtle.ConstantTimeCompare(own, theirs[:len(own)]) != 1 {
			r := b.remotes[at.part.ops[at.op].Remote]
			return &OpError{Op: at.part.userOp(at.op), Err: fmt.Errorf("region %q of the peer, %d bytes at %d: %w", r.name, p.length, p.offset, ErrDigest)}
		}
		theirs = theirs[len(own):]
	}
	c.places, c.own, c.bytes = c.places[:0], c.own[:0], 0
	return nil
}
