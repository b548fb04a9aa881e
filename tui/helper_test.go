package tui

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// sample is what the counters of a host say after some seconds: port i sends i+1 gigabits
// a second, with a wave on it, and receives half of that.
func sample(x *topo.Topology, seconds int) *counters.Sample {
	s := &counters.Sample{AtNS: int64(seconds) * second}
	count := func(i int) *uint64 {
		n := uint64(0)
		for k := range seconds {
			n += uint64((i + 1) * 125_000_000 * (10 + k%7) / 10)
		}
		return &n
	}
	half := func(n *uint64) *uint64 { h := *n / 2; return &h }
	for i := range x.Ports {
		p := &x.Ports[i]
		sent := count(i)
		s.Ports = append(s.Ports, counters.Port{ID: p.ID, State: p.State, BytesPerSec: p.BytesPerSec, SentBytes: sent, ReceivedBytes: half(sent),
			SentPackets: half(sent), ReceivedPackets: sent, Errors: map[string]uint64{"symbol_error": 0}})
	}
	for i := range x.GPUs {
		part, used := 10*i%101, int64(i+1)<<30
		pcie := topo.Rate(1e9 * (i + 1))
		s.GPUs = append(s.GPUs, counters.GPU{ID: x.GPUs[i].ID, UtilizationPercent: &part, MemoryUsedBytes: &used,
			PCIeSentBytesPerSec: &pcie, PCIeReceivedBytesPerSec: &pcie, NVLinkSentBytes: count(i), NVLinkReceivedBytes: count(i)})
	}
	slices.SortFunc(s.Ports, func(a, b counters.Port) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return s
}

// looked is the beginning of a feed of a host: some seconds of it.
func looked(x *topo.Topology, name string, seconds int) []*record.Record {
	out := []*record.Record{
		{Schema: record.Schema, Start: &record.Start{Tool: topo.Tool{Name: "topoctl", Version: "test"}, At: "2026-01-10T12:00:00Z", Host: "fixture:" + name, Synthetic: "load"}},
		{Schema: record.Schema, Source: record.SourceHost, State: &record.SourceState{Status: record.StatusOK}},
		{Schema: record.Schema, Source: record.SourceHost, Topology: x},
	}
	for k := range seconds {
		out = append(out, &record.Record{Schema: record.Schema, AtNS: int64(k+1) * second, Source: record.SourceCounters, Counters: sample(x, k+1)})
	}
	return out
}

// clockT is a clock that tests move.
type clockT struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clockT { return &clockT{t: time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)} }

func (c *clockT) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clockT) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// file is a file in memory.
type file struct {
	bytes.Buffer
	name   string
	fails  int           // the write that fails, counted from 1; 0 none
	hold   chan struct{} // writes wait for it; nil they do not
	mu     sync.Mutex
	writes int
	closed int
}

func (f *file) Write(data []byte) (int, error) {
	if f.hold != nil {
		<-f.hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.writes++; f.writes == f.fails {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	}
	return f.Buffer.Write(data)
}

func (f *file) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed++
	return nil
}

func (f *file) Name() string { return "/tmp/" + f.name }

func (f *file) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Buffer.String()
}

func (f *file) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed == 1
}

// creating gives the file, by whatever name.
func (f *file) creating(name string) (io.WriteCloser, error) {
	f.name = name
	return f, nil
}

// script is a feed that tells records and, unless it ends, then waits.
type script struct {
	records []*record.Record
	ends    bool
	err     error
	more    chan *record.Record // nil none
	mu      sync.Mutex
	rescans int
}

func (s *script) Run(ctx context.Context, tell func(*record.Record)) error {
	for _, r := range s.records {
		tell(r)
	}
	for !s.ends {
		select {
		case r := <-s.more:
			tell(r)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.err
}

func (s *script) Rescan() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rescans++
}

// fakeProber measures what it is told to, and notes it.
type fakeProber struct {
	mu    sync.Mutex
	ran   [][]string
	pairs []probe.Pair
	err   error // of Run
	holds bool  // Run lasts until ctx ends
	began chan struct{}
}

func (f *fakeProber) Pairs(context.Context) ([]probe.Pair, error) { return f.pairs, nil }

func (f *fakeProber) Plan(pairs []string) (probe.Plan, error) {
	for _, id := range pairs {
		if !slices.ContainsFunc(f.pairs, func(p probe.Pair) bool { return p.ID == id }) {
			return probe.Plan{}, errors.New("no pair is called " + id)
		}
	}
	return probe.Plan{Rounds: 2, Pairs: len(pairs), TimeNS: 12 * second, Bytes: 30 << 30}, nil
}

func (f *fakeProber) Run(ctx context.Context, pairs []string, tell func(*probe.Event)) error {
	f.mu.Lock()
	f.ran = append(f.ran, pairs)
	f.mu.Unlock()
	tell(&probe.Event{Type: probe.EventStart, Start: &probe.Report{Schema: probe.Schema, Mode: "local", Plan: probe.Plan{Rounds: 1, Pairs: len(pairs)}}})
	tell(&probe.Event{Type: probe.EventRound, Round: &probe.RoundEvent{Round: 1, Rounds: 1, Pairs: pairs}})
	if f.began != nil {
		close(f.began)
	}
	if f.holds {
		<-ctx.Done()
		return nil
	}
	return f.err
}

func (f *fakeProber) runs() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ran)
}

// board is a dashboard without a terminal: tests bring the messages.
type board struct {
	*model
	t     testing.TB
	clock *clockT
	msgs  chan tea.Msg
	stop  func()
}

// open makes a dashboard of a fixture that has run for some seconds.
func open(t testing.TB, o Options, fixture string, seconds, w, h int) *board {
	t.Helper()
	b := &board{t: t, clock: newClock(), msgs: make(chan tea.Msg, 100)}
	o.Now = b.clock.now
	if o.Feed == nil {
		o.Feed = &Feed{source: &script{}}
	}
	b.model = newModel(o)
	ctx, stop := context.WithCancel(context.Background())
	b.work = newWork(ctx, func(msg tea.Msg) { b.msgs <- msg })
	b.stop = func() {
		stop()
		if b.rec != nil {
			b.endRecord("")
		}
		b.work.wait()
	}
	t.Cleanup(b.stop)
	b.send(tea.WindowSizeMsg{Width: w, Height: h})
	if fixture != "" {
		b.take(looked(fixturetest.Topology(t, fixture), fixture, seconds)...)
	}
	return b
}

// send brings a message; the commands that follow are the test's to look at.
func (b *board) send(msg tea.Msg) tea.Cmd {
	b.t.Helper()
	_, cmd := b.Update(msg)
	b.View()
	return cmd
}

// take brings records, the clock going with them.
func (b *board) take(records ...*record.Record) {
	for _, r := range records {
		if at := time.Date(2026, 1, 10, 12, 0, 0, int(0), time.UTC).Add(time.Duration(r.AtNS)); at.After(b.clock.now()) {
			b.clock.pass(at.Sub(b.clock.now()))
		}
		b.send(news{{record: r}})
	}
}

// wait takes in what the background brings until done holds.
func (b *board) wait(done func() bool) {
	b.t.Helper()
	limit := time.After(time.Minute)
	for !done() {
		select {
		case msg := <-b.msgs:
			b.send(msg)
		case it := <-b.work.in:
			b.send(news{it})
		case <-limit:
			b.t.Fatalf("nothing more came:\n%s", b.text())
		}
	}
}

var named = map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "up": tea.KeyUp, "down": tea.KeyDown, "left": tea.KeyLeft,
	"right": tea.KeyRight, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd, "backspace": tea.KeyBackspace}

// press types keys, by the names that bubbletea gives them.
func (b *board) press(names ...string) tea.Cmd {
	b.t.Helper()
	var cmd tea.Cmd
	for _, name := range names {
		cmd = b.send(keyPress(b.t, name))
	}
	return cmd
}

func keyPress(t testing.TB, name string) tea.KeyPressMsg {
	t.Helper()
	k := tea.KeyPressMsg{}
	key := name
	if rest, ok := strings.CutPrefix(key, "ctrl+"); ok {
		key, k.Mod = rest, tea.ModCtrl
	} else if rest, ok := strings.CutPrefix(key, "shift+"); ok {
		key, k.Mod = rest, tea.ModShift
	}
	switch code, special := named[key]; {
	case special:
		k.Code = code
	case key == "space":
		k.Code, k.Text = tea.KeySpace, " "
	default:
		k.Code = []rune(key)[0]
		if k.Mod == 0 {
			k.Text = key
		}
	}
	if k.String() != name {
		t.Fatalf("the key %q is called %q", name, k.String())
	}
	return k
}

// text is the screen without its styles.
func (b *board) text() string { return ansi.Strip(b.View().Content) }

// line is a line of the screen.
func (b *board) line(i int) string {
	lines := strings.Split(b.text(), "\n")
	if i < 0 {
		i += len(lines)
	}
	return lines[i]
}

func (b *board) has(want string) {
	b.t.Helper()
	if !strings.Contains(b.text(), want) {
		b.t.Errorf("the screen lacks %q:\n%s", want, b.text())
	}
}

func (b *board) lacks(text string) {
	b.t.Helper()
	if strings.Contains(b.text(), text) {
		b.t.Errorf("the screen has %q:\n%s", text, b.text())
	}
}

// checkFrame holds a frame to what every frame is: a line for each of the terminal's, none too
// wide, none with anything but styles.
func checkFrame(t testing.TB, what, frame string, w, h int, ascii bool) {
	t.Helper()
	lines := strings.Split(frame, "\n")
	if len(lines) != h {
		t.Errorf("%s: %d lines, want %d", what, len(lines), h)
	}
	for i, line := range lines {
		if got := ansi.StringWidth(line); got > w {
			t.Errorf("%s: line %d is %d columns wide, want at most %d: %q", what, i, got, w, line)
		}
		for _, r := range ansi.Strip(line) {
			if r < ' ' || r == 0x7f || ascii && r > '~' {
				t.Errorf("%s: line %d has %q: %q", what, i, r, line)
				break
			}
		}
	}
}
