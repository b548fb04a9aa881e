package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// WatchOptions say how Watch reports changes of this machine. The zero value is usable.
type WatchOptions struct {
	// Settle is how long there must be no further event before a change is reported; 0 means
	// 300 ms. If events never stop, a change is reported after ten times that.
	Settle time.Duration
	// Note, if not nil, is called once for each kind of kernel event that is not available while
	// others are, with the reason.
	Note func(string)
}

// Watch calls changed when links, addresses, routes, PCI, RDMA or graphics devices of this
// machine may have changed, until ctx ends; then it returns nil. why names what changed, joined
// with commas: "link", "address", "route", "pci", "infiniband", "net", "drm", "nvme", or
// "lost events". Calls come one at a time; events that arrive during a call are reported after
// it.
//
// Changes come from the kernel's netlink groups. Watch returns an error if a process may not listen
// to any of these, as in some sandboxes and on other systems than Linux, or if all have ended: the
// host has to be discovered from time to time then. The state of an RDMA port causes no event;
// use a Sampler for it.
func Watch(ctx context.Context, opts WatchOptions, changed func(why string)) error {
	return watch(ctx, opts, changed, openEvents)
}

// eventSource delivers events of one kind. read translates a message into the words of Watch.
type eventSource struct {
	name string // for notes
	file io.ReadCloser
	read func(message []byte) []string
}

// lostEvents is reported if the kernel dropped events or a source ended.
const lostEvents = "lost events"

// watch is Watch with a function that opens event sources and returns, for each that could not
// be opened, the reason.
func watch(ctx context.Context, opts WatchOptions, changed func(string), openSources func() ([]eventSource, []error)) error {
	sources, refused := openSources()
	if len(sources) == 0 {
		return pkgerr.Errorf("discover", "watch: %w", errors.Join(refused...))
	}
	note := func(err error) {
		if opts.Note != nil {
			opts.Note(err.Error())
		}
	}
	for _, err := range refused {
		note(err)
	}
	listening := listen(ctx, sources)
	defer listening.stop()

	settle := cmp.Or(opts.Settle, 300*time.Millisecond)
	changes := debouncer{quiet: settle, longest: 10 * settle}
	settled := time.NewTimer(0)
	defer settled.Stop()
	happened := func(what string) {
		changes.event(time.Now(), what)
		settled.Reset(time.Until(changes.due()))
	}
	for left := len(sources); ; {
		select {
		case <-ctx.Done():
			return nil
		case what := <-listening.events:
			happened(what)
		case err := <-listening.ended:
			if left--; left == 0 {
				return pkgerr.Errorf("discover", "watch: %w", err)
			}
			note(err)
			happened(lostEvents) // those until now
		case <-settled.C:
			if why := changes.flush(time.Now()); why != "" {
				changed(why)
			}
		}
	}
}

// listener reads event sources, each in a goroutine of its own.
type listener struct {
	events chan string
	ended  chan error
	stop   func() // closes the sources and waits for their goroutines
}

func listen(ctx context.Context, sources []eventSource) *listener {
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{events: make(chan string), ended: make(chan error)}
	var readers sync.WaitGroup
	for _, s := range sources {
		readers.Go(func() { l.readSource(ctx, s) })
	}
	l.stop = func() {
		cancel()
		for _, s := range sources {
			_ = s.file.Close()
		}
		readers.Wait()
	}
	return l
}

// readSource passes on the events of a source until it ends.
func (l *listener) readSource(ctx context.Context, s eventSource) {
	buf := make([]byte, 64<<10)
	for ctx.Err() == nil {
		n, err := s.file.Read(buf)
		var told []string
		switch {
		case isOverrun(err):
			told = []string{lostEvents}
		case err != nil:
			select {
			case l.ended <- fmt.Errorf("%s: %w", s.name, err):
			case <-ctx.Done():
			}
			return
		default:
			told = s.read(buf[:n])
		}
		for _, what := range told {
			select {
			case l.events <- what:
			case <-ctx.Done():
				return
			}
		}
	}
}

// debouncer waits until there are no further events.
type debouncer struct {
	quiet, longest time.Duration
	first, last    time.Time
	events         []string
}

// event notes one.
func (s *debouncer) event(now time.Time, what string) {
	if len(s.events) == 0 {
		s.first = now
	}
	s.last = now
	if !slices.Contains(s.events, what) {
		s.events = append(s.events, what)
	}
}

// due is the time at which the collected events are reported.
func (s *debouncer) due() time.Time {
	rested, enough := s.last.Add(s.quiet), s.first.Add(s.longest)
	if enough.Before(rested) {
		return enough
	}
	return rested
}

// flush returns the events, sorted, if they are due, and forgets them; else "".
func (s *debouncer) flush(now time.Time) string {
	if len(s.events) == 0 || now.Before(s.due()) {
		return ""
	}
	slices.Sort(s.events)
	why := strings.Join(s.events, ", ")
	s.events = nil
	return why
}
