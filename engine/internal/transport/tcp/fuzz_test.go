package tcp

import (
	"bytes"
	"crypto/rand"
	"io"
	"reflect"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// resealed makes the headers in a stream right, so that a fuzzer gets past their
// checksums.
func resealed(stream []byte) []byte {
	out := bytes.Clone(stream)
	for rest := out; len(rest) >= headBytes; {
		var h header
		h.get(rest)
		size := headBytes
		if h.kind == frameWrite || h.kind == frameRead {
			size += int(h.count) * descBytes
		}
		if size > len(rest) {
			break
		}
		(&guard{}).seal(rest[:size])
		rest = rest[size:]
		if h.kind == frameRead || h.kind == frameAck {
			continue
		}
		skip := h.bytes
		if h.flags&flagSum != 0 {
			skip += sumBytes
		}
		if skip > uint64(len(rest)) {
			break
		}
		rest = rest[skip:]
	}
	return out
}

// FuzzPassive sends anything to the passive end. Between the regions that peers
// may touch lie bytes that they may not.
func FuzzPassive(f *testing.F) {
	const page = 4096
	d := desc{1, 10, 8}
	f.Add(frame(header{kind: frameWrite, bytes: 8}, []desc{d}, 1, 2, 3, 4, 5, 6, 7, 8), true)
	f.Add(frame(header{kind: frameRead, bytes: 16}, []desc{d, {2, 0, 8}}), true)
	f.Add(frame(header{kind: frameWrite, bytes: 8}, []desc{{3, page - 8, 8}}, 1, 2, 3, 4, 5, 6, 7, 8), true)
	f.Add(frame(header{kind: frameWrite, bytes: 8}, []desc{{2, 0, 8}}, 1, 2, 3, 4, 5, 6, 7, 8), true)
	f.Add(frame(header{kind: frameWrite, bytes: 8, flags: flagSum}, []desc{{1, page - 7, 8}}, make([]byte, 12)...), true)
	f.Add(frame(header{kind: frameRead, bytes: 2, flags: flagSum}, []desc{{1, page, 0}, {1, 1<<64 - 1, 2}}), true)
	f.Add(frame(header{kind: frameWrite, bytes: 20000}, []desc{{4, 0, 20000}}, make([]byte, 20000)...), true)
	f.Add([]byte("GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n"), false)
	f.Fuzz(func(t *testing.T, stream []byte, fix bool) {
		if fix {
			stream = resealed(stream)
		}
		whole, err := memory.Alloc(16*page, memory.Options{Backing: memory.Private})
		if err != nil {
			t.Fatal(err)
		}
		defer whole.Free()
		all := whole.Bytes()
		var secret [8]byte
		_, _ = rand.Read(secret[:])
		for i := range all {
			all[i] = secret[i%8]
		}
		b := newSide(t, Options{MaxBytes: 1 << 20, MaxSpans: 16, MaxPosted: 4})
		writable := map[int]bool{}
		place := func(at, pages int, grant memory.Grant) {
			part := all[at*page : (at+pages)*page]
			block, err := memory.Foreign(reflect.ValueOf(part).Pointer(), int64(len(part)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.regions.Add(block, "", "", grant); err != nil {
				t.Fatal(err)
			}
			if grant&memory.PeerRead != 0 {
				clear(part)
			}
			for i := range pages {
				writable[at+i] = grant&memory.PeerWrite != 0
			}
		}
		place(1, 1, both)
		place(3, 1, memory.PeerRead)
		place(5, 1, memory.PeerWrite)
		place(7, 5, both)
		place(13, 1, memory.None)
		before := bytes.Clone(all)
		c, _ := intrude(t, b)
		answers := make(chan []byte)
		go func() {
			got, _ := io.ReadAll(c)
			answers <- got
		}()
		_, _ = c.Write(stream)
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
		got := <-answers
		c.Close()
		if err := b.Transport.Close(); err != nil {
			t.Fatal(err)
		}
		for i := range 16 {
			if !writable[i] && !bytes.Equal(before[i*page:(i+1)*page], all[i*page:(i+1)*page]) {
				t.Errorf("page %d was written", i)
			}
		}
		if bytes.Contains(append(got, got...), secret[:]) {
			t.Error("the answers have bytes that no peer may read")
		}
		for _, r := range b.regions.Regions() {
			if r.Pins() != 0 {
				t.Errorf("region %d is pinned", r.ID())
			}
		}
	})
}

// FuzzAnswers sends anything to the active end, which waits for two READs and a
// WRITE. Only the READs' spans may change.
func FuzzAnswers(f *testing.F) {
	const id = 1 << 16 // of the first request, in the first place
	f.Add(frame(header{kind: frameAck, id: id + 2}, nil), true)
	f.Add(frame(header{kind: frameData, id: id, bytes: 100}, nil, make([]byte, 100)...), true)
	f.Add(frame(header{kind: frameData, id: id + 1, bytes: 40000, flags: flagSum}, nil, make([]byte, 40004)...), true)
	f.Add(frame(header{kind: frameAck, id: id, count: 1}, nil), true)
	f.Fuzz(func(t *testing.T, stream []byte, fix bool) {
		if fix {
			stream = resealed(stream)
		}
		a := newSide(t, Options{})
		mine := a.region(t, 128<<10, memory.None, memory.Options{})
		im := newImposter(t, a, mine)
		first := &transport.Request{Op: transport.Read, Bytes: 100, Spans: []transport.Span{
			{Local: mine, LocalOffset: 1000, Remote: anyRemote, Bytes: 60},
			{Local: mine, LocalOffset: 2000, Remote: anyRemote, Bytes: 40},
		}}
		second := request(transport.Read, mine, 50000, anyRemote, 0, 40000)
		second.Check = true
		im.post(t, first, second, request(transport.Write, mine, 0, anyRemote, 0, 10))
		im.asked(0)
		_, _ = im.peer.Write(stream)
		_ = im.peer.(interface{ CloseWrite() error }).CloseWrite()
		_, _ = io.Copy(io.Discard, im.peer)
		im.Close(nil)
		_ = im.gone(t)
		if n := len(im.done); n != 3 {
			t.Fatalf("%d completions", n)
		}
		for i, x := range bytesOf(mine) {
			inside := i >= 1000 && i < 1060 || i >= 2000 && i < 2040 || i >= 50000 && i < 90000
			if !inside && x != 0 {
				t.Fatalf("byte %d was written", i)
			}
		}
	})
}

// FuzzOffer reads what peers say they can do.
func FuzzOffer(f *testing.F) {
	f.Add(offer{features: 1, spans: 2, posted: 3, bytes: 4}.put())
	f.Add([]byte{})
	ours := offer{level: transport.Headers, features: featureSum, spans: 512, posted: 128, bytes: 64 << 20}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := getOffer(b)
		if err != nil {
			return
		}
		if got := o.put(); !bytes.Equal(got[2:], b[2:offerBytes]) {
			t.Errorf("%x reads as %+v", b, o)
		}
		c, err := ours.common(o)
		if err != nil {
			if o.level <= mostProtection {
				t.Errorf("%+v: %v", o, err)
			}
			return
		}
		if c.level < o.level || c.level < ours.level {
			t.Errorf("level %v of %v and %v", c.level, ours.level, o.level)
		}
		if c.spans == 0 || c.spans > 512 || c.posted == 0 || c.posted > 128 || c.bytes == 0 || c.bytes > 64<<20 || c.features&^featureSum != 0 {
			t.Errorf("agreed on %+v", c)
		}
	})
}
