package bench

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/pick"
)

// The engines that measure are shown as one, each lane once, with what all of them did.
func TestShow(t *testing.T) {
	address, _ := serve(t, memory.PeerRead|memory.PeerWrite)
	before := runtime.NumGoroutine()
	o := quick(address)
	o.Policies, o.Check = []pick.Policy{pick.Adaptive, pick.Random}, true
	var shown *Engines
	var last engine.Stats
	var recent []*engine.Explanation
	looking, looked := make(chan struct{}), make(chan struct{})
	o.Show = func(e *Engines) (func(), error) {
		shown = e
		go func() {
			defer close(looked)
			for {
				select {
				case <-looking:
					return
				case <-time.After(5 * time.Millisecond):
					e.Stats()
					e.Recent()
				}
			}
		}()
		return func() {
			last, recent = e.Stats(), e.Recent()
			close(looking)
			<-looked
		}, nil
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if shown == nil {
		t.Fatal("nothing was shown")
	}
	ops, lanes := int64(0), map[string]int{}
	for i := range r.Results {
		ops += r.Results[i].Ops
	}
	var bytes int64
	for i := range last.Lanes {
		l := &last.Lanes[i]
		lanes[l.Peer+" "+l.Transport]++
		bytes += l.Bytes
	}
	for _, label := range []string{"adaptive: ", "random: ", "verifying: "} {
		n := 0
		for name := range lanes {
			if strings.HasPrefix(name, label) {
				n++
			}
		}
		if n == 0 {
			t.Errorf("no lane of %s: %v", label, lanes)
		}
	}
	if len(last.Peers) != 3 || last.Batches <= 0 || bytes < ops*4096 || last.Failed != 0 {
		t.Errorf("%d bytes of %d ops: %+v", bytes, ops, last)
	}
	if len(recent) == 0 || len(recent) > maxRecent {
		t.Errorf("%d recent batches", len(recent))
	}
	for i, b := range recent {
		if i > 0 && recent[i-1].EndedAgoNS > b.EndedAgoNS {
			t.Fatalf("batch %d is not in the order of time", i)
		}
		if !strings.Contains(b.Peer, ": ") {
			t.Errorf("of which engine is a batch with %q?", b.Peer)
		}
	}
	settled(t, before)
}

// One engine is shown as it is; who cannot show it ends the run.
func TestShowOne(t *testing.T) {
	address, _ := serve(t, memory.PeerRead|memory.PeerWrite)
	o := quick(address)
	o.Show = func(e *Engines) (func(), error) {
		s := e.Stats()
		if len(s.Peers) != 1 || s.Peers[0].Name != address || !strings.HasPrefix(s.Name, "bench-") {
			t.Errorf("%+v", s)
		}
		return nil, errors.New("no room")
	}
	if r, err := Run(t.Context(), o); r != nil || err == nil || err.Error() != "no room" {
		t.Errorf("%v, %v", r, err)
	}
}
