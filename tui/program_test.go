package tui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/vt"

	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// terminal is a virtual one: what the program writes is a screen, what tests type is its
// input.
type terminal struct {
	t    *testing.T
	mu   sync.Mutex
	em   *vt.Emulator
	raw  bytes.Buffer
	in   *io.PipeWriter
	p    *tea.Program
	stop context.CancelFunc
	err  chan error // of Run, once
	over error
	done bool
}

// Write takes what the program writes. It runs no line discipline, so that a line end only
// goes down.
func (x *terminal) Write(data []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.raw.Write(data)
	if _, err := x.em.Write(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(data), nil
}

// start runs the dashboard in a virtual terminal.
func start(t *testing.T, o Options, w, h int) *terminal {
	t.Helper()
	x := &terminal{t: t, em: vt.NewEmulator(w, h), err: make(chan error, 1)}
	drained := make(chan struct{})
	go func() { // the emulator's answers
		io.Copy(io.Discard, x.em)
		close(drained)
	}()
	r, in := io.Pipe()
	x.in = in
	ctx, stop := context.WithCancel(context.Background())
	x.stop = stop
	ready := make(chan struct{})
	go func() {
		x.err <- run(ctx, o, tea.WithInput(r), tea.WithOutput(x), tea.WithWindowSize(w, h),
			tea.WithEnvironment([]string{"TERM=xterm-256color"}), func(p *tea.Program) { x.p = p; close(ready) })
	}()
	<-ready
	t.Cleanup(func() {
		stop()
		in.Close()
		x.wait()
		x.em.InputPipe().(io.Closer).Close() // its own Close races with its Read
		<-drained
	})
	return x
}

// wait gives what Run ended with.
func (x *terminal) wait() error {
	x.t.Helper()
	if x.done {
		return x.over
	}
	select {
	case x.over = <-x.err:
		x.done = true
	case <-time.After(time.Minute):
		x.t.Fatal("the dashboard does not end")
	}
	return x.over
}

func (x *terminal) screen() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.em.String()
}

// type_ types bytes, as a terminal sends them.
func (x *terminal) type_(keys string) {
	x.t.Helper()
	if _, err := io.WriteString(x.in, keys); err != nil {
		x.t.Fatal(err)
	}
}

// see waits until the screen has all of some texts.
func (x *terminal) see(want ...string) {
	x.t.Helper()
	x.until(func(screen string) bool {
		for _, text := range want {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	}, fmt.Sprintf("%q", want))
}

func (x *terminal) until(is func(screen string) bool, what string) {
	x.t.Helper()
	for range 6000 {
		if is(x.screen()) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	x.t.Fatalf("the screen never had %s:\n%s", what, x.screen())
}

// restored says what is wrong with the terminal that the dashboard left, "" nothing.
func (x *terminal) restored() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	raw := x.raw.String()
	for _, mode := range []struct{ on, off, what string }{
		{"\x1b[?1049h", "\x1b[?1049l", "the other screen"}, {"\x1b[?25l", "\x1b[?25h", "the hidden cursor"},
		{"\x1b[?2004h", "\x1b[?2004l", "bracketed paste"}, {"\x1b[?1002h", "\x1b[?1002l", "the mouse"}, {"\x1b[?1006h", "\x1b[?1006l", "the mouse's format"},
	} {
		if strings.LastIndex(raw, mode.on) > strings.LastIndex(raw, mode.off) {
			return mode.what + " stays on"
		}
	}
	if !strings.Contains(raw, "\x1b[?1049h") {
		return "the other screen was never used"
	}
	return ""
}

func (x *terminal) mustBeRestored() {
	x.t.Helper()
	if wrong := x.restored(); wrong != "" {
		x.t.Error(wrong)
	}
}

func feedOf(t *testing.T, fixture string, seconds int) *Feed {
	return &Feed{source: &script{records: looked(fixturetest.Topology(t, fixture), fixture, seconds)}}
}

func TestProgramKeys(t *testing.T) {
	x := start(t, Options{Feed: feedOf(t, "dgx-h100", 3), Color: true}, 120, 30)
	x.see("[1 tree]", "fixture:dgx-h100", "mlx5_0")
	x.type_("2")
	x.see("[2 matrix]", "GPU7")
	x.type_("\t")
	x.see("[3 path]")
	x.type_("\x1b[Z") // shift+tab
	x.see("[2 matrix]")
	x.type_("?")
	x.see("GPUs by NICs: class, expected rate")
	x.type_("\x1b") // esc
	x.see("─ Matrix ─")
	x.type_("1/mlx5_7\r")
	x.see("─ /mlx5_7", "[1 tree]")
	x.type_(" ")
	x.see("FROZEN")
	x.type_("q")
	if err := x.wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	x.mustBeRestored()
}

func TestProgramMouse(t *testing.T) {
	x := start(t, Options{Feed: feedOf(t, "dgx-h100", 3), Mouse: true}, 120, 30)
	x.see("[1 tree]", "mlx5_0")
	row := func() int {
		for i, line := range strings.Split(x.screen(), "\n") {
			if strings.HasPrefix(line, "›") {
				return i
			}
		}
		return -1
	}
	x.type_("\x1b[<0;10;12M\x1b[<0;10;12m") // a click on the twelfth line
	x.until(func(string) bool { return row() == 11 }, "the cursor in the clicked line")
	x.type_("\x1b[<65;10;12M") // the wheel
	x.until(func(string) bool { return row() > 11 }, "the cursor further down")
	x.type_("\x1b[<0;12;30M\x1b[<0;12;30m") // a tab
	x.see("[2 matrix]")
	x.type_("q")
	if err := x.wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	x.mustBeRestored()
}

func TestProgramResize(t *testing.T) {
	x := start(t, Options{Feed: feedOf(t, "dgx-h100", 3)}, 80, 24)
	x.see("[1 tree]")
	for _, size := range [][2]int{{200, 50}, {40, 10}, {60, 16}, {120, 30}} {
		x.mu.Lock()
		x.em.Resize(size[0], size[1])
		x.mu.Unlock()
		x.p.Send(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		if size[0] < 60 {
			x.see("needs 60x16, have 40x10")
		} else {
			x.see("[1 tree]", "Tree ─")
		}
	}
	x.type_("q")
	x.wait()
	x.mustBeRestored()
}

// When its context ends (a signal), the dashboard does, and says why.
func TestProgramSignal(t *testing.T) {
	x := start(t, Options{Feed: feedOf(t, "cpu-2eth", 2), Mouse: true}, 80, 24)
	x.see("[1 tree]")
	x.stop()
	if err := x.wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	x.mustBeRestored()
}

// fatal is a feed's last word in TestProgramPanic.
type fatal struct{ source }

func (fatal) Rescan() { panic("rescan") }

// A panic that no view is to blame for ends the dashboard, and gives the terminal back.
func TestProgramPanic(t *testing.T) {
	for name, o := range map[string]Options{
		"in the event loop": {Feed: &Feed{source: fatal{feedOf(t, "cpu-2eth", 2).source}}},
		"in the background": {Feed: feedOf(t, "cpu-2eth", 2), Create: func(string) (io.WriteCloser, error) { panic("save") }},
	} {
		t.Run(name, func(t *testing.T) {
			x := start(t, o, 80, 24)
			x.see("[1 tree]")
			x.type_("Rs")
			if err := x.wait(); err == nil || !strings.Contains(err.Error(), "the dashboard failed") {
				t.Errorf("it ended with %v", err)
			}
			x.mustBeRestored()
		})
	}
}

// flood is a feed that never stops talking.
type flood struct{ script }

func (f *flood) Run(ctx context.Context, tell func(*record.Record)) error {
	for _, r := range f.records {
		tell(r)
	}
	last := f.records[len(f.records)-1]
	for n := int64(1); ctx.Err() == nil; n++ {
		c := *last.Counters
		c.AtNS += n * 1_000_000
		tell(&record.Record{Schema: record.Schema, AtNS: c.AtNS, Source: record.SourceCounters, Counters: &c})
	}
	return ctx.Err()
}

// Whatever comes in, every key counts.
func TestProgramFlood(t *testing.T) {
	x := start(t, Options{Feed: &Feed{source: &flood{script{records: looked(fixturetest.Topology(t, "cpu-2eth"), "cpu-2eth", 3)}}}}, 80, 24)
	x.see("[1 tree]")
	const typed = "0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnop"
	x.type_("/")
	x.see("enter keeps it")
	for _, c := range typed {
		x.type_(string(c))
	}
	x.see("/" + typed)
	x.type_("\rq")
	if err := x.wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A feed that fails, or ends, or hangs says so; the dashboard lives on.
func TestProgramFeedFails(t *testing.T) {
	x := start(t, Options{Feed: &Feed{source: &script{records: looked(fixturetest.Topology(t, "cpu-2eth"), "cpu-2eth", 2), ends: true, err: errors.New("all is lost")}}}, 80, 24)
	x.see("the feed failed: all is lost")
	x.type_("6")
	x.see("[6 events]")
	x.type_("q")
	if err := x.wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

var _ ui.View = broken{}

func TestProgramNoColor(t *testing.T) {
	for _, color := range []bool{false, true} {
		x := start(t, Options{Feed: feedOf(t, "dgx-h100-port-down", 3), Color: color}, 120, 30)
		x.see("[1 tree]", "mlx5_")
		x.type_("6")
		x.see("[6 events]")
		x.type_("q")
		x.wait()
		has := false
		for _, code := range []string{"31m", "32m", "33m", "36m"} {
			has = has || strings.Contains(x.raw.String(), code)
		}
		if has != color {
			t.Errorf("colour %v: the terminal was sent colours: %v", color, has)
		}
	}
}
