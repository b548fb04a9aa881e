package views_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/golden"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/views"
	"github.com/topoctl/topoctl/tui/internal/viewtest"
)

const (
	engineSecond = int64(1e9)
	agentA       = "agent http://127.0.0.1:9411"
	benchB       = "agent http://127.0.0.1:9412"
)

func ptr[T any](v T) *T { return &v }

// wave is a history: it rises to top, and misses a value.
func wave(top float64, n int) state.Series {
	var s state.Series
	for i := range n {
		switch {
		case i == n/2:
			s.Push(math.NaN())
		default:
			s.Push(top * float64(i%9+1) / 9)
		}
	}
	return s
}

func lane(name, transport string, health engine.LaneHealth, rate topo.Rate, moves float64) *state.Lane {
	return &state.Lane{LaneStats: engine.LaneStats{
		Peer: "n2", Lane: name, Transport: pathsel.Transport(transport), Health: health, BytesPerSec: rate, Measured: moves > 0,
		Bytes: 3 << 33, Slices: 81234, InflightBytes: 12 << 20, InflightSlices: 3, WindowBytes: 64 << 20,
		LocalPort: "net:eth0", RemotePort: "net:eth0", LocalAddress: "10.0.0.1", RemoteAddress: "10.0.0.2:7411",
	}, Throughput: wave(moves, 40)}
}

// batches are one that runs, one that is done and one that failed.
func batches() []engine.Explanation {
	route := engine.RouteRecord{Local: "gpu:0", Remote: "", Bytes: 64 << 20,
		Groups: []engine.GroupRecord{
			{Transport: "shm", Reason: "the peer is on another host"},
			{Transport: "tcp", Lanes: []engine.LaneRecord{
				{Lane: "eth0 > n2:eth0", Verdict: "chosen", Reason: "same subnet, nearest to gpu:0", Health: "healthy", ExpectedBytesPerSec: ptr(topo.Rate(3125e6))},
				{Lane: "eth1 > n2:eth1", Verdict: "failover", Reason: "crosses the socket", Health: "sick"},
			}, Rejected: []string{"[eth2] to the peer's [eth2]: the port is down"}},
		},
		Used: []engine.LaneUse{
			{Lane: "eth0 > n2:eth0", Transport: "tcp", Bytes: 60 << 20, Slices: 15, FirstNS: 81_000, LastNS: 20_100_000},
			{Lane: "eth1 > n2:eth1", Transport: "tcp", Bytes: 4 << 20, Slices: 1, Retries: 2, FirstNS: 90_000, LastNS: 21_000_000, Error: "connection reset by peer"},
		}}
	return []engine.Explanation{
		{Peer: "n2", Label: "kv layer 7", State: "running", Bytes: 8 << 20, Total: 64 << 20, Ops: 128, DurationNS: 2_500_000, Routes: []engine.RouteRecord{{Local: "gpu:0", Groups: route.Groups}}},
		{Peer: "n2", Label: "kv layer 6", State: "done", Bytes: 64 << 20, Total: 64 << 20, Ops: 128, DurationNS: 21_300_000, EndedAgoNS: 400_000_000, Retries: 2,
			Routes: []engine.RouteRecord{route}, Notes: []string{"lane eth1 > n2:eth1 is sick: connection reset by peer"}},
		{Peer: "n3", State: "failed", Error: "engine: peer \"n3\": peer was lost", Total: 4096, Ops: 1, DurationNS: 10 * engineSecond, EndedAgoNS: 95 * engineSecond, Routes: []engine.RouteRecord{{}}},
	}
}

func busy() *state.State {
	sick := lane("eth1 > n2:eth1", "tcp", "sick", 0, 0)
	sick.LastError, sick.Retries, sick.Retried, sick.Failures, sick.InflightBytes = "read tcp 10.0.1.1:55012->10.0.1.2:7411: connection reset by peer", 17, 4, 2, 0
	sick.LocalPort, sick.RemotePort, sick.LocalAddress, sick.RemoteAddress = "net:eth1", "net:eth1", "10.0.1.1", "10.0.1.2:7411"
	promised := lane("rdma mlx5_0 > n2:mlx5_1", "rdma", "healthy", 49e9, 0)
	promised.Throughput, promised.LocalPort = state.Series{}, "port:mlx5_0/1"
	local := lane("shm", "shm", "idle", 0, 0)
	local.Peer, local.Throughput, local.Slices, local.Bytes, local.InflightBytes, local.WindowBytes = "n1", state.Series{}, 0, 0, 0, 0
	local.LocalPort, local.RemotePort, local.LocalAddress, local.RemoteAddress, local.InflightSlices = "", "", "", "/run/user/0/topoctl/1", 0
	a := &state.Engine{Source: agentA, LastNS: 99_600_000_000, Lanes: []*state.Lane{lane("eth0 > n2:eth0", "tcp", "healthy", 2900e6, 2850e6), sick, promised, local},
		Served: []*state.Served{
			{ServedStats: engine.ServedStats{Conn: 3, Peer: "n2", Transport: "tcp", LocalAddress: "10.0.0.1:7411", RemoteAddress: "10.0.0.2:41212", LocalPort: "net:eth0", ReadBytes: ptr[int64](1 << 30), WrittenBytes: ptr[int64](7)}, Throughput: wave(1e9, 60)},
			{ServedStats: engine.ServedStats{Conn: 9, Peer: "bench-4711", Transport: "shm"}},
		}, ReadBytesPerSec: wave(1e9, 60), WrittenBytesPerSec: wave(0, 60)}
	a.Last = &record.Engine{Stats: engine.Stats{Name: "n1", Batches: 4212, Failed: 1, Retries: 17, Fallback: 1, Slices: 9000, ServedReadBytes: 1 << 30, ServedWrittenBytes: 7,
		ServedUncounted: []string{"shm"}, Sessions: 2, ServedUnlisted: 1, Refused: 3, Failures: engine.Failures{Opens: map[string]int64{"unreachable": 42}, Batches: map[string]int64{"lost": 1}},
		Peers: []engine.PeerStats{{Name: "n2", State: "open", RoundTripNS: 41_000, Batches: 1}, {Name: "n3", State: "lost", Error: "no answer for 10s"}},
	}, Recent: batches()}
	b := &state.Engine{Source: benchB, LastNS: 99_900_000_000, Lanes: []*state.Lane{lane("lo > lo", "tcp", "half-open", 1e9, 9e8)}}
	b.Last = &record.Engine{Stats: engine.Stats{Name: "bench-4711", Batches: 1}}
	for _, e := range []*state.Engine{a, b} {
		for i, l := range e.Lanes {
			l.ID = uint32(i + 1)
			e.Last.Lanes = append(e.Last.Lanes, l.LaneStats)
		}
		for _, c := range e.Served {
			e.Last.Served = append(e.Last.Served, c.ServedStats)
		}
	}
	return &state.State{Now: 100 * engineSecond, Engines: []*state.Engine{a, b}, Sources: []state.Source{
		{Name: agentA, Status: record.StatusOK, LastNS: a.LastNS}, {Name: benchB, Status: record.StatusOK, LastNS: b.LastNS}, {Name: "counters", Status: record.StatusOK}}}
}

// gone is busy, twelve seconds after the agent was killed, with one that never answered.
func gone() *state.State {
	s := busy()
	s.Now += 12 * engineSecond
	s.Engines = s.Engines[:1]
	s.Sources = []state.Source{{Name: agentA, Status: record.StatusFailed, Detail: "dial tcp 127.0.0.1:9411: connect: connection refused", LastNS: 99_600_000_000},
		{Name: "agent http://10.0.0.7:9411", Status: record.StatusWaiting, Detail: "it has not answered yet"}}
	return s
}

// idle is an unused engine whose feed ended.
func idle() *state.State {
	return &state.State{Now: engineSecond, Engines: []*state.Engine{{Source: agentA, LastNS: engineSecond, Last: &record.Engine{Stats: engine.Stats{Name: "n1"}}}},
		Sources: []state.Source{{Name: agentA, Status: record.StatusEnded}}}
}

var states = []struct {
	name string
	make func() *state.State
}{{"busy", busy}, {"gone", gone}, {"idle", idle}, {"none", func() *state.State { return &state.State{} }}}

func TestGolden(t *testing.T) {
	for _, s := range states {
		for mode, l := range map[string]ui.Look{"color": {Color: true}, "ascii": {ASCII: true, Bare: true, Units: units.Gbit}} {
			var b strings.Builder
			for _, size := range viewtest.Sizes {
				fmt.Fprintf(&b, "== %dx%d\n%s", size.W, size.H, viewtest.Frame(t, views.NewEngine(), viewtest.Env(s.make(), l), size))
			}
			golden.Check(t, "testdata/engine/"+s.name+"."+mode+".txt", b.String())
		}
	}
}

// What the detail says of every line, in a narrow pane and a wide one.
func TestGoldenDetails(t *testing.T) {
	for _, s := range states {
		var b strings.Builder
		for _, w := range []int{30, 72} {
			v, e := views.NewEngine(), viewtest.Env(s.make(), ui.Look{Bare: true})
			for i, last := 0, any(nil); ; i++ {
				viewtest.Frame(t, v, e, ui.Size{W: 80, H: 22})
				lines := v.Detail(e, w)
				viewtest.Fits(t, lines, w)
				fmt.Fprintf(&b, "== %d, line %d\n%s\n", w, i, strings.TrimRight(strings.Join(lines, "\n"), " "))
				v.Key(ui.Down, e)
				now := strings.Join(v.Detail(e, w), "\n") + viewtest.Frame(t, v, e, ui.Size{W: 80, H: 22})
				if now == last {
					break
				}
				last = now
			}
		}
		golden.Check(t, "testdata/engine/"+s.name+".details.txt", b.String())
	}
}

// selected is what the cursor is on, by its name.
func selected(v ui.View, e *ui.Env) string {
	switch x := v.Selection(e).(type) {
	case *engine.LaneStats:
		return "lane " + x.Lane
	case *engine.ServedStats:
		return "peer " + x.Peer
	case *engine.Explanation:
		return "batch " + string(x.State)
	case *record.Engine:
		return "engine " + x.Name
	case nil:
		return "nothing"
	default:
		return fmt.Sprintf("%T", x)
	}
}

func TestKeys(t *testing.T) {
	up, down := ui.Up, ui.Down
	for _, tt := range []struct {
		name   string
		filter ui.Filter
		keys   []ui.Action
		want   string
	}{
		{"at the top", "", nil, "engine n1"},
		{"not above it", "", []ui.Action{up, up}, "engine n1"},
		{"first lane", "", []ui.Action{down, down}, "lane shm"}, // by peer, then by transport
		{"second lane", "", []ui.Action{down, down, down}, "lane rdma mlx5_0 > n2:mlx5_1"},
		{"home", "", []ui.Action{down, down, down, ui.Home}, "engine n1"},
		{"end", "", []ui.Action{ui.End}, "lane lo > lo"},
		{"not below it", "", []ui.Action{ui.End, down, ui.PageDown}, "lane lo > lo"},
		{"by throughput", "", []ui.Action{ui.Sort, down, down}, "lane eth0 > n2:eth0"},
		{"by retries", "", []ui.Action{ui.Sort, ui.Sort, down, down}, "lane eth1 > n2:eth1"},
		{"the cursor stays on its lane", "", []ui.Action{down, down, down, ui.Sort, ui.Sort}, "lane rdma mlx5_0 > n2:mlx5_1"},
		{"folded", "", []ui.Action{ui.Enter, down}, "engine bench-4711"},
		{"unfolded", "", []ui.Action{ui.Enter, ui.Enter, down, down}, "lane shm"},
		{"left goes up, then folds", "", []ui.Action{down, down, ui.Left, ui.Left, down, down}, "peer bench-4711"},
		{"right unfolds", "", []ui.Action{ui.Left, ui.Right, down, down}, "lane shm"},
		{"filter", "eth1", []ui.Action{down, down}, "lane eth1 > n2:eth1"},
		{"filter by health", "SICK", []ui.Action{down, down}, "lane eth1 > n2:eth1"},
		{"inverse filter", "!n2", []ui.Action{down, down}, "lane shm"},
		{"filter batches", "kv layer 6", []ui.Action{down, down, down, down}, "batch done"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, e := views.NewEngine(), viewtest.Env(busy(), ui.Look{Bare: true})
			e.Filter = tt.filter
			viewtest.Frame(t, v, e, viewtest.Sizes[0])
			for _, k := range tt.keys {
				if r := v.Key(k, e); r != (ui.Request{}) {
					t.Errorf("%s asks for %+v", k, r)
				}
				viewtest.Frame(t, v, e, viewtest.Sizes[0])
			}
			if got := selected(v, e); got != tt.want {
				t.Errorf("%s, want %s\n%s", got, tt.want, viewtest.Frame(t, v, e, viewtest.Sizes[1]))
			}
		})
	}
}

// Where a lane goes the cursor stays where it was; a click chooses, another one folds.
func TestCursorAndClick(t *testing.T) {
	v, e := views.NewEngine(), viewtest.Env(busy(), ui.Look{Bare: true})
	size := viewtest.Sizes[2]
	find := func(text string) int {
		t.Helper()
		for i, line := range strings.Split(viewtest.Frame(t, v, e, size), "\n") {
			if strings.Contains(line, text) {
				return i
			}
		}
		t.Fatalf("no line with %q", text)
		return 0
	}
	at := find("eth1 > n2:eth1")
	v.Click(5, at, e)
	if got := selected(v, e); got != "lane eth1 > n2:eth1" {
		t.Fatal(got)
	}
	a := e.State.Engines[0]
	for i, l := range a.Lanes {
		if l.Health == "sick" {
			a.Lanes = append(a.Lanes[:i:i], a.Lanes[i+1:]...)
			break
		}
	}
	if got := find("› "); got != at {
		t.Errorf("the lane is gone, and the cursor on line %d, before %d", got, at)
	}
	v.Click(0, 0, e)
	v.Click(0, 0, e)
	if got := viewtest.Frame(t, v, e, size); strings.Contains(got, "eth0 > n2") || !strings.Contains(got, "▸ n1 at") {
		t.Errorf("not folded:\n%s", got)
	}
	for _, y := range []int{-1, 1, size.H - 1, size.H, 1000} {
		v.Click(0, y, e)
		if got := selected(v, e); got != "engine n1" {
			t.Errorf("a click beside everything, on line %d: %s", y, got)
		}
	}
	if v.Name() != "Engine" || len(v.Hints()) == 0 {
		t.Error("no name, or no hints")
	}
}

// Every row can be reached in the smallest pane, and is seen there.
func TestScroll(t *testing.T) {
	v, e := views.NewEngine(), viewtest.Env(busy(), ui.Look{Bare: true, ASCII: true})
	seen := map[string]bool{}
	for range 30 {
		for _, line := range strings.Split(viewtest.Frame(t, v, e, viewtest.Sizes[0]), "\n") {
			if strings.HasPrefix(line, "> ") {
				seen[line] = true
			}
		}
		v.Key(ui.Down, e)
	}
	if len(seen) != 16 { // 2 engines, 4 heads of sections, 5 lanes, 2 connections, 3 batches
		t.Errorf("%d lines under the cursor", len(seen))
		for line := range seen {
			t.Log(line)
		}
	}
}
