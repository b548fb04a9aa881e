package sysfs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

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
