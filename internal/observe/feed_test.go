package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
)

// heard are the records of a feed, in lines: "3s counters failed: why".
type heard struct {
	t       *testing.T
	mu      sync.Mutex
	records []*record.Record
	busy    atomic.Bool
}

func (h *heard) tell(r *record.Record) {
	if !h.busy.CompareAndSwap(false, true) {
		h.t.Error("two goroutines tell at once")
	}
	defer h.busy.Store(false)
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.records); n > 0 && r.AtNS < h.records[n-1].AtNS {
		h.t.Errorf("a record of %s follows one of %s", time.Duration(r.AtNS), time.Duration(h.records[n-1].AtNS))
	}
	h.records = append(h.records, r)
}

// of are the lines of one source, those of state only.
func (h *heard) states(source string) (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.records {
		if r.Source == source && r.State != nil {
			out = append(out, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", time.Duration(r.AtNS), r.State.Status, r.State.Detail), ": "))
		}
	}
	return out
}

// news are the times of a source's news, in seconds.
func (h *heard) news(source string) (out []float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.records {
		if r.Source == source && r.State == nil && r.Start == nil {
			out = append(out, time.Duration(r.AtNS).Seconds())
		}
	}
	return out
}

func (h *heard) wantStates(source string, want ...string) {
	h.t.Helper()
	if got := h.states(source); !slices.Equal(got, want) {
		h.t.Errorf("%s:\n got %q\nwant %q", source, got, want)
	}
}

// small is a host with a name.
func small(name string) *topo.Topology {
	return &topo.Topology{Host: topo.Host{Name: name}, CapturedAt: new(time.Now())}
}

// looking always sees the same host, at another time.
func looking(context.Context) (*topo.Topology, error) { return small("n1"), nil }

// counting gives a sample at once.
func counting(_ context.Context, t *topo.Topology, at time.Duration) (*counters.Sample, error) {
	if t == nil {
		return nil, errors.New("no host")
	}
	return &counters.Sample{AtNS: int64(at)}, nil
}

// play runs a feed in virtual time; during gets on while it runs, and cancels when it
// returns.
func play(t *testing.T, f interface {
	Run(context.Context, func(*record.Record)) error
}, during func(h *heard)) *heard {
	t.Helper()
	h := &heard{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx, h.tell) }()
	during(h)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the feed ends with %v", err)
	}
	return h
}

func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{Start: record.Start{Host: "live"}, Discover: looking, Sample: counting, Every: 10 * time.Second})
		h := play(t, f, func(*heard) { time.Sleep(5*time.Second + time.Millisecond) })
		if first := h.records[0]; first.Start == nil || first.Start.Host != "live" || first.AtNS != 0 {
			t.Errorf("the first record is %+v", first)
		} else if _, err := time.Parse(time.RFC3339, first.Start.At); err != nil {
			t.Error(err)
		}
		if got := h.news(record.SourceHost); !slices.Equal(got, []float64{0}) {
			t.Errorf("the host is told at %v: it has not changed", got)
		}
		if got := h.news(record.SourceCounters); !slices.Equal(got, []float64{0, 1, 2, 3, 4, 5}) {
			t.Errorf("counters at %v", got)
		}
		h.wantStates(record.SourceHost, "0s ok")
		h.wantStates(record.SourceCounters, "0s ok")
		for _, r := range h.records {
			if data, err := r.Encode(); err != nil {
				t.Errorf("%s: %v", data, err)
			}
		}
	})
}

// A call that hangs is told of, is the only one of its source, and holds nobody up.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		calls, open, most := 0, atomic.Int32{}, int32(0)
		sample := func(ctx context.Context, x *topo.Topology, at time.Duration) (*counters.Sample, error) {
			most = max(most, open.Add(1))
			defer open.Add(-1)
			if calls++; calls == 3 {
				<-release // whatever ctx says
			}
			return counting(ctx, x, at)
		}
		hosts := 0
		look := func(context.Context) (*topo.Topology, error) { hosts++; return small(fmt.Sprint(hosts)), nil }
		f := New(Options{Discover: look, Sample: sample, Every: 5 * time.Second})
		h := play(t, f, func(*heard) {
			time.Sleep(60 * time.Second)
			close(release)
			time.Sleep(time.Second / 2)
		})
		h.wantStates(record.SourceCounters, "0s ok", "4s waiting: no answer for 2s", "1m0s ok")
		if n := len(h.news(record.SourceHost)); n != 12 && n != 13 || most != 1 {
			t.Errorf("the host was told of %d times in a minute; %d calls at once", n, most)
		}
		if got := h.news(record.SourceCounters); !slices.Equal(got, []float64{0, 1, 60}) && !slices.Equal(got, []float64{0, 1, 60, 60.1}) {
			t.Errorf("counters at %v", got)
		}
	})
}

// Before the host has answered there are no counters to ask for, which is not their fault.
func TestHostHangsFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := New(Options{Discover: func(context.Context) (*topo.Topology, error) { <-release; return small("n1"), nil }, Sample: counting})
		h := play(t, f, func(*heard) {
			time.Sleep(15 * time.Second)
			close(release)
			time.Sleep(time.Second / 2)
		})
		h.wantStates(record.SourceHost, "10s waiting: no answer for 10s", "15s ok")
		h.wantStates(record.SourceCounters, "15s ok")
	})
}

// What fails is asked again, less and less often.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []float64
		began := time.Now()
		sample := func(ctx context.Context, x *topo.Topology, now time.Duration) (*counters.Sample, error) {
			at = append(at, time.Since(began).Seconds())
			switch n := len(at); {
			case n == 1 || n > 8:
				return counting(ctx, x, now)
			case n == 3:
				return nil, nil
			}
			return nil, errors.New("open /sys/x: no such\x1b[31m file\nand more")
		}
		h := play(t, New(Options{Discover: looking, Sample: sample}), func(*heard) { time.Sleep(31500 * time.Millisecond) })
		if want := []float64{0, 1, 2, 4, 8, 13, 18, 23, 28, 29, 30, 31}; !slices.Equal(at, want) {
			t.Errorf("asked at %v, want %v", at, want)
		}
		why := "failed: open /sys/x: no such\\x1b[31m file"
		h.wantStates(record.SourceCounters, "0s ok", "1s "+why, "2s failed: the counters gave no sample", "4s "+why, "28s ok")
	})
}

// Changes come in bursts; the host is looked at after each, and not all the time.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks []float64
		began := time.Now()
		look := func(context.Context) (*topo.Topology, error) {
			looks = append(looks, time.Since(began).Seconds())
			return small(fmt.Sprint(len(looks) / 2)), nil
		}
		watch := func(ctx context.Context, changed, _ func(string)) error {
			time.Sleep(10 * time.Second)
			for range 20 { // two seconds
				changed("link")
				time.Sleep(time.Second / 10)
			}
			<-ctx.Done()
			return ctx.Err()
		}
		f := New(Options{Discover: look, Watch: watch, Every: 60 * time.Second})
		h := play(t, f, func(*heard) {
			time.Sleep(20 * time.Second)
			f.Rescan()
			f.Rescan()
			time.Sleep(20 * time.Second)
		})
		if want := []float64{0, 10.2, 11.2, 12.2, 20.2}; !slices.Equal(looks, want) {
			t.Errorf("looked at %v, want %v", looks, want)
		}
		if got := h.news(record.SourceHost); !slices.Equal(got, []float64{0, 10.2, 12.2}) {
			t.Errorf("told at %v: names change with every other look", got)
		}
	})
}

// Where no changes are told of, the clock remains, and the user knows.
func TestWatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		watch := func(ctx context.Context, changed, _ func(string)) error {
			if tries++; tries < 4 {
				return errors.New("netlink: operation not permitted")
			}
			changed("link")
			<-ctx.Done()
			return nil
		}
		f := New(Options{Discover: looking, Watch: watch, Every: 30 * time.Second})
		h := play(t, f, func(*heard) { time.Sleep(40 * time.Second) })
		got := h.states(record.SourceHost)
		want := "no news of changes (netlink: operation not permitted): looked at every 30s"
		if len(got) < 2 || !strings.HasSuffix(got[len(got)-2], "ok: "+want) || !strings.HasSuffix(got[len(got)-1], "s ok") || tries != 4 {
			t.Errorf("%q after %d tries", got, tries)
		}
	})
}

// What a watch cannot be told of stands with the host from the beginning, as long as that
// watch runs; changes that it is told of take nothing of it away.
func TestWatchNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		watch := func(ctx context.Context, changed, note func(string)) error {
			if tries++; tries == 2 { // all is told of
				changed("link")
				<-ctx.Done()
				return nil
			}
			note("uevents: refused; files are compared instead\nsecret")
			note("uevents: refused; files are compared instead")
			time.Sleep(5 * time.Second)
			note("rtnetlink: \x1b[2J gone")
			changed("link")
			time.Sleep(5 * time.Second)
			return errors.New("both gone")
		}
		f := New(Options{Discover: looking, Watch: watch, Every: 30 * time.Second})
		h := play(t, f, func(*heard) { time.Sleep(40 * time.Second) })
		var got []string
		for _, s := range h.states(record.SourceHost) {
			_, text, _ := strings.Cut(s, "s ")
			got = append(got, text)
		}
		const one = "ok: uevents: refused; files are compared instead"
		want := []string{one, one + "; rtnetlink: \\x1b[2J gone", "ok: no news of changes (both gone): looked at every 30s", "ok"}
		if len(got) > 0 && got[0] == "ok" { // the first look may be faster than the watch
			got = got[1:]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A call that a driver holds does not keep the program from ending; the error names it.
func TestStuckAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := New(Options{Discover: looking, Sample: func(context.Context, *topo.Topology, time.Duration) (*counters.Sample, error) {
			<-release
			return nil, nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		err := f.Run(ctx, func(*record.Record) {})
		if err == nil || !strings.Contains(err.Error(), "counters does not stop") || time.Since(began) != 5*time.Second+stopTime {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		close(release)
	})
}

// Nobody who listens slowly makes the sources pile up, or brings records out of order.
func TestSlowListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		f := New(Options{Discover: looking, Sample: func(ctx context.Context, x *topo.Topology, at time.Duration) (*counters.Sample, error) {
			asked++
			return counting(ctx, x, at)
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				f.emit(&record.Record{Source: record.SourceProbe})
			}
		}()
		h := &heard{t: t}
		if err := f.Run(ctx, func(r *record.Record) { h.tell(r); time.Sleep(time.Second) }); err != nil {
			t.Error(err)
		}
		if n := len(h.news(record.SourceCounters)); asked > n+1 || n < 10 {
			t.Errorf("asked %d times, and told %d times", asked, n)
		}
	})
}
