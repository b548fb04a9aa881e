package tui

import (
	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/views"
)

// makeViews makes the views in the order of ui.ViewActions.
func (m *model) makeViews(o Options) {
	hosts := &views.Cache{}
	m.matrix, m.probes = views.NewMatrix(hosts), views.NewProbe()
	m.probes.SetUnable(o.noProber())
	m.probes.SetReport(o.Measured, o.MeasuredName)
	m.views = []ui.View{views.NewTree(hosts), m.matrix, views.NewPath(hosts), m.probes, views.NewEngine(), views.NewEvents()}
}

func newState(o Options) *state.State {
	return state.New(state.Options{Baseline: o.Baseline, BaselineName: o.BaselineName, Overlay: o.Overlay, Measured: o.Measured})
}

// Views are the names of the views, in the order of their keys.
func Views() []string {
	var out []string
	for _, a := range ui.ViewActions() {
		out = append(out, string(a))
	}
	return out
}
