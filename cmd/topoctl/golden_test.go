package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/cmd/topoctl/internal/cli"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// What people see of each machine: the tree and the matrix.
func TestFixtureViews(t *testing.T) {
	golds := map[string]bool{}
	for _, name := range fixtures.Names() {
		for _, command := range []string{"topo", "matrix"} {
			file := name + "." + command + ".txt"
			golds[file] = true
			t.Run(file, func(t *testing.T) {
				t.Parallel()
				out := view(t, command, "--fixture", name, "-q")
				if !strings.Contains(name, "synthetic") {
					golden.Check(t, "testdata/golden/"+file, out)
				}
			})
		}
	}
	found, err := filepath.Glob(filepath.Join("testdata", "golden", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if !golds[filepath.Base(path)] {
			t.Errorf("%s belongs to no fixture", path)
		}
	}
}

// No device is lost on the way to the picture.
func TestTreeShowsEverything(t *testing.T) {
	for _, name := range fixtures.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := fixturetest.Topology(t, name)
			all := string(view(t, "topo", "--fixture", name, "-q", "--all", "--ascii"))
			for i := range host.PCIDevices {
				if address := host.PCIDevices[i].BDF.String(); !strings.Contains(all, address) {
					t.Errorf("topo --all does not show %s", address)
				}
			}
			plain := string(view(t, "topo", "--fixture", name, "-q"))
			for i := range host.GPUs {
				if label := host.GPUs[i].ID.Name() + " "; !strings.Contains(plain, "GPU"+label) {
					t.Errorf("topo does not show GPU%s", label)
				}
			}
			for i := range host.RDMADevices {
				r := &host.RDMADevices[i]
				if vf := strings.Contains(plain, "virtual functions of"); !vf && !strings.Contains(plain, r.Name+" ") {
					t.Errorf("topo does not show %s", r.Name)
				}
			}
		})
	}
}

// The matrix that we print is one that we read: people paste it, and the cells
// must come back. The import has no expected rates, so only classes are compared.
// Interfaces without RDMA are not in it beside RDMA devices, as which they would be read.
func TestMatrixReadsBack(t *testing.T) {
	for _, name := range fixtures.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			printed := view(t, "matrix", "--fixture", name, "-q")
			if !bytes.Contains(printed, []byte("GPU0")) {
				t.Skip("nvidia-smi has no form for a host without GPUs")
			}
			want := cells(t, view(t, "matrix", "--fixture", name, "-q", "-o", "json"))
			file := filepath.Join(t.TempDir(), "matrix.txt")
			if err := os.WriteFile(file, printed, 0o600); err != nil {
				t.Fatal(err)
			}
			got := cells(t, view(t, "matrix", "--from", file, "-q", "-o", "json"))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-printed +read):\n%s", diff)
			}
		})
	}
}

// cells are a matrix's classes by the names of row and column; nil is unknown. Interfaces count on a host
// without RDMA devices.
func cells(t *testing.T, document []byte) map[[2]string]*string {
	t.Helper()
	type entry struct{ Kind, Name string }
	var m struct {
		Rows, Cols []entry
		Class      [][]*string
	}
	if err := json.Unmarshal(document, &m); err != nil {
		t.Fatal(err)
	}
	rdma := slices.ContainsFunc(m.Rows, func(e entry) bool { return e.Kind == "rdma" })
	out := map[[2]string]*string{}
	for i, row := range m.Class {
		for j, class := range row {
			if a, b := m.Rows[i], m.Cols[j]; !rdma || a.Kind != "netdev" && b.Kind != "netdev" {
				out[[2]string{a.Name, b.Name}] = class
			}
		}
	}
	return out
}

// view gives the output of a command that works: codes 0 and 3.
func view(t *testing.T, args ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	streams := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(string) string { return "" }}
	if code := cli.Main(context.Background(), args, streams, nil, nil); code != 0 && code != 3 {
		t.Fatalf("topoctl %s: exit code %d: %s", strings.Join(args, " "), code, errs.String())
	}
	return out.Bytes()
}
