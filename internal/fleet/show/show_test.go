package show_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/show"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// example is a fleet with something of everything: an odd host, swapped cables, a host that was not reached.
func example(tb testing.TB, name func(int) string) *fleet.Fleet {
	tb.Helper()
	var list []fleet.Host
	n := &fleet.Network{Source: "fabric.json"}
	for i, fixture := range []string{"dgx-h100", "dgx-h100", "dgx-h100-port-down", "dgx-h100", "cpu-2eth"} {
		h, err := fleet.Summarize(name(i), fixturetest.Topology(tb, fixture))
		if err != nil {
			tb.Fatal(err)
		}
		h.Source = "file " + name(i)
		list = append(list, *h)
		for r, device := range []string{"mlx5_0", "mlx5_3", "mlx5_4"} {
			if i == 1 && r < 2 {
				r = 1 - r
			}
			n.Cables = append(n.Cables, fleet.Cable{Host: h.Host, Port: device, Leaf: fmt.Sprint("leaf", r), Known: "fabric file"})
		}
	}
	for i := range 3 {
		n.Switches = append(n.Switches, fleet.Switch{ID: fmt.Sprint("leaf", i)})
		n.Links = append(n.Links, fleet.Link{A: fmt.Sprint("leaf", i), B: "spine", Count: 2})
	}
	n.Switches = append(n.Switches, fleet.Switch{ID: "spine"})
	list = append(list, fleet.Host{Host: name(9), Status: fleet.NotReached, Source: "ssh " + name(9), Reason: "no route to host"})
	f, err := fleet.Build(list, n)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func plain(i int) string { return fmt.Sprint("n", i+1) }

// What is printed, view by view.
func TestTexts(t *testing.T) {
	f := example(t, plain)
	for _, view := range show.Views {
		golden.Check(t, "testdata/show-"+view+".golden", show.Show(f, view, show.Options{}))
	}
	golden.Check(t, "testdata/check.golden", show.Check(f, show.Options{}))
	golden.Check(t, "testdata/check-all.golden", show.Check(f, show.Options{All: true}))
	golden.Check(t, "testdata/collected.golden", show.Collected(f, "fleet", show.Options{}))
	golden.Check(t, "testdata/map.svg", show.SVG(f))
	older := example(t, func(i int) string { return fmt.Sprint("n", i+2) })
	golden.Check(t, "testdata/diff.golden", show.Changes(fleet.Compare(older, f, "old", "new"), show.Options{}))
}

// On a terminal no line is wider than that.
func TestWidth(t *testing.T) {
	f := example(t, plain)
	for _, width := range []int{60, 80, 120} {
		for _, line := range strings.Split(show.Check(f, show.Options{Width: width})+show.Check(f, show.Options{Width: width, All: true}), "\n") {
			if text.Width(line) > width && strings.Contains(strings.TrimSpace(line), " ") && !strings.HasPrefix(line, "FAIL") && !strings.HasPrefix(line, "WARN") {
				t.Errorf("%d columns: %q", width, line)
			}
		}
	}
}

// Names of hosts are text in pages and drawings, whatever they are.
func TestHostileNames(t *testing.T) {
	evil := func(i int) string { return fmt.Sprintf("<script>alert(%d)</script>\"'&\x1b[2J\u202e", i) }
	f := example(t, evil)
	page, err := show.HTML(f)
	if err != nil {
		t.Fatal(err)
	}
	for what, data := range map[string][]byte{"svg": show.SVG(f), "html": page} {
		if bytes.Contains(data, []byte("<script")) || bytes.ContainsAny(data, "\x1b\u202e") {
			t.Errorf("%s: a name is obeyed", what)
		}
	}
	d := xml.NewDecoder(bytes.NewReader(show.SVG(f)))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// A page loads nothing, and has the answer, each finding and each host.
func TestHTML(t *testing.T) {
	f := example(t, plain)
	data, err := show.HTML(f)
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for _, bad := range []string{"<link", "src=", "@import", "url(", "<script"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	for _, want := range []string{"The cables of n2/mlx5_0 and n2/mlx5_3 are swapped", "default-src &#39;none&#39;", "rail-miswired", "no route to host", "<svg"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
