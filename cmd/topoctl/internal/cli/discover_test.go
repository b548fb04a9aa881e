package cli

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/units"
)

func TestParseDiscover(t *testing.T) {
	got, err := parseOnly(t, newStreams().Streams, newDiscoverCmd, "--sources", "netlink,ghw", "--sources=nvml", "--redact", "--strict",
		"--capture", "-", "-o", "yaml", "--root", "/host", "-v", "--timeout", "5s")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"netlink", "ghw", "nvml"}, got.Host.Sources); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	if !got.redact || !got.strict || got.capture != "-" || got.Format != formatYAML {
		t.Errorf("got %+v", got)
	}
	if g := got.Globals; g.Root != "/host" || !g.Verbose || g.Timeout != 5*time.Second {
		t.Errorf("globals: %+v", g)
	}
	if got, err := parseOnly(t, newStreams().Streams, newDiscoverCmd); err != nil || got.Format != formatJSON || got.Globals.Timeout != time.Minute {
		t.Errorf("defaults: %+v, %v", got, err)
	}
}

func TestParseTopo(t *testing.T) {
	s := newStreams().Streams
	s.OutTTY, s.Width = true, 100
	got, err := parseOnly(t, s, newTopoCmd, "--only", "gpu,nic", "--ascii", "--units", "gbit")
	if err != nil {
		t.Fatal(err)
	}
	want := picture.TreeOptions{ASCII: true, Color: true, Width: 100, Only: []topo.Kind{topo.KindGPU, topo.KindNIC}, Units: units.Gbit}
	if diff := cmp.Diff(want, got.tree); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseMatrix(t *testing.T) {
	got, err := parseOnly(t, newStreams().Streams, newMatrixCmd, "--json", "--show", "nccl", "--rows", "numa", "--cols", "gpu,nic")
	if err != nil {
		t.Fatal(err)
	}
	if got.Format != formatJSON || got.show != "nccl" || got.color {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff([]topo.Kind{topo.KindNUMA}, got.rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]topo.Kind{topo.KindGPU, topo.KindNIC}, got.cols); diff != "" {
		t.Errorf("cols (-want +got):\n%s", diff)
	}
}
