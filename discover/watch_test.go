package discover

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSettler(t *testing.T) {
	at := func(ms int) time.Time { return time.Time{}.Add(time.Duration(ms) * time.Millisecond) }
	for _, tt := range []struct {
		name   string
		events []int // at which ms
		due    int
	}{
		{"one", []int{100}, 400},
		{"the last counts", []int{0, 100, 350}, 650},
		{"never at rest", []int{0, 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400, 2600, 2800, 2990}, 3000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := debouncer{quiet: 300 * time.Millisecond, longest: 3 * time.Second}
			for range 2 { // the second time as the first
				if got := s.flush(at(99999)); got != "" {
					t.Errorf("%q without an event", got)
				}
				for i, ms := range tt.events {
					s.event(at(ms), []string{"route", "link"}[i%2])
					if got := s.flush(at(ms + 5)); got != "" {
						t.Errorf("%q at %d ms", got, ms+5)
					}
				}
				if !s.due().Equal(at(tt.due)) {
					t.Errorf("due %v, want %v", s.due(), at(tt.due))
				}
				want := "link, route"
				if len(tt.events) == 1 {
					want = "route"
				}
				if got := s.flush(at(tt.due)); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
		})
	}
}

// watching runs a watch until the test ends, with what it told and the error that it returns.
func watching(t *testing.T, opts WatchOptions, open func() ([]eventSource, []error)) (told, notes chan string, ended chan error) {
	t.Helper()
	noLeaks(t)
	told, notes, ended = make(chan string, 100), make(chan string, 10), make(chan error, 1)
	opts.Note = func(s string) { notes <- s }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- watch(ctx, opts, func(why string) { told <- why }, open)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return told, notes, ended
}

// next is the next thing told, within a time that is long for any machine.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was told")
		panic("unreachable")
	}
}

// pipeSource is a source that a test writes to.
func pipeSource(t *testing.T) (eventSource, *io.PipeWriter) {
	t.Helper()
	r, w := io.Pipe()
	return eventSource{name: "a pipe", file: r, read: func(b []byte) []string { return strings.Fields(string(b)) }}, w
}

// Events that come together are told together. What cannot be told of is noted, and the end of the last
// source is that of the watch.
func TestWatchSettles(t *testing.T) {
	one, w := pipeSource(t)
	other, end := pipeSource(t)
	told, notes, ended := watching(t, WatchOptions{Settle: 50 * time.Millisecond},
		func() ([]eventSource, []error) {
			return []eventSource{one, other}, []error{errors.New("rtnetlink: not permitted")}
		})
	if note := next(t, notes); note != "rtnetlink: not permitted" {
		t.Errorf("note %q", note)
	}
	for _, s := range []string{"route link", "link", "address"} {
		if _, err := io.WriteString(w, s); err != nil {
			t.Fatal(err)
		}
	}
	// However slow the machine, all is told, and what is told together is told once.
	var all []string
	for !slices.Contains(all, "address") {
		all = append(all, strings.Split(next(t, told), ", ")...)
	}
	for _, want := range []string{"link", "route"} {
		if !slices.Contains(all, want) {
			t.Errorf("told %q, %s is missing", all, want)
		}
	}
	if err := end.CloseWithError(os.ErrPermission); err != nil {
		t.Fatal(err)
	}
	if note := next(t, notes); note != "a pipe: permission denied" {
		t.Errorf("note %q", note)
	}
	if got := next(t, told); got != lostEvents {
		t.Errorf("told %q", got)
	}
	if err := w.CloseWithError(os.ErrClosed); err != nil {
		t.Fatal(err)
	}
	if err := next(t, ended); err == nil || err.Error() != "discover: watch: a pipe: file already closed" {
		t.Errorf("ended with %v", err)
	}
}

// Nothing to listen to is an error.
func TestWatchNothing(t *testing.T) {
	err := watch(context.Background(), WatchOptions{}, func(string) {}, func() ([]eventSource, []error) { return nil, []error{os.ErrPermission} })
	if !errors.Is(err, os.ErrPermission) {
		t.Errorf("error %v", err)
	}
}
