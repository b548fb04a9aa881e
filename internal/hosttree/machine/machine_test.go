package machine_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/internal/hosttree/machine"
	"github.com/topoctl/topoctl/testkit/golden"
)

func parse(t testing.TB, text string) *machine.Spec {
	t.Helper()
	spec, err := machine.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return spec
}

func tree(t testing.TB, spec *machine.Spec) *hosttree.Mem {
	t.Helper()
	m, err := spec.Tree()
	if err != nil {
		t.Fatalf("Tree: %v", err)
	}
	return m
}

func read(t testing.TB, m *hosttree.Mem, name string) string {
	t.Helper()
	data, err := m.ReadFile(name)
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSuffix(string(data), "\n")
}

// head is the part of a machine that most tests do not care about.
const head = "machine: m\ndescription: a machine\ncpu: {vendor: GenuineIntel, threads: 2}\nnuma: [{node: 0, cpus: 0-3, mem: 1GiB}]\n"

// TestGolden compares every file that a description expands to with its golden file.
func TestGolden(t *testing.T) {
	texts, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(texts) == 0 {
		t.Fatal(texts, err)
	}
	for _, name := range texts {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := hosttree.WriteArchive(&got, tree(t, parse(t, string(text))), filepath.Base(name)+", expanded"); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, strings.TrimSuffix(name, ".yaml")+".tree", got.Bytes())
		})
	}
}

func TestExpansionIsStable(t *testing.T) {
	text, err := os.ReadFile("testdata/small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	spec := parse(t, string(text))
	var first, second, third bytes.Buffer
	for b, s := range map[*bytes.Buffer]*machine.Spec{&first: spec, &second: spec, &third: parse(t, string(text))} {
		if err := hosttree.WriteArchive(b, tree(t, s), ""); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) || !bytes.Equal(first.Bytes(), third.Bytes()) {
		t.Error("two expansions differ")
	}
}

func answers(t testing.TB, m *hosttree.Mem) (gpus replies.GPUReport, net replies.NetlinkReport) {
	t.Helper()
	for name, v := range map[string]any{replies.NVMLPath: &gpus, replies.NetlinkPath: &net} {
		data, err := m.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, v); err != nil {
			t.Fatal(err)
		}
	}
	return gpus, net
}

func TestNoNVIDIADriverMeansNoAnswers(t *testing.T) {
	m := tree(t, parse(t, head+"pci:\n- root: 0000:10\n  numa: 0\n  below:\n  - {gpu: 10:00.0, part: h100-sxm, driver: none}\n"))
	if _, err := m.Lstat(replies.NVMLPath); err == nil {
		t.Error("a machine whose GPU has no driver has NVML answers")
	}
	if _, err := m.Lstat("proc/driver/nvidia"); err == nil {
		t.Error("a machine whose GPU has no driver has /proc/driver/nvidia")
	}
}

func TestVariant(t *testing.T) {
	base := parse(t, head+"pci:\n- root: 0000:10\n  numa: 0\n  below:\n  - port: 10:01.0\n    below:\n    - {gpu: 11:00.0, part: h100-sxm, nvlink: 2}\npatches:\n- {remove: proc/version}\n")
	variant := parse(t, "machine: slow\ndescription: a slow one\nbase: m\npatches:\n- {change: 0000:11:00.0, at: x4, nvlink: 1}\n- {set: proc/cmdline, to: quiet}\n")
	if _, err := variant.Tree(); err == nil || !strings.Contains(err.Error(), "variant of m") {
		t.Errorf("Tree of a variant without its base: %v", err)
	}
	whole, err := variant.On(base)
	if err != nil {
		t.Fatal(err)
	}
	if whole.Name != "slow" || whole.Description != "a slow one" || variant.Base != "m" || whole.Base != "" {
		t.Errorf("name %q, description %q, base %q", whole.Name, whole.Description, whole.Base)
	}
	was, is := tree(t, base), tree(t, whole)
	if got := read(t, is, "sys/bus/pci/devices/0000:10:01.0/current_link_width"); got != "4" {
		t.Errorf("width of the port above: %s, want 4", got)
	}
	if got := read(t, was, "sys/bus/pci/devices/0000:10:01.0/current_link_width"); got != "16" {
		t.Errorf("the base has changed: width %s", got)
	}
	if _, err := is.Lstat("proc/version"); err == nil || read(t, is, "proc/cmdline") != "quiet" {
		t.Error("the patches of base and variant were not both applied")
	}
	a, _ := answers(t, was)
	b, _ := answers(t, is)
	if a.GPUs[0].UUID != b.GPUs[0].UUID {
		t.Error("a variant has other made-up identifiers than its base")
	}
	if *b.GPUs[0].PCIeWidth != 4 || len(b.GPUs[0].NVLinks) != 1 {
		t.Errorf("NVML of the variant: %+v", b.GPUs[0])
	}
	if _, err := parse(t, "machine: x\ndescription: x\nbase: m\npatches:\n- {change: 12:00.0, at: x4}\n").On(base); err == nil || !strings.Contains(err.Error(), "line 5, column 3: change: there is no function 0000:12:00.0") {
		t.Errorf("change of nothing: %v", err)
	}
}
