package views_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/testkit/fixturetest"

	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/viewtest"
)

// Figures of a recording that no host can have are not drawn as others: nothing becomes
// negative.
func TestFiguresThatCannotBe(t *testing.T) {
	x := fixturetest.Topology(t, "dgx-h100")
	for _, huge := range []int64{math.MaxInt64, math.MaxInt64 / 3, 1 << 40} {
		s := after(x, 2)
		c := sample(x, 3*second, 2)
		for i := range x.PCIDevices {
			c.Links = append(c.Links, counters.Link{ID: x.PCIDevices[i].ID, SpeedMTs: new(int(huge)), Width: new(int(huge))})
		}
		for i := range c.GPUs {
			c.GPUs[i].UtilizationPercent, c.GPUs[i].MemoryUsedBytes = new(int(huge)), new(huge)
			c.GPUs[i].NVLinkSentBytes = new(uint64(math.MaxUint64))
		}
		for i := range c.Ports {
			c.Ports[i].SentBytes, c.Ports[i].BytesPerSec = new(uint64(math.MaxUint64)), new(topo.Rate(1))
		}
		s.Apply(&record.Record{AtNS: 3 * second, Source: record.SourceCounters, Counters: c})
		e := viewtest.Env(s, ui.Look{ASCII: true, Bare: true})
		for _, v := range hostViews {
			view := v.make()
			for range 12 {
				view.Key(ui.Down, e)
				lines := slices.Concat(view.Main(e, ui.Size{W: 250, H: 100}), view.Detail(e, 200))
				for _, line := range lines {
					if strings.Contains(line, " -1") || strings.Contains(line, " -2") || strings.Contains(line, " -9") || strings.Contains(line, "NaN") {
						t.Fatalf("%s, %d: %s", v.name, huge, line)
					}
				}
			}
		}
	}
}

// What could not be read is told: of a device in its detail, of the host all of it, and how
// the sources do where there is something to say.
func TestNotAllIsKnown(t *testing.T) {
	x := fixturetest.Topology(t, "dgx-h100")
	s := after(x, 2)
	e := viewtest.Env(s, ui.Look{ASCII: true, Bare: true})
	view := hostViews[0].make()
	if text := frame(view.Detail(e, 100)); strings.Contains(text, "not all is known") {
		t.Errorf("nothing is wrong:\n%s", text)
	}
	s.Apply(&record.Record{AtNS: 3 * second, Source: record.SourceHost, State: &record.SourceState{Status: record.StatusOK, Detail: "uevents: refused; files are compared instead"}})
	c := sample(x, 4*second, 3)
	c.Notes = []string{"port:mlx5_3/1: its driver \x1b[2Jdoes not answer", "the GPU library does not answer"}
	s.Apply(&record.Record{AtNS: 4 * second, Source: record.SourceCounters, Counters: c})
	text := frame(view.Detail(e, 100))
	for _, want := range []string{"host: uevents: refused; files are compared instead", "port:mlx5_3/1: its driver", "the GPU library does not answer"} {
		if !strings.Contains(text, want) || strings.Contains(text, "\x1b[2J") {
			t.Errorf("want %s:\n%s", want, text)
		}
	}
	e.Shared.Node = "rdma:mlx5_3"
	if text := frame(view.Detail(e, 100)); !strings.Contains(text, "port:mlx5_3/1: its driver") || strings.Contains(text, "GPU library") {
		t.Errorf("of the device:\n%s", text)
	}
	e.Shared.Node = "rdma:mlx5_4"
	if text := frame(view.Detail(e, 100)); strings.Contains(text, "not all is known") {
		t.Errorf("of another device:\n%s", text)
	}
	s.Apply(&record.Record{AtNS: 5 * second, Source: record.SourceCounters, State: &record.SourceState{Status: record.StatusFailed, Detail: "the sampler is closed"}})
	e.Shared.Node = ""
	view.Key(ui.Home, e)
	if text := frame(view.Detail(e, 100)); !strings.Contains(text, "counters failed: the sampler is closed") {
		t.Errorf("of a source that failed:\n%s", text)
	}
}

// A port whose state cannot be read any more is not said to be as it was.
func TestStateThatIsNotKnown(t *testing.T) {
	x := fixturetest.Topology(t, "dgx-h100")
	s := after(x, 2)
	e := viewtest.Env(s, ui.Look{ASCII: true, Bare: true})
	c := sample(x, 3*second, 2)
	for i := range c.Ports {
		if c.Ports[i].ID == "port:mlx5_3/1" {
			c.Ports[i].State = ""
		}
	}
	s.Apply(&record.Record{AtNS: 3 * second, Source: record.SourceCounters, Counters: c})
	view := hostViews[0].make()
	lines := view.Main(e, ui.Size{W: 160, H: 90})
	for name, up := range map[string]bool{"mlx5_3 ": false, "mlx5_4 ": true} {
		if line := lineOf(frame(lines), name); strings.Contains(line, "ACTIVE") != up || strings.Contains(line, " ?        400 Gb/s") == up {
			t.Errorf("%s: %s", name, line)
		}
	}
	e.Shared.Node = "rdma:mlx5_3"
	if text := frame(view.Detail(e, 100)); strings.Contains(text, "ACTIVE\n") {
		t.Errorf("the detail:\n%s", text)
	}
}

// Of a port that the counters no longer tell of, the topology knows more than they did.
func TestStateThatIsOld(t *testing.T) {
	x := *fixturetest.Topology(t, "dgx-h100")
	s := after(&x, 4)
	e := viewtest.Env(s, ui.Look{ASCII: true, Bare: true})
	x.Ports = slices.Clone(x.Ports)
	for i := range x.Ports {
		if x.Ports[i].ID == "port:mlx5_3/1" {
			x.Ports[i].State = "DOWN"
		}
	}
	y := x // a new look at the host, with nothing from the counters for a while
	s.Apply(&record.Record{AtNS: 60 * second, Source: record.SourceHost, Topology: &y})
	view := hostViews[0].make()
	if line := lineOf(frame(view.Main(e, ui.Size{W: 160, H: 90})), "mlx5_3 "); !strings.Contains(line, "DOWN") {
		t.Error(line)
	}
}

// A host that cannot be is drawn: parents in a ring, parts of devices that are not there.
func TestHostThatCannotBe(t *testing.T) {
	for name, spoil := range map[string]func(x *topo.Topology){
		"parents in a ring": func(x *topo.Topology) {
			for i := range x.PCIDevices {
				x.PCIDevices[i].Parent = x.PCIDevices[(i+1)%len(x.PCIDevices)].ID
			}
		},
		"its own parent": func(x *topo.Topology) {
			for i := range x.PCIDevices {
				x.PCIDevices[i].Parent = x.PCIDevices[i].ID
			}
		},
		"devices that are not there": func(x *topo.Topology) {
			x.PCIDevices, x.HostBridges, x.Switches, x.RDMADevices = nil, nil, nil, nil
		},
		"numbers of no node": func(x *topo.Topology) {
			for i := range x.Packages {
				x.Packages[i].NUMA = []int{math.MaxInt, -7}
			}
			for i := range x.GPUs {
				x.GPUs[i].NUMA, x.GPUs[i].Index = new(-5), math.MinInt
			}
		},
		"named like the host's line": func(x *topo.Topology) {
			x.NVMes = slices.Clone(x.NVMes)
			x.NVMes[0].ID = topo.ID("/" + x.Host.Name)
		},
		"links without ends": func(x *topo.Topology) {
			for i := range x.Links {
				x.Links[i].A, x.Links[i].B, x.Links[i].Count = "gpu:99", "", math.MinInt
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := *fixturetest.Topology(t, "dgx-h100")
			x.Packages, x.GPUs, x.PCIDevices, x.Links = slices.Clone(x.Packages), slices.Clone(x.GPUs), slices.Clone(x.PCIDevices), slices.Clone(x.Links)
			spoil(&x)
			data, err := x.Encode()
			if err != nil {
				t.Fatal(err)
			}
			read, err := topo.Decode(data)
			if err != nil {
				return // refused where it is read
			}
			e := viewtest.Env(after(read, 3), ui.Look{})
			whole := hostViews[0].make()
			rows := 0
			for _, line := range whole.Main(e, ui.Size{W: 100, H: 1000}) {
				if strings.TrimSpace(line) != "" {
					rows++
				}
			}
			for range rows - 2 { // those below the first, but for the heads
				whole.Key(ui.Down, e)
			}
			if lines := whole.Main(e, ui.Size{W: 100, H: 1000}); !strings.HasPrefix(ui.Clean(lines[rows-1]), "\x1b[7m") {
				t.Errorf("the last of %d rows is out of reach", rows)
			}
			for _, v := range hostViews {
				view := v.make()
				for _, size := range []ui.Size{{W: 1, H: 1}, {W: 80, H: 24}, {W: 500, H: 200}} {
					for _, a := range actions {
						view.Key(a, e)
					}
					if lines := view.Main(e, size); len(lines) != size.H {
						t.Errorf("%s: %d lines of %d", v.name, len(lines), size.H)
					}
					view.Detail(e, size.W)
					view.Selection(e)
				}
			}
		})
	}
}
