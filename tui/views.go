package tui

import (
	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/views"
)

// newViews makes the views in the order of ui.ViewActions.
func newViews(o Options) []ui.View {
	measured := views.NewProbe()
	measured.SetUnable(o.noProber())
	measured.SetReport(o.Measured, o.MeasuredName)
	hosts := &views.Cache{}
	return []ui.View{views.NewTree(hosts), views.NewMatrix(hosts), views.NewPath(hosts, o.PathText), measured, views.NewEngine(), views.NewEvents()}
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
