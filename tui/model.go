package tui

import (
	"cmp"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/units"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/views"
)

// model is the dashboard between two messages. One goroutine owns it: that of the event
// loop.
type model struct {
	o    Options
	work *work // nil: nothing may be started

	live     *state.State   // what is known
	shown    *state.State   // what is drawn: live, or as it was when the picture was frozen
	followed *topo.Topology // whose names cursors have
	latest   latest         // what a recording begins with
	clock    clock

	look    ui.Look
	shared  ui.Shared
	views   []ui.View // in the order of ui.ViewActions; these are among them:
	matrix  *views.MatrixView
	probes  *views.ProbeView
	current int // the view that is shown

	w, h      int
	laid      ui.Screen // where the panes lay in the frame that was drawn last
	detail    bool      // the detail has the place of the view
	finding   int       // of findings(): where n and N went last
	detailTop int
	filter    string
	editing   bool   // the filter's line takes the keys
	before    string // the filter before that
	help      bool
	helpTop   int
	dialog    *dialog
	tabs      []tab // of the footer that was drawn last

	frozenNS int64 // when the picture was frozen, on the feed's clock; -1 it is not
	probe    *probing
	rec      *recorder
	recErr   error          // what a recording ended with
	files    map[string]int // how many were made, by name

	frame string
	dirty bool
	drawn int64 // the time of the feed that the frame shows
}

func newModel(o Options) *model {
	if o.Now == nil {
		o.Now = time.Now
	}
	live := newState(o)
	m := &model{o: o, live: live, shown: live, look: ui.Look{ASCII: o.ASCII, Color: o.Color, Units: units.System(o.Units)},
		latest: latest{}, files: map[string]int{}, frozenNS: -1, dirty: true, clock: clock{now: o.Now}}
	m.makeViews(o)
	for i, a := range ui.ViewActions() {
		if string(a) == o.View {
			m.current = i
		}
	}
	return m
}

// The messages beside bubbletea's.
type (
	// news is what came in since the last one, in order.
	news []item
	// tick comes once a second.
	tick struct{}
	// answered is carried out by the event loop: how what was asked in the background
	// ended.
	answered func(m *model) tea.Cmd
	// crashed is the panic of another goroutine. It goes on in the event loop, where
	// bubbletea gives the terminal back.
	crashed string
)

// item is a record, or what follows after all those before it.
type item struct {
	record *record.Record
	then   func(m *model)
}

// Init starts nothing: the work has begun already.
func (m *model) Init() tea.Cmd { return nil }

// Update takes in a message.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	m.dirty = true
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.w, m.h = msg.Width, msg.Height
	case tea.KeyPressMsg:
		cmd = m.key(msg.String(), msg.Key().Text)
	case tea.PasteMsg:
		if m.editing {
			m.edit("", msg.Content)
		}
	case tea.MouseClickMsg:
		if msg.Button == tea.MouseLeft {
			cmd = m.click(msg.X, msg.Y)
		}
	case tea.MouseWheelMsg:
		cmd = m.wheel(msg)
	case tea.ResumeMsg:
	case news:
		m.dirty = m.applyNews(msg)
	case tick:
		m.live.Tick(m.now())
		m.dirty = m.stale()
	case answered:
		cmd = msg(m)
	case crashed:
		panic(string(msg))
	default:
		m.dirty = false
	}
	return m, cmd
}

const second = int64(time.Second)

// stale says whether the frame is of another second. News comes once a second, too, and
// is drawn: a tick shortly after it shows nothing new.
func (m *model) stale() bool { return m.live.Now-m.drawn >= second*9/10 }

// View is the whole screen. It is drawn where something has changed.
func (m *model) View() tea.View {
	if m.dirty {
		m.frame = m.draw(&m.look)
		m.dirty, m.drawn = false, m.live.Now
	}
	v := tea.NewView(m.frame)
	v.AltScreen = true
	if m.o.Mouse {
		v.MouseMode = tea.MouseModeCellMotion
	}
	return v
}

// applyNews applies news and says whether the picture may have changed.
func (m *model) applyNews(items news) bool {
	for _, it := range items {
		if it.record != nil {
			m.apply(it.record)
		}
		if it.then != nil {
			it.then(m)
		}
	}
	return m.frozenNS < 0 || m.stale()
}

func (m *model) apply(r *record.Record) {
	if r.Source == record.SourceProbe && r.AtNS == 0 { // of this dashboard's own probe
		r.AtNS = m.now()
	}
	m.clock.set(r.AtNS)
	first := r.Topology != nil && m.live.Topology == nil
	m.live.Apply(r)
	if first && m.shared.Node == "" {
		m.openAtFinding()
	}
	m.latest.keep(r)
	m.record(r)
}

func (m *model) now() int64 {
	if m.replayEnded() {
		return m.live.Now // nothing happens after the end of a recording
	}
	return max(m.clock.at(), m.live.Now)
}

// replayEnded says whether a recording is at its end: every source of it has ended.
func (m *model) replayEnded() bool {
	return m.o.Feed.replay != "" && len(m.live.Sources) > 0 && !slices.ContainsFunc(m.live.Sources, func(x state.Source) bool {
		return x.Status != record.StatusEnded
	})
}

func (m *model) view() ui.View { return m.views[m.current] }

// tree is whether the tree is the main pane.
func (m *model) tree() bool { return m.current == 0 }

// showsDevices is whether the view has a cursor on a device of the host.
func (m *model) showsDevices() bool {
	return slices.Contains([]ui.Action{ui.Tree, ui.Matrix, ui.Path}, ui.ViewActions()[m.current])
}

// screen is where the panes lie.
func (m *model) screen(l *ui.Look) ui.Screen {
	need := ui.Need{H: m.h} // of a view that fails
	guarded(func() {
		size := m.view().Needs(m.env(l), m.w)
		need = ui.Need{W: size.W, H: size.H + 1}
	})
	return ui.Of(m.w, m.h, need, m.tree(), m.detail)
}

// follow keeps cursors on the devices that they are on: where a GPU is gone the next ones take
// its number.
func (m *model) follow() {
	renamed := counters.Renamed(m.followed, m.shown.Topology)
	m.followed = m.shown.Topology
	if len(renamed) == 0 {
		return
	}
	now := func(id topo.ID) topo.ID { return cmp.Or(renamed[id], id) }
	x := &m.shared
	x.Node, x.From, x.To = now(x.Node), now(x.From), now(x.To)
	m.matrix.Follow(now)
}

func (m *model) env(l *ui.Look) *ui.Env {
	m.follow()
	return &ui.Env{State: m.shown, Look: l, Shared: &m.shared, Filter: ui.Filter(m.filter)}
}

// say puts a message into the footer.
func (m *model) say(text string) { m.shared.Message = text }

// clock goes on between the records of a feed.
type clock struct {
	now    func() time.Time
	lastNS int64     // the latest time of the feed,
	setAt  time.Time // and when
}

func (c *clock) set(atNS int64) {
	if atNS >= c.at() || c.setAt.IsZero() {
		c.lastNS, c.setAt = atNS, c.now()
	}
}

func (c *clock) at() int64 {
	if c.setAt.IsZero() {
		return 0
	}
	return c.lastNS + int64(max(0, c.now().Sub(c.setAt)))
}
