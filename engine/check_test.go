package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/memory"
)

// uncheckedTransport reaches other hosts and makes no checksums, as RDMA does.
type uncheckedTransport struct {
	*faked
	after *after
}

// after is done once, when that many bytes have been moved and before it is reported.
type after struct {
	mu    sync.Mutex
	bytes int64
	do    func()
}

func (a *after) set(bytes int64, do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bytes, a.do = bytes, do
}

func (a *after) moved(completions []transport.Completion) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range completions {
		a.bytes -= c.Request.Bytes
	}
	if a.bytes <= 0 && a.do != nil {
		a.do()
		a.do = nil
	}
}

func (u uncheckedTransport) Unwrap() transport.Transport { return u.faked }

func (u uncheckedTransport) Caps() transport.Caps {
	c := u.faked.Caps()
	c.SameHost = false
	return c
}

func (u uncheckedTransport) Dial(ctx context.Context, d transport.Dial) (transport.Conn, error) {
	done := d.Events.Done
	d.Events.Done = func(c transport.Conn, completions []transport.Completion) {
		u.after.moved(completions)
		done(c, completions)
	}
	return u.faked.Dial(ctx, d)
}

// uncheckedPair is a pair over such a transport, and what is done once to what has been moved.
func uncheckedPair(t *testing.T, size int64, client Options) (*pair, *after) {
	t.Helper()
	n, then := newNetwork(), &after{}
	make := &transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
		inner, err := n.transport(fake.Options{Name: "fake"}).(*transport.Factory).Make(env)
		if err != nil {
			return nil, err
		}
		return uncheckedTransport{inner.(*faked), then}, nil
	}}
	client.Transports = []TransportFactory{make}
	p := newPair(t, size, client, Options{Transports: []TransportFactory{make}})
	p.randomize(5)
	return p, then
}

// TestDigestsAreShared: a few bytes ask for a look at 64 MiB, so that a peer has no more than its share of
// them at a time. What is beyond is made again, and done.
func TestDigestsAreShared(t *testing.T) {
	p, _ := uncheckedPair(t, maxDigestBytes, Options{})
	body := digestBody(make([]byte, digestKeyBytes), []place{{p.to.t.ID, 0, maxDigestBytes}})
	ctx, errs := testContext(t), make(chan error)
	calls := 8 * runtime.GOMAXPROCS(0)
	for range calls {
		go func() {
			_, err := p.peer.session.Call(ctx, methodDigest, body)
			errs <- err
		}()
	}
	for range calls {
		ok(t, <-errs)
	}
	if n := p.server.Stats().RefusedCalls["quota"]; n == 0 {
		t.Errorf("%d digests of one peer at the same time", calls)
	}
}

// TestDigest: a byte that changes on the way is found at the end of the batch, in both directions and
// wherever it is; the op that it is in is named, and the peer's application is not told that the
// bytes are there.
func TestDigest(t *testing.T) {
	checkLeaks(t)
	const size = 70 << 20 // more than one call compares
	p, then := uncheckedPair(t, size, Options{})
	ctx := testContext(t)
	var small []Op
	for i := range int64(10_000) {
		small = append(small, WriteOp(p.mine.Span(i*512, 300), p.to.At((i+1)*1024)))
	}
	pages := &Layout{Bytes: 5000, Count: 3, LocalStride: 8192, RemoteStride: 6000, LocalPages: []uint32{7, 1, 4}, RemotePages: []uint32{2, 0, 1}}
	for _, tt := range []struct {
		name string
		ops  []Op
		flip *byte // changed on the way; nil: nothing is
		op   int
	}{
		{"write", []Op{WriteOp(p.mine.Span(0, 1000), p.to.At(50))}, nil, 0},
		{"write, first byte", []Op{WriteOp(p.mine.Span(0, 1000), p.to.At(50))}, &p.theirs.Bytes()[50], 0},
		{"write, last byte", []Op{WriteOp(p.mine.All(), p.to.At(0))}, &p.theirs.Bytes()[size-1], 0},
		{"write, beyond the first call", []Op{WriteOp(p.mine.All(), p.to.At(0))}, &p.theirs.Bytes()[maxDigestBytes+5], 0},
		{"write, beside it", []Op{WriteOp(p.mine.Span(0, 1000), p.to.At(50))}, &p.theirs.Bytes()[1050], 0},
		{"read", []Op{ReadOp(p.mine.Span(7, 300_000), p.to.At(9))}, nil, 0},
		{"read, second piece", []Op{ReadOp(p.mine.Span(7, 300_000), p.to.At(9))}, &p.mine.Bytes()[7+digestPiece], 0},
		{"small ones", small, nil, 0},
		{"one of many", small, &p.theirs.Bytes()[1024*8001+299], 8000},
		{"pages", []Op{small[0], {Kind: Read, Local: p.mine.Span(100_000, 0), Remote: p.to.At(200_000), Layout: pages}}, &p.mine.Bytes()[100_000+8192+4999], 1},
	} {
		for _, check := range []Check{CheckDigest, CheckAlways} {
			if tt.flip != nil {
				total := int64(0)
				for _, o := range tt.ops {
					if total += o.Local.Length; o.Layout != nil {
						total += o.Layout.Bytes * int64(o.Layout.Count)
					}
				}
				then.set(total, func() { *tt.flip ^= 0x10 })
			}
			b := p.submit(t, ctx, tt.ops, SubmitOptions{Check: check, Notify: []byte(tt.name)})
			err := b.Wait(ctx)
			var op *OpError
			beside := strings.HasSuffix(tt.name, "beside it")
			switch {
			case tt.flip == nil || beside || check == CheckAlways:
				if err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
				if got := <-p.server.Notifications(); string(got.Payload) != tt.name {
					t.Errorf("%s: notification %q", tt.name, got.Payload)
				}
			case !errors.Is(err, ErrDigest) || !errors.As(err, &op) || op.Op != tt.op:
				t.Errorf("%s: %v: want that of op %d", tt.name, err, tt.op)
			}
			if check == CheckDigest && !strings.Contains(b.Explain().Text(), "over fake it is the digest") && p.peer.uncheckedOver(b.parts[0].route) != nil {
				t.Errorf("%s: %s", tt.name, b.Explain().Text())
			}
		}
	}
	select {
	case got := <-p.server.Notifications():
		t.Errorf("notification %q", got.Payload)
	default:
	}
	if s := p.client.Stats(); s.Unsafe != 0 {
		t.Errorf("%d batches are unsafe", s.Unsafe)
	}
}

// TestDigestCanceled: a batch that is cancelled before it was compared has not been, and says so.
func TestDigestCanceled(t *testing.T) {
	checkLeaks(t)
	p, then := uncheckedPair(t, 4096, Options{Check: CheckDigest})
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	var b *Batch
	submitted := make(chan struct{})
	then.set(4096, func() { <-submitted; b.Cancel() })
	var err error
	b, err = p.peer.Submit(ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{Notify: []byte("no")})
	must(t, err)
	close(submitted)
	if err := b.Wait(context.Background()); !errors.Is(err, ErrCanceled) {
		t.Error(err)
	}
	select {
	case got := <-p.server.Notifications():
		t.Errorf("notification %q", got.Payload)
	default:
	}
	if !p.mine.pin() {
		t.Fatal("the region is closed")
	}
	if n := p.mine.r.Pins(); n != 1 {
		t.Errorf("%d pins are left", n-1)
	}
	p.mine.r.Unpin()
}

// TestDigestWithoutRight: what a peer may not read is not compared, because that would tell what it is.
func TestDigestWithoutRight(t *testing.T) {
	checkLeaks(t)
	p, _ := uncheckedPair(t, 4096, Options{})
	ctx := testContext(t)
	_, err := p.server.Alloc(4096, RegionOptions{Name: "only written", Grant: memory.PeerWrite})
	must(t, err)
	to, err := p.peer.Region(ctx, "only written")
	must(t, err)
	p.mine.Bytes()[0] = ^p.theirs.Bytes()[0]
	theirs := p.theirs.Bytes()[0]
	key := make([]byte, digestKeyBytes)
	for name, tt := range map[string]struct {
		body []byte
		want error
	}{
		"nothing":           {nil, errMalformed},
		"half a range":      {make([]byte, digestKeyBytes+5), errMalformed},
		"no region":         {digestBody(key, []place{{region: 1 << 40, length: 1}}), ErrNoRegion},
		"not to be read":    {digestBody(key, []place{{to.t.ID, 0, 1}}), ErrDenied},
		"beyond the end":    {digestBody(key, []place{{p.to.t.ID, 4000, 97}}), ErrRange},
		"around the end":    {digestBody(key, []place{{p.to.t.ID, 1<<64 - 1, 2}}), ErrRange},
		"too many bytes":    {digestBody(key, []place{{p.to.t.ID, 0, maxDigestBytes}, {p.to.t.ID, 0, 1}}), ErrLimit},
		"more than a u64":   {digestBody(key, []place{{p.to.t.ID, 0, 1<<64 - 1}, {p.to.t.ID, 0, 2}}), ErrLimit},
		"too many ranges":   {digestBody(key, make([]place, maxDigestRanges+1)), ErrLimit},
		"a range, nothing":  {digestBody(key, []place{{p.to.t.ID, 4096, 0}}), nil},
		"a range, all":      {digestBody(key, []place{{p.to.t.ID, 0, 4096}}), nil},
		"no ranges, no tag": {key, nil},
	} {
		if _, err := p.server.digest(ctx, nil, tt.body); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	_, err = p.server.digest(ctx, mem.NewRights(func(string) mem.Grant { return mem.PeerWrite }), digestBody(key, []place{{p.to.t.ID, 0, 1}}))
	if !errors.Is(err, ErrDenied) {
		t.Errorf("a peer that may not read: %v", err)
	}
	var op *OpError
	_, err = p.peer.Submit(ctx, []Op{WriteOp(p.mine.Span(0, 1), p.to.At(0)), WriteOp(p.mine.All(), to.At(0))}, SubmitOptions{Check: CheckDigest})
	if !errors.Is(err, ErrDenied) || !errors.As(err, &op) || op.Op != 1 || !strings.Contains(err.Error(), "a digest of what goes over fake tells what is there") {
		t.Errorf("a write of what may not be read: %v", err)
	}
	if p.theirs.Bytes()[0] != theirs {
		t.Error("something was moved")
	}
}

// TestDigestTags holds the wire: AES-256-GCM over nothing, with the bytes as additional data.
func TestDigestTags(t *testing.T) {
	p := newPair(t, 300_000, Options{}, Options{})
	p.randomize(1)
	key := bytes.Repeat([]byte{7}, digestKeyBytes)
	tags, err := p.server.digest(t.Context(), nil, digestBody(key, []place{{p.to.t.ID, 1, 2}, {p.to.t.ID, 5, 2*digestPiece + 1}}))
	if err != nil || len(tags) != 4*digestTagBytes {
		t.Fatalf("%d bytes, %v", len(tags), err)
	}
	d := newDigester(key)
	at := p.theirs.Bytes()
	for i, b := range [][]byte{at[1:3], at[5 : 5+digestPiece], at[5+digestPiece : 5+2*digestPiece], at[5+2*digestPiece : 6+2*digestPiece]} {
		nonce := binary.BigEndian.AppendUint32(make([]byte, 8), uint32(i))
		if want := d.aead.Seal(nil, nonce, nil, b); !bytes.Equal(tags[i*digestTagBytes:][:digestTagBytes], want) {
			t.Errorf("tag %d is %x, want %x", i, tags[i*digestTagBytes:][:digestTagBytes], want)
		}
	}
}

func FuzzDigest(f *testing.F) {
	f.Add(digestBody(make([]byte, digestKeyBytes), []place{{1, 2, 3}, {4, 5, 1 << 63}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		key, places, tags, err := parseDigest(b)
		if err != nil {
			return
		}
		if !bytes.Equal(digestBody(key, places), b) || tags < 0 || tags > maxDigestBytes/digestPiece+maxDigestRanges {
			t.Errorf("%d places, %d tags of %x", len(places), tags, b)
		}
	})
}
