package lanes

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/kv/replay"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// A lane dies, loudly or silently, while caches move: every request is answered, no byte is
// wrong, and the result says which lane it was.
func TestKVLaneDies(t *testing.T) {
	const requests, tokens = 5, 1024 // 8 MiB each
	for _, silent := range longtest.Sample([]bool{true, false}, 1) {
		name := "down"
		if silent {
			name = "silent"
		}
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 200, 200)
			n := l.open(2, l.far.ask(ask{Do: "engine", Lanes: 2}))
			w, err := kv.Generate(kv.Spec{Requests: requests, Seed: 3, Arrivals: kv.Arrivals{Concurrency: 4},
				Input: kv.Fixed(tokens), Output: kv.Fixed(2)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			done := make(chan struct{})
			var r *replay.Result
			go func() {
				defer close(done)
				r, err = replay.Run(ctx, replay.Options{Serve: kvServe(t), Workload: w, Check: true,
					Local: [][]*engine.Region{{n.local}}, Remote: [][]*engine.RemoteRegion{{n.remote}}})
			}()
			if !n.whenBusy(1, done) {
				t.Error("the lane never carried anything")
			}
			if silent {
				l.silence(1)
			} else {
				l.down(1)
			}
			if <-done; err != nil {
				t.Fatal(err)
			}
			for i := range r.Times {
				if r.Times[i].Failed != nil {
					t.Errorf("request %d: %s", i, r.Times[i].Failed)
				}
			}
			if want := requests * tokens * kvModel.BytesPerToken(); r.CheckedBytes != want {
				t.Errorf("%d bytes were right, want %d", r.CheckedBytes, want)
			}
			kvLanesAfter(t, r)
		})
	}
}

// whenBusy waits until a lane has carried something and has slices on their way. That is so early
// that these are of caches: the first one takes longer, and what is read back comes after it.
func (n *nearEngine) whenBusy(lane int, over <-chan struct{}) bool {
	for {
		for _, s := range n.e.Stats().Lanes {
			if s.LocalAddress == nearAddr(lane).String() && s.Bytes > 1<<20 && s.InflightSlices > 0 {
				return true
			}
		}
		select {
		case <-over:
			return false
		case <-time.After(time.Millisecond):
		}
	}
}

// kvLanesAfter checks what is said of the two lanes after the second one died.
func kvLanesAfter(t *testing.T, r *replay.Result) {
	t.Helper()
	if len(r.Lanes) != 2 {
		t.Fatalf("lanes: %+v", r.Lanes)
	}
	for i, x := range r.Lanes {
		t.Logf("%s: %d bytes, %d slices, %d sent again, %q", x.Name, x.Bytes, x.Slices, x.Retries, x.Error)
		if !strings.HasPrefix(x.Name, nearName(i)+" > ") || x.BytesPerSec == nil || topo.Rate(*x.BytesPerSec) != 125e6 {
			t.Errorf("lane %d: %+v", i, x)
		}
	}
	if alive, dead := &r.Lanes[0], &r.Lanes[1]; dead.Retries == 0 || dead.Error == "" || alive.Bytes <= dead.Bytes {
		t.Errorf("alive: %+v, dead: %+v", alive, dead)
	}
}
