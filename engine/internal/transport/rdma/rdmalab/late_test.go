//go:build vmlab && linux && cgo

package rdma

import (
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
)

// A transfer is stuck in the cable, its slices go over another lane, the memory that it
// was for is used for something else, and then the cable lets go of what it held: no old
// byte lands.
func TestLateBytes(t *testing.T) {
	rounds := 2
	if *long {
		rounds = 20
	}
	for _, x := range []struct {
		name string
		host int // whose frames carry data
		read bool
	}{{"WRITE", 1, false}, {"READ", 2, true}} {
		t.Run(x.name, func(t *testing.T) {
			mended(t)
			d := newDuo(t, Spec{Transports: []string{*over}, Rails: []int{0, 1}, Bytes: 1 << 20})
			if err := shape(bounded(t), map[int]int64{0: 40_000_000, 1: 40_000_000}); err != nil {
				t.Fatal(err)
			}
			for shown, tries := 0, 0; shown < rounds; tries++ {
				if tries == rounds+4 {
					t.Fatalf("of %d transfers only %d had bytes that came late", tries, shown)
				}
				if d.late(t, x.host, x.read) {
					shown++
				}
			}
		})
	}
}

// late is one such transfer. It shows nothing, and says false, where the cable held no
// data: machines that stand still may send none before their lane is given up.
func (d *duo) late(t *testing.T, host int, read bool) bool {
	ctx, rng := bounded(t), dice(t)
	d.refill(rng)
	op := engine.WriteOp(d.mine.All(), d.theirs.At(0))
	if read {
		op = engine.ReadOp(d.mine.All(), d.theirs.At(0))
	}
	move := func() {
		t.Helper()
		b, err := d.peer.Submit(ctx, []engine.Op{op}, engine.SubmitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		<-b.Done()
		if err := b.Err(); err != nil {
			t.Fatalf("%v\n%s", err, b.Explain().Text())
		}
		if read {
			copy(d.here, d.there)
		} else {
			copy(d.there, d.here)
		}
		d.verify("after a transfer")
	}
	eventually(t, "both lanes carry", func() bool {
		before := [2]map[uint32]engine.LaneStats{d.lanesOf(0, *over), d.lanesOf(1, *over)}
		move()
		return carried(before[0], d.lanesOf(0, *over)) > 0 && carried(before[1], d.lanesOf(1, *over)) > 0
	})
	d.refill(rng)
	if err := (Action{Do: "hold", Rail: 0, Host: host}).on(ctx, 1); err != nil {
		t.Fatal(err)
	}
	retries, began := d.engine.Stats().Retries, time.Now()
	move()
	took := time.Since(began)
	again := d.engine.Stats().Retries - retries
	// Both applications use their memory for something else now.
	d.refill(rng)
	held := frames(t, 3-host)
	if err := (Action{Do: "splice", Rail: 0}).on(ctx, 1); err != nil {
		t.Fatal(err)
	}
	// What is not data, such as acknowledgements and neighbour discovery, is far less.
	const datum = 32 << 10
	arrived := func() int64 { return frames(t, 3-host) - held }
	for began := time.Now(); arrived() <= datum && time.Since(began) < 5*time.Second; {
		pause(5 * time.Millisecond)
	}
	pause(300 * time.Millisecond)
	d.verify("after late bytes were let go")
	t.Logf("moved in %v, %d slices sent again; %d late bytes arrived", took.Round(time.Millisecond), again, arrived())
	return again > 0 && arrived() > datum
}

// frames are the bytes that the cable of rail 0 has handed to a machine.
func frames(t *testing.T, host int) int64 {
	t.Helper()
	if host == 2 {
		var n int64
		mustAsk(t, "Frames", 0, &n)
		return n
	}
	n, err := lab.WireCount(bounded(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	return n.Bytes
}

// What the cable holds does land while its connection lives: else the test above would
// see nothing of a fence that is missing.
func TestHeldBytesLand(t *testing.T) {
	mended(t)
	d := newDuo(t, Spec{Transports: []string{*over}, Rails: []int{0}, Bytes: 256 << 10})
	ctx := bounded(t)
	if err := d.peer.Write(ctx, d.mine.Span(0, 1), d.theirs.At(0)); err != nil { // there is a connection
		t.Fatal(err)
	}
	d.refill(dice(t))
	for rail := range 4 { // TCP has them all
		if err := (Action{Do: "hold", Rail: rail, Host: 1}).on(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	b, err := d.peer.Submit(ctx, []engine.Op{engine.WriteOp(d.mine.All(), d.theirs.At(0))}, engine.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pause(300 * time.Millisecond)
	d.verify("while the cable holds a WRITE")
	for rail := range 4 {
		if err := (Action{Do: "splice", Rail: rail}).on(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	<-b.Done()
	if err := b.Err(); err != nil {
		t.Fatal(err)
	}
	copy(d.there, d.here)
	d.verify("after the cable let go of a WRITE")
	if n := d.engine.Stats().Retries; n > 0 {
		t.Logf("%d slices were sent again", n)
	}
}
