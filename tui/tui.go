// Package tui is the dashboard of topoctl: what a host looks like, what is wrong with it and what
// moves where, live or replayed.
//
//	err := tui.Run(ctx, tui.Options{Color: true, Mouse: true}) // this machine
//	err := tui.Run(ctx, tui.Options{Feed: tui.Still(topology)})
//	text, whole, err := tui.Frame(ctx, tui.Options{Feed: tui.Still(topology)}, 120, 40)
//
// It sends no traffic but by the Prober in its Options, and writes no file but by Options.Create.
package tui

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

var (
	// ErrNoTerminal is that of Run where what it reads keys from, or draws on, is no terminal. Use Frame there.
	ErrNoTerminal = errors.New("no terminal")
	// ErrInvalid is that of options that are wrong as they are, whatever the host does.
	ErrInvalid = errors.New("invalid")
)

// invalid is an ErrInvalid with a text of its own.
func invalid(format string, args ...any) error {
	return known{pkgerr.Errorf("tui", format, args...), ErrInvalid}
}

// known is an error that is of a kind.
type known struct {
	error
	kind error
}

func (e known) Unwrap() []error { return []error{e.error, e.kind} }

// Prober measures pairs on request.
type Prober interface {
	// Pairs lists what can be measured. It may ask agents, but sends no load. An error together
	// with pairs says what is missing.
	Pairs(ctx context.Context) ([]probe.Pair, error)
	// Plan says what measuring these pairs would take, without sending anything.
	Plan(pairs []string) (probe.Plan, error)
	// Run measures. Events come in order, from one goroutine at a time.
	Run(ctx context.Context, pairs []string, tell func(*probe.Event)) error
}

// Options say what the dashboard shows, and how. The zero value shows this machine, live.
type Options struct {
	Feed *Feed // what is shown; nil: Live(LiveOptions{})
	// In and Out are the terminal that Run reads keys from and draws on; nil: os.Stdin and os.Stdout.
	In  io.Reader
	Out io.Writer
	// Prober is nil if nothing can be measured; NoProber says why.
	Prober   Prober
	NoProber string
	// Baseline is the topology that drift is measured against; nil means the first topology of the feed.
	Baseline     *topo.Topology
	BaselineName string
	Overlay      topo.Overlay     // measured rates of links, from a probe's report
	Measured     *probe.Report    // that report, nil none
	MeasuredName string           // its file
	Now          func() time.Time // nil: time.Now
	Color, ASCII bool
	Mouse        bool
	Suspend      bool   // ctrl+z returns to a shell, which can resume the dashboard
	Units        string // of rates: "gbit", "gbyte" or "gibyte"; "" or "auto": what is customary for each
	View         string // the first view, one of Views; "" is the first of these
	// Create makes a file for a snapshot, a copied selection or a recording. name has no directory. nil
	// means that nothing can be written. If the file has a method Name() string, as an os.File has, that
	// is what the dashboard calls it. It closes what it has written.
	Create func(name string) (io.WriteCloser, error)
	// Record is the name, for Create, of a recording that Run begins at the start; "" begins none. Replay plays it.
	Record string
}

// checked is the options with what they leave out.
func (o Options) checked() (Options, error) {
	if _, err := units.ParseSystem(o.Units); o.Units != "" && err != nil {
		return o, invalid("Units %w", pkgerr.Plain(err))
	}
	if o.View != "" && !slices.Contains(Views(), o.View) {
		return o, invalid("View %q: want one of %q", o.View, Views())
	}
	if o.Record != "" && o.Create == nil {
		return o, invalid("Record without Create")
	}
	if o.Feed == nil {
		o.Feed = Live(LiveOptions{})
	}
	return o, nil
}
