package bind_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/bind"
	"github.com/topoctl/topoctl/internal/bind/mooncake"
	"github.com/topoctl/topoctl/internal/bind/mooncake/mooncaketest"
)

// compatible opens an engine that speaks Mooncake's protocol too, with memory of its own.
func compatible(t *testing.T, metadata string, size uint64, grant int32) (e *bind.Engine, address uint64, memory []byte) {
	t.Helper()
	e, err := bind.Open(t.Context(), fmt.Sprintf(`{"topology":"none","compat":["mooncake"],"metadata":%q}`, metadata))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	if address, err = e.Alloc(size, "*", grant); err != nil {
		t.Fatal(err)
	}
	p := uintptr(address)
	return e, address, unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), size)
}

// finish waits for a batch and releases it.
func finish(t *testing.T, e *bind.Engine, x bind.Transfer) error {
	t.Helper()
	_, err := result(e)(e.Submit(x))
	return err
}

// result is what a batch is answered, nothing for most.
func result(e *bind.Engine) func(n int64, err error) ([]byte, error) {
	return func(n int64, err error) ([]byte, error) {
		if err == nil {
			err = e.Wait([]int64{n}, int64(time.Minute))
		}
		if err != nil {
			return nil, err
		}
		out, err := e.Result(n)
		return out, errors.Join(err, e.Release(n))
	}
}

// other is a segment that is not an engine's: what a stock process is to one.
type other struct {
	*mooncake.Node
	mu       sync.Mutex
	bytes    [1 << 16]byte
	messages []string
	sender   string // of the last one
}

const otherAt = 1 << 40

func (o *other) Check(r mooncake.Range, _ bool) error {
	if r.Address < otherAt || r.Address-otherAt > uint64(len(o.bytes)) || r.Length > uint64(len(o.bytes))-(r.Address-otherAt) {
		return errors.New("outside")
	}
	return nil
}

func (o *other) ReadAt(p []byte, address uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	copy(p, o.bytes[address-otherAt:])
	return nil
}

func (o *other) WriteAt(p []byte, address uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	copy(o.bytes[address-otherAt:], p)
	return nil
}

func newOther(t *testing.T, metadata string) *other {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &other{}
	o.Node, err = mooncake.New(t.Context(), mooncake.Options{
		Address: l.Addr().String(), Metadata: metadata, Name: "other", Listen: "127.0.0.1:0", Offered: o, Own: o,
		Ranges: func() []mooncake.Range { return []mooncake.Range{{Address: otherAt, Length: uint64(len(o.bytes))}} },
		Notified: func(name, message string) bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.messages, o.sender = append(o.messages, message), name
			return true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o.Serve(c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// TestMooncake moves bytes and messages between an engine and a segment of Mooncake's, both ways.
func TestMooncake(t *testing.T) {
	for _, kind := range []string{"P2P", "HTTP"} {
		t.Run(kind, func(t *testing.T) {
			metadata := mooncake.P2P
			if kind == "HTTP" {
				metadata = mooncaketest.MetadataServer(t)
			}
			o := newOther(t, metadata)
			e, here, memory := compatible(t, metadata, 1<<16, 3)
			for i := range memory {
				memory[i] = byte(i * 7)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			name := e.Address()
			if kind == "HTTP" {
				name = e.Name()
			}

			// The engine is the initiator.
			if _, err := result(e)(e.Call(o.Name(), nil, int64(time.Minute))); err != nil {
				t.Fatal(err)
			}
			ranges, err := result(e)(e.PeerRanges(o.Name(), 0))
			if want := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, otherAt), 1<<16); err != nil || !bytes.Equal(ranges, want) {
				t.Errorf("%x, %v: want %x", ranges, err, want)
			}
			x := bind.Transfer{Peer: o.Name(), Op: 1, Local: []uint64{here + 1, here}, Remote: []uint64{otherAt, otherAt + 1<<15}, Length: []uint64{1 << 10, 1 << 15}, Notify: []byte("written")}
			n, err := e.Submit(x)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Wait([]int64{n}, int64(time.Minute)); err != nil {
				t.Fatal(err)
			}
			tele, err := e.Telemetry(n)
			if err != nil || tele.Bytes != 1<<10+1<<15 || tele.Ops != 2 || tele.DurationNS <= 0 {
				t.Errorf("%+v, %v", tele, err)
			}
			var told engine.Explanation
			text, err := e.Explain(n)
			if err == nil {
				err = json.Unmarshal(text, &told)
			}
			if err != nil || told.State != "done" || told.Peer != o.Name() || len(told.Notes) != 1 {
				t.Errorf("%s, %v", text, err)
			}
			if err := e.Release(n); err != nil {
				t.Error(err)
			}
			o.mu.Lock()
			if !bytes.Equal(o.bytes[:1<<10], memory[1:1+1<<10]) || !bytes.Equal(o.bytes[1<<15:], memory[:1<<15]) || strings.Join(o.messages, ",") != "written" {
				t.Error("other bytes or messages than were sent:", o.messages)
			}
			sender := o.sender
			o.mu.Unlock()
			for _, n := range []struct{ message, sender, text string }{
				{`{"name":"a name","notify_msg":"a text"}`, "a name", "a text"},
				{`{"name":"a name"}`, sender, `{"name":"a name"}`},
			} {
				if err := finish(t, e, bind.Transfer{Peer: o.Name(), Notify: []byte(n.message)}); err != nil {
					t.Error(err)
				}
				o.mu.Lock()
				if o.sender != n.sender || o.messages[len(o.messages)-1] != n.text {
					t.Errorf("%s arrived as %q of %q", n.message, o.messages[len(o.messages)-1], o.sender)
				}
				o.mu.Unlock()
			}
			x = bind.Transfer{Peer: o.Name(), Local: []uint64{here + 5}, Remote: []uint64{otherAt + 1<<15}, Length: []uint64{100}}
			if err := finish(t, e, x); err != nil || !bytes.Equal(memory[5:105], o.bytes[1<<15:1<<15+100]) {
				t.Error("READ:", err)
			}
			for what, x := range map[string]bind.Transfer{
				"beyond the peer's end": {Peer: o.Name(), Local: []uint64{here}, Remote: []uint64{otherAt + 1<<16 - 1}, Length: []uint64{2}},
				"beyond our end":        {Peer: o.Name(), Op: 1, Local: []uint64{here + 1<<16 - 1}, Remote: []uint64{otherAt}, Length: []uint64{2}},
			} {
				if err := finish(t, e, x); bind.StatusOf(err) != bind.NoRegion {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := finish(t, e, bind.Transfer{Peer: "127.0.0.1:1", Local: []uint64{here}, Remote: []uint64{1}, Length: []uint64{1}}); bind.StatusOf(err) != bind.NoPeer {
				t.Error("nothing there:", err)
			}

			// The segment is.
			p, err := o.Open(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Transfer(ctx, true, []mooncake.Op{{Local: otherAt + 10, Remote: here + 1<<15, Length: 1 << 10}}); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(memory[1<<15:1<<15+1<<10], o.bytes[10:10+1<<10]) {
				t.Error("other bytes than were sent")
			}
			if err := p.Notify(ctx, "there"); err != nil {
				t.Error(err)
			}
			out := make([]byte, 64)
			size, err := e.Notifications(out)
			if want := "there"; err != nil || size < 24 || binary.LittleEndian.Uint32(out[16:]) != uint32(len(want)) || !strings.HasSuffix(string(out[:size]), want) {
				t.Errorf("%q, %v", out[:size], err)
			}
			readOnly, err := e.Alloc(4096, "*", 1)
			if err != nil {
				t.Fatal(err)
			}
			own, err := e.Alloc(4096, "*", 0)
			if err != nil {
				t.Fatal(err)
			}
			offered, err := p.Ranges(ctx)
			for _, r := range offered {
				if err != nil || r.Address <= own && own < r.Address+r.Length {
					t.Error("memory for own use is offered:", offered, err)
				}
			}
			to := func(at uint64) []mooncake.Op { return []mooncake.Op{{Local: otherAt, Remote: at, Length: 4096}} }
			if err := p.Transfer(ctx, false, to(readOnly)); err != nil {
				t.Error(err)
			}
			if err := p.Transfer(ctx, true, to(readOnly)); !errors.Is(err, mooncake.ErrNoRange) {
				t.Error("written without a grant:", err)
			}
			if err := e.Free(readOnly); err != nil {
				t.Error(err)
			}
			if err := p.Transfer(ctx, false, to(readOnly)); !errors.Is(err, mooncake.ErrNoRange) {
				t.Error("read after it was freed:", err)
			}
			if err := e.RemovePeer(o.Name()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEnginesRecogniseEachOther: two engines that both speak Mooncake's protocol use their own, and
// so do an engine that does and one that does not.
func TestEnginesRecogniseEachOther(t *testing.T) {
	for _, kind := range []string{"P2P", "HTTP", "one of them"} {
		t.Run(kind, func(t *testing.T) {
			metadata := mooncake.P2P
			if kind == "HTTP" {
				metadata = mooncaketest.MetadataServer(t)
			}
			a, here, mine := compatible(t, metadata, 4096, 0)
			var b *bind.Engine
			var there uint64
			if kind == "one of them" {
				var err error
				if b, err = bind.Open(t.Context(), `{"topology":"none"}`); err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				if there, err = b.Alloc(4096, "*", 3); err != nil {
					t.Fatal(err)
				}
			} else {
				b, there, _ = compatible(t, metadata, 4096, 3)
			}
			name := b.Address()
			if kind == "HTTP" {
				name = b.Name()
			}
			mine[0] = 1
			n, err := a.Submit(bind.Transfer{Peer: name, Op: 1, Local: []uint64{here}, Remote: []uint64{there}, Length: []uint64{4096}})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Wait([]int64{n}, int64(time.Minute)); err != nil {
				t.Fatal(err)
			}
			var told engine.Explanation
			text, err := a.Explain(n)
			if err == nil {
				err = json.Unmarshal(text, &told)
			}
			if err != nil || len(told.Routes) != 1 {
				t.Errorf("no route of the engine's: %s, %v", text, err)
			}
		})
	}
}

func TestMooncakeOptions(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, options := range map[string]string{
		"a token":          fmt.Sprintf(`{"topology":"none","compat":["mooncake"],"token_file":%q}`, token),
		"no compat":        `{"topology":"none","metadata":"P2PHANDSHAKE"}`,
		"another":          `{"topology":"none","compat":["mooncake","nixl"]}`,
		"other hosts":      `{"topology":"none","compat":["mooncake"],"listen":["0.0.0.0:0"]}`,
		"another metadata": `{"topology":"none","compat":["mooncake"],"metadata":"etcd://127.0.0.1"}`,
	} {
		if e, err := bind.Open(t.Context(), options); err == nil {
			_ = e.Close()
			t.Errorf("%s: %s is taken", what, options)
		}
	}
}

// TestStock moves random batches in each direction between an engine, over its one port, and
// Mooncake's own process, and compares every byte on both sides.
func TestStock(t *testing.T) {
	for _, kind := range []struct {
		name    string
		batches int
		env     []string
	}{{"P2P", 1000, nil}, {"HTTP", 1000, nil}, {"connection pool", 100, []string{"MC_TCP_ENABLE_CONNECTION_POOL=1"}}, {"version 1", 100, []string{"MC_TCP_PROTO=1"}}} {
		t.Run(kind.name, func(t *testing.T) {
			const size = 256 << 10
			metadata := mooncake.P2P
			if kind.name == "HTTP" {
				metadata = mooncaketest.MetadataServer(t)
			}
			s := mooncaketest.StartStock(t, metadata, size, kind.env...)
			e, here, memory := compatible(t, metadata, size, 3)
			us := e.Address()
			if kind.name == "HTTP" {
				us = e.Name()
			}
			r := rand.New(rand.NewPCG(11, 12))
			fill := func(b []byte) {
				for i := 0; i < len(b); i += 8 {
					binary.LittleEndian.PutUint64(b[i:], r.Uint64())
				}
			}
			theirs, ours := make([]byte, size), make([]byte, size) // as they must be
			fill(theirs)
			s.Set(theirs)
			for i := range 2 * kind.batches {
				write, stock := i&2 == 0, i&1 == 0 // who begins
				fill(ours)
				copy(memory, ours)
				var local, remote, length []uint64
				for at, step := range steps(r, size) {
					n := 1 + r.Uint64N(step)
					lo, ro := at+r.Uint64N(step-n+1), at+r.Uint64N(step-n+1)
					a, b := ours[lo:lo+n], theirs[ro:ro+n]
					if write != stock { // ours are written by us, or read by the other
						copy(b, a)
					} else {
						copy(a, b)
					}
					from, to := here+lo, s.Address+ro
					if stock {
						from, to = to, from
					}
					local, remote, length = append(local, from), append(remote, to), append(length, n)
				}
				var sum string
				if stock {
					var result int
					if result, sum = s.Batch(us, write, local, remote, length); result != 0 {
						t.Fatalf("batch %d (write: %v): the stock process gives %d", i, write, result)
					}
				} else {
					x := bind.Transfer{Peer: s.Name, Local: local, Remote: remote, Length: length}
					if write {
						x.Op = 1
					}
					if err := finish(t, e, x); err != nil {
						t.Fatalf("batch %d (write: %v): %v", i, write, err)
					}
					sum = s.Sum()
				}
				if kind.name == "version 1" && stock && write {
					// Nothing tells it when its bytes are here.
					for end := time.Now().Add(time.Minute); !bytes.Equal(memory, ours) && time.Now().Before(end); time.Sleep(time.Millisecond) {
					}
				}
				if !bytes.Equal(memory, ours) || sum != mooncaketest.Sum(theirs) {
					t.Fatalf("batch %d (write: %v, by the stock process: %v): other bytes than expected", i, write, stock)
				}
			}
		})
	}
}

// steps cuts a buffer into a random number of equal parts: where each begins, and how long it is.
func steps(r *rand.Rand, size uint64) func(yield func(at, step uint64) bool) {
	n := 1 + r.Uint64N(40)
	return func(yield func(at, step uint64) bool) {
		for i := range n {
			if !yield(i*(size/n), size/n) {
				return
			}
		}
	}
}
