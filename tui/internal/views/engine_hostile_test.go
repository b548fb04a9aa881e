package views_test

import (
	"strings"
	"testing"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/pathsel"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/views"
	"github.com/topoctl/topoctl/tui/internal/viewtest"
)

// engineHostile is an engine of which every text is bad and every number is odd.
func engineHostile(t *rapid.T) *state.State {
	text := func() string {
		return rapid.SampledFrom([]string{viewtest.Nasty, "", "a", "世界", strings.Repeat("x", 3000), strings.Repeat(viewtest.Nasty, 5), "running", "sick", "tcp"}).Draw(t, "text")
	}
	number := func() int64 {
		return rapid.SampledFrom([]int64{0, 1, -1, 4096, 1 << 40, 1<<63 - 1, -1 << 63}).Draw(t, "number")
	}
	few := func() int { return rapid.IntRange(0, 3).Draw(t, "few") }
	e := &state.Engine{Source: record.AgentPrefix + text(), LastNS: number(), Last: &record.Engine{Stats: engine.Stats{
		Name: text(), Batches: number(), Failed: number(), Unsafe: number(), Retries: number(), Fallback: number(), ServedReadBytes: number(),
		ServedUncounted: []string{text()}, Refused: number(), Sessions: int(number()), ServedUnlisted: int(number()),
	}}}
	for range few() {
		e.Last.Peers = append(e.Last.Peers, engine.PeerStats{Name: text(), State: engine.PeerState(text()), RoundTripNS: number(), Batches: number(), Error: text()})
		l := engine.LaneStats{Peer: text(), Lane: text(), Transport: pathsel.Transport(text()), Health: engine.LaneHealth(text()), BytesPerSec: topo.Rate(number()), Bytes: number(), Slices: number(),
			InflightBytes: number(), InflightSlices: int(number()), WindowBytes: number(), Retries: number(), Failures: number(), LastError: text(),
			LocalPort: topo.ID(text()), RemotePort: topo.ID(text()), LocalAddress: text(), RemoteAddress: text()}
		x := &state.Lane{LaneStats: l, Retried: number()}
		x.Throughput.Push(float64(number()))
		e.Lanes, e.Last.Lanes = append(e.Lanes, x), append(e.Last.Lanes, l)
	}
	for range few() {
		c := engine.ServedStats{Conn: uint64(number()), Peer: text(), Transport: pathsel.Transport(text()), LocalAddress: text(), RemoteAddress: text(), LocalPort: topo.ID(text()), ReadBytes: ptr(number())}
		e.Served, e.Last.Served = append(e.Served, &state.Served{ServedStats: c}), append(e.Last.Served, c)
	}
	for range few() {
		b := engine.Explanation{Peer: text(), Label: text(), State: engine.BatchState(text()), Error: text(), Bytes: number(), Total: number(), Ops: int(number()), DurationNS: number(),
			EndedAgoNS: number(), Retries: number(), Notes: []string{text()}}
		for range few() {
			b.Routes = append(b.Routes, engine.RouteRecord{Local: pathsel.Location(text()), Remote: pathsel.Location(text()), Bytes: number(),
				Groups: []engine.GroupRecord{{Transport: pathsel.Transport(text()), Reason: text(), Rejected: []string{text()}, Lanes: []engine.LaneRecord{{Lane: text(), Verdict: pathsel.Verdict(text()), Reason: text(), Health: engine.LaneHealth(text())}}}},
				Used:   []engine.LaneUse{{Lane: text(), Transport: pathsel.Transport(text()), Bytes: number(), FirstNS: number(), LastNS: number(), Retries: number(), Error: text()}}})
		}
		e.Last.Recent = append(e.Last.Recent, b)
	}
	return &state.State{Now: number(), Engines: []*state.Engine{e}, Sources: []state.Source{
		{Name: e.Source, Status: rapid.SampledFrom([]string{record.StatusOK, record.StatusFailed, record.StatusWaiting, viewtest.Nasty}).Draw(t, "status"), Detail: text()}}}
}

// Whatever an agent says, panes are whole and no escape code gets through.
func TestHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		viewtest.Hostile(t, views.NewEngine(), engineHostile(t), []string{"", "tcp", "!tcp", viewtest.Nasty}, ui.Sort)
	})
}
