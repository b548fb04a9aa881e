package observe

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/record"
)

// recording has news of an agent each second, from second three on.
func recording(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := record.NewWriter(&b)
	write := func(r *record.Record) {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	write(&record.Record{AtNS: 3e9, Source: record.SourceHost, Start: &record.Start{Host: "live"}})
	for sec := int64(4); sec < 8; sec++ {
		write(&record.Record{AtNS: sec * 1e9, Source: "agent http://n1", Engine: &record.Engine{Stats: engine.Stats{Name: "n1"}}})
	}
	return b.Bytes()
}

func TestReplay(t *testing.T) {
	for _, tt := range []struct {
		speed float64
		took  time.Duration
	}{{1, 4 * time.Second}, {2, 2 * time.Second}, {0.5, 8 * time.Second}, {0, 0}, {-1, 0}} {
		t.Run(fmt.Sprint(tt.speed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := Replay(bytes.NewReader(recording(t)), tt.speed)
				h := play(t, f, func(h *heard) {
					f.Rescan()
					time.Sleep(tt.took + time.Millisecond)
					if n := len(h.news("agent http://n1")); n != 4 {
						t.Errorf("%d records after %s", n, tt.took)
					}
					time.Sleep(time.Hour) // it goes on to be shown
				})
				if h.records[0].Start == nil {
					t.Errorf("first is %+v", h.records[0])
				}
				if got := h.news("agent http://n1"); !slices.Equal(got, []float64{4, 5, 6, 7}) {
					t.Errorf("at %v", got)
				}
				h.wantStates("agent http://n1", "7s ended: the recording has ended")
				h.wantStates(record.SourceHost, "7s ended: the recording has ended")
			})
		})
	}
}

// Records come at their times, not before.
func TestReplayKeepsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		if err := Replay(bytes.NewReader(recording(t)), 1).Run(ctx, func(*record.Record) { at = append(at, time.Since(began)) }); err != nil {
			t.Error(err)
		}
		if want := []time.Duration{0, time.Second, 2 * time.Second}; !slices.Equal(at, want) || time.Since(began) != 2500*time.Millisecond {
			t.Errorf("at %v, and ended after %s", at, time.Since(began))
		}
	})
}

// What is broken ends the replay where it is broken, and says so.
func TestReplayOfBrokenRecordings(t *testing.T) {
	good := recording(t)
	lines := strings.SplitAfter(string(good), "\n")
	for name, tt := range map[string]struct {
		data string
		want string // of the agent's state
		err  string
	}{
		"cut off":      {string(good[:len(good)-20]), "6s ended: the recording ends in the middle of line 5, which is lost", ""},
		"garbage":      {lines[0] + lines[1] + "\x1b[2J\n" + lines[2], "4s ended: record: line 3: ", ""},
		"time goes on": {lines[0] + lines[3] + lines[1], "6s ended: record: line 3: ", ""},
		"far future":   {lines[0] + lines[1] + strings.Replace(lines[2], `"at_ns":5000000000`, `"at_ns":4000000000000000000`, 1), "", ""},
		"no start":     {lines[1], "", "line 1"},
		"empty":        {"", "", "nothing in it"},
		"another file": {"<xml/>", "", "line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &heard{t: t}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := Replay(io.MultiReader(strings.NewReader(tt.data)), 0.001+1).Run(ctx, h.tell)
				if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("%v, want %q", err, tt.err)
				}
				if got := strings.Join(h.states("agent http://n1"), ","); !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") || strings.Contains(got, "\x1b") {
					t.Errorf("%q, want %q", got, tt.want)
				}
			})
		})
	}
}

// Any number of names takes no more than so much.
func TestReplayOfManySources(t *testing.T) {
	var b bytes.Buffer
	w := record.NewWriter(&b)
	if err := w.Write(&record.Record{Source: record.SourceHost, Start: &record.Start{}}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxSources {
		if err := w.Write(&record.Record{Source: fmt.Sprint("agent ", i), State: &record.SourceState{Status: record.StatusOK}}); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		h := play(t, Replay(&b, 0), func(*heard) { time.Sleep(time.Second) })
		if n := len(h.records); n != 1+2*maxSources+maxSources {
			t.Errorf("%d records", n)
		}
	})
}

// A recording that comes through a pipe, of which nothing more comes, holds nobody up.
func TestReplayHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		go func() { _, _ = to.Write(recording(t)) }()
		h := play(t, Replay(from, 0), func(*heard) { time.Sleep(time.Hour) })
		if got := h.news("agent http://n1"); len(got) != 4 {
			t.Errorf("at %v", got)
		}
		h.wantStates(record.SourceHost)
		_ = to.Close()
	})
}
