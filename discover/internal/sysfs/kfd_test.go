package sysfs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
)

const kfdDir = "sys/devices/virtual/kfd/kfd/topology/nodes"

// kfdNode adds a node of the KFD topology; more are pairs of name and number.
func (m *machine) kfdNode(n int, more ...string) {
	text := ""
	for i := 0; i < len(more); i += 2 {
		text += more[i] + " " + more[i+1] + "\n"
	}
	m.file(fmt.Sprintf("%s/%d/properties", kfdDir, n), text)
}

func (m *machine) kfdGPU(n, location int, gfx, id string) {
	m.kfdNode(n, "cpu_cores_count", "0", "simd_count", "1216", "gfx_target_version", gfx, "vendor_id", "4098",
		"location_id", fmt.Sprint(location), "domain", "0", "unique_id", id)
}

// kfdLink adds an io_link that leads from one node to another.
func (m *machine) kfdLink(n, i, kind, to, weight, least, most int) {
	m.file(fmt.Sprintf("%s/%d/io_links/%d/properties", kfdDir, n, i), fmt.Sprintf(
		"type %d\nversion_major 0\nnode_from %d\nnode_to %d\nweight %d\nmin_bandwidth %d\nmax_bandwidth %d\nflags 1\n", kind, n, to, weight, least, most))
}

// newAMD is newMachine with two MI300X for its GPUs, which have xGMI between
// them. Nodes 0 and 1 are the CPUs, 2 and 3 the GPUs.
func newAMD() *machine {
	m := newMachine()
	m.remove("proc/driver")
	for _, dir := range []string{gpu0, gpu1} {
		m.dir(dir, "class", "0x120000", "vendor", "0x1002", "device", "0x74a1", "mem_info_vram_total", "206141652992")
		m.driver(dir, "amdgpu")
	}
	m.link("sys/class/kfd/kfd", "../../devices/virtual/kfd/kfd")
	for n := range 2 {
		m.kfdNode(n, "cpu_cores_count", "4", "simd_count", "0", "location_id", "0", "domain", "0", "gfx_target_version", "0")
		m.kfdGPU(2+n, 0x1a00+n*0x8000, "90402", fmt.Sprint(uint64(0x5b1b2c3d4e5f60c2)+uint64(n)))
		m.kfdLink(2+n, 0, 2, n, 20, 312, 64000)
		m.kfdLink(2+n, 1, 11, 3-n, 15, 0, 0)
		m.file(fmt.Sprintf("%s/%d/mem_banks/0/properties", kfdDir, 2+n), "heap_type 1\nsize_in_bytes 206158430208\nflags 0\nwidth 8192\nmem_clk_max 1300\n")
	}
	return m
}

const gpu1 = "sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0/0000:99:00.0/0000:9a:00.0"

func TestKFD(t *testing.T) {
	top := newAMD().read(t)
	if len(top.Warnings) > 0 {
		t.Errorf("%q", texts(top.Warnings))
	}
	where := "/" + kfdNodes + "/3/properties"
	want := topo.GPU{
		Node: topo.Node{ID: "gpu:1", Kind: topo.KindGPU, Evidence: "/" + gpu1}, Index: 1, PCI: "pci:0000:9a:00.0", BDF: &topo.BDF{Bus: 0x9a},
		Vendor: "amd", NUMA: new(1), MemoryBytes: new(int64(206158430208)), UUID: "GPU-5b1b2c3d4e5f60c3", ComputeCap: "gfx942",
		Driver: "amdgpu", KnownFrom: "proc",
	}
	got := top.GPUs[1]
	for name, place := range map[string]string{
		"known_from": where, "uuid": where, "compute_capability": where, "memory_bytes": "/" + kfdNodes + "/3/mem_banks",
	} {
		if f, _ := got.Facts.Get(name); f != fact(name, place) {
			t.Errorf("%s comes from %v, want %s", name, f, place)
		}
	}
	got.Facts = nil
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	wantLinks := []topo.Link{{
		ID: "xgmi:gpu:0/gpu:1", Kind: topo.LinkXGMI, A: "gpu:0", B: "gpu:1", Count: 1, BytesPerSec: new(48 * topo.GBPerSec),
		Basis: topo.BasisTypical, Note: "1 x 48.0 GB/s (gfx942)", Facts: topo.Facts{fact("kind", xgmiWhere)},
	}}
	if d := cmp.Diff(wantLinks, top.Links); d != "" {
		t.Error(d)
	}
}

func TestKFDVariants(t *testing.T) {
	link := func(top *topo.Topology) topo.Link {
		if len(top.Links) != 1 {
			return topo.Link{}
		}
		return top.Links[0]
	}
	read := func(rate topo.Rate, count int) func(*testing.T, *topo.Topology) {
		return func(t *testing.T, top *topo.Topology) {
			if l := link(top); l.BytesPerSec == nil || *l.BytesPerSec != rate || l.Count != count || l.Basis != topo.BasisRead {
				t.Errorf("%+v", top.Links)
			}
		}
	}
	constant := func(rate topo.Rate) func(*testing.T, *topo.Topology) {
		return func(t *testing.T, top *topo.Topology) {
			if l := link(top); l.BytesPerSec == nil || *l.BytesPerSec != rate || l.Basis != topo.BasisTypical {
				t.Errorf("%+v", top.Links)
			}
		}
	}
	none := func(t *testing.T, top *topo.Topology) {
		if len(top.Links) > 0 {
			t.Errorf("%+v", top.Links)
		}
	}
	noUUID := func(t *testing.T, top *topo.Topology) {
		if top.GPUs[0].UUID != "" || top.GPUs[0].KnownFrom != "proc" || link(top).ID == "" {
			t.Errorf("%+v", top.GPUs[0])
		}
	}
	both := func(m *machine, weight, least, most int) {
		m.kfdLink(2, 1, 11, 3, weight, least, most)
		m.kfdLink(3, 1, 11, 2, weight, least, most)
	}
	tests := []struct {
		name   string
		change func(*machine)
		code   topo.Code // "" is no warning at all
		piece  string
		more   func(*testing.T, *topo.Topology)
	}{
		{"no driver", func(m *machine) { m.remove("sys/class/kfd") }, "", "", func(t *testing.T, top *topo.Topology) {
			if g := top.GPUs[0]; len(top.Links) > 0 || g.KnownFrom != "pci" || g.UUID != "" || g.MemoryBytes != nil {
				t.Errorf("%+v", g)
			}
		}},
		{"rate of one link", func(m *machine) { both(m, 15, 64000, 64000) }, "", "", read(64*topo.GBPerSec, 1)},
		{"rate of four links", func(m *machine) { both(m, 15, 50000, 200000) }, "", "", read(200*topo.GBPerSec, 4)},
		{"rates that do not divide", func(m *machine) { both(m, 15, 70000, 100000) }, "", "", read(100*topo.GBPerSec, 1)},
		{"two hops", func(m *machine) { both(m, 30, 0, 0) }, "", "", func(t *testing.T, top *topo.Topology) {
			if l := link(top); l.BytesPerSec != nil || l.Count != 0 || l.Basis != topo.BasisUnknown || l.Note != "2 hops" {
				t.Errorf("%+v", top.Links)
			}
		}},
		{"MI200", func(m *machine) {
			m.kfdGPU(2, 0x1a00, "90010", "1")
			m.kfdGPU(3, 0x9a00, "90010", "2")
		}, "", "", func(t *testing.T, top *topo.Topology) {
			constant(36*topo.GBPerSec)(t, top)
			if g := top.GPUs[0]; g.ComputeCap != "gfx90a" || g.UUID != "GPU-0000000000000001" {
				t.Errorf("%+v", g)
			}
		}},
		{"unequal GPUs", func(m *machine) { m.kfdGPU(3, 0x9a00, "90008", "2") }, "", "", constant(24 * topo.GBPerSec)},
		{"unknown GPU", func(m *machine) { m.kfdGPU(2, 0x1a00, "110000", "1") }, "", "", func(t *testing.T, top *topo.Topology) {
			if l := link(top); l.BytesPerSec != nil || l.Basis != topo.BasisUnknown || top.GPUs[0].ComputeCap != "gfx1100" {
				t.Errorf("%+v", l)
			}
		}},
		{"no unique ID", func(m *machine) { m.kfdGPU(2, 0x1a00, "90402", "0") }, "", "", noUUID},
		{"version that is none", func(m *machine) { m.kfdGPU(2, 0x1a00, "94299", "0") }, topo.CodeMalformed, "gpu:0: properties: gfx_target_version 94299", nil},
		{"memory of the display driver", func(m *machine) { m.remove(kfdDir + "/2/mem_banks") }, "", "", func(t *testing.T, top *topo.Topology) {
			if n := top.GPUs[0].MemoryBytes; n == nil || *n != 206141652992 {
				t.Errorf("%v", n)
			}
		}},
		{"memory in two heaps", func(m *machine) {
			m.file(kfdDir+"/2/mem_banks/0/properties", "heap_type 1\nsize_in_bytes 1024\n")
			m.file(kfdDir+"/2/mem_banks/1/properties", "heap_type 2\nsize_in_bytes 2048\n")
			m.file(kfdDir+"/2/mem_banks/2/properties", "heap_type 4\nsize_in_bytes 64\n")
		}, "", "", func(t *testing.T, top *topo.Topology) {
			if n := top.GPUs[0].MemoryBytes; n == nil || *n != 3072 {
				t.Errorf("%v", n)
			}
		}},
		{"memory too large", func(m *machine) {
			m.file(kfdDir+"/2/mem_banks/0/properties", "heap_type 1\nsize_in_bytes 18446744073709551615\n")
		}, topo.CodeMalformed, "mem_banks/0/properties: size_in_bytes 18446744073709551615", nil},
		{"partitions", func(m *machine) {
			m.kfdGPU(2, 0x1a00, "90402", "11")
			m.kfdGPU(4, 0x1a00|1<<28, "90402", "12")
			m.kfdLink(4, 0, 11, 3, 41, 0, 0)
			m.kfdLink(3, 2, 11, 4, 41, 0, 0)
			m.kfdLink(4, 1, 11, 2, 13, 819200, 819200) // within the GPU
			m.kfdLink(2, 2, 11, 4, 13, 819200, 819200)
		}, "", "", func(t *testing.T, top *topo.Topology) {
			noUUID(t, top)
			constant(48*topo.GBPerSec)(t, top)
			if n := top.GPUs[0].MemoryBytes; len(top.GPUs) != 2 || n == nil || *n != 206141652992 {
				t.Errorf("memory %v", n)
			}
		}},
		{"partition in the function's place", func(m *machine) { m.kfdGPU(4, 0x1a03, "90402", "0") }, "", "", noUUID},
		{"xGMI to a CPU", func(m *machine) { m.kfdLink(2, 0, 11, 0, 15, 0, 0) }, "", "", constant(48 * topo.GBPerSec)},
		{"one direction", func(m *machine) { m.remove(kfdDir + "/3/io_links/1") }, topo.CodeLinkDisagrees, "gpu:0: io_links: xGMI to node 3, which has none to node 2", constant(48 * topo.GBPerSec)},
		{"two rates", func(m *machine) {
			m.kfdLink(2, 1, 11, 3, 15, 0, 64000)
			m.kfdLink(3, 1, 11, 2, 15, 0, 32000)
		}, topo.CodeLinkDisagrees, "xGMI to node 3, which describes it otherwise", read(32*topo.GBPerSec, 1)},
		{"link of another node", func(m *machine) {
			m.file(kfdDir+"/2/io_links/1/properties", "type 11\nnode_from 3\nnode_to 2\n")
			m.remove(kfdDir + "/3/io_links/1")
		}, topo.CodeMalformed, "node_from 3, in the directory of node 2", none},
		{"link to itself", func(m *machine) { m.kfdLink(2, 2, 11, 2, 15, 0, 0) }, topo.CodeMalformed, "node_to 2: no other node", constant(48 * topo.GBPerSec)},
		{"link to nowhere", func(m *machine) { m.kfdLink(2, 2, 11, 77, 15, 0, 0) }, topo.CodeMalformed, "node_to 77: no other node", constant(48 * topo.GBPerSec)},
		{"same link twice", func(m *machine) { m.kfdLink(2, 2, 11, 3, 15, 0, 9) }, topo.CodeMalformed, "a second link to node 3", constant(48 * topo.GBPerSec)},
		{"rate too high", func(m *machine) { both(m, 15, 0, 1<<40) }, topo.CodeMalformed, "max_bandwidth 1099511627776", constant(48 * topo.GBPerSec)},
		{"GPU that PCI does not show", func(m *machine) { m.kfdGPU(3, 0x4200, "90402", "1") }, topo.CodePartialView, "lists GPU 0000:42:00.0", none},
		{"location that is none", func(m *machine) { m.kfdGPU(3, 1<<20, "90402", "1") }, topo.CodeMalformed, "location_id 1048576, domain 0: no PCI function", none},
		{"GPUs of others", func(m *machine) {
			m.errors[kfdDir+"/3/properties"] = syscall.EPERM
			m.errors[kfdDir+"/2/io_links/1/properties"] = syscall.EPERM
		}, topo.CodePartialView, "this process may not read 2 of the properties files", func(t *testing.T, top *topo.Topology) {
			none(t, top)
			if len(top.Warnings) != 1 || !top.Complete || top.GPUs[1].KnownFrom != "pci" {
				t.Errorf("%q", texts(top.Warnings))
			}
		}},
		{"node that is none", func(m *machine) { m.file(kfdDir+"/two/properties", "x 1\n") }, topo.CodeMalformed, `entry "two": want a number`, constant(48 * topo.GBPerSec)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newAMD()
			tt.change(m)
			top := m.read(t)
			if tt.code == "" && len(top.Warnings) > 0 || tt.code != "" && !warned(top, tt.code, tt.piece) {
				t.Errorf("want %s %q, got %q", tt.code, tt.piece, texts(top.Warnings))
			}
			if tt.more != nil {
				tt.more(t, top)
			}
		})
	}
}

// TestKFDLimits: a forged tree with too many nodes is not read to its end.
func TestKFDLimits(t *testing.T) {
	m := newAMD()
	for n := range maxKFD + 10 {
		m.kfdNode(10+n, "simd_count", "0")
	}
	if top := m.read(t); !warned(top, topo.CodeSkipped, "only the first 1024") || len(top.Links) != 1 {
		t.Errorf("%q", texts(top.Warnings))
	}
}

// TestKFDMutations removes and garbles each file of the KFD topology in turn:
// a warning must name it, and only what it tells may be lost.
func TestKFDMutations(t *testing.T) {
	base := newAMD()
	for _, name := range slices.Sorted(maps.Keys(base.files)) {
		rest, ok := strings.CutPrefix(name, kfdDir+"/")
		if !ok {
			continue
		}
		for how, text := range map[string]string{
			"removed": "", "empty": "", "garbled": "\x00\xff garbled \x7f\n", "negative": "type -1\nsimd_count -1\nheap_type -1\n", "long": strings.Repeat("7", 70000),
		} {
			m := &machine{files: maps.Clone(base.files), links: base.links}
			m.files[name] = text
			if how == "removed" {
				delete(m.files, name)
			}
			top := m.read(t)
			if len(top.GPUs) != 2 || len(top.RDMADevices) != 2 {
				t.Errorf("%s %s: %d GPUs, %d RDMA devices", rest, how, len(top.GPUs), len(top.RDMADevices))
			}
			one := strings.HasPrefix(rest, "2/") && top.GPUs[1].UUID == "" || strings.HasPrefix(rest, "3/") && top.GPUs[0].UUID == ""
			if one || len(top.Links) != 1 && rest != "2/properties" && rest != "3/properties" {
				t.Errorf("%s %s: lost more than that: %+v", rest, how, top.GPUs)
			}
			if how == "removed" { // a mutated tree has no empty directories
				continue
			}
			if !slices.ContainsFunc(top.Warnings, func(w topo.Warning) bool { return w.Evidence == "/"+kfdNodes+"/"+rest }) {
				t.Errorf("%s %s: no warning names it: %q", rest, how, texts(top.Warnings))
			}
		}
	}
}

func TestParseKFD(t *testing.T) {
	tests := []struct {
		text, err string
		want      kfdProps
	}{
		{"simd_count 4\nunique_id 18446744073709551615\n", "", kfdProps{"simd_count": 4, "unique_id": 1<<64 - 1}},
		{"simd_count 4\n\n  type 11  ", "", kfdProps{"simd_count": 4, "type": 11}},
		{"simd_count x\ntype 11\n", `"simd_count x": want a name and a number`, kfdProps{"type": 11}},
		{"type 11\ntype 2\n", `"type 2": a second line of that name`, kfdProps{"type": 11}},
		{"type\n", `"type": want a name and a number`, kfdProps{}},
		{"type 18446744073709551616\n", `want a name and a number`, kfdProps{}},
		{"", "0 bytes", nil},
	}
	for _, tt := range tests {
		got, err := parseKFD([]byte(tt.text))
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%q: %s", tt.text, d)
		}
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%q: error %v, want %q", tt.text, err, tt.err)
		}
	}
}

// FuzzKFD reads any text as a GPU node, a link and a memory bank.
func FuzzKFD(f *testing.F) {
	for _, s := range []string{
		"", "simd_count 1216\nlocation_id 6656\nunique_id 1\ngfx_target_version 90402\n", "type 11\nnode_from 2\nnode_to 3\nweight 15\n",
		"type 11\nnode_from 2\nnode_to 18446744073709551615\nmax_bandwidth 1\n", "heap_type 1\nsize_in_bytes 18446744073709551615\n",
		"simd_count 1\nlocation_id 4026538496\ndomain 4294967296\n",
	} {
		f.Add([]byte(s), uint8(0))
		f.Add([]byte(s), uint8(1))
		f.Add([]byte(s), uint8(2))
	}
	f.Fuzz(func(t *testing.T, text []byte, where uint8) {
		m := newAMD()
		m.file(kfdDir+"/2/"+[]string{"properties", "io_links/1/properties", "mem_banks/0/properties"}[where%3], string(text))
		top := m.read(t)
		if len(top.GPUs) != 2 || len(top.Links) > 1 {
			t.Errorf("%d GPUs, %d links", len(top.GPUs), len(top.Links))
		}
		for _, g := range top.GPUs {
			if g.MemoryBytes != nil && (*g.MemoryBytes <= 0 || *g.MemoryBytes > maxMemory) || len(g.ComputeCap) > 8 {
				t.Errorf("%+v", g)
			}
		}
		for _, l := range top.Links {
			if l.ID != "xgmi:gpu:0/gpu:1" || l.Count < 0 || l.Count > 64 || l.BytesPerSec != nil && *l.BytesPerSec <= 0 {
				t.Errorf("%+v", l)
			}
		}
	})
}
