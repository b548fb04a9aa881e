package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/record"
)

// How often the screen may change, and how far apart bunches of news are.
const (
	framesPerSecond = 10
	newsPause       = 100 * time.Millisecond
)

// Run shows the dashboard on a terminal until the user quits or ctx ends. When it returns,
// everything that it started has ended and the terminal is as before, even after a panic. If ctx
// ended it, the error is ctx's. Without a terminal it is ErrNoTerminal, with wrong options ErrInvalid.
func Run(ctx context.Context, o Options) error {
	if o.In == nil {
		o.In = os.Stdin
	}
	if o.Out == nil {
		o.Out = os.Stdout
	}
	for i, stream := range []any{o.In, o.Out} {
		if file, ok := stream.(term.File); !ok || !term.IsTerminal(file.Fd()) {
			return known{pkgerr.Errorf("tui", "the %s is not a terminal: use Frame for a picture as text", []string{"input", "output"}[i]), ErrNoTerminal}
		}
	}
	return run(ctx, o, tea.WithInput(o.In), tea.WithOutput(o.Out))
}

func run(ctx context.Context, o Options, more ...tea.ProgramOption) error {
	o, err := o.checked()
	if err != nil {
		return err
	}
	end, err := o.Feed.begin()
	if err != nil {
		return err
	}
	defer end()
	m := newModel(o)
	inner, stop := context.WithCancel(ctx)
	defer stop()
	profile := colorprofile.ASCII
	if o.Color {
		profile = colorprofile.ANSI
	}
	p := tea.NewProgram(m, append([]tea.ProgramOption{tea.WithColorProfile(profile), tea.WithFPS(framesPerSecond), tea.WithoutSignalHandler()}, more...)...)
	m.work = newWork(inner, p.Send)
	if o.Record != "" {
		file, err := o.Create(o.Record)
		if err != nil {
			return err
		}
		m.beginRecord(file, o.Record)
	}
	m.work.begin(o.Feed.source)
	release := context.AfterFunc(inner, p.Quit)
	_, err = p.Run()
	release()
	stop()
	if m.rec != nil {
		close(m.rec.queue)
	}
	m.work.wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, tea.ErrProgramPanic):
		return pkgerr.New("tui", "the dashboard failed; what is printed above says where: please report it")
	case err != nil:
		return pkgerr.Errorf("tui", "the terminal: %w", err)
	case m.rec != nil && m.rec.failure() != nil:
		return m.rec.failure()
	}
	return m.recErr
}

// work is what goes on beside the event loop: the feed, a probe, files. The owner of the
// loop stops it and waits for it.
type work struct {
	ctx  context.Context
	send func(tea.Msg) // to the event loop; after that has ended it does nothing
	in   chan item
	wg   sync.WaitGroup
}

// Beyond maxQueuedItems the sources wait.
const maxQueuedItems = 512

func newWork(ctx context.Context, send func(tea.Msg)) *work {
	return &work{ctx: ctx, send: send, in: make(chan item, maxQueuedItems)}
}

func (w *work) wait() { w.wg.Wait() }

// background runs f in the background; its message goes to the event loop, and so does a panic.
func (w *work) background(f func(ctx context.Context) tea.Msg) {
	w.wg.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				w.send(crashed(fmt.Sprintf("%v\n%s", v, debug.Stack())))
			}
		}()
		if msg := f(w.ctx); msg != nil {
			w.send(msg)
		}
	})
}

// enqueue brings an item to the event loop, after all that were put before it.
func (w *work) enqueue(it item) {
	select {
	case w.in <- it:
	case <-w.ctx.Done():
	}
}

// begin runs the feed, and the clock.
func (w *work) begin(f source) {
	w.background(func(ctx context.Context) tea.Msg {
		err := f.Run(ctx, func(r *record.Record) { w.enqueue(item{record: r}) })
		w.enqueue(item{then: func(m *model) { m.feedEnded(err) }})
		return nil
	})
	w.background(func(ctx context.Context) tea.Msg {
		w.deliver(ctx)
		return nil
	})
	w.background(func(ctx context.Context) tea.Msg {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				w.send(tick{})
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// deliver hands items over in bunches, some time apart: however many there are, keys get
// their turn.
func (w *work) deliver(ctx context.Context) {
	for {
		var bunch news
		select {
		case it := <-w.in:
			bunch = append(bunch, it)
		case <-ctx.Done():
			return
		}
		for more := true; more && len(bunch) < maxQueuedItems; {
			select {
			case it := <-w.in:
				bunch = append(bunch, it)
			default:
				more = false
			}
		}
		w.send(bunch)
		select {
		case <-time.After(newsPause):
		case <-ctx.Done():
			return
		}
	}
}

// feedEnded notes that no more will come.
func (m *model) feedEnded(err error) {
	if err != nil {
		m.say("the feed failed: " + m.look.Safe(err.Error()))
		m.apply(&record.Record{Schema: record.Schema, AtNS: m.now(), Source: record.SourceHost,
			State: &record.SourceState{Status: record.StatusFailed, Detail: err.Error()}})
	}
}
