//go:build cgo && linux && (amd64 || arm64)

package verbs_test

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// Every way in which a device refuses a request: its status, that nothing landed, that
// the rest is flushed, and that the queue pair is in ERR.
func TestRefusals(t *testing.T) {
	write := func(_ *testing.T, _ *verbsfake.Fabric, a, b *side) verbs.SendWR {
		return a.wr(verbs.OpRDMAWrite, b, 1, 0, 8192)
	}
	with := func(change func(w *verbs.SendWR, a, b *side)) func(*testing.T, *verbsfake.Fabric, *side, *side) verbs.SendWR {
		return func(_ *testing.T, _ *verbsfake.Fabric, a, b *side) verbs.SendWR {
			w := a.wr(verbs.OpRDMAWrite, b, 1, 0, 8192)
			change(&w, a, b)
			return w
		}
	}
	for _, c := range []struct {
		name string
		make func(t *testing.T, f *verbsfake.Fabric, a, b *side) verbs.SendWR
		want verbs.WCStatus
	}{
		{"remote key", with(func(w *verbs.SendWR, _, _ *side) { w.RKey ^= 0x100 }), verbs.WCRemoteAccess},
		{"local key as remote", with(func(w *verbs.SendWR, _, b *side) { w.RKey = b.mr.LKey() }), verbs.WCRemoteAccess},
		{"before the region", with(func(w *verbs.SendWR, _, b *side) { w.RemoteAddr = b.iova - 1 }), verbs.WCRemoteAccess},
		{"over its end", with(func(w *verbs.SendWR, _, b *side) { w.RemoteAddr = b.iova + 1<<20 - 8191 }), verbs.WCRemoteAccess},
		{"address wraps", with(func(w *verbs.SendWR, _, _ *side) { w.RemoteAddr = ^uint64(0) - 10 }), verbs.WCRemoteAccess},
		{"own memory's end", with(func(w *verbs.SendWR, a, _ *side) { w.SGE[0].Addr = a.iova + 1<<20 - 1 }), verbs.WCLocalProt},
		{"own key", with(func(w *verbs.SendWR, a, _ *side) { w.SGE[0].LKey = a.mr.RKey() }), verbs.WCLocalProt},
		{"gone region", func(t *testing.T, _ *verbsfake.Fabric, a, b *side) verbs.SendWR {
			m := must(b.pd.Register(addr(b.mem), 8192, 0, allRights))(t)
			w := a.wr(verbs.OpRDMAWrite, b, 1, 0, 8192)
			w.RemoteAddr, w.RKey = 0, m.RKey()
			ok(t, m.Close())
			return w
		}, verbs.WCRemoteAccess},
		{"other domain", func(t *testing.T, _ *verbsfake.Fabric, a, b *side) verbs.SendWR {
			pd := must(b.dev.AllocPD())(t)
			m := must(pd.Register(addr(b.mem), 8192, 0, allRights))(t)
			t.Cleanup(func() { ok(t, errors.Join(m.Close(), pd.Close())) })
			w := a.wr(verbs.OpRDMAWrite, b, 1, 0, 8192)
			w.RemoteAddr, w.RKey = 0, m.RKey()
			return w
		}, verbs.WCRemoteAccess},
		{"region is read only", func(t *testing.T, _ *verbsfake.Fabric, a, b *side) verbs.SendWR {
			m := must(b.pd.Register(addr(b.mem), 8192, 0, verbs.LocalWrite|verbs.RemoteRead))(t)
			t.Cleanup(func() { ok(t, m.Close()) })
			w := a.wr(verbs.OpRDMAWrite, b, 1, 0, 8192)
			w.RemoteAddr, w.RKey = 0, m.RKey()
			return w
		}, verbs.WCRemoteAccess},
		{"read into memory without write", func(t *testing.T, _ *verbsfake.Fabric, a, b *side) verbs.SendWR {
			m := must(a.pd.Register(addr(a.mem), 8192, 0, 0))(t)
			t.Cleanup(func() { ok(t, m.Close()) })
			w := a.wr(verbs.OpRDMARead, b, 1, 0, 8192)
			w.SGE[0].Addr, w.SGE[0].LKey = 0, m.LKey()
			return w
		}, verbs.WCLocalProt},
		{"cut", func(t *testing.T, f *verbsfake.Fabric, a, b *side) verbs.SendWR {
			f.Cut("a", "b", true)
			return write(t, f, a, b)
		}, verbs.WCRetryExceeded},
		{"peer's port down", func(t *testing.T, f *verbsfake.Fabric, a, b *side) verbs.SendWR {
			f.SetPort("b", 1, verbs.PortDown)
			return write(t, f, a, b)
		}, verbs.WCRetryExceeded},
		{"own port down", func(t *testing.T, f *verbsfake.Fabric, a, b *side) verbs.SendWR {
			f.SetPort("a", 1, verbs.PortDown)
			return write(t, f, a, b)
		}, verbs.WCRetryExceeded},
		{"peer's address gone", func(t *testing.T, f *verbsfake.Fabric, a, b *side) verbs.SendWR {
			f.SetGIDs("b", 1, nil)
			return write(t, f, a, b)
		}, verbs.WCRetryExceeded},
		{"peer silent", func(t *testing.T, f *verbsfake.Fabric, a, b *side) verbs.SendWR {
			f.Silence("b", true)
			return write(t, f, a, b)
		}, verbs.WCRetryExceeded},
		{"peer in ERR", func(t *testing.T, f *verbsfake.Fabric, a, b *side) verbs.SendWR {
			ok(t, b.qp.SetError())
			return write(t, f, a, b)
		}, verbs.WCRetryExceeded},
		{"lost", func(t *testing.T, f *verbsfake.Fabric, a, b *side) verbs.SendWR {
			f.Drop("a", 1)
			return write(t, f, a, b)
		}, verbs.WCRetryExceeded},
		{"injected", func(t *testing.T, f *verbsfake.Fabric, a, b *side) verbs.SendWR {
			f.Inject("a", 1, verbs.WCRemoteOp, 42)
			return write(t, f, a, b)
		}, verbs.WCRemoteOp},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, a, b := pair(t, verbsfake.Options{})
			fill(a.mem, 1)
			beforeA, beforeB := bytes.Clone(a.mem), bytes.Clone(b.mem)
			a.post(t, c.make(t, f, a, b), a.wr(verbs.OpRDMAWrite, b, 2, 4096, 4096), a.wr(verbs.OpRDMARead, b, 3, 0, 10))
			a.expect(t, c.want, verbs.WCFlushed, verbs.WCFlushed)
			if !bytes.Equal(b.mem, beforeB) || !bytes.Equal(a.mem, beforeA) {
				t.Error("something landed")
			}
			if s := must(a.qp.State())(t); s != verbs.QPError {
				t.Errorf("state %s", s)
			}
			a.post(t, a.wr(verbs.OpRDMAWrite, b, 4, 0, 10)) // taken, and flushed
			a.expect(t, verbs.WCFlushed)
		})
	}
}

// What the two ends must agree on.
func TestConnectMistakes(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(c *verbs.Connect)
		op     verbs.Opcode
		n      int
		want   verbs.WCStatus
	}{
		{"sequence number", func(c *verbs.Connect) { c.SendPSN++ }, verbs.OpRDMAWrite, 10, verbs.WCRetryExceeded},
		{"number", func(c *verbs.Connect) { c.PeerQP += 7 }, verbs.OpRDMAWrite, 10, verbs.WCRetryExceeded},
		{"GID", func(c *verbs.Connect) { c.Path.GID[15] = 99 }, verbs.OpRDMAWrite, 10, verbs.WCRetryExceeded},
		{"GID of the other type", func(c *verbs.Connect) { c.Path.GIDIndex-- }, verbs.OpRDMAWrite, 10, verbs.WCRetryExceeded},
		{"MTU", func(c *verbs.Connect) { c.Path.MTU = 4096 }, verbs.OpRDMAWrite, 2000, verbs.WCRemoteInvalid},
		{"MTU, small", func(c *verbs.Connect) { c.Path.MTU = 4096 }, verbs.OpRDMAWrite, 1000, verbs.WCSuccess},
		{"no reads", func(c *verbs.Connect) { c.ReadsOut = 0 }, verbs.OpRDMARead, 10, verbs.WCLocalQPOp},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fabric(t, verbsfake.Options{})
			a, b := open(t, f.Lib("a"), "a", 1<<16), open(t, f.Lib("b"), "b", 1<<16)
			for _, s := range []*side{a, b} {
				ok(t, s.qp.Init(1, 0, allRights))
			}
			to := a.to(b)
			c.change(&to)
			ok(t, a.qp.Connect(to))
			ok(t, b.qp.Connect(b.to(a)))
			a.post(t, a.wr(c.op, b, 1, 0, c.n))
			a.expect(t, c.want)
		})
	}
}

// A responder that answers fewer READs at a time than its peer asks for.
func TestReadDepth(t *testing.T) {
	f := fabric(t, verbsfake.Options{})
	a, b := open(t, f.Lib("a"), "a", 1<<16), open(t, f.Lib("b"), "b", 1<<16)
	for _, s := range []*side{a, b} {
		ok(t, s.qp.Init(1, 0, allRights))
	}
	ok(t, a.qp.Connect(a.to(b)))
	back := b.to(a)
	back.ReadsIn = 2
	ok(t, b.qp.Connect(back))
	var wrs []verbs.SendWR
	for i := range 4 {
		wrs = append(wrs, a.wr(verbs.OpRDMARead, b, uint64(i), 0, 10))
	}
	a.post(t, wrs...)
	a.expect(t, verbs.WCSuccess, verbs.WCSuccess, verbs.WCRemoteInvalid, verbs.WCFlushed)
	go func() {
		time.Sleep(10 * time.Second)
		_ = b.dev.CloseEvents()
	}()
	if e := must(b.dev.NextEvent())(t); e.Type != verbs.EventQPRequestErr || e.QPNum != b.qp.Num() {
		t.Errorf("the responder's event: %+v", e)
	}
}

func TestManyReadsWithinTheDepth(t *testing.T) {
	_, a, b := pair(t, verbsfake.Options{})
	fill(b.mem, 9)
	var wrs []verbs.SendWR
	for i := range 60 {
		wrs = append(wrs, a.wr(verbs.OpRDMARead, b, uint64(i), i*1000, 1000))
	}
	a.post(t, wrs...)
	for i, c := range a.wait(t, 60) {
		if c.ID != uint64(i) || c.Status != verbs.WCSuccess {
			t.Fatalf("completion %d: %+v", i, c)
		}
	}
	if !bytes.Equal(a.mem[:60000], b.mem[:60000]) {
		t.Error("wrong bytes")
	}
}

// Pieces of several regions, and bytes that are taken while posting.
func TestPiecesAndInline(t *testing.T) {
	_, a, b := pair(t, verbsfake.Options{})
	fill(a.mem, 3)
	other := pages(t, 4096)
	fill(other, 4)
	m := must(a.pd.Register(addr(other), 4096, 1<<30, 0))(t)
	w := a.wr(verbs.OpRDMAWrite, b, 1, 100, 50)
	w.SGE = append(w.SGE, verbs.SGE{Addr: 1<<30 + 7, Length: 1000, LKey: m.LKey()}, verbs.SGE{}, a.wr(0, b, 0, 5000, 33).SGE[0])
	a.post(t, w)
	a.expect(t, verbs.WCSuccess)
	want := append(append(bytes.Clone(a.mem[100:150]), other[7:1007]...), a.mem[5000:5033]...)
	if !bytes.Equal(b.mem[100:100+len(want)], want) {
		t.Error("pieces are not in order")
	}
	ok(t, m.Close())
	small := verbs.SendWR{ID: 2, Opcode: verbs.OpRDMAWrite, Inline: true, RemoteAddr: b.iova, RKey: b.mr.RKey(),
		SGE: []verbs.SGE{{Addr: uint64(addr(a.mem)), Length: 64}}}
	first := bytes.Clone(a.mem[:64])
	a.post(t, small)
	fill(a.mem[:64], 200)
	a.expect(t, verbs.WCSuccess)
	if !bytes.Equal(b.mem[:64], first) {
		t.Error("inline bytes were not taken while posting")
	}
	small.SGE[0].Length = 65
	if n, err := a.qp.Post([]verbs.SendWR{small}); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("too many inline bytes: %d, %v", n, err)
	}
}

func TestDMABuf(t *testing.T) {
	devices := []verbsfake.Device{verbsfake.RoCE("a", 1, "10.0.0.1"), verbsfake.RoCE("b", 2, "10.0.0.2")}
	devices[1].DMABuf = true
	_, a, b := pair(t, verbsfake.Options{Devices: devices})
	fd := must(unix.MemfdCreate("gpu", 0))(t)
	ok(t, unix.Ftruncate(fd, 1<<20))
	m := must(b.pd.RegisterDMABuf(fd, 8192, 4096, 0x77000, allRights))(t)
	fill(a.mem, 5)
	w := a.wr(verbs.OpRDMAWrite, b, 1, 0, 4096)
	w.RemoteAddr, w.RKey = 0x77000, m.RKey()
	a.post(t, w)
	a.expect(t, verbs.WCSuccess)
	got := make([]byte, 4096)
	if _, err := unix.Pread(fd, got, 8192); err != nil || !bytes.Equal(got, a.mem[:4096]) {
		t.Errorf("the memory file did not get it: %v", err)
	}
	_, err := b.pd.RegisterDMABuf(fd, 1<<20-4096, 8192, 0, allRights)
	failed(t, err, "ibv_reg_dmabuf_mr", syscall.EINVAL)
	ok(t, unix.Close(fd))
	_, err = b.pd.RegisterDMABuf(fd, 0, 4096, 0, allRights)
	failed(t, err, "ibv_reg_dmabuf_mr", syscall.EBADF)
	ok(t, m.Close())
}

// InfiniBand: by LID within a subnet, by GID between subnets, with partition keys.
func TestInfiniBand(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(d []verbsfake.Device)
		global bool
		hops   uint8
		pkey   uint16
		want   verbs.WCStatus
	}{
		{"LID", func([]verbsfake.Device) {}, false, 0, 0, verbs.WCSuccess},
		{"GID in the subnet", func([]verbsfake.Device) {}, true, 1, 0, verbs.WCSuccess},
		{"LID of another subnet", func(d []verbsfake.Device) { d[1].Ports[0].GIDs[0].Raw = verbsfake.SubnetGID(0xfec0, 2) }, false, 0, 0, verbs.WCRetryExceeded},
		{"routed", func(d []verbsfake.Device) { d[1].Ports[0].GIDs[0].Raw = verbsfake.SubnetGID(0xfec0, 2) }, true, 64, 0, verbs.WCSuccess},
		{"not routed", func(d []verbsfake.Device) { d[1].Ports[0].GIDs[0].Raw = verbsfake.SubnetGID(0xfec0, 2) }, true, 1, 0, verbs.WCRetryExceeded},
		{"shared partition", func(d []verbsfake.Device) {
			d[0].Ports[0].PKeys, d[1].Ports[0].PKeys = []uint16{0xffff, 0x8005}, []uint16{0xffff, 0x0005}
		}, false, 0, 1, verbs.WCSuccess},
		{"two limited members", func(d []verbsfake.Device) {
			d[0].Ports[0].PKeys, d[1].Ports[0].PKeys = []uint16{0xffff, 0x0005}, []uint16{0xffff, 0x0005}
		}, false, 0, 1, verbs.WCRetryExceeded},
		{"other partition", func(d []verbsfake.Device) {
			d[0].Ports[0].PKeys, d[1].Ports[0].PKeys = []uint16{0xffff, 0x8005}, []uint16{0xffff, 0x8006}
		}, false, 0, 1, verbs.WCRetryExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := []verbsfake.Device{verbsfake.InfiniBand("a", 1, 10), verbsfake.InfiniBand("b", 2, 11)}
			c.change(d)
			f := fabric(t, verbsfake.Options{Devices: d})
			a, b := open(t, f.Lib("a"), "a", 1<<16), open(t, f.Lib("b"), "b", 1<<16)
			if a.port.LID != 10 || a.port.LinkLayer != verbs.LinkInfiniBand || a.port.BytesPerSec != 12_500_000_000 {
				t.Fatalf("%+v", a.port)
			}
			if k := must(a.dev.PKeys(1))(t); k[0] != 0xffff {
				t.Fatalf("%x", k)
			}
			for _, p := range [][2]*side{{a, b}, {b, a}} {
				ok(t, p[0].qp.Init(1, c.pkey, allRights))
				to := p[0].to(p[1])
				to.Path.Global, to.Path.HopLimit = c.global, c.hops
				ok(t, p[0].qp.Connect(to))
			}
			a.post(t, a.wr(verbs.OpRDMAWrite, b, 1, 0, 5000))
			a.expect(t, c.want)
		})
	}
}

// What a state or device does not take is refused by it, with its name in the error.
func TestStates(t *testing.T) {
	f := fabric(t, verbsfake.Options{})
	a, b := open(t, f.Lib("a"), "a", 1<<16), open(t, f.Lib("b"), "b", 1<<16)
	if n, err := a.qp.Post([]verbs.SendWR{a.wr(0, b, 1, 0, 1)}); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("posted in RESET: %d, %v", n, err)
	}
	failed(t, a.qp.Connect(a.to(b)), "ibv_modify_qp", syscall.EINVAL)
	failed(t, a.qp.Init(2, 0, 0), "ibv_modify_qp", syscall.EINVAL)
	failed(t, a.qp.Init(1, 5, 0), "ibv_modify_qp", syscall.EINVAL)
	ok(t, a.qp.Init(1, 0, 0))
	for _, change := range []func(*verbs.Connect){
		func(c *verbs.Connect) { c.Path.MTU = 1500 },
		func(c *verbs.Connect) { c.Path.GIDIndex = 300 },
		func(c *verbs.Connect) { c.Path.GIDIndex = 9 },
		func(c *verbs.Connect) { c.ReadsIn = 17 },
		func(c *verbs.Connect) { c.Path.GID = [16]byte{} },
		func(c *verbs.Connect) { c.Path.Global = false },
	} {
		c := a.to(b)
		change(&c)
		if e := failed(t, a.qp.Connect(c), "ibv_modify_qp", syscall.EINVAL); !strings.Contains(e.What, "MTU") {
			t.Errorf("%v does not say what was asked for", e)
		}
	}
	c := a.to(b)
	c.ReadsOut = 17
	if e := failed(t, a.qp.Connect(c), "ibv_modify_qp", syscall.EINVAL); !strings.Contains(e.What, "RTS") {
		t.Errorf("%v is not about RTS", e)
	}
	if s := must(a.qp.State())(t); s != verbs.QPRTR || s.String() != "RTR" {
		t.Errorf("state %s", s)
	}
	for _, o := range []verbs.QPOptions{{MaxSend: 0, MaxSGE: 1}, {MaxSend: 1, MaxSGE: 31}, {MaxSend: 9000, MaxSGE: 1}, {MaxSend: 1, MaxSGE: 1, MaxInline: 999}} {
		_, err := a.pd.NewQP(a.cq, o)
		failed(t, err, "ibv_create_qp", syscall.EINVAL)
	}
	_, err := a.dev.QueryPort(2)
	failed(t, err, "ibv_query_port", syscall.EINVAL)
	_, err = a.dev.NewCQ(0)
	failed(t, err, "ibv_create_cq", syscall.EINVAL)
}

// A full send queue takes less, without an error; slots are free once polled.
func TestFullQueue(t *testing.T) {
	f, a, b := pair(t, verbsfake.Options{})
	f.Stall("a", true)
	var wrs []verbs.SendWR
	for i := range 64 {
		wrs = append(wrs, a.wr(verbs.OpRDMAWrite, b, uint64(i), 0, 10))
	}
	a.post(t, wrs...)
	a.post(t, wrs[:60]...)
	if n, err := a.qp.Post(wrs[:7]); n != 4 || err != nil {
		t.Fatalf("took %d: %v", n, err)
	}
	if n, err := a.qp.Post(wrs[:1]); n != 0 || err != nil {
		t.Fatalf("took %d: %v", n, err)
	}
	f.Stall("a", false)
	a.wait(t, 128)
	a.post(t, wrs[0])
	a.wait(t, 1)
	// More than a batch: the rest is for the next call.
	many := append(append([]verbs.SendWR{}, wrs...), wrs...)
	if n, err := a.qp.Post(many); n != verbs.MaxBatch || err != nil {
		t.Fatalf("took %d of %d: %v", n, len(many), err)
	}
	a.wait(t, 64)
}

// Errors of ibv_post_send in all the ways in which providers give them.
func TestPostFails(t *testing.T) {
	for _, c := range []struct {
		verb  string
		errno syscall.Errno
		taken int
		want  error
	}{
		{"ibv_post_send", syscall.EIO, 0, syscall.EIO},
		{"ibv_post_send", ^syscall.ENOMEM + 1, 0, nil}, // -ENOMEM: full
		{"ibv_post_send", ^syscall.EINVAL + 1, 0, syscall.EINVAL},
		{verbsfake.Unnamed, syscall.EINVAL, 3, syscall.EINVAL},
		{verbsfake.Unnamed, syscall.ENOMEM, 3, syscall.ENOMEM},
	} {
		f, a, b := pair(t, verbsfake.Options{})
		f.Fail("a", c.verb, 1, c.errno)
		w := a.wr(verbs.OpRDMAWrite, b, 1, 0, 10)
		n, err := a.qp.Post([]verbs.SendWR{w, w, w})
		if n != c.taken || !errors.Is(err, c.want) {
			t.Errorf("%s, %d: took %d, %v", c.verb, c.errno, n, err)
		}
		a.wait(t, c.taken)
	}
	_, a, b := pair(t, verbsfake.Options{})
	w := a.wr(verbs.OpRDMAWrite, b, 1, 0, 10)
	w.SGE = make([]verbs.SGE, 5)
	if n, err := a.qp.Post([]verbs.SendWR{a.wr(verbs.OpRDMAWrite, b, 1, 0, 10), w}); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("too many pieces: %d, %v", n, err)
	}
}

// What is in the network lands without its sender, but not past its responder.
func TestHeldWrites(t *testing.T) {
	for _, c := range []struct {
		name  string
		end   func(a, b *side) error
		lands bool
	}{
		{"sender destroyed", func(a, _ *side) error { return a.qp.Destroy() }, true},
		{"sender in ERR", func(a, _ *side) error { return a.qp.SetError() }, true},
		{"responder destroyed", func(_, b *side) error { return b.qp.Destroy() }, false},
		{"responder in ERR", func(_, b *side) error { return b.qp.SetError() }, false},
		{"region gone", func(_, b *side) error { return b.mr.Close() }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, a, b := pair(t, verbsfake.Options{})
			fill(a.mem, 7)
			sent := bytes.Clone(a.mem[:8192])
			f.Hold("a", true)
			a.post(t, a.wr(verbs.OpRDMAWrite, b, 1, 0, 4096), a.wr(verbs.OpRDMAWrite, b, 2, 4096, 4096), a.wr(verbs.OpRDMARead, b, 3, 0, 4096))
			until(t, func() bool { return f.Held("a") == 3 })
			ok(t, c.end(a, b))
			fill(a.mem, 8)
			mine := bytes.Clone(a.mem)
			if !bytes.Equal(b.mem[:8192], make([]byte, 8192)) {
				t.Fatal("it landed while it was held")
			}
			f.Release("a")
			if landed := bytes.Equal(b.mem[:8192], sent); landed != c.lands {
				t.Errorf("landed: %v", landed)
			}
			if !bytes.Equal(a.mem, mine) {
				t.Error("a READ landed for a queue pair that is gone")
			}
		})
	}
}

func until(t testing.TB, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

func TestHeldThenReleasedAndDropped(t *testing.T) {
	f, a, b := pair(t, verbsfake.Options{})
	fill(a.mem, 1)
	f.Hold("a", true)
	a.post(t, a.wr(verbs.OpRDMAWrite, b, 1, 0, 5000))
	until(t, func() bool { return f.Held("a") == 1 })
	f.Hold("a", false)
	a.post(t, a.wr(verbs.OpRDMAWrite, b, 2, 5000, 5000)) // waits behind the first
	time.Sleep(2 * time.Millisecond)
	if n, _ := a.cq.Poll(make([]verbs.WC, 4)); n != 0 {
		t.Fatal("it overtook a request that is held")
	}
	f.Release("a")
	a.expect(t, verbs.WCSuccess, verbs.WCSuccess)
	if !bytes.Equal(a.mem[:10000], b.mem[:10000]) {
		t.Error("wrong bytes")
	}
	f.Hold("a", true)
	a.post(t, a.wr(verbs.OpRDMAWrite, b, 3, 0, 1))
	until(t, func() bool { return f.Held("a") == 1 })
	f.DropHeld("a")
	a.expect(t, verbs.WCRetryExceeded)
}

// What is in the network when the way is cut does not come out at the other end.
func TestHeldThenCut(t *testing.T) {
	f, a, b := pair(t, verbsfake.Options{})
	fill(a.mem, 1)
	f.Hold("a", true)
	a.post(t, a.wr(verbs.OpRDMAWrite, b, 1, 0, 5000))
	until(t, func() bool { return f.Held("a") == 1 })
	f.Cut("a", "b", true)
	f.Release("a")
	a.expect(t, verbs.WCRetryExceeded)
	if !bytes.Equal(b.mem[:5000], make([]byte, 5000)) {
		t.Error("it landed")
	}
}

// A device that says nothing: no completion, no flush; queue pairs can be destroyed.
func TestSilence(t *testing.T) {
	f, a, b := pair(t, verbsfake.Options{KeepCompletions: true})
	f.Silence("a", true)
	a.post(t, a.wr(verbs.OpRDMAWrite, b, 1, 0, 10))
	ok(t, a.qp.SetError())
	time.Sleep(30 * time.Millisecond)
	if n := must(a.cq.Poll(make([]verbs.WC, 4)))(t); n != 0 {
		t.Fatalf("%d completions", n)
	}
	f.Silence("a", false)
	a.expect(t, verbs.WCFlushed)
}

// Completions of a destroyed queue pair are dropped, or stay, as the hardware likes.
func TestCompletionsAfterDestroy(t *testing.T) {
	for _, keep := range []bool{false, true} {
		f, a, b := pair(t, verbsfake.Options{KeepCompletions: keep})
		f.Stall("a", true)
		a.post(t, a.wr(verbs.OpRDMAWrite, b, 1, 0, 10), a.wr(verbs.OpRDMAWrite, b, 2, 0, 10))
		ok(t, a.qp.SetError())
		ok(t, a.qp.Destroy())
		n := must(a.cq.Poll(make([]verbs.WC, 4)))(t)
		if n != 0 && !keep || n != 2 && keep {
			t.Errorf("keep %v: %d completions", keep, n)
		}
	}
}

func TestCQOverflow(t *testing.T) {
	f := fabric(t, verbsfake.Options{})
	a, b := open(t, f.Lib("a"), "a", 1<<16), open(t, f.Lib("b"), "b", 1<<16)
	small := must(a.dev.NewCQ(2))(t)
	ok(t, a.qp.Destroy())
	ok(t, a.cq.Close())
	a.cq = small
	a.qp = must(a.pd.NewQP(small, verbs.QPOptions{MaxSend: 8, MaxSGE: 1}))(t)
	connect(t, a, b)
	w := a.wr(verbs.OpRDMAWrite, b, 1, 0, 1)
	a.post(t, w, w, w)
	e := must(a.dev.NextEvent())(t)
	if e.Type != verbs.EventCQErr || e.Port != 0 || e.QPNum != 0 {
		t.Errorf("%+v", e)
	}
	_, err := small.Poll(make([]verbs.WC, 4))
	failed(t, err, "ibv_poll_cq", syscall.EIO)
}

func TestFatalDevice(t *testing.T) {
	f, a, b := pair(t, verbsfake.Options{})
	f.Stall("a", true)
	a.post(t, a.wr(verbs.OpRDMAWrite, b, 1, 0, 10))
	f.Fatal("a")
	if e := must(a.dev.NextEvent())(t); e.Type != verbs.EventDeviceFatal {
		t.Errorf("%+v", e)
	}
	a.expect(t, verbs.WCFlushed)
	_, err := a.dev.AllocPD()
	failed(t, err, "ibv_alloc_pd", syscall.EIO)
	// The objects can be ended, as the cleanup does.
}
