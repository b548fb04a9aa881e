package tui

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/app/record"
	"github.com/topoctl/topoctl/internal/base/fixturetest"
	"github.com/topoctl/topoctl/internal/base/golden"
	"github.com/topoctl/topoctl/probe"
)

// The frames of testdata/frames: each view of each host at each size, in colour (⟨32⟩ is
// the code for green, ⟨⟩ the end of it) and in ASCII without any codes.
var (
	framedHosts = []string{"dgx-h100", "gb200-tray", "cpu-2eth", "dgx-h100-missing-files", "nvl72-synthetic", "empty"}
	framedSizes = [][2]int{{60, 16}, {80, 24}, {120, 30}, {200, 50}}
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
		b.tellProber(func(p prober) { p.SetPairs([]probe.Pair{}, nil) })
	}
	return b
}

func TestFrames(t *testing.T) {
	known := map[string]bool{}
	for _, fixture := range framedHosts {
		color := openFramed(t, fixture, Options{Color: true})
		ascii := openFramed(t, fixture, Options{ASCII: true})
		ascii.look.Bare = true
		for _, view := range Views() {
			var out strings.Builder
			for _, size := range framedSizes {
				for _, b := range []*board{color, ascii} {
					b.Update(keyPress(t, key(view)))
					b.send(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
					what := fmt.Sprintf("%dx%d", size[0], size[1])
					if b == ascii {
						what += " ascii"
					}
					frame := b.View().Content
					checkFrame(t, fixture+" "+view+" "+what, frame, size[0], size[1], b == ascii)
					if strings.Contains(frame, "this view failed") {
						t.Errorf("%s: %s: the view failed:\n%s", fixture, view, frame)
					}
					fmt.Fprintf(&out, "-- %s --\n%s", what, plain(legible(frame)))
				}
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
