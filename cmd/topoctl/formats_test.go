package main_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// Writing a machine in NCCL's format and reading it back keeps what that format can say: NCCL's classes.
func TestFormatsKeepClasses(t *testing.T) {
	for _, name := range fixtures.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := fixturetest.Topology(t, name)
			nccl := through(t, before, ncclxml.Encode, ncclxml.Decode)
			want := classes(before)
			if len(before.GPUs) > 0 && len(want) == 0 {
				t.Fatal("no pairs to compare")
			}
			if diff := cmp.Diff(want, classes(nccl)); diff != "" {
				t.Errorf("NCCL's classes through NCCL XML:\n%s", diff)
			}
		})
	}
}

func through(t *testing.T, before *topo.Topology, encode func(io.Writer, *topo.Topology) error, decode func([]byte) (*topo.Topology, error)) *topo.Topology {
	t.Helper()
	var buf bytes.Buffer
	if err := encode(&buf, before); err != nil {
		t.Fatal(err)
	}
	after, err := decode(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// classes are NCCL's classes of the pairs of GPUs and RDMA devices on PCI, by name.
func classes(t *topo.Topology) map[string]string {
	onPCI := map[topo.ID]bool{}
	for i := range t.GPUs {
		onPCI[t.GPUs[i].ID] = t.GPUs[i].PCI != ""
	}
	for i := range t.RDMADevices {
		onPCI[t.RDMADevices[i].ID] = t.RDMADevices[i].PCI != ""
	}
	out := map[string]string{}
	for i, a := range t.Derived.Axis {
		for j, b := range t.Derived.Axis {
			if onPCI[a] && onPCI[b] {
				out[fmt.Sprint(a, " ", b)] = string(t.Derived.At(i, j).NCCL)
			}
		}
	}
	return out
}

// spoiled is a tree with one file removed or its content replaced.
type spoiled struct {
	hosttree.Tree
	name    string
	content []byte // nil: removed
}

func (s spoiled) is(name string) bool {
	real, err := hosttree.RealPath(s.Tree, name)
	return err == nil && real == s.name
}

func (s spoiled) ReadFile(name string) ([]byte, error) {
	if !s.is(name) {
		return s.Tree.ReadFile(name)
	}
	if s.content == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return slices.Clone(s.content), nil
}

// nodeIDs lists everything that a topology holds.
func nodeIDs(t *topo.Topology) map[topo.ID]bool {
	ids := map[topo.ID]bool{}
	data, err := t.Encode()
	if err != nil {
		return ids
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, `{"id":"`); ok && strings.Contains(line, `"kind":"`) && !strings.Contains(line, `"basis":`) {
			id, _, _ := strings.Cut(rest, `"`)
			ids[topo.ID(id)] = true
		}
	}
	return ids
}

// Each file that discovery reads of a machine is removed, emptied and garbled
// in turn: discovery goes on, and what the file does not belong to is all there.
func TestBrokenFilesCostNobodyElse(t *testing.T) {
	for _, name := range []string{"cpu-2eth", "lab-softrdma", "a10-2nic"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opened, err := fixtures.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			tree := opened.(hosttree.Tree)
			recorder := hosttree.NewRecorder(tree)
			want := nodeIDs(look(t, recorder))
			for _, file := range longtest.Sample(filesOf(t, recorder.Recorded()), 40) {
				for how, content := range map[string][]byte{"removed": nil, "emptied": {}, "garbled": []byte("\x00\xff garbled \x7f")} {
					got := nodeIDs(look(t, spoiled{tree, file, content}))
					for _, id := range slices.Sorted(maps.Keys(want)) {
						if !got[id] && !belongs(id, file) {
							t.Errorf("%s %s: %s is gone", file, how, id)
						}
					}
				}
			}
		})
	}
}

func look(t *testing.T, tree hosttree.Tree) *topo.Topology {
	t.Helper()
	got, err := discover.Discover(context.Background(), discover.Options{FS: tree})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// filesOf lists the regular files with content.
func filesOf(t *testing.T, tree hosttree.Tree) []string {
	t.Helper()
	var out []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if _, err := tree.ReadFile(name); err == nil {
				out = append(out, name)
			}
		}
		return err
	})
	if err != nil || len(out) < 50 {
		t.Fatalf("%d files: %v", len(out), err)
	}
	return out
}

// belongs says whether a node is made from a file, so that it may go with it.
func belongs(id topo.ID, file string) bool {
	kind, name, _ := strings.Cut(string(id), ":")
	switch kind {
	case "pkg":
		return strings.HasSuffix(file, "/physical_package_id") || file == "proc/cpuinfo"
	case "gpu", "nic", "sw": // recognised by the function's class and vendor, which NVML can stand in for
		return strings.Contains(file, strings.TrimSuffix(name, ".0")) || strings.HasSuffix(file, "/class") || strings.HasSuffix(file, "/vendor") || file == replies.NVMLPath
	}
	return false
}
