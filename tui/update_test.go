package tui

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/internal/watch"
	"github.com/topoctl/topoctl/testkit/fixturetest"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

func TestKeysSwitchViews(t *testing.T) {
	b := open(t, Options{}, "dgx-h100", 3, 120, 30)
	for i, a := range ui.ViewActions() {
		b.press(fmt.Sprint(i + 1))
		b.has("[" + fmt.Sprint(i+1) + " " + string(a) + "]")
		if !strings.HasPrefix(b.line(1), "─ "+b.views[i].Name()+" ") {
			t.Errorf("%s: the pane is %q", a, b.line(1))
		}
	}
	b.press("tab")
	b.has("[1 tree]")
	b.press("shift+tab")
	b.has("[6 events]")
	b.press("tab", "tab")
	b.has("[2 matrix]")
}

func TestFirstView(t *testing.T) {
	for _, name := range Views() {
		b := open(t, Options{View: name}, "cpu-2eth", 1, 80, 24)
		if got := string(ui.ViewActions()[b.current]); got != name {
			t.Errorf("--view %s shows %s", name, got)
		}
	}
}

func TestQuit(t *testing.T) {
	for _, tt := range []struct {
		name string
		keys []string
		size [2]int
		want bool
	}{
		{"q", []string{"q"}, [2]int{80, 24}, true},
		{"ctrl+c", []string{"ctrl+c"}, [2]int{80, 24}, true},
		{"in the help", []string{"?", "q"}, [2]int{80, 24}, true},
		{"in the filter q is a letter", []string{"/", "q"}, [2]int{80, 24}, false},
		{"in the filter", []string{"/", "ctrl+c"}, [2]int{80, 24}, true},
		{"on a screen that is too small", []string{"q"}, [2]int{20, 5}, true},
		{"in the filter on such a screen", []string{"/", "a", "small", "q"}, [2]int{80, 24}, true},
		{"another key", []string{"z"}, [2]int{80, 24}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := open(t, Options{}, "cpu-2eth", 0, tt.size[0], tt.size[1])
			keys := tt.keys
			if i := slices.Index(keys, "small"); i >= 0 {
				b.press(keys[:i]...)
				b.send(tea.WindowSizeMsg{Width: 20, Height: 5})
				keys = keys[i+1:]
			}
			cmd := b.press(keys...)
			quits := false
			if cmd != nil {
				_, quits = cmd().(tea.QuitMsg)
			}
			if quits != tt.want {
				t.Errorf("quits %v, want %v", quits, tt.want)
			}
		})
	}
}

func TestSuspend(t *testing.T) {
	b := open(t, Options{Suspend: true}, "cpu-2eth", 0, 80, 24)
	cmd := b.press("ctrl+z")
	if cmd == nil {
		t.Fatal("ctrl+z does nothing")
	}
	if _, ok := cmd().(tea.SuspendMsg); !ok {
		t.Error("ctrl+z does not suspend")
	}
	b.send(tea.ResumeMsg{})
	b.has("[1 tree]")
	b = open(t, Options{}, "cpu-2eth", 0, 80, 24)
	if b.press("ctrl+z") != nil {
		t.Error("ctrl+z suspends without a shell to resume it")
	}
	b.has("no shell to go back to")
}

func TestTooSmall(t *testing.T) {
	b := open(t, Options{}, "dgx-h100", 1, 59, 16)
	b.has("needs 60x16, have 59x16")
	b.has("q quits")
	b.press("2", "?", "/") // does nothing
	b.send(tea.WindowSizeMsg{Width: 60, Height: 16})
	b.has("[1 tree]")
	for w := range 64 {
		for h := range 20 {
			b.send(tea.WindowSizeMsg{Width: w, Height: h})
			lines := strings.Split(b.text(), "\n")
			for _, line := range lines {
				if len([]rune(line)) > w {
					t.Fatalf("%dx%d: %q", w, h, line)
				}
			}
			if len(lines) > max(1, h) {
				t.Fatalf("%dx%d: %d lines", w, h, len(lines))
			}
		}
	}
}

// At any size, in any view, a frame has a line for each of the terminal's, none too wide.
func TestResize(t *testing.T) {
	for _, tt := range []struct {
		fixture string
		ascii   bool
	}{{"dgx-h100", false}, {"dgx-h100", true}, {"empty", false}, {"nvl72-synthetic", true}} {
		b := open(t, Options{ASCII: tt.ascii, Color: true}, tt.fixture, 3, 80, 24)
		for i := range b.views {
			b.press(fmt.Sprint(i + 1))
			for _, size := range [][2]int{{61, 17}, {79, 23}, {119, 29}, {159, 39}, {160, 40}, {300, 80}} { // beside those of the golden frames
				b.send(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
				checkFrame(t, fmt.Sprintf("%v, %s, %v", tt, b.view().Name(), size), b.View().Content, size[0], size[1], tt.ascii)
				b.lacks("this view failed")
			}
		}
	}
}

func TestHelp(t *testing.T) {
	b := open(t, Options{}, "cpu-2eth", 0, 120, 60)
	b.press("?")
	for _, x := range ui.Map() {
		b.has(x.Help)
		b.has(x.Label(false))
	}
	b.press("?")
	b.has("[1 tree]")
	b.lacks("record all that comes in")
	b.press("?", "esc")
	b.lacks("record all that comes in")
	b.press("?", "4")
	b.has("[4 probe]")
	b.lacks("record all that comes in")

	b.send(tea.WindowSizeMsg{Width: 60, Height: 16})
	b.press("?")
	b.has("? closes it, 1-13 of ")
	b.press("end")
	b.has("The mouse selects")
	b.has("text in most terminals") // what is too long goes on in the next line
	b.press("down", "pgdown")
	b.has("The mouse selects") // no further
	b.press("home")
	b.has("Views")
	b.press("pgdown")
	b.lacks("Views")
}

func TestFilter(t *testing.T) {
	b := open(t, Options{}, "dgx-h100", 1, 120, 30)
	b.press("/")
	b.has("enter keeps it")
	b.press("m", "l", "x", "5", "_", "3")
	b.has("/mlx5_3")
	b.press("enter")
	if b.editing || b.filter != "mlx5_3" {
		t.Fatalf("editing %v, filter %q", b.editing, b.filter)
	}
	if !strings.Contains(b.line(1), "/mlx5_3") {
		t.Errorf("the pane does not say that it is filtered: %q", b.line(1))
	}
	b.press("/", "backspace", "4", "esc") // as before
	if b.filter != "mlx5_3" {
		t.Errorf("esc left %q", b.filter)
	}
	b.press("/", "ctrl+u", "!", "space", "ä", "enter")
	if b.filter != "! ä" {
		t.Errorf("filter %q", b.filter)
	}
	b.press("esc")
	if b.filter != "" {
		t.Errorf("esc leaves the filter %q", b.filter)
	}
	b.press("/")
	b.send(tea.PasteMsg{Content: "gpu\x1b[2J\n0" + strings.Repeat("x", 200)})
	if strings.ContainsAny(b.filter, "\x1b\n") || !strings.HasPrefix(b.filter, "gpu[2J0x") || len(b.filter) != maxFilter {
		t.Errorf("pasted: %q", b.filter)
	}
	checkFrame(t, "filter", b.View().Content, 120, 30, false)
	b.send(tea.WindowSizeMsg{Width: 60, Height: 16})
	b.press("backspace", "Z") // what is typed is seen
	if last := strings.TrimRight(b.line(15), " "); !strings.HasPrefix(last, " /…xxx") || !strings.HasSuffix(last, "xZ") {
		t.Errorf("a long filter on a small screen: %q", last)
	}
}

// The frozen picture stays, the watching goes on.
func TestFreeze(t *testing.T) {
	x := fixturetest.Topology(t, "dgx-h100")
	all := looked(x, "dgx-h100", 20)
	b := open(t, Options{}, "", 0, 120, 30)
	b.take(all[:8]...)
	b.press("space")
	b.has("FROZEN 0s")
	lines := strings.Split(b.text(), "\n")
	before := strings.Join(lines[1:], "\n")
	b.take(all[8:]...)
	lines = strings.Split(b.text(), "\n")
	if after := strings.Join(lines[1:], "\n"); after != before {
		t.Errorf("the frozen picture has changed:\n%s\n%s", before, after)
	}
	b.has("FROZEN 15s")
	b.has("12:00:05Z")
	if b.live.Now != 20*second {
		t.Errorf("the live state stands at %d", b.live.Now)
	}
	b.press("space")
	b.lacks("FROZEN")
	b.has("12:00:20Z")
}

func TestUnits(t *testing.T) {
	b := open(t, Options{Units: "auto"}, "dgx-h100", 3, 200, 50)
	var seen []units.System
	for range 4 {
		b.press("u")
		seen = append(seen, b.look.Units)
		b.has("rates in")
	}
	if want := []units.System{units.Gbit, units.Gbyte, units.Gibyte, units.Auto}; !slices.Equal(seen, want) {
		t.Errorf("u gives %v, want %v", seen, want)
	}
}

func TestClock(t *testing.T) {
	b := open(t, Options{}, "cpu-2eth", 2, 80, 24)
	b.has("12:00:02Z")
	b.clock.pass(5 * time.Second)
	b.send(tick{})
	b.has("12:00:07Z")
	// Time that a slow machine brings late does not go back.
	b.take(&record.Record{AtNS: 3 * second, Source: record.SourceCounters, Counters: sample(b.live.Topology, 3)})
	b.has("12:00:07Z")
}

func TestHeader(t *testing.T) {
	b := open(t, Options{Feed: &Feed{source: &script{}, replay: "run.jsonl"}}, "", 0, 200, 40)
	b.has("this host")
	b.has("no topology yet")
	x := fixturetest.Topology(t, "dgx-h100-missing-files")
	b.take(looked(x, "dgx-h100-missing-files", 2)...)
	for _, want := range []string{"fixture:dgx-h100-missing-files", "2 sockets 8 GPUs", "SYNTHETIC", "load", "REPLAY", "run.jsonl", "12:00:02Z"} {
		if !strings.Contains(b.line(0), want) {
			t.Errorf("the header lacks %q: %q", want, b.line(0))
		}
	}
	if n := b.live.Doctor.Summary.Warnings; n > 0 && !strings.Contains(b.line(0), fmt.Sprintf("! %d warning", n)) {
		t.Errorf("the header lacks the %d warnings: %q", n, b.line(0))
	}
	b.take(&record.Record{AtNS: 3 * second, Source: "agent http://x", State: &record.SourceState{Status: record.StatusFailed, Detail: "refused"}})
	b.has("x 1 failed source  see 6")
	b.take(&record.Record{AtNS: 3 * second, Source: "agent http://y", State: &record.SourceState{Status: record.StatusFailed, Detail: "refused"}})
	b.has("x 2 failed sources  see 6")
	// What would mislead if it were missing is there on the smallest screen too.
	b.press("space")
	b.send(tea.WindowSizeMsg{Width: 60, Height: 16})
	for _, want := range []string{"SYNTHETIC", "REPLAY", "FROZEN", "12:00:03Z"} {
		if !strings.Contains(b.line(0), want) {
			t.Errorf("the small header lacks %q: %q", want, b.line(0))
		}
	}
	checkFrame(t, "header", b.View().Content, 60, 16, false)
	b.press("space")
	for _, s := range []string{record.SourceHost, record.SourceCounters, "agent http://x", "agent http://y"} {
		b.take(&record.Record{AtNS: 4 * second, Source: s, State: &record.SourceState{Status: record.StatusEnded, Detail: "the recording has ended"}})
	}
	b.has("REPLAY ended")
	b.send(tea.WindowSizeMsg{Width: 130, Height: 30})
	b.has("x 2 failed sources  see 6")
	b.press("5")
	b.has("ended: refused")
	b.clock.pass(time.Minute)
	b.send(tick{})
	b.has("12:00:04Z")
}

// broken is a view that fails wherever it can.
type broken struct{}

func (broken) Name() string                       { return "Broken" }
func (broken) Key(ui.Action, *ui.Env) ui.Request  { panic("key\x1b[2J") }
func (broken) Needs(*ui.Env, int) ui.Size         { panic("needs") }
func (broken) Position() string                   { panic("position") }
func (broken) Main(*ui.Env, ui.Size) []string     { return slices.Clone([]string{})[len("x"):] }
func (broken) Detail(*ui.Env, int) []string       { panic(errors.New("detail")) }
func (broken) Click(int, int, *ui.Env) ui.Request { panic("click") }
func (broken) Selection(*ui.Env) any              { panic("selection") }
func (broken) Hints() []ui.Action                 { panic("hints") }

// A view that fails says so in its pane; the dashboard lives on.
func TestViewFails(t *testing.T) {
	b := open(t, Options{}, "cpu-2eth", 1, 120, 30)
	b.views[1] = broken{}
	b.press("2")
	b.has("this view failed:")
	b.has("(tui/update_test.go:")
	b.has("  detail (tui/update_test.go:")
	for _, key := range []string{"down", "e", "p", "y"} {
		b.press(key)
		b.has("this view failed: ")
		checkFrame(t, key, b.View().Content, 120, 30, false)
	}
	b.send(tea.MouseClickMsg{X: 5, Y: 5, Button: tea.MouseLeft})
	b.send(tea.MouseWheelMsg{X: 5, Y: 5, Button: tea.MouseWheelDown})
	b.press("1")
	b.lacks("this view failed")
}

// sneaky is a view that draws what a hostile host told it.
type sneaky struct{ broken }

func (sneaky) Main(_ *ui.Env, s ui.Size) []string {
	return slices.Repeat([]string{"\x1b[2J\x1b]52;c;eA==\x07 two\nlines " + strings.Repeat("wide ", 100)}, s.H+5)
}

func TestNothingHostileReachesTheTerminal(t *testing.T) {
	b := open(t, Options{}, "cpu-2eth", 1, 80, 24)
	b.views[1] = sneaky{}
	b.press("2")
	checkFrame(t, "sneaky", b.View().Content, 80, 24, false)
	b.take(&record.Record{AtNS: 9 * second, Source: "agent \x1b[2J", State: &record.SourceState{Status: record.StatusFailed, Detail: "\x1b[2J"}})
	x := fixturetest.Topology(t, "cpu-2eth")
	x.Host.Name = "evil\x1b[2J\u202e"
	b.take(&record.Record{AtNS: 10 * second, Start: &record.Start{Host: "\x1b]0;x\x07", Synthetic: "\x1b[H", At: "\x1b"}},
		&record.Record{AtNS: 10 * second, Source: record.SourceHost, Topology: x})
	for i := range b.views {
		if i != 1 {
			b.press(fmt.Sprint(i + 1))
		}
		checkFrame(t, "hostile", b.View().Content, 80, 24, false)
	}
}

func TestCopyAndSnapshot(t *testing.T) {
	var mu sync.Mutex
	files := map[string]*file{}
	o := Options{Create: func(name string) (io.WriteCloser, error) {
		mu.Lock()
		defer mu.Unlock()
		files[name] = &file{name: name}
		return files[name], nil
	}}
	saved := func(name string) string {
		mu.Lock()
		defer mu.Unlock()
		if f := files[name]; f != nil && f.ended() {
			return f.text()
		}
		return ""
	}
	b := open(t, o, "dgx-h100", 2, 80, 24)
	b.press("down", "down")
	cmd := b.press("y")
	if cmd == nil || fmt.Sprintf("%T", cmd()) != "tea.setClipboardMsg" {
		t.Error("y does not set the clipboard")
	}
	b.wait(func() bool { return strings.Contains(b.shared.Message, "/tmp/topoctl-tree-20260110-120002.json") })
	if data := saved("topoctl-tree-20260110-120002.json"); !json.Valid([]byte(data)) {
		t.Errorf("no JSON: %q", data)
	}
	b.live.Events = append(b.live.Events, watch.Event{Text: "e\u009b31m\x7f"})
	b.press("6", "y")
	b.wait(func() bool { return strings.Contains(b.shared.Message, "/tmp/topoctl-events-20260110-120002.json") })
	if data := saved("topoctl-events-20260110-120002.json"); !strings.Contains(data, `"e\u009b31m\u007f"`) {
		t.Errorf("no terminal may obey %q", data)
	}
	b.press("1") // takes the message away
	want := plain(b.text())
	b.press("s")
	b.wait(func() bool {
		return strings.Contains(b.shared.Message, "saved as /tmp/topoctl-tree-20260110-120002.txt")
	})
	if got := saved("topoctl-tree-20260110-120002.txt"); got != want {
		t.Errorf("the snapshot is\n%s\nwant\n%s", got, want)
	}
	b.press("s") // in the same second
	b.wait(func() bool {
		return strings.Contains(b.shared.Message, "saved as /tmp/topoctl-tree-20260110-120002-2.txt")
	})

	b = open(t, Options{Create: func(string) (io.WriteCloser, error) { return nil, os.ErrPermission }}, "dgx-h100", 2, 80, 24)
	b.press("s")
	b.wait(func() bool { return strings.Contains(b.shared.Message, "cannot save: permission denied") })
	b = open(t, Options{}, "dgx-h100", 2, 80, 24)
	b.press("s")
	b.has("nowhere to write")
}

func TestRescan(t *testing.T) {
	f := &script{}
	b := open(t, Options{Feed: &Feed{source: f}}, "cpu-2eth", 0, 80, 24)
	b.press("R")
	if f.rescans != 1 {
		t.Errorf("%d rescans", f.rescans)
	}
}

func TestMouse(t *testing.T) {
	b := open(t, Options{Mouse: true}, "dgx-h100", 3, 200, 60)
	if b.View().MouseMode != tea.MouseModeCellMotion {
		t.Error("the mouse is off")
	}
	b.press("2") // with the tree at the side
	s := b.laid
	if !s.Side.Shown() {
		t.Fatal("no tree at the side")
	}
	before := b.shared.Node
	b.send(tea.MouseWheelMsg{X: s.Side.X + 2, Y: s.Side.Y + 3, Button: tea.MouseWheelDown})
	if b.shared.Node == before {
		t.Error("the wheel does not move the tree's cursor")
	}
	before = b.shared.Node
	b.send(tea.MouseClickMsg{X: s.Side.X + 2, Y: s.Side.Y + 2, Button: tea.MouseLeft})
	if b.shared.Node == before {
		t.Error("a click does not select in the tree")
	}
	from := b.shared.From
	b.send(tea.MouseWheelMsg{X: s.Main.X + 20, Y: 10, Button: tea.MouseWheelDown})
	if b.shared.From == from {
		t.Error("the wheel does not move the matrix' cursor")
	}
	b.send(tea.MouseWheelMsg{X: s.Detail.X + 2, Y: 10, Button: tea.MouseWheelDown})
	for _, tab := range slices.Clone(b.tabs[:6]) {
		b.send(tea.MouseClickMsg{X: tab.from + 1, Y: 59, Button: tea.MouseLeft})
		b.has("[" + ui.Get(tab.action).Short(false) + " " + string(tab.action) + "]")
	}
	b.send(tea.MouseClickMsg{X: 199, Y: 0, Button: tea.MouseLeft})
	b.send(tea.MouseClickMsg{X: 1, Y: 1, Button: tea.MouseRight})
	b.send(tea.MouseWheelMsg{X: 1, Y: 1, Button: tea.MouseWheelLeft})
	if open(t, Options{}, "", 0, 80, 24).View().MouseMode != tea.MouseModeNone {
		t.Error("--no-mouse leaves it on")
	}
}
