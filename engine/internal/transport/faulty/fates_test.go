package faulty_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/internal/transport/faulty"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
)

// rig is one connection with faults, and two regions.
type rig struct {
	t             *testing.T
	from          *faulty.Transport
	to            *fake.Transport
	local, remote *memory.Region
	client        *transporttest.Client
	origin        transport.Origin
}

const regionBytes = 1 << 20

func newRig(t *testing.T, plan faulty.Plan) *rig {
	t.Helper()
	n := fake.NewNetwork()
	tables := []*memory.Table{memory.NewTable(4), memory.NewTable(4)}
	r := &rig{t: t, client: transporttest.NewClient(t)}
	r.from = faulty.Wrap(n.Transport("a", tables[0], fake.Options{}), plan)
	r.to = n.Transport("b", tables[1], fake.Options{})
	r.local, r.remote = region(t, tables[0]), region(t, tables[1])
	r.origin = transport.Origin{Session: transport.SessionID{1}, Conn: 1}
	t.Cleanup(func() {
		if err := errors.Join(r.from.Close(), r.to.Close(), tables[0].Close(), tables[1].Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func region(t *testing.T, table *memory.Table) *memory.Region {
	t.Helper()
	b, err := memory.Alloc(regionBytes, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := table.Add(b, "", "", memory.PeerRead|memory.PeerWrite)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) dial() error {
	conn, err := r.from.Dial(context.Background(), transport.Dial{
		Session: r.origin.Session, Conn: r.origin.Conn, Remote: r.to.Endpoint(""),
		Exchange: func(ctx context.Context, b []byte) ([]byte, error) { return r.to.Accept(ctx, r.origin, b) },
		Events:   r.client.Events(),
	})
	r.client.Conn = conn
	return err
}

// post posts n requests of 1 KiB each, every second one a WRITE.
func (r *rig) post(n int) []*transport.Request {
	r.t.Helper()
	remote := &transport.RemoteRegion{ID: r.remote.ID(), Bytes: regionBytes}
	var out []*transport.Request
	for i := range n {
		at := int64(i) << 10
		q := &transport.Request{Op: transport.Op(1 - i%2), Bytes: 1 << 10, Check: true, Spans: []transport.Span{
			{Local: r.local, LocalOffset: at, Remote: remote, RemoteOffset: at, Bytes: 1 << 10},
		}}
		if r.client.TryPost([]*transport.Request{q}) == 1 {
			out = append(out, q)
		}
	}
	return out
}

func fill(r *memory.Region, b byte) {
	copy(r.Bytes(0, regionBytes), bytes.Repeat([]byte{b}, regionBytes))
}

// The same seed gives the same fates, another one others.
func TestSeedDecides(t *testing.T) {
	run := func(seed uint64) (out []string, counts faulty.Counts) {
		r := newRig(t, faulty.Plan{Seed: seed, Drop: 0.2, Hold: 0.2, Fail: 0.2, Corrupt: 0.2})
		if err := r.dial(); err != nil {
			t.Fatal(err)
		}
		requests := r.post(100)
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) { // all but those have ended
			left := slices.DeleteFunc(slices.Clone(requests), r.client.HasEnded)
			if counts = r.from.Counts(); len(left) == int(counts.Dropped+counts.Held) {
				break
			}
		}
		r.client.Conn.Close(nil)
		_ = r.client.WaitLost()
		for _, q := range requests {
			d := r.client.End(q)
			switch {
			case d.Err == nil:
				out = append(out, "done")
			case errors.Is(d.Err, transport.ErrChecksum):
				out = append(out, "checksum")
			case errors.Is(d.Err, faulty.ErrInjected):
				out = append(out, "failed")
			case errors.Is(d.Err, transport.ErrClosed) && d.MayLand:
				out = append(out, "may land")
			case errors.Is(d.Err, transport.ErrClosed):
				out = append(out, "closed")
			}
		}
		return out, counts
	}
	a, counts := run(1)
	b, _ := run(1)
	c, _ := run(2)
	if !slices.Equal(a, b) {
		t.Errorf("the same seed gave\n%v\n%v", a, b)
	}
	if slices.Equal(a, c) {
		t.Error("another seed gave the same")
	}
	for _, want := range []string{"done", "checksum", "failed", "may land", "closed"} {
		if !slices.Contains(a, want) {
			t.Errorf("no request ended as %q", want)
		}
	}
	if counts.Dropped == 0 || counts.Held == 0 || counts.Failed == 0 || counts.Corrupted == 0 {
		t.Errorf("counts %+v", counts)
	}
}

// A WRITE that was held lands after its connection, with the bytes that it had.
func TestLateWrite(t *testing.T) {
	if landed := lateWrite(t, false, 20*time.Millisecond); landed != 10 {
		t.Errorf("%d writes landed", landed)
	}
	for latest := time.Second; ; latest *= 4 { // until not all have landed when it is left
		landed := lateWrite(t, true, latest)
		if landed < 10 {
			break
		}
		if latest > time.Minute {
			t.Fatalf("left: %d writes landed", landed)
		}
	}
}

// lateWrite says how many of ten landed.
func lateWrite(t *testing.T, left bool, latest time.Duration) int64 {
	r := newRig(t, faulty.Plan{Hold: 1, LateMax: latest})
	if err := r.dial(); err != nil {
		t.Fatal(err)
	}
	fill(r.local, 0xaa)
	fill(r.remote, 0x11)
	requests := r.post(20) // ten WRITEs, to odd places
	r.client.Conn.Close(nil)
	if err := r.client.WaitLost(); err != nil {
		t.Errorf("lost: %v", err)
	}
	fill(r.local, 0xbb) // ours again
	for i, q := range requests {
		if d := r.client.End(q); i%2 == 1 && (d.Err == nil || !d.MayLand) {
			t.Errorf("a write that was held ended with %v, may land: %v", d.Err, d.MayLand)
		}
	}
	if left {
		if err := r.to.Leave(context.Background(), r.origin, r.origin.Conn); err != nil {
			t.Fatal(err)
		}
		fill(r.remote, 0x22)
	}
	for end := time.Now().Add(time.Minute); len(r.from.Conns()) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	got := r.remote.Bytes(1<<10, 1)[0]
	if want := map[bool]byte{false: 0xaa, true: 0x22}[left]; got != want {
		t.Errorf("left: %v: the byte is %#x, want %#x", left, got, want)
	}
	return r.from.Counts().Landed
}

func TestKillAndDials(t *testing.T) {
	r := newRig(t, faulty.Plan{Kill: 1, FailLeave: 1})
	if err := r.dial(); err != nil {
		t.Fatal(err)
	}
	requests := r.post(3)
	if err := r.client.WaitLost(); !errors.Is(err, faulty.ErrInjected) {
		t.Errorf("lost: %v", err)
	}
	for _, q := range requests {
		if err := r.client.End(q).Err; !errors.Is(err, transport.ErrClosed) {
			t.Errorf("a request on a connection that was killed: %v", err)
		}
	}
	if err := r.from.Leave(context.Background(), r.origin, 99); !errors.Is(err, faulty.ErrInjected) {
		t.Errorf("leave: %v", err)
	}
	r = newRig(t, faulty.Plan{FailDial: 1})
	if err := r.dial(); !errors.Is(err, faulty.ErrInjected) || r.from.Counts().FailedDials != 1 {
		t.Errorf("dial: %v, counts %+v", err, r.from.Counts())
	}
}
