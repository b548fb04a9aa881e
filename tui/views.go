package tui

import (
	"github.com/topoctl/topoctl/tui/internal/keys"
	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/views/engine"
	"github.com/topoctl/topoctl/tui/internal/views/events"
	"github.com/topoctl/topoctl/tui/internal/views/matrix"
	"github.com/topoctl/topoctl/tui/internal/views/path"
	"github.com/topoctl/topoctl/tui/internal/views/probe"
	"github.com/topoctl/topoctl/tui/internal/views/tree"
)

// newViews makes the views in the order of keys.ViewActions.
func newViews(o Options) []ui.View {
	measured := probe.New()
	measured.SetUnable(o.noProber())
	measured.SetReport(o.Measured, o.MeasuredName)
	return []ui.View{tree.New(), matrix.New(), path.New(), measured, engine.New(), events.New()}
}

func newState(o Options) *state.State {
	return state.New(state.Options{Baseline: o.Baseline, BaselineName: o.BaselineName, Overlay: o.Overlay, Measured: o.Measured})
}

// Views are the names of the views, in the order of their keys.
func Views() []string {
	var out []string
	for _, a := range keys.ViewActions() {
		out = append(out, string(a))
	}
	return out
}
