//go:build cgo && linux && (amd64 || arm64)

package verbs_test

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

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
		{"over its end", with(func(w *verbs.SendWR, _, b *side) { w.RemoteAddr = b.iova + 1<<20 - 8191 }), verbs.WCRemoteAccess},
		{"own memory's end", with(func(w *verbs.SendWR, a, _ *side) { w.SGE[0].Addr = a.iova + 1<<20 - 1 }), verbs.WCLocalProt},
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
		{"peer in ERR", func(t *testing.T, f *verbsfake.Fabric, a, b *side) verbs.SendWR {
			ok(t, b.qp.SetError())
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

func until(t testing.TB, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
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
