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
)

// WatchOptions say how changes of this machine are told. The zero value is fine.
type WatchOptions struct {
	// HostRoot is where this machine's root directory is seen, as in Options.
	HostRoot string
	// Settle is how long there must be no further event before a change is told, 300 ms if 0.
	// Events that never cease are told after ten times that.
	Settle time.Duration
	// Poll is how often files are compared where the kernel tells nothing, 5 s if 0.
	Poll time.Duration
	// Note is told, once for each reason, what the kernel does not tell and why; it may be
	// nil. It is called as changed is.
	Note func(string)
}

// Watch calls changed when links, addresses, routes, PCI, RDMA or graphics devices of this
// machine may have changed, until ctx ends; then it gives nil. why names what it was: "link",
// "address", "route", "pci", "infiniband", "net", "drm", "nvme", or "lost events", several
// joined with commas. Calls come from Watch's own goroutine, one at a time; events that arrive
// during a call are told after it.
//
// The kernel's netlink groups say so. Where a process may not listen to them, files in /sys and
// /proc are compared instead. The state of an RDMA port makes no event: a Sampler reads it.
// It is an error where there is neither: Watch is for Linux.
func Watch(ctx context.Context, opts WatchOptions, changed func(why string)) error {
	return watch(ctx, opts, changed, openEvents)
}

// eventSource brings events of one kind. read gives what each message tells, in the words of
// Watch; it ends with an error when the source is closed.
type eventSource struct {
	name string // for notes
	file io.ReadCloser
	read func(message []byte) []string
}

// lostEvents is told where the kernel had more events than it could keep, or a source ended.
const lostEvents = "lost events"

// watch is Watch with a way to open sources: those that could be opened, and for each other
// the reason.
func watch(ctx context.Context, opts WatchOptions, changed func(string), openSources func() ([]eventSource, []error)) error {
	sources, refused := openSources()
	listening := listen(ctx, sources)
	defer listening.stop()
	p, err := newPoller(opts.HostRoot)
	if err != nil {
		return fmt.Errorf("discover: watch: %w", errors.Join(append(refused, err)...))
	}
	defer p.close()

	settle := cmp.Or(opts.Settle, 300*time.Millisecond)
	changes := debouncer{quiet: settle, longest: 10 * settle}
	settled := time.NewTimer(0)
	defer settled.Stop()
	ticker := time.NewTicker(cmp.Or(opts.Poll, 5*time.Second))
	defer ticker.Stop()
	poll := (<-chan time.Time)(nil)
	fallBack := func(why error) {
		if poll == nil {
			p.differences() // from now on
			poll = ticker.C
		}
		if opts.Note != nil {
			opts.Note(fmt.Sprintf("%v; files are compared instead", why))
		}
	}
	happened := func(what string) {
		changes.event(time.Now(), what)
		settled.Reset(time.Until(changes.due()))
	}
	for _, err := range refused {
		fallBack(err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case what := <-listening.events:
			happened(what)
		case err := <-listening.ended:
			fallBack(err)
			happened(lostEvents) // those until now
		case <-settled.C:
			if why := changes.flush(time.Now()); why != "" {
				changed(why)
			}
		case <-poll:
			if why := p.differences(); len(why) > 0 {
				changed(strings.Join(why, ", "))
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

// readSource passes on what a source tells, until it ends.
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

// due is when the events have rested long enough, or have gone on for too long.
func (s *debouncer) due() time.Time {
	rested, enough := s.last.Add(s.quiet), s.first.Add(s.longest)
	if enough.Before(rested) {
		return enough
	}
	return rested
}

// flush gives what is due, sorted, and forgets it; "" where nothing is.
func (s *debouncer) flush(now time.Time) string {
	if len(s.events) == 0 || now.Before(s.due()) {
		return ""
	}
	slices.Sort(s.events)
	why := strings.Join(s.events, ", ")
	s.events = nil
	return why
}
