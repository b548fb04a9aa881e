package tui

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// The frames of testdata/frames: each view of each host at each size, in colour (⟨32⟩ is
// the code for green, ⟨⟩ the end of it), in ASCII, or without codes. dgx-h100 has an agent.
var (
	framedHosts = []string{"dgx-h100", "gb200-tray", "dgx-h100-gpu2-x8", "cpu-2eth", "empty"}
	framedSizes = []struct {
		w, h int
		mode string
	}{{60, 16, "ascii"}, {80, 24, "colour"}, {80, 24, "ascii"}, {120, 30, "colour"}, {160, 45, "plain"}, {220, 60, "plain"}}
)

// agentSays is an engine of two lanes that have moved data for some seconds.
func agentSays(seconds int) *record.Record {
	bytes := int64(seconds) * 6_000_000_000
	half := bytes / 2
	return &record.Record{Schema: record.Schema, AtNS: int64(seconds) * second, Source: record.AgentPrefix + "http://n1:9411", Engine: &record.Engine{Stats: engine.Stats{
		Name: "n1", Batches: int64(seconds), Slices: 2 * int64(seconds), Retries: 1, ServedReadBytes: half,
		Peers: []engine.PeerStats{{Name: "n2", State: "open", RoundTripNS: 12_000, Batches: int64(seconds)}},
		Lanes: []engine.LaneStats{
			{Peer: "n2", Lane: "mlx5_0>mlx5_0", ID: 1, Transport: "rdma", Health: "healthy", BytesPerSec: 48_000_000_000, Measured: true,
				Bytes: bytes, Slices: int64(seconds), InflightBytes: 4 << 20, InflightSlices: 4, WindowBytes: 16 << 20},
			{Peer: "n2", Lane: "mlx5_3>mlx5_3", ID: 2, Transport: "rdma", Health: "sick", BytesPerSec: 12_000_000_000, Measured: true,
				Bytes: bytes / 4, Slices: int64(seconds), Retries: 1, Failures: 1, LastError: "transport retry counter exceeded"},
		},
		Served: []engine.ServedStats{{Conn: 7, Peer: "n3", Transport: "tcp", LocalAddress: "10.0.0.1:7411", RemoteAddress: "10.0.0.3:41234", ReadBytes: &half}},
	},
		Recent: []engine.Explanation{{Peer: "n2", State: "done", Bytes: 1 << 30, Total: 1 << 30, Ops: 16, DurationNS: 22_000_000}},
	}}
}

func openFramed(t *testing.T, fixture string, o Options) *board {
	o.Prober = &fakeProber{pairs: pairs}
	b := open(t, o, "", 0, 80, 24)
	for _, r := range looked(fixturetest.Topology(t, fixture), fixture, 5) {
		b.Update(news{{record: r}})
	}
	if fixture == "dgx-h100" {
		b.Update(news{{record: agentSays(6)}, {record: agentSays(7)}})
		b.probes.SetPairs([]probe.Pair{}, nil)
	}
	return b
}

func TestFrames(t *testing.T) {
	known := map[string]bool{}
	for _, fixture := range framedHosts {
		boards := map[string]*board{
			"colour": openFramed(t, fixture, Options{Color: true}),
			"ascii":  openFramed(t, fixture, Options{ASCII: true}),
			"plain":  openFramed(t, fixture, Options{}),
		}
		boards["ascii"].look.Bare, boards["plain"].look.Bare = true, true
		for _, view := range Views() {
			var out strings.Builder
			for _, size := range framedSizes {
				b := boards[size.mode]
				b.Update(keyPress(t, key(view)))
				b.send(tea.WindowSizeMsg{Width: size.w, Height: size.h})
				what := fmt.Sprintf("%dx%d %s", size.w, size.h, size.mode)
				frame := b.View().Content
				checkFrame(t, fixture+" "+view+" "+what, frame, size.w, size.h, size.mode == "ascii")
				if strings.Contains(frame, "this view failed") {
					t.Errorf("%s: %s: the view failed:\n%s", fixture, view, frame)
				}
				fmt.Fprintf(&out, "-- %s --\n%s", what, plain(legible(frame)))
			}
			name := view + "-" + fixture + ".txt"
			known[name] = true
			golden.Check(t, "testdata/frames/"+name, out.String())
		}
	}
	files, err := filepath.Glob("testdata/frames/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !known[filepath.Base(f)] {
			t.Errorf("%s: no test writes it", f)
		}
	}
}

// key is the key of a view.
func key(view string) string {
	for i, v := range Views() {
		if v == view {
			return fmt.Sprint(i + 1)
		}
	}
	return ""
}

// legible writes the codes of styles so that people and diffs can read them.
func legible(frame string) string {
	var out strings.Builder
	for i, part := range strings.Split(frame, "\x1b[") {
		if i > 0 {
			code, rest, _ := strings.Cut(part, "m")
			out.WriteString("⟨" + code + "⟩")
			part = rest
		}
		out.WriteString(part)
	}
	return out.String()
}
