//go:build cgo && linux && (amd64 || arm64)

package verbs_test

import (
	"bytes"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// side is one end of a pair: a device with one of everything.
type side struct {
	name string
	dev  *verbs.Device
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR
	mem  []byte
	iova uint64
	gid  verbs.GID
	port verbs.PortAttr
}

const allRights = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pages is memory off the heap.
func pages(t testing.TB, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	ok(t, err)
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return mem
}

func addr(mem []byte) uintptr { return uintptr(unsafe.Pointer(&mem[0])) }

// open makes a side; what it made is closed at the end of the test.
func open(t testing.TB, lib *verbs.Lib, name string, bytes int) *side {
	t.Helper()
	s := &side{name: name, mem: pages(t, bytes), iova: 0x10000}
	s.dev = must(lib.Open(name))(t)
	s.pd = must(s.dev.AllocPD())(t)
	s.cq = must(s.dev.NewCQ(256))(t)
	s.qp = must(s.pd.NewQP(s.cq, verbs.QPOptions{MaxSend: 128, MaxSGE: 4, MaxInline: 64}))(t)
	s.mr = must(s.pd.Register(addr(s.mem), uint64(len(s.mem)), s.iova, allRights))(t)
	s.port = must(s.dev.QueryPort(1))(t)
	gids := must(s.dev.GIDs(1))(t)
	s.gid = gids[len(gids)-1]
	t.Cleanup(func() { s.close(t) })
	return s
}

func (s *side) close(t testing.TB) {
	t.Helper()
	for _, end := range []func() error{s.qp.Destroy, s.mr.Close, s.cq.Close, s.pd.Close, s.dev.Close} {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

// to is what connects a side to another.
func (s *side) to(o *side) verbs.Connect {
	return verbs.Connect{
		Path: verbs.Path{Port: 1, GIDIndex: s.gid.Index, Global: s.port.LinkLayer == verbs.LinkEthernet,
			GID: o.gid.Raw, LID: o.port.LID, HopLimit: 64, MTU: 1024},
		PeerQP: o.qp.Num(), SendPSN: 100 + s.qp.Num(), ReceivePSN: 100 + o.qp.Num(),
		ReadsOut: 4, ReadsIn: 4, TimeoutLog2: 14, RetryCount: 6, RNRRetry: 6, MinRNRTimer: 12,
	}
}

func connect(t testing.TB, a, b *side) {
	t.Helper()
	for _, s := range []*side{a, b} {
		ok(t, s.qp.Init(1, 0, verbs.RemoteRead|verbs.RemoteWrite))
	}
	ok(t, a.qp.Connect(a.to(b)))
	ok(t, b.qp.Connect(b.to(a)))
}

// wr is a request for bytes at the same offset on both sides.
func (s *side) wr(op verbs.Opcode, o *side, id uint64, at, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: op, RemoteAddr: o.iova + uint64(at), RKey: o.mr.RKey(),
		SGE: []verbs.SGE{{Addr: s.iova + uint64(at), Length: uint32(n), LKey: s.mr.LKey()}}}
}

func (s *side) post(t testing.TB, wrs ...verbs.SendWR) {
	t.Helper()
	n, err := s.qp.Post(wrs)
	if n != len(wrs) || err != nil {
		t.Fatalf("posted %d of %d: %v", n, len(wrs), err)
	}
}

// wait polls until n completions are there.
func (s *side) wait(t testing.TB, n int) []verbs.WC {
	t.Helper()
	var all []verbs.WC
	end := time.Now().Add(time.Minute)
	for len(all) < n {
		var out [verbs.MaxBatch]verbs.WC
		got, err := s.cq.Poll(out[:])
		ok(t, err)
		all = append(all, out[:got]...)
		if got == 0 {
			if time.Now().After(end) {
				t.Fatalf("%s: %d of %d completions: %v", s.name, len(all), n, all)
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
	if len(all) != n {
		t.Fatalf("%d completions, not %d: %v", len(all), n, all)
	}
	return all
}

func (s *side) expect(t testing.TB, statuses ...verbs.WCStatus) {
	t.Helper()
	for i, c := range s.wait(t, len(statuses)) {
		if c.Status != statuses[i] {
			t.Fatalf("completion %d: %+v (%d), not %d", i, c, c.Status, statuses[i])
		}
	}
}

func fabric(t testing.TB, o verbsfake.Options) *verbsfake.Fabric {
	t.Helper()
	if o.Devices == nil {
		o.Devices = []verbsfake.Device{verbsfake.RoCE("a", 0xa, "10.0.0.1"), verbsfake.RoCE("b", 0xb, "10.0.0.2")}
	}
	f := verbsfake.New(o)
	t.Cleanup(func() {
		if left := f.Objects(""); left != (verbsfake.Objects{}) {
			t.Errorf("objects are left: %+v", left)
		}
		f.Close()
	})
	return f
}

// pair is two connected sides.
func pair(t testing.TB, o verbsfake.Options) (*verbsfake.Fabric, *side, *side) {
	t.Helper()
	f := fabric(t, o)
	a, b := open(t, f.Lib("a"), "a", 1<<20), open(t, f.Lib("b"), "b", 1<<20)
	connect(t, a, b)
	return f, a, b
}

func fill(mem []byte, seed byte) {
	for i := range mem {
		mem[i] = byte(i>>8) ^ byte(i) ^ seed
	}
}

func TestBytesMoveBothWays(t *testing.T) {
	_, a, b := pair(t, verbsfake.Options{})
	fill(a.mem, 1)
	fill(b.mem, 2)
	a.post(t, a.wr(verbs.OpRDMAWrite, b, 7, 4096, 70000))
	if c := a.wait(t, 1)[0]; c.ID != 7 || c.Status != verbs.WCSuccess || c.QPNum != a.qp.Num() {
		t.Fatalf("%+v", c)
	}
	if !bytes.Equal(a.mem[4096:74096], b.mem[4096:74096]) || bytes.Equal(a.mem[:4096], b.mem[:4096]) {
		t.Fatal("WRITE moved other bytes")
	}
	a.post(t, a.wr(verbs.OpRDMARead, b, 8, 200001, 99999))
	a.expect(t, verbs.WCSuccess)
	if !bytes.Equal(a.mem[200001:300000], b.mem[200001:300000]) || a.mem[300000] == b.mem[300000] {
		t.Fatal("READ moved other bytes")
	}
}
