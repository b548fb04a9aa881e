//go:build vmlab && linux && cgo

package rdma

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
)

// ofRail says whether a lane is that of a rail.
func ofRail(l *engine.LaneStats, rail int) bool {
	return strings.Contains(l.Lane, fmt.Sprintf("rxe%d", rail)) || strings.Contains(l.Lane, fmt.Sprintf("rail%d", rail))
}

// lanesOf are the lanes of a rail, by number: a lane that went may come back as another.
func (d *duo) lanesOf(rail int, transport string) map[uint32]engine.LaneStats {
	out := map[uint32]engine.LaneStats{}
	for _, l := range d.lanes(transport) {
		if ofRail(&l, rail) {
			out[l.ID] = l
		}
	}
	return out
}

// lost says whether the engine has noticed, since a first look, that a rail's lane is.
func lost(before, now map[uint32]engine.LaneStats) bool {
	for id, was := range before {
		is, ok := now[id]
		if !ok || is.Failures > was.Failures || is.Health != "healthy" {
			return true
		}
	}
	return false
}

// carried is how much a rail's lanes have moved since a first look.
func carried(before, now map[uint32]engine.LaneStats) int64 {
	sum := int64(0)
	for id, is := range now {
		sum += is.Bytes - before[id].Bytes
	}
	return sum
}

// eventually waits for something that must happen, and says how long it took.
func eventually(t *testing.T, what string, is func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > within {
			t.Fatalf("not after %v: %s", within, what)
		}
		pause(5 * time.Millisecond)
	}
	return time.Since(began)
}

// A lane that is lost costs no operation, however it is lost, and is used again.
func TestLaneLost(t *testing.T) {
	mended(t)
	const rail = 1
	d := newDuo(t, Spec{Transports: []string{*over}, Rails: []int{0, rail}, Bytes: 2 << 20})
	rates := map[int]int64{0: 30_000_000, rail: 30_000_000}
	if err := shape(bounded(t), rates); err != nil {
		t.Fatal(err)
	}
	list := faults
	if !*long {
		list = faults[:inCI]
	}
	tr := d.startTraffic(4, 4, 48<<10, dice(t))
	defer tr.end()
	for _, f := range list {
		t.Run(f.name, func(t *testing.T) { d.loseLane(t, tr, f, rail, rates) })
		if t.Failed() {
			logLanes(t, d)
			d.logRoute(t)
			return // the rail may be anything
		}
	}
	if n := d.engine.Stats().Failed; n > 0 {
		t.Errorf("%d batches failed", n)
	}
}

// loseLane loses the lane of a rail and gives it back while transfers go on.
func (d *duo) loseLane(t *testing.T, tr *traffic, f fault, rail int, rates map[int]int64) {
	ctx := bounded(t)
	const much = 128 << 10
	first := d.lanesOf(rail, *over)
	eventually(t, "the lane carries bytes", func() bool { return carried(first, d.lanesOf(rail, *over)) > much })
	batches, before := tr.batches.Load(), d.lanesOf(rail, *over)
	tr.takeSlowest()
	began := time.Now()
	broken := make(chan error, 1)
	go func() { broken <- f.begin(ctx, rail) }() // the kernel may wait until nobody has the device open
	seen := eventually(t, "the lane is lost", func() bool { return lost(before, d.lanesOf(rail, *over)) })
	if err := <-broken; err != nil {
		t.Fatal(err)
	}
	done := time.Since(began)
	pause(time.Second)
	if tr.batches.Load() == batches {
		t.Error("no batch ended while the lane was lost")
	}
	slowest := tr.takeSlowest()
	if err := f.end(ctx, rail); err != nil {
		t.Fatal(err)
	}
	after := d.lanesOf(rail, *over)
	back := eventually(t, "the lane is used again", func() bool { return carried(after, d.lanesOf(rail, *over)) > much })
	t.Logf("lost after %v (fault complete after %v), slowest batch %v (%v after it was mended), used again %v after that, %d batches meanwhile",
		seen.Round(time.Millisecond), done.Round(time.Millisecond), slowest.Round(time.Millisecond),
		tr.takeSlowest().Round(time.Millisecond), back.Round(time.Millisecond), tr.batches.Load()-batches)
	if err := shape(ctx, map[int]int64{rail: rates[rail]}); err != nil {
		t.Fatal(err)
	}
}

// A lane between whose ends only RDMA is lost: TCP takes over, and gives back.
func TestFailoverToTCP(t *testing.T) {
	if *over != "rdma" {
		t.Skip("-over is not rdma, which this is about")
	}
	mended(t)
	rails := []int{0, 1}
	d := newDuo(t, Spec{Transports: []string{"rdma", "tcp"}, Rails: rails, Bytes: 2 << 20})
	ctx := bounded(t)
	if err := shape(ctx, map[int]int64{0: 30_000_000, 1: 30_000_000}); err != nil {
		t.Fatal(err)
	}
	tr := d.startTraffic(4, 4, 48<<10, dice(t))
	defer tr.end()
	const much = 256 << 10
	carries := func(transport string, what string) time.Duration {
		from := d.moved(transport)
		return eventually(t, transport+" carries bytes "+what, func() bool { return d.moved(transport) > from+much })
	}
	carries("rdma", "at first")
	if n := d.moved("tcp"); n > 0 {
		t.Errorf("TCP carried %d bytes while RDMA was there", n)
	}
	for _, rail := range rails {
		for host := 1; host <= 2; host++ {
			if err := (Action{Do: "no RoCE", Rail: rail}).on(ctx, host); err != nil {
				t.Fatal(err)
			}
		}
	}
	tr.takeSlowest()
	there := carries("tcp", "when RDMA is dropped")
	from := tr.batches.Load()
	eventually(t, "a batch goes on from here", func() bool { return tr.batches.Load() > from+8 })
	text := tr.last.Load().Explain().Text()
	if !strings.Contains(text, "used") || !strings.Contains(text, "tcp") {
		t.Errorf("the explanation does not name TCP:\n%s", text)
	}
	t.Logf("while RDMA is dropped:\n%s", text)
	if n := d.engine.Stats().Fallback; n == 0 {
		t.Error("no fallback was counted")
	}
	for _, rail := range rails {
		for host := 1; host <= 2; host++ {
			if err := (Action{Do: "RoCE", Rail: rail}).on(ctx, host); err != nil {
				t.Fatal(err)
			}
		}
	}
	slowest := tr.takeSlowest()
	back := carries("rdma", "when it is let through again")
	tr.end()
	t.Logf("TCP carried after %v, RDMA again after %v, slowest batch %v, %d fallbacks, %v", there.Round(time.Millisecond),
		back.Round(time.Millisecond), slowest.Round(time.Millisecond), d.engine.Stats().Fallback, tr)
	logLanes(t, d)
	if n := d.engine.Stats().Failed; n > 0 {
		t.Errorf("%d batches failed", n)
	}
}

// logRoute prints what the engine would do now.
func (d *duo) logRoute(t *testing.T) {
	t.Helper()
	x, err := d.peer.Explain(d.mine.Location(), d.theirs.Location())
	if err != nil {
		t.Log(err)
		return
	}
	t.Log(x.Text())
}
