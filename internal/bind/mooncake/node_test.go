package mooncake

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/bind/mooncake/mooncaketest"
)

// TestTransfers moves random batches both ways between two nodes and compares every byte.
func TestTransfers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		http    bool
		version int
	}{{"P2P", false, 2}, {"HTTP", true, 2}, {"version 1", false, 1}} {
		t.Run(tt.name, func(t *testing.T) {
			noLeak(t)
			metadata := P2P
			if tt.http {
				metadata = mooncaketest.MetadataServer(t)
			}
			r := rand.New(rand.NewPCG(1, 2))
			theirs, ours := newArena(1<<40, 1<<19), newArena(1<<41, 1<<19)
			target := start(t, "", Options{Metadata: metadata, Name: "target", Engine: "an engine", Offered: theirs, Own: theirs})
			target.version = tt.version
			n := start(t, "", Options{Metadata: metadata, Name: "initiator", Offered: ours, Own: ours})
			p, err := n.Open(within(t), target.Name())
			if err != nil {
				t.Fatal(err)
			}
			if ranges, err := p.Ranges(within(t)); err != nil || len(ranges) != 1 || ranges[0] != theirs.all() {
				t.Error(ranges, err)
			}
			name, address, ok, err := p.Engine(within(t))
			if name != "an engine" || address != target.port.Addr().String() || !ok || err != nil {
				t.Error(name, address, ok, err)
			}
			for i := range 30 {
				theirs.fill(r)
				ours.fill(r)
				write := i%2 == 0
				ops := randomOps(r, ours, theirs)
				wantOurs, wantTheirs := ours.copy(), theirs.copy()
				apply(write, ops, wantOurs, wantTheirs, ours.base, theirs.base)
				if err := p.Transfer(within(t), write, ops); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(ours.copy(), wantOurs) || !bytes.Equal(theirs.copy(), wantTheirs) {
					t.Fatalf("batch %d (write: %v): other bytes than expected", i, write)
				}
			}
		})
	}
}

// TestManyAtOnce has ten transfers at a time over the lanes of one peer.
func TestManyAtOnce(t *testing.T) {
	noLeak(t)
	const each = 3 << 18
	theirs, ours := newArena(1<<40, 10*each), newArena(1<<41, 10*each)
	ours.fill(rand.New(rand.NewPCG(3, 4)))
	target := start(t, "", Options{Offered: theirs, Own: theirs})
	n := start(t, "", Options{Offered: ours, Own: ours, Limits: Limits{Lanes: 4}})
	p, err := n.Open(within(t), target.Name())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range uint64(10) {
		all.Go(func() {
			var ops []Op
			for at := i * each; at < (i+1)*each; at += each / 3 {
				ops = append(ops, Op{ours.base + at + each/6, theirs.base + at + each/6, each / 6}, Op{ours.base + at, theirs.base + at, each / 6})
			}
			if err := p.Transfer(within(t), true, ops); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if !bytes.Equal(theirs.copy(), ours.copy()) {
		t.Error("other bytes than expected")
	}
	target.mu.Lock()
	defer target.mu.Unlock()
	if len(target.guests) > 4 {
		t.Errorf("%d connections", len(target.guests))
	}
}

// TestRefused: what is not offered is neither read nor written, and each refusal has its type.
func TestRefused(t *testing.T) {
	noLeak(t)
	theirs, ours := newArena(1<<40, 4096), newArena(1<<41, 4096)
	theirs.readOnly = true
	var offered []Range
	var mu sync.Mutex
	offer := func() []Range {
		mu.Lock()
		defer mu.Unlock()
		return offered
	}
	target := start(t, "", Options{Offered: theirs, Ranges: offer, Own: theirs, Notified: func(_, message string) bool { return message == "yes" }})
	n := start(t, "", Options{Offered: ours, Own: ours})
	p, err := n.Open(within(t), target.Name())
	if err != nil {
		t.Fatal(err)
	}
	op := []Op{{ours.base, theirs.base, 4096}}
	if err := p.Transfer(within(t), false, op); !errors.Is(err, ErrNoRange) {
		t.Error("offers nothing:", err)
	}
	// It may have come since.
	mu.Lock()
	offered = []Range{theirs.all()}
	mu.Unlock()
	if err := p.Transfer(within(t), false, op); err != nil {
		t.Error(err)
	}
	if err := p.Transfer(within(t), true, op); !errors.Is(err, ErrNoRange) || errors.Is(err, ErrUnconfirmed) {
		t.Error("read only:", err)
	}
	if theirs.writes != 0 {
		t.Error("it was written to")
	}
	if err := p.Transfer(within(t), false, []Op{{ours.base, theirs.base + 1, 4096}}); !errors.Is(err, ErrNoRange) {
		t.Error("beyond the end:", err)
	}
	if err := p.Transfer(within(t), false, []Op{{ours.base + 1, theirs.base, 4096}}); !errors.Is(err, errOutside) {
		t.Error("beyond our end:", err)
	}
	if err := p.Transfer(within(t), false, []Op{{0, 0, 0}}); err != nil {
		t.Error("nothing:", err)
	}
	if err := p.Probe(within(t)); err != nil {
		t.Error(err)
	}
	if err := p.Notify(within(t), "yes"); err != nil {
		t.Error(err)
	}
	if err := p.Notify(within(t), "no"); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	target.stop()
	if err := p.Probe(within(t)); !errors.Is(err, ErrNoPeer) {
		t.Error("a peer that is gone:", err)
	}
	if err := p.Transfer(within(t), false, op); !errors.Is(err, ErrNoPeer) {
		t.Error("a peer that is gone:", err)
	}
	_ = n.Close()
	if err := p.Transfer(within(t), false, op); !errors.Is(err, ErrClosed) {
		t.Error("after Close:", err)
	}
	if _, err := n.Open(within(t), target.Name()); err == nil {
		t.Error("opened after Close")
	}
}

// TestRestart: a peer that is started again at its address is found at its new data port, and
// connections that it closed cost nothing but a retry.
func TestRestart(t *testing.T) {
	noLeak(t)
	theirs, ours := newArena(1<<40, 1<<16), newArena(1<<41, 1<<16)
	o := Options{Offered: theirs, Own: theirs}
	target := start(t, "", o)
	n := start(t, "", Options{Offered: ours, Own: ours})
	p, err := n.Open(within(t), target.Name())
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 3 {
		ours.fill(r)
		if err := p.Transfer(within(t), true, []Op{{ours.base, theirs.base, 1 << 16}}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(theirs.copy(), ours.copy()) {
			t.Fatal("other bytes than expected")
		}
		address := target.Name()
		target.stop()
		target = start(t, address, o)
	}
}

// TestNameAgain: a process that comes again after a crash takes the place of what it has left at the
// metadata server, which refuses a second entry.
func TestNameAgain(t *testing.T) {
	noLeak(t)
	metadata := mooncaketest.MetadataServer(t)
	theirs, ours := newArena(1<<40, 4096), newArena(1<<41, 4096)
	o := Options{Metadata: metadata, Name: "target", Offered: theirs, Own: theirs}
	crashed := start(t, "", o)
	target := start(t, "", o)
	n := start(t, "", Options{Metadata: metadata, Name: "initiator", Offered: ours, Own: ours})
	p, err := n.Open(within(t), "target")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok, err := p.Engine(within(t)); ok || err != nil || p.last.address != target.port.Addr().String() {
		t.Errorf("%v, %v, at %s, not %s (%s was before)", ok, err, p.last.address, target.port.Addr(), crashed.port.Addr())
	}
	if _, err := n.Open(within(t), "nobody"); !errors.Is(err, ErrNoPeer) {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if _, err := target.Open(within(t), "initiator"); !errors.Is(err, ErrNoPeer) {
		t.Error("a closed node is still named:", err)
	}
}

// scripted is a peer whose data port does what a test says.
func scripted(t *testing.T, version int, ranges []Range, serve func(c net.Conn)) (name string) {
	t.Helper()
	data, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	shake, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := descriptor{Name: "x", Protocol: "tcp", DataPort: data.Addr().(*net.TCPAddr).Port, ProtoVersion: version}
	for _, r := range ranges {
		d.Buffers = append(d.Buffers, buffer{"x", r.Address, r.Length})
	}
	var all sync.WaitGroup
	loop := func(l net.Listener, serve func(c net.Conn)) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			all.Go(func() { serve(c); _ = c.Close() })
		}
	}
	all.Go(func() { loop(data, serve) })
	all.Go(func() {
		loop(shake, func(c net.Conn) {
			if _, _, err := readFrame(c, maxRequest); err == nil {
				_, _ = c.Write(encodeFrame(frameMetadata, encode(&d)))
			}
		})
	})
	t.Cleanup(func() { _, _ = data.Close(), shake.Close(); all.Wait() })
	return shake.Addr().String()
}

func readHeader(c net.Conn) (header, error) {
	b := make([]byte, headerBytes)
	if _, err := io.ReadFull(c, b); err != nil {
		return header{}, err
	}
	return parseHeader(b)
}

// TestUnconfirmed: a WRITE that the peer has not confirmed says so.
func TestUnconfirmed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		version int
		serve   func(c net.Conn, giveUp func())
		want    error
		sure    bool
	}{
		{"version 1, closed after the request", 1, func(c net.Conn, _ func()) {
			if h, err := readHeader(c); err == nil {
				_, _ = io.CopyN(io.Discard, c, int64(h.size))
			}
		}, ErrUnconfirmed, false},
		{"version 2, no answer in time", 2, func(c net.Conn, giveUp func()) {
			_, _ = readHeader(c)
			giveUp()
			_, _ = io.Copy(io.Discard, c)
		}, ErrUnconfirmed, false},
		{"version 2, nonsense", 2, func(c net.Conn, _ func()) {
			if h, err := readHeader(c); err == nil {
				_, _ = io.CopyN(io.Discard, c, int64(h.size))
				_, _ = c.Write(make([]byte, 8))
				_, _ = io.Copy(io.Discard, c)
			}
		}, ErrMalformed, false},
		{"version 2, always closed", 2, func(c net.Conn, _ func()) { _, _ = readHeader(c) }, errLost, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noLeak(t)
			ours := newArena(1<<41, 4096)
			n := start(t, "", Options{Offered: ours, Own: ours})
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			p, err := n.Open(ctx, scripted(t, tt.version, []Range{{1 << 40, 4096}}, func(c net.Conn) { tt.serve(c, cancel) }))
			if err != nil {
				t.Fatal(err)
			}
			err = p.Transfer(ctx, true, []Op{{ours.base, 1 << 40, 4096}})
			if !errors.Is(err, tt.want) {
				t.Error(err)
			}
			if errors.Is(err, ErrUnconfirmed) == tt.sure {
				t.Error("unconfirmed?", err)
			}
		})
	}
}

// TestOldPeer: one that closes the connection after each request can be read from.
func TestOldPeer(t *testing.T) {
	noLeak(t)
	ours := newArena(1<<41, 4096)
	var connections atomic.Int32
	n := start(t, "", Options{Offered: ours, Own: ours})
	p, err := n.Open(within(t), scripted(t, 1, []Range{{1 << 40, 4096}}, func(c net.Conn) {
		if h, err := readHeader(c); err == nil {
			connections.Add(1)
			_, _ = c.Write(bytes.Repeat([]byte{byte(h.address)}, int(h.size)))
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	ops := []Op{{ours.base, 1<<40 + 1, 10}, {ours.base + 20, 1<<40 + 2, 10}, {ours.base + 40, 1<<40 + 3, 10}}
	if err := p.Transfer(within(t), false, ops); err != nil {
		t.Fatal(err)
	}
	for i, op := range ops {
		if got := ours.copy()[op.Local-ours.base:][:10]; !bytes.Equal(got, bytes.Repeat([]byte{byte(i + 1)}, 10)) {
			t.Errorf("op %d: %v", i, got)
		}
	}
	if connections.Load() != 3 {
		t.Errorf("%d connections", connections.Load())
	}
}

// TestReadAfterReturn: when a READ has returned with an error, nothing comes into its memory, though
// the peer still sends.
func TestReadAfterReturn(t *testing.T) {
	noLeak(t)
	ours := newArena(1<<41, 8<<20)
	var sending atomic.Bool
	name := scripted(t, 2, []Range{{1 << 40, 8 << 20}}, func(c net.Conn) {
		if _, err := readHeader(c); err != nil {
			return
		}
		_, _ = c.Write(statusOK.append(nil))
		sending.Store(true)
		chunk := bytes.Repeat([]byte{0xff}, 64<<10)
		for range 128 {
			if _, err := c.Write(chunk); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	n := start(t, "", Options{Offered: ours, Own: ours})
	p, err := n.Open(within(t), name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	for _, tt := range []struct {
		ctx  context.Context
		end  func()
		want error
	}{{ctx, func() { cancel(stop) }, stop}, {within(t), p.Close, ErrClosed}} {
		ours.writes = 0
		ours.after = func(writes int) {
			if writes == 3 {
				tt.end()
			}
		}
		if err := p.Transfer(tt.ctx, false, []Op{{ours.base, 1 << 40, 4 << 20}}); !errors.Is(err, tt.want) {
			t.Fatal(err)
		}
		after := ours.copy()
		time.Sleep(50 * time.Millisecond)
		if !bytes.Equal(after, ours.copy()) {
			t.Error("bytes came after the READ had returned")
		}
	}
	if !sending.Load() {
		t.Error("the peer did not send")
	}
}

// TestHostilePeers: what is wrong is closed, what is slow is closed in time, and none of it keeps
// others out or touches memory.
func TestHostilePeers(t *testing.T) {
	noLeak(t)
	theirs, ours := newArena(1<<40, 1<<16), newArena(1<<41, 1<<16)
	target := start(t, "", Options{
		Offered: theirs, Own: theirs,
		Limits: Limits{Handshakes: 2, DataConns: 3, Stall: 200 * time.Millisecond, Idle: time.Second},
	})
	dataPort := target.listener.Addr().String()
	send := func(address string, b []byte) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		_, _ = c.Write(b)
		return c
	}
	frame := func(kind byte, body string) []byte { return encodeFrame(frameType(kind), []byte(body)) }
	huge := binary.LittleEndian.AppendUint64(nil, 1<<26)
	for what, tt := range map[string]struct {
		address string
		send    []byte
		want    string
	}{
		"not a frame":                    {target.Name(), []byte("GET /metadata HTTP/1.0\r\n\r\n"), ""},
		"a frame beyond the limit":       {target.Name(), append(huge, "\x01{}{}{}"...), ""},
		"a frame cut off":                {target.Name(), append(binary.LittleEndian.AppendUint64(nil, 100), "\x01{}"...), ""},
		"a notification that is no JSON": {target.Name(), frame(2, "{{{{"), ""},
		"a notification":                 {target.Name(), frame(2, `{"name":"a","notify_msg":"b"}`), string(frame(2, `{"name":"","notify_msg":""}`+"\n"))},
		"queue pairs":                    {target.Name(), frame(0, `{"qp_num":[1]}`), string(encodeFrame(0, encode(connectionAnswer{"this process has no RDMA for Mooncake: use protocol tcp"})))},
		"a probe":                        {target.Name(), frame(3, `{}`), string(frame(3, `{"status":"success"}`+"\n"))},
		"an opcode":                      {dataPort, []byte("12345678123456781234567812345678"), ""},
		"half a header":                  {dataPort, make([]byte, 20), ""},
		"an address outside":             {dataPort, (&header{size: 1, address: 7, v2: true}).append(nil), string(statusRejected.append(nil))},
		"an address outside, v1":         {dataPort, (&header{size: 1, address: 7, write: true}).append(nil), ""},
		"beyond the end":                 {dataPort, (&header{size: 1<<16 + 1, address: 1 << 40, write: true, v2: true}).append(nil), string(statusRejected.append(nil))},
		"half a WRITE":                   {dataPort, append((&header{size: 1 << 16, address: 1 << 40, write: true, v2: true}).append(nil), 0, 0), ""},
	} {
		c := send(tt.address, tt.send)
		got, err := io.ReadAll(c)
		if errors.Is(err, context.DeadlineExceeded) || string(got) != tt.want {
			t.Errorf("%s: %q, %v, want %q", what, got, err, tt.want)
		}
		_ = c.Close()
	}
	// As many handshakes as are taken, and none ends: the oldest makes room.
	stuck := [2]net.Conn{}
	for i := range stuck {
		stuck[i] = send(target.Name(), append(binary.LittleEndian.AppendUint64(nil, 100), 1, '{'))
		for got := 0; got <= i; { // it is there before the next
			target.mu.Lock()
			got = len(target.handshakes)
			target.mu.Unlock()
		}
	}
	probe := send(target.Name(), frame(3, "{}"))
	if kind, _, err := readFrame(probe, maxRequest); kind != frameProbe || err != nil {
		t.Error("a handshake beside those that are stuck:", kind, err)
	}
	_ = probe.Close()
	if _, err := stuck[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Error("the oldest is not closed:", err)
	}
	// The same of data connections.
	conns := make([]net.Conn, 5)
	for i := range conns {
		conns[i] = send(dataPort, nil)
	}
	for _, c := range conns[:2] {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Error("the connection that is idle the longest is not closed:", err)
		}
	}
	n := start(t, "", Options{Offered: ours, Own: ours})
	p, err := n.Open(within(t), target.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Transfer(within(t), false, []Op{{ours.base, theirs.base, 1 << 16}}); err != nil {
		t.Error(err)
	}
	for _, c := range conns[2:] {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Error("a connection that is idle for too long is not closed:", err)
		}
	}
	if got := theirs.copy(); !bytes.Equal(got, make([]byte, len(got))) {
		t.Error("strangers wrote more than zeros")
	}
}

func TestCut(t *testing.T) {
	ranges := []Range{{1000, 100}, {1100, 100}, {5000, 3 * pieceBytes}}
	for what, tt := range map[string]struct {
		ops, want []Op
	}{
		"one":              {[]Op{{0, 1000, 100}}, []Op{{0, 1000, 100}}},
		"across two":       {[]Op{{0, 1050, 100}}, []Op{{0, 1050, 50}, {50, 1100, 50}}},
		"that follow":      {[]Op{{0, 1000, 10}, {10, 1010, 10}, {30, 1020, 10}, {40, 1040, 1}}, []Op{{0, 1000, 20}, {30, 1020, 10}, {40, 1040, 1}}},
		"not across two":   {[]Op{{0, 1090, 10}, {10, 1100, 10}}, []Op{{0, 1090, 10}, {10, 1100, 10}}},
		"long":             {[]Op{{7, 5000, pieceBytes + 1}}, []Op{{7, 5000, pieceBytes}, {7 + pieceBytes, 5000 + pieceBytes, 1}}},
		"nothing":          {[]Op{{7, 0, 0}}, nil},
		"before":           {[]Op{{0, 999, 1}}, nil},
		"between":          {[]Op{{0, 1150, 51}}, nil},
		"after":            {[]Op{{0, 5000 + 3*pieceBytes, 1}}, nil},
		"to the last byte": {[]Op{{0, 5000 + 3*pieceBytes - 1, 1}}, []Op{{0, 5000 + 3*pieceBytes - 1, 1}}},
	} {
		got, err := cut(tt.ops, ranges)
		if fmt.Sprint(got) != fmt.Sprint(tt.want) || (err != nil) != (tt.want == nil && what != "nothing") {
			t.Errorf("%s: %v, %v, want %v", what, got, err, tt.want)
		}
		if err != nil && !errors.Is(err, ErrNoRange) {
			t.Error(err)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{Address: "nowhere"}, {Address: "127.0.0.1:x"}, {Address: ":1"}, {Address: "127.0.0.1:1", Metadata: "etcd://h"},
		{Address: "127.0.0.1:1", Metadata: "http://127.0.0.1:1/metadata"},                                   // no name
		{Address: "127.0.0.1:1", Metadata: "http://127.0.0.1:1/metadata", Name: "a", Listen: "127.0.0.1:0"}, // no server
	} {
		if n, err := New(t.Context(), o); err == nil {
			_ = n.Close()
			t.Errorf("%+v is taken", o)
		}
	}
}
