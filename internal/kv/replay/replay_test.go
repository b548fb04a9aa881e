package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/kv/serve"
)

func sideOf(tp, page int, order kv.Order) kv.Side {
	return kv.Side{TP: tp, PageTokens: page, Order: order}
}

// Every byte of every cache is where the layout of the decode side wants it, and nothing else
// was touched.
func TestBytes(t *testing.T) {
	for _, tt := range []struct {
		name            string
		model           kv.Model
		prefill, decode kv.Side
		kept            int64  // how often the decode side keeps each byte
		regions         [2]int // of an instance on either side
	}{
		{"TP1 to TP1", qwen, sideOf(1, 16, kv.NHD), sideOf(1, 16, kv.NHD), 1, [2]int{1, 1}},
		{"TP2 to TP4", qwen, sideOf(2, 16, kv.NHD), sideOf(4, 16, kv.NHD), 1, [2]int{2, 4}},
		{"TP4 to TP2, other order", qwen, sideOf(4, 16, kv.NHD), sideOf(2, 16, kv.HND), 1, [2]int{2, 2}},
		{"TP1 to TP8, other pages", qwen, sideOf(1, 16, kv.HND), sideOf(8, 24, kv.HND), 2, [2]int{1, 8}},
		{"MLA", r1, sideOf(2, 64, kv.NHD), sideOf(4, 16, kv.NHD), 4, [2]int{2, 1}},
	} {
		for _, move := range []serve.Move{serve.Push, serve.PushLayers, serve.Pull} {
			t.Run(fmt.Sprintf("%s, %s", tt.name, move), func(t *testing.T) {
				l := newLabOf(t, tt.model, tt.prefill, tt.decode, move, [2]int{2, 2}, [2]int{40, 40}, tt.regions)
				l.Check = true
				l.Serve.Prefill.Chunked, l.Serve.Prefill.MaxBatchedTokens = true, 100
				l.Workload = prompts(0, 2, 1, 77, 200, 33, 160)
				r := l.run(t)
				want := int64(1+77+200+33+160) * tt.model.BytesPerToken() * tt.kept
				sent, lanes := int64(0), int64(0)
				for i := range r.Times {
					sent += r.Times[i].KVBytes
				}
				for _, x := range r.Lanes {
					lanes += x.Bytes
				}
				if r.CheckedBytes != want || sent != want || lanes != want {
					t.Errorf("%d bytes were right, %d sent, %d by lanes; want %d", r.CheckedBytes, sent, lanes, want)
				}
				if r.Transfers == 0 || r.Pieces == 0 || r.Timers.Count == 0 || r.News.Count == 0 {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

// The check sees each wrong byte of a cache, and none beside it.
func TestCheckSees(t *testing.T) {
	const tokens = 20
	l := newLab(t, r1, sideOf(1, 16, ""), sideOf(1, 16, ""), serve.Push, [2]int{1, 1}, [2]int{4, 4})
	l.Workload = prompts(0, 1, tokens)
	m, err := newMover(&l.Options)
	if err != nil {
		t.Fatal(err)
	}
	m.loop.begin()
	m.Pages(serve.Holding{Pages: 2})
	m.Pages(serve.Holding{Decode: true, Pages: 2})
	j := &job{t: serve.Transfer{ToToken: tokens, ToLayer: 2, Pairs: make([]serve.Pair, 1)}, source: m.prefill.tables[0].byRequest[0], dest: m.decode.tables[0].byRequest[0]}
	j.t.Pairs[0].Descriptors = 8
	l.Check = true
	m.submit(t.Context(), j)
	if j.err != nil {
		t.Fatal(j.err)
	}
	if err := j.batches[0].Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.verify(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	seen, memory := 0, l.theirs[0][0].Bytes()
	const step = 1151 // one byte of each token, elsewhere in each
	for at := 0; at < len(memory); at += step {
		memory[at] ^= 1
		if m.verify(t.Context(), j) != nil {
			seen++
		}
		memory[at] ^= 1
	}
	// Of 8 pages in 2 layers 2 are full and 2 have 4 tokens: 40 of 128.
	if seen < 39 || seen > 41 {
		t.Errorf("%d wrong bytes were seen, want 40", seen)
	}
}

// What is posted after a run was stopped, such as the error of a transfer that this ended, is not
// run.
func TestNothingAfterStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, over, ran := newLoop(), false, false
	l.begin()
	l.post(func() {
		cancel()
		l.post(func() { t.Error("ran what was posted after the end") })
		ran = true
	})
	l.post(func() { t.Error("ran after the end") })
	if l.run(ctx, &over); !ran {
		t.Error("ran nothing")
	}
}

// Bytes beside a cache stay what they were.
func TestTouchesNothingElse(t *testing.T) {
	l := newLab(t, qwen, sideOf(2, 16, kv.NHD), sideOf(4, 16, kv.HND), serve.Push, [2]int{1, 1}, [2]int{20, 20})
	l.Workload = prompts(0, 1, 77)
	for i := range l.Local[0][0].Bytes() {
		l.Local[0][0].Bytes()[i] = 1
	}
	r := l.run(t)
	if n := int64(bytes.Count(l.theirs[0][0].Bytes(), []byte{1})); n != r.Times[0].KVBytes || n != 77*qwen.BytesPerToken() {
		t.Errorf("%d bytes changed, %d moved, want %d", n, r.Times[0].KVBytes, 77*qwen.BytesPerToken())
	}
}

// Many requests, in all ways to ask for memory and to move: times are in order, and memory
// is a matter of waiting.
func TestTimes(t *testing.T) {
	for _, move := range []serve.Move{serve.Push, serve.PushLayers, serve.Pull} {
		for _, admit := range []serve.Admit{serve.Before, serve.Beside, serve.After} {
			if move == serve.PushLayers && admit == serve.After {
				continue
			}
			t.Run(string(move)+" "+string(admit), func(t *testing.T) {
				l := newLab(t, qwen, sideOf(2, 16, ""), sideOf(4, 16, ""), move, [2]int{2, 2}, [2]int{24, 24})
				l.Serve.Admit = admit
				n := 60
				if move == serve.Push && admit == serve.After {
					n = 200
				}
				var err error
				l.Workload, err = kv.Generate(kv.Spec{Requests: n, Seed: 7, Arrivals: kv.Arrivals{RatePerSec: 1000},
					Input: kv.Uniform(100, 0.9), Output: kv.Uniform(4, 0.7)})
				if err != nil {
					t.Fatal(err)
				}
				r := l.run(t)
				consistent(t, r, l.Workload, l.Serve.Cache, admit == serve.Before)
			})
		}
	}
}

func consistent(t *testing.T, r *Result, w *kv.Workload, cache *kv.Reslice, memoryFirst bool) {
	t.Helper()
	lanes, sent := int64(0), int64(0)
	for _, x := range r.Lanes {
		lanes += x.Bytes
	}
	for i := range r.Times {
		x, asked := &r.Times[i], &w.Requests[i]
		p, err := kv.PartsOf(x, memoryFirst)
		if err != nil {
			t.Fatal(err)
		}
		if p.QueueNS < 0 || p.ComputeNS < 0 || p.MemoryWaitNS < 0 || p.LinkWaitNS < 0 || p.WireExposedNS < 0 || p.RestNS < 0 || p.WireNS <= 0 {
			t.Errorf("request %d: %+v of %+v", i, p, x)
		}
		last := x.TokensNS[len(x.TokensNS)-1]
		if x.SentNS < asked.ArriveNS || x.WireNS < x.AdmittedNS || last > r.EndNS || len(x.TokensNS) != asked.Output {
			t.Errorf("request %d, in %d ns: %+v of %+v", i, r.EndNS, x, asked)
		}
		if want := cache.Plan(asked.Input).Bytes; x.KVBytes != want {
			t.Errorf("request %d moved %d bytes, want %d", i, x.KVBytes, want)
		}
		sent += x.KVBytes
	}
	if lanes != sent {
		t.Errorf("lanes carried %d bytes, requests moved %d", lanes, sent)
	}
}

// whenWritten does something once an engine has been given the caches of so many requests. What it
// returns ends the waiting.
func (l *lab) whenWritten(e *engine.Engine, requests int, do func()) (ended func()) {
	over, done := make(chan struct{}), make(chan struct{})
	bytes := l.Serve.Cache.Plan(l.Workload.Requests[0].Input).Bytes * int64(requests)
	go func() {
		defer close(done)
		for e.Stats().ServedWrittenBytes < bytes {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
		}
		do()
	}()
	return func() {
		close(over)
		<-done
	}
}

// The far end dies in the middle: what was on its way or there fails, and says why.
func TestKilled(t *testing.T) {
	l := newLab(t, qwen, sideOf(1, 16, ""), sideOf(1, 16, ""), serve.Push, [2]int{1, 1}, [2]int{64, 64})
	l.Workload = prompts(5*time.Millisecond, 4, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100)
	l.Serve.Decode.Compute = linear{TokenNS: 0, DecodeNS: 100_000_000}
	defer l.whenWritten(l.far, 4, func() { l.far.Close() })()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := Run(ctx, l.Options)
	if err != nil {
		t.Fatal(err)
	}
	moved, failed, lost := 0, 0, 0
	for i := range r.Times {
		why := r.Times[i].Failed.Error()
		if strings.Contains(why, engine.ErrPeerLost.Error()) {
			lost++
		}
		switch {
		case strings.HasPrefix(why, "cache from prefill instance 0 to decode instance 0: region "):
			moved++
		case strings.HasPrefix(why, "decode instance 0 was lost: peer "):
			failed++
		case why != "":
			t.Errorf("request %d: %s", i, why)
		}
	}
	if moved == 0 || failed == 0 || lost < failed {
		t.Errorf("%d on their way, %d there; %d say that the peer is lost", moved, failed, lost)
	}
}

// One of two peers dies: what it had fails and names it, the rest is answered.
func TestOneOfTwoLost(t *testing.T) {
	l := newLab(t, qwen, sideOf(2, 16, ""), sideOf(1, 16, ""), serve.Push, [2]int{1, 1}, [2]int{64, 64})
	second := newEngine(t, "second")
	peer, err := l.near.Open(t.Context(), second.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	l.Remote = append(l.Remote, remotes(t, peer, []*engine.Region{alloc(t, second, l.theirs[0][0].Size())}))
	l.Workload = prompts(0, 4, slices.Repeat([]int{100}, 60)...)
	l.Workload.Concurrency = 6
	l.Serve.Decode.Compute = linear{TokenNS: 0, DecodeNS: 20_000_000}
	defer l.whenWritten(second, 4, func() { second.Close() })()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := Run(ctx, l.Options)
	if err != nil {
		t.Fatal(err)
	}
	answered, failed := 0, 0
	for i := range r.Times {
		switch why := r.Times[i].Failed.Error(); {
		case why == "":
			answered++
		case strings.Contains(why, "decode instance 1") && strings.Contains(why, fmt.Sprintf("peer %q", peer.Name())):
			failed++
		default:
			t.Errorf("request %d: %s", i, why)
		}
	}
	if last := r.Times[len(r.Times)-1].Failed.Error(); last != "" || failed == 0 || answered < failed {
		t.Errorf("%d answered, %d failed; the last one: %q", answered, failed, last)
	}
	if len(r.Lost) != 1 || r.Lost[0].Peer != peer.Name() || !errors.Is(r.Lost[0].Err, engine.ErrPeerLost) || r.Lost[0].AtNS <= 0 {
		t.Errorf("lost: %+v", r.Lost)
	}
}

// A run that is stopped keeps what it has.
func TestStopped(t *testing.T) {
	for wait := 300 * time.Millisecond; !stopped(t, wait); wait *= 3 {
		if wait > time.Minute {
			t.Fatal("the first request does not finish")
		}
	}
}

// stopped is false where the first request needs longer than that.
func stopped(t *testing.T, wait time.Duration) bool {
	l := newLab(t, qwen, sideOf(1, 16, ""), sideOf(1, 16, ""), serve.Push, [2]int{1, 1}, [2]int{64, 64})
	l.Workload = prompts(0, 1, 50, 50)
	l.Workload.Requests[1].ArriveNS = int64(time.Hour)
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(wait, func() { cancel(stop) })
	r, err := Run(ctx, l.Options)
	if !errors.Is(err, stop) || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	a, b := &r.Times[0], &r.Times[1]
	if a.Failed != nil && a.Failed.Error() == "not finished when the run was stopped" {
		return false
	}
	if a.Failed != nil || len(a.TokensNS) != 1 || b.Failed.Error() != "not finished when the run was stopped" || b.Request != 1 {
		t.Errorf("%+v %+v", a, b)
	}
	return true
}

func TestBadOptions(t *testing.T) {
	for want, spoil := range map[string]func(t *testing.T, l *lab){
		"no workload":                                func(_ *testing.T, l *lab) { l.Workload = nil },
		"no KV layout from prefill":                  func(_ *testing.T, l *lab) { l.Serve.Cache = nil },
		"no instances to move caches":                func(_ *testing.T, l *lab) { l.Remote = nil },
		"0 pages of 32768 bytes on 1 ranks":          func(_ *testing.T, l *lab) { l.Serve.Decode.Pages = 0 },
		"an instance has at most 16777216":           func(_ *testing.T, l *lab) { l.Serve.Decode.Pages = MaxPages + 1 },
		"9 pages take ":                              func(_ *testing.T, l *lab) { l.Serve.Prefill.Pages = 9 },
		"has 786432 bytes: 10 pages take ":           func(_ *testing.T, l *lab) { l.Serve.Decode.Pages = 10 },
		"is given twice: instances and":              func(_ *testing.T, l *lab) { l.Local = append(l.Local, l.Local[0]) },
		`of peer "127.0.0.1:`:                        func(_ *testing.T, l *lab) { l.Remote = append(l.Remote, l.Remote[0]) },
		"instance 0 has no region here":              func(_ *testing.T, l *lab) { l.Local[0][0] = nil },
		"memory here: 0 regions for the 1 r":         func(_ *testing.T, l *lab) { l.Local[0] = nil },
		"memory of peers: 2 regions for the":         func(_ *testing.T, l *lab) { l.Remote[0] = append(l.Remote[0], l.Remote[0]...) },
		"instance 1 has 0: all need the same number": func(_ *testing.T, l *lab) { l.Remote = append(l.Remote, nil) },
		"transfer timeout of -1s":                    func(_ *testing.T, l *lab) { l.Transfer = -time.Second },
		`move "carry"`:                               func(_ *testing.T, l *lab) { l.Serve.Move = "carry" },
		"the run needs ": func(t *testing.T, l *lab) {
			r, err := l.far.Alloc(l.theirs[0][0].Size(), engine.RegionOptions{Grant: memory.PeerRead})
			if err != nil {
				t.Fatal(err)
			}
			if l.Remote[0][0], err = l.Remote[0][0].Peer().Region(t.Context(), r.Name()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		l := newLab(t, qwen, sideOf(1, 16, ""), sideOf(1, 16, ""), serve.Push, [2]int{1, 1}, [2]int{8, 8})
		l.Workload = prompts(0, 1, 50)
		spoil(t, l)
		if r, err := Run(t.Context(), l.Options); r != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, error %v; want %q", r, err, want)
		}
	}
}
