package views_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/fixturetest"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/views"
	"github.com/topoctl/topoctl/tui/internal/viewtest"
)

// The cursor moves by whole cells and tells the other views which pair it is at.
func TestMatrixKeys(t *testing.T) {
	v, e := views.NewMatrix(&views.Cache{}), viewtest.Env(watched(t, "dgx-h100", 2), mono)
	v.Main(e, ui.Size{W: 80, H: 8})
	for i, s := range []struct {
		key      ui.Action
		from, to topo.ID
	}{
		{ui.Up, "gpu:0", "rdma:mlx5_0"},
		{ui.Left, "gpu:0", "rdma:mlx5_0"},
		{ui.Right, "gpu:0", "rdma:mlx5_1"},
		{ui.Down, "gpu:1", "rdma:mlx5_1"},
		{ui.PageDown, "gpu:7", "rdma:mlx5_1"},
		{ui.PageUp, "gpu:1", "rdma:mlx5_1"},
		{ui.End, "numa:1", "net:eno2"},
		{ui.Home, "gpu:0", "rdma:mlx5_0"},
	} {
		if r := v.Key(s.key, e); r != (ui.Request{}) {
			t.Errorf("step %d, %s: asks for %+v", i, s.key, r)
		}
		if e.Shared.From != s.from || e.Shared.To != s.to {
			t.Errorf("step %d, %s: %s to %s, want %s to %s", i, s.key, e.Shared.From, e.Shared.To, s.from, s.to)
		}
		v.Main(e, ui.Size{W: 80, H: 8})
	}
	if r := v.Key(ui.Enter, e); r.Show != ui.Path {
		t.Errorf("enter asks for %+v", r)
	}
}

// The names of columns stay above the cell, wherever that is; the legend says which NIC has which number.
func TestMatrixScrolls(t *testing.T) {
	v, e := views.NewMatrix(&views.Cache{}), viewtest.Env(watched(t, "aws-p5-44nic-synthetic", 2), mono)
	got := text(v, e, 60, 8)
	if head := strings.Split(got, "\n")[1]; !strings.Contains(head, "NIC0 ") {
		t.Errorf("the heads are %q", head)
	}
	v.Key(ui.End, e)
	got = text(v, e, 60, 8)
	lines := strings.Split(got, "\n")
	if !strings.HasSuffix(lines[1], "NIC44") || !strings.HasPrefix(lines[7], "> NUMA1") {
		t.Errorf("the end is\n%s", got)
	}
	for range 20 {
		v.Key(ui.Left, e)
	}
	if head := strings.Split(text(v, e, 60, 8), "\n")[1]; !strings.Contains(head, "NIC24") {
		t.Errorf("in the middle the heads are %q", head)
	}
	if all := text(v, e, 60, 400); !strings.Contains(all, "NIC24: rdmap149s0") {
		t.Errorf("the legend lacks a NIC:\n%s", all)
	}
}

// w goes through the figures, o through the kinds of rows and columns that the host has.
func TestMatrixFiguresAndAxes(t *testing.T) {
	v, e := views.NewMatrix(&views.Cache{}), viewtest.Env(watched(t, "dgx-h100", 2), mono)
	for _, want := range []string{"class", "nccl", "expected", "measured", "delta", "class"} {
		got := text(v, e, 120, 20)
		if !strings.HasPrefix(got, want+" ") {
			t.Errorf("want %s:\n%s", want, got)
		}
		if none := strings.Contains(got, "no probe was loaded"); none != (want == "delta" || want == "measured") {
			t.Errorf("%s: says that no probe was loaded: %t", want, none)
		}
		v.Key(ui.Wide, e)
	}
	for _, want := range []string{"GPU x GPU", "CPU x NIC", "all x all", "GPU, CPU x NIC"} {
		v.Key(ui.Sort, e)
		if got := text(v, e, 120, 20); !strings.Contains(got, want) {
			t.Errorf("want %s:\n%s", want, got)
		}
	}
	e.State = watched(t, "cpu-2eth", 2)
	for range 5 {
		if got := text(v, e, 120, 20); strings.Contains(got, "GPU x GPU") || !strings.Contains(got, "NUMA0") {
			t.Errorf("a host without GPU:\n%s", got)
		}
		v.Key(ui.Sort, e)
	}
}

// Classes are coloured from near to far, and what is not known is no fault. A row has the mark of a finding.
func TestMatrixColours(t *testing.T) {
	v, e := views.NewMatrix(&views.Cache{}), viewtest.Env(watched(t, "dgx-h100-gpu2-x8", 2), ui.Look{Color: true})
	const green, yellow, red, end = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[m"
	line := func(name string) string {
		return strings.NewReplacer(" ", "").Replace(lineOf(strings.Join(v.Main(e, ui.Size{W: 200, H: 20})[1:], "\n"), name))
	}
	v.Key(ui.End, e) // away from the cells that are looked at
	for _, want := range []string{green + "PXB" + end, yellow + "NODE" + end, red + "SYS" + end} {
		if got := line("GPU1"); !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if got := line("GPU2"); !strings.HasPrefix(got, yellow+"!"+end) {
		t.Errorf("no mark: %q", got)
	}
	e.State = watched(t, "dgx-h100-rdma-no-pci", 2)
	if got := line("GPU1"); !strings.Contains(got, "?") || strings.Contains(got, red+"?") {
		t.Errorf("what is not known is red: %q", got)
	}
}

// A filter that names rows keeps all columns, and the other way round.
func TestMatrixFilter(t *testing.T) {
	v, e := views.NewMatrix(&views.Cache{}), viewtest.Env(watched(t, "dgx-h100", 2), mono)
	for filter, want := range map[ui.Filter]string{
		"gpu1": "1 x 14", "mlx5_3": "10 x 1", "!gpu": "2 x 14", "cpu:": "2 x 14",
	} {
		e.Filter = filter
		got := text(v, e, 200, 20)
		table, _, _ := strings.Cut(got, "Legend")
		rows := len(strings.Split(strings.TrimSpace(table), "\n")) - 2 // title and heads
		if size := fmt.Sprint(rows, " x ", strings.Count(table, "NIC")-1); size != want {
			t.Errorf("%s: want %s:\n%s", filter, want, got)
		}
	}
	e.Filter = "nothing"
	if got := text(v, e, 200, 20); !strings.Contains(got, "nothing matches") {
		t.Error(got)
	}
}

// report is a probe's of one link and one pair of a host: the wire of mlx5_0 carries 30 of
// 50 GB/s, GPU0 sends 20 GB/s to GPU1.
func report(x *topo.Topology) *probe.Report {
	pair := func(from, to topo.ID, rate int64, path ...probe.LinkKey) probe.Result {
		a, b := probe.End{Host: "h", Node: from, Name: from.Name()}, probe.End{Host: "h", Node: to, Name: to.Name()}
		return probe.Result{Pair: probe.Pair{ID: probe.PairID(probe.GPU, a, b, probe.CUDA, ""), Kind: probe.GPU, Transport: probe.CUDA, From: a, To: b, Path: path},
			Measurement: probe.Measurement{Bandwidth: []probe.Bandwidth{{SizeBytes: 1 << 20, MeanBytesPerSec: rate, SamplesBytesPerSec: []int64{rate}}}}, Round: 1, Verdict: probe.Pass}
	}
	return &probe.Report{Schema: probe.Schema, Hosts: []probe.Host{{Name: "h", Fingerprint: x.Fingerprint()}},
		Spec: probe.Spec{SizesBytes: []int64{1 << 20}}, Results: []probe.Result{pair("gpu:0", "gpu:1", 20e9)}}
}

// Measured rates come from a loaded report and its overlay; what a running probe measures
// replaces it. What is too little has a mark.
func TestMatrixMeasured(t *testing.T) {
	x := fixturetest.Topology(t, "dgx-h100")
	s := state.New(state.Options{Overlay: topo.Overlay{"port:mlx5_0/1": 30e9}, Measured: report(x)})
	s.Apply(&record.Record{Source: record.SourceHost, Topology: x})
	v, e := views.NewMatrix(&views.Cache{}), viewtest.Env(s, mono)
	v.Key(ui.Wide, e)
	v.Key(ui.Wide, e)
	v.Key(ui.Wide, e)
	v.Key(ui.Down, e)
	got := text(v, e, 200, 20)
	v.Key(ui.Up, e)
	if line := lineOf(got, "  GPU0"); !strings.Contains(line, "30.0x") || !strings.Contains(line, "?") {
		t.Errorf("GPU0: %q", line)
	}
	detail := frame(v.Detail(e, 100))
	if !strings.Contains(detail, "measured     30.0 GB/s (-40%), by the slowest link between them") || !strings.Contains(detail, "expected     50.0 GB/s, read") {
		t.Errorf("the detail:\n%s", detail)
	}
	v.Key(ui.Wide, e)
	if line := lineOf(text(v, e, 200, 20), "> GPU0"); !strings.Contains(line, "-40]x") && !strings.Contains(line, "[-40]") {
		t.Errorf("delta of GPU0: %q", line)
	}
	v.Key(ui.Sort, e) // GPU x GPU
	v.Key(ui.Home, e)
	v.Key(ui.Right, e)
	if detail := frame(v.Detail(e, 100)); !strings.Contains(detail, "20.0 GB/s") || !strings.Contains(detail, "between the two") {
		t.Errorf("the detail:\n%s", detail)
	}
	if r := v.Key(ui.Measure, e); r.Measure == nil || len(r.Measure.Pairs) != 1 || r.Measure.Pairs[0] != "gpu h/0>h/1 cuda" {
		t.Errorf("measure asks for %+v", r.Measure)
	}
	live := report(x)
	live.Results[0].Bandwidth[0].MeanBytesPerSec = 400e9
	s.Probe = &state.Probe{Report: live, Done: 1}
	if detail := frame(v.Detail(e, 100)); !strings.Contains(detail, "400.0 GB/s") {
		t.Errorf("a live result does not replace the old one:\n%s", detail)
	}
	again := live.Results[0] // told again after retests
	again.Bandwidth = []probe.Bandwidth{{SizeBytes: 1 << 20, MeanBytesPerSec: 390e9, SamplesBytesPerSec: []int64{390e9}}}
	s.Apply(&record.Record{Source: record.SourceProbe, Probe: &probe.Event{Type: probe.EventStart, Start: live}})
	for _, x := range []*probe.Result{&live.Results[0], &again} {
		s.Apply(&record.Record{Source: record.SourceProbe, Probe: &probe.Event{Type: probe.EventResult, Result: x}})
		want := fmt.Sprintf("%d.0 GB/s", x.Bandwidth[0].MeanBytesPerSec/1e9)
		if detail := frame(v.Detail(e, 100)); !strings.Contains(detail, want) {
			t.Errorf("a result that was told again is not shown, want %s:\n%s", want, detail)
		}
	}
	data, err := json.Marshal(v.Selection(e))
	if err != nil || !strings.Contains(string(data), `"measured_bytes_per_sec":390000000000`) {
		t.Errorf("selection %s, %v", data, err)
	}
}

// A report of another host says nothing of this one.
func TestMatrixMeasuredElsewhere(t *testing.T) {
	s := state.New(state.Options{Measured: report(fixturetest.Topology(t, "gb200-tray"))})
	s.Apply(&record.Record{Source: record.SourceHost, Topology: fixturetest.Topology(t, "dgx-h100")})
	v, e := views.NewMatrix(&views.Cache{}), viewtest.Env(s, mono)
	v.Key(ui.Wide, e)
	v.Key(ui.Wide, e)
	v.Key(ui.Wide, e)
	if got := text(v, e, 200, 20); !strings.Contains(got, "no rate of this host was measured") {
		t.Error(got)
	}
	if got := frame(v.Detail(e, 100)); !strings.Contains(got, "no rate of this host was measured") {
		t.Error(got)
	}
}

// A click on a cell selects it, again explains it.
func TestMatrixClick(t *testing.T) {
	v, e := views.NewMatrix(&views.Cache{}), viewtest.Env(watched(t, "dgx-h100", 2), mono)
	got := strings.Split(text(v, e, 120, 20), "\n")
	x, y := strings.Index(got[1], "NIC3"), 4 // the third row
	if x < 0 {
		t.Fatalf("heads %q", got[1])
	}
	v.Click(x, y, e)
	if e.Shared.From != "gpu:2" || e.Shared.To != "rdma:mlx5_3" {
		t.Errorf("selected %s to %s", e.Shared.From, e.Shared.To)
	}
	if r := v.Click(x, y, e); r.Show != ui.Path {
		t.Errorf("again asks for %+v", r)
	}
}
