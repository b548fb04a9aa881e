package tui_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/tui"
)

// A picture of a host as text, for a log or a report.
func Example() {
	t, err := fixtures.Topology("cpu-2eth")
	if err != nil {
		fmt.Println(err)
		return
	}
	text, _, err := tui.Frame(context.Background(), tui.Options{Feed: tui.Still(t), View: "path", ASCII: true}, 80, 16)
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "should use") {
			fmt.Print(line)
		}
	}
	// Output: > cpu:0 should use ens5f0 (1.2 GB/s, another NUMA node) over TCP.
}

// What is shown is a program's own: here a topology that it has found, and counters that are made up.
func TestFrameOfOwnFeed(t *testing.T) {
	x, err := fixtures.Topology("dgx-h100")
	if err != nil {
		t.Fatal(err)
	}
	feed := tui.Live(tui.LiveOptions{Name: "the lab", Interval: 50 * time.Millisecond, SyntheticLoad: true,
		Discover: func(context.Context) (*topo.Topology, error) { return x, nil }})
	text, whole, err := tui.Frame(t.Context(), tui.Options{Feed: feed, Units: "gbit"}, 120, 40)
	if err != nil || !whole {
		t.Fatalf("whole %v, %v", whole, err)
	}
	for _, want := range []string{"the lab", "SYNTHETIC", "mlx5_0", "8 GPUs"} {
		if !strings.Contains(text, want) {
			t.Errorf("the frame lacks %q:\n%s", want, text)
		}
	}
	if _, _, err = tui.Frame(t.Context(), tui.Options{Feed: feed}, 120, 40); !errors.Is(err, tui.ErrInvalid) {
		t.Errorf("the same feed once more: %v", err)
	}
}

// This machine needs no options.
func TestFrameOfThisMachine(t *testing.T) {
	text, whole, err := tui.Frame(t.Context(), tui.Options{}, 120, 40)
	if err != nil || !whole || !strings.Contains(text, "[1 tree]") {
		t.Errorf("whole %v, %v:\n%s", whole, err, text)
	}
}

// Without a terminal there is no dashboard, whatever is to be shown, and what is wrong is an error of its kind.
func TestErrors(t *testing.T) {
	frame := func(o tui.Options) error {
		_, _, err := tui.Frame(t.Context(), o, 80, 24)
		return err
	}
	for name, tt := range map[string]struct {
		err, is error
		want    string
	}{
		"no terminal": {tui.Run(t.Context(), tui.Options{In: strings.NewReader("q"), Out: &strings.Builder{}}), tui.ErrNoTerminal, "tui: the input is not a terminal: use Frame"},
		"units":       {frame(tui.Options{Units: "furlong"}), tui.ErrInvalid, `tui: Units "furlong": want auto, gbit, gbyte, gibyte`},
		"view":        {frame(tui.Options{View: "lanes"}), tui.ErrInvalid, `tui: View "lanes": want one of ["tree" `},
		"record":      {frame(tui.Options{Record: "x"}), tui.ErrInvalid, "tui: Record without Create"},
		"agent":       {frame(tui.Options{Feed: tui.Live(tui.LiveOptions{Agents: []string{"ftp://x"}})}), tui.ErrInvalid, `agent "ftp://x"`},
		"no feed":     {frame(tui.Options{Feed: &tui.Feed{}}), tui.ErrInvalid, "tui: a Feed without a host: use Live"},
		"no topology": {frame(tui.Options{Feed: tui.Still(nil)}), tui.ErrInvalid, "tui: a Feed without a host: use Live"},
		"recording":   {frame(tui.Options{Feed: tui.Replay("run.jsonl", strings.NewReader("text"), 0)}), nil, "line 1"},
	} {
		if tt.err == nil || tt.is != nil && !errors.Is(tt.err, tt.is) || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, tt.err, tt.want)
		}
	}
}
