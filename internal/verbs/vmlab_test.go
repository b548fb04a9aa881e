//go:build vmlab && linux && cgo && amd64

package verbs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/test/vmlab"
	"github.com/topoctl/topoctl/test/vmlab/guest"
)

// These run between two machines of the lab, on Soft-RoCE with Debian's libibverbs.

const labRail = 0

func lab(t *testing.T) (*guest.Lab, context.Context) {
	t.Helper()
	l, err := guest.Open()
	if errors.Is(err, guest.ErrNoLab) {
		t.Skipf("not in a machine of the lab (make lab): %v", err)
	}
	ok(t, err)
	t.Cleanup(func() { ok(t, l.Close()) })
	if l.Peer() == 0 {
		t.Skip("the lab has one machine: this needs a second")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return l, ctx
}

// far is what the other machine says of its side.
type far struct {
	QP, RKey uint32
	IOVA     uint64
	GID      [16]byte
}

// labSide opens the real device of the rail.
func labSide(t *testing.T, l *guest.Lab, bytes int) *side {
	t.Helper()
	s := open(t, must(verbs.Load())(t), vmlab.RDMADev(labRail), bytes)
	s.gid = labGID(t, l, s.dev)
	return s
}

func labGID(t *testing.T, l *guest.Lab, d *verbs.Device) verbs.GID {
	t.Helper()
	want := netip.MustParseAddr(l.Addr(l.Host(), labRail)).As16()
	gids := must(d.GIDs(1))(t)
	for _, g := range gids {
		if g.Raw == want && g.Type == verbs.GIDRoCEv2 {
			return g
		}
	}
	t.Fatalf("no RoCE v2 GID of %s in %+v", l.Addr(l.Host(), labRail), gids)
	return verbs.GID{}
}

// labConnect swaps what the two ends need and connects them.
func labConnect(ctx context.Context, t *testing.T, l *guest.Lab, s *side) far {
	t.Helper()
	mine, err := json.Marshal(far{QP: s.qp.Num(), RKey: s.mr.RKey(), IOVA: s.iova, GID: s.gid.Raw})
	ok(t, err)
	text, err := l.Exchange(ctx, "side", string(mine))
	ok(t, err)
	var p far
	ok(t, json.Unmarshal([]byte(text), &p))
	ok(t, s.qp.Init(1, 0, verbs.RemoteRead|verbs.RemoteWrite))
	ok(t, s.qp.Connect(verbs.Connect{
		Path:   verbs.Path{Port: 1, GIDIndex: s.gid.Index, Global: true, GID: p.GID, HopLimit: 64, MTU: s.port.ActiveMTU},
		PeerQP: p.QP, SendPSN: s.qp.Num() & 0xffffff, ReceivePSN: p.QP & 0xffffff,
		ReadsOut: 8, ReadsIn: 8, TimeoutLog2: 14, RetryCount: 6, RNRRetry: 6, MinRNRTimer: 12,
	}))
	ok(t, l.Barrier(ctx, "connected"))
	return p
}

// renew replaces the queue pair.
func renew(t *testing.T, s *side) {
	t.Helper()
	ok(t, s.qp.Destroy())
	s.qp = must(s.pd.NewQP(s.cq, verbs.QPOptions{MaxSend: 128, MaxSGE: 4, MaxInline: 64}))(t)
}

func (p far) wr(s *side, op verbs.Opcode, id uint64, at, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: op, RemoteAddr: p.IOVA + uint64(at), RKey: p.RKey,
		SGE: []verbs.SGE{{Addr: s.iova + uint64(at), Length: uint32(n), LKey: s.mr.LKey()}}}
}

func TestLabDescription(t *testing.T) {
	l, _ := lab(t)
	lib := must(verbs.Load())(t)
	devices := must(lib.Devices())(t)
	if len(devices) != 4 || devices[0].GUID == 0 {
		t.Errorf("%+v", devices)
	}
	s := labSide(t, l, 4096)
	t.Logf("%+v", s.dev.Limits())
	t.Logf("%+v", s.port)
	lim := s.dev.Limits()
	if lim.Ports != 1 || lim.MaxQP < 16 || lim.MaxSGE != 32 || lim.MaxQPReadAtomic != 128 || lim.CompVectors < 1 || lim.MaxCQE < 1024 {
		t.Errorf("limits: %+v", lim)
	}
	if s.port.State != verbs.PortActive || s.port.LinkLayer != verbs.LinkEthernet || s.port.ActiveMTU != 4096 || s.port.MaxMsgBytes == 0 || s.port.GIDs == 0 {
		t.Errorf("port: %+v", s.port)
	}
	if k := must(s.dev.PKeys(1))(t); len(k) == 0 || k[0] != 0xffff {
		t.Errorf("partition keys: %x", k)
	}
	// The same addresses from sysfs and from the library's table.
	table := must(s.dev.GIDs(1))(t)
	single := must(verbs.GIDsOneByOne(s.dev, 1))(t)
	if len(table) == 0 || fmt.Sprint(table) != fmt.Sprint(single) {
		t.Errorf("GIDs: %+v, one by one %+v", table, single)
	}
}

func TestLabMoves(t *testing.T) {
	l, ctx := lab(t)
	s := labSide(t, l, 1<<20)
	p := labConnect(ctx, t, l, s)
	fill(s.mem, byte(l.Host()))
	want := make([]byte, 1<<20)
	fill(want, byte(l.Peer()))
	ok(t, l.Barrier(ctx, "filled"))
	const half = 1 << 19
	if l.Host() == 1 {
		// 64 requests in one call, slept for on the completion channel.
		ok(t, s.cq.Arm())
		var wrs []verbs.SendWR
		for i := range 64 {
			wrs = append(wrs, p.wr(s, verbs.OpRDMAWrite, uint64(i), i*half/64, half/64))
		}
		s.post(t, wrs...)
		ok(t, soon(t, "Wait", s.cq.Wait))
		for i, c := range s.wait(t, 64) {
			if c.ID != uint64(i) || c.Status != verbs.WCSuccess || c.QPNum != s.qp.Num() {
				t.Fatalf("%+v", c)
			}
		}
		s.post(t, p.wr(s, verbs.OpRDMARead, 1, half, half))
		s.expect(t, verbs.WCSuccess)
		if !bytes.Equal(s.mem[half:], want[half:]) {
			t.Error("READ: wrong bytes")
		}
		small := p.wr(s, verbs.OpRDMAWrite, 2, half, 64)
		small.Inline, small.SGE[0].Addr = true, uint64(addr(s.mem))
		s.post(t, small)
		s.expect(t, verbs.WCSuccess)
	}
	ok(t, l.Barrier(ctx, "moved"))
	if l.Host() == 2 && (!bytes.Equal(s.mem[:half], want[:half]) || !bytes.Equal(s.mem[half:half+64], want[:64])) {
		t.Error("WRITE: wrong bytes")
	}
	if st := must(s.qp.State())(t); st != verbs.QPRTS {
		t.Errorf("state %s", st)
	}
}

func TestLabStatuses(t *testing.T) {
	l, ctx := lab(t)
	s := labSide(t, l, 1<<16)
	for _, c := range []struct {
		name   string
		change func(w *verbs.SendWR)
		want   verbs.WCStatus
	}{
		{"remote key", func(w *verbs.SendWR) { w.RKey ^= 0xff00 }, verbs.WCRemoteAccess},
		{"remote end", func(w *verbs.SendWR) { w.RemoteAddr += 1<<16 - 10 }, verbs.WCRemoteAccess},
		// A device with a protection engine says local protection error.
		{"own key", func(w *verbs.SendWR) { w.SGE[0].LKey ^= 0xff00 }, verbs.WCLocalQPOp},
		{"wire cut", nil, verbs.WCRetryExceeded},
	} {
		renew(t, s)
		p := labConnect(ctx, t, l, s)
		if l.Host() == 1 {
			w := p.wr(s, verbs.OpRDMAWrite, 1, 0, 4096)
			if c.change == nil {
				ok(t, l.Cut(ctx, labRail))
			} else {
				c.change(&w)
			}
			s.post(t, w, p.wr(s, verbs.OpRDMAWrite, 2, 0, 10))
			s.expect(t, c.want, verbs.WCFlushed)
			if st := must(s.qp.State())(t); st != verbs.QPError {
				t.Errorf("%s: state %s", c.name, st)
			}
			t.Logf("%s: status %d", c.name, c.want)
			if c.change == nil {
				ok(t, l.Splice(ctx, labRail))
			}
		}
		ok(t, l.Barrier(ctx, "judged"))
	}
}

// Destroying the responder's queue pair is what fences: nothing lands after it.
func TestLabDestroyFences(t *testing.T) {
	l, ctx := lab(t)
	s := labSide(t, l, 1<<20)
	p := labConnect(ctx, t, l, s)
	if l.Host() == 1 {
		fill(s.mem, 9)
		for i := range 64 {
			s.post(t, p.wr(s, verbs.OpRDMAWrite, uint64(i), 0, 1<<20))
		}
	} else {
		time.Sleep(100 * time.Millisecond)
		ok(t, s.qp.Destroy())
		if bytes.Equal(s.mem, make([]byte, 1<<20)) {
			t.Error("nothing had landed: this shows nothing")
		}
		clear(s.mem)
		time.Sleep(time.Second)
		if !bytes.Equal(s.mem, make([]byte, 1<<20)) {
			t.Error("something landed after Destroy")
		}
	}
	ok(t, l.Barrier(ctx, "fenced"))
}

func TestLabEvents(t *testing.T) {
	l, ctx := lab(t)
	s := labSide(t, l, 4096)
	if l.Host() == 1 {
		events := make(chan verbs.Event, 16)
		left := make(chan error, 1)
		go func() {
			for {
				e, err := s.dev.NextEvent()
				if err != nil {
					left <- err
					return
				}
				events <- e
			}
		}()
		seen := func(want verbs.EventType) {
			t.Helper()
			for {
				select {
				case e := <-events:
					t.Logf("event %d, port %d", e.Type, e.Port)
					if e.Type == want && e.Port == 1 {
						return
					}
				case <-time.After(15 * time.Second):
					t.Fatalf("no event of type %d", want)
				}
			}
		}
		ok(t, l.LinkDown(ctx, labRail))
		seen(verbs.EventPortErr)
		if p := must(s.dev.QueryPort(1))(t); p.State == verbs.PortActive {
			t.Errorf("the port is %d with its link down", p.State)
		}
		ok(t, l.LinkUp(ctx, labRail))
		seen(verbs.EventPortActive)
		ok(t, l.RemoveAddress(ctx, labRail))
		seen(verbs.EventGIDChange)
		ok(t, l.AddAddress(ctx, labRail))
		seen(verbs.EventGIDChange)
		_ = soon(t, "Close", s.dev.Close) // it fails: a queue pair is open
		if err := soon(t, "NextEvent", func() error { return <-left }); !errors.Is(err, verbs.ErrClosed) {
			t.Error(err)
		}
	}
	ok(t, l.Barrier(ctx, "events"))
}

// Sleepers on the kernel's own descriptors are woken; errors of the kernel have names.
func TestLabWakesAndErrors(t *testing.T) {
	l, ctx := lab(t)
	s := labSide(t, l, 1<<16)
	waited := make(chan error, 1)
	go func() { waited <- s.cq.Wait() }()
	time.Sleep(10 * time.Millisecond)
	s.cq.Wake()
	ok(t, soon(t, "Wait", func() error { return <-waited }))
	hole := pages(t, 1<<16)
	gone := addr(hole)
	ok(t, unix.Munmap(hole))
	_, err := s.pd.Register(gone, 4096, 0, allRights)
	failed(t, err, "ibv_reg_mr", syscall.EFAULT)
	_, err = s.pd.Register(addr(s.mem), 4096, 0, verbs.RemoteWrite)
	failed(t, err, "ibv_reg_mr", syscall.EINVAL)
	moved := must(s.pd.Register(addr(s.mem), 4096, 1<<40, allRights))(t)
	ok(t, moved.Close())
	fd := must(unix.MemfdCreate("no dma-buf", 0))(t)
	_, err = s.pd.RegisterDMABuf(fd, 0, 4096, 0, allRights)
	t.Logf("dma-buf on rxe: %v", err)
	if err == nil {
		t.Error("a memory file was taken for a dma-buf")
	}
	ok(t, unix.Close(fd))
	failed(t, s.pd.Close(), "ibv_dealloc_pd", syscall.EBUSY)
	failed(t, s.qp.Connect(verbs.Connect{Path: verbs.Path{Port: 1, MTU: 1024}}), "ibv_modify_qp", syscall.EINVAL)
	_, err = must(verbs.Load())(t).Open("rxe99")
	failed(t, err, "ibv_open_device", syscall.ENODEV)
	ok(t, l.Barrier(ctx, "woken"))
}

// Too small a limit of locked memory, as a user without CAP_IPC_LOCK meets it.
func TestLabMemlock(t *testing.T) {
	l, ctx := lab(t)
	s := labSide(t, l, 1<<20)
	var old unix.Rlimit
	ok(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	ok(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 1 << 16, Max: old.Max}))
	failure := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: this thread has lost its rights
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			failure <- err
			return
		}
		_, err := s.pd.Register(addr(s.mem), 1<<20, s.iova, allRights)
		failure <- err
	}()
	err := <-failure
	ok(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old))
	t.Log(err)
	if e := failed(t, err, "ibv_reg_mr", syscall.ENOMEM); !strings.Contains(e.Advice, "65536 bytes") {
		t.Errorf("the limit is not said: %v", e)
	}
	ok(t, l.Barrier(ctx, "memlock"))
}

// A full queue of the real provider takes less; a hundred connections leave nothing.
func TestLabQueuesAndReconnects(t *testing.T) {
	l, ctx := lab(t)
	s := labSide(t, l, 1<<16)
	p := labConnect(ctx, t, l, s)
	if l.Host() == 1 {
		room := s.qp.Options().MaxSend
		t.Logf("asked for 128 work requests and 64 inline bytes, got %+v", s.qp.Options())
		var wrs []verbs.SendWR
		for i := range verbs.MaxBatch {
			wrs = append(wrs, p.wr(s, verbs.OpRDMAWrite, uint64(i), 0, 1<<16))
		}
		taken := 0
		for range room/verbs.MaxBatch + 64 {
			n, err := s.qp.Post(wrs)
			ok(t, err)
			if taken += n; n < len(wrs) {
				break
			}
		}
		if taken < room {
			t.Errorf("took %d of %d", taken, room)
		}
		for got := 0; got < taken; {
			n, err := s.cq.Poll(make([]verbs.WC, 64))
			ok(t, err)
			got += n
		}
	}
	ok(t, l.Barrier(ctx, "full"))
	for range 100 {
		renew(t, s)
	}
	p = labConnect(ctx, t, l, s)
	if l.Host() == 1 {
		s.post(t, p.wr(s, verbs.OpRDMAWrite, 1, 0, 100))
		s.expect(t, verbs.WCSuccess)
	}
	ok(t, l.Barrier(ctx, "again"))
}
