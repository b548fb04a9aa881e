package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// gpuPrefixes are the words that Mooncake's builds begin the names of GPU
// locations with, by the vendor of the GPU. Others' GPUs cannot be written.
// Source: Mooncake mooncake-transfer-engine/include/{cuda_alike.h,gpu_vendor/*.h}
// (GPU_PREFIX); Moore Threads is PCI vendor 1ed5, Cambricon cabc.
var gpuPrefixes = map[string]string{"nvidia": "cuda", "amd": "hip", "0x1ed5": "musa", "0xcabc": "mlu"}

// Mooncake writes the host's NIC priority matrix as Mooncake's engines read it
// (MC_CUSTOM_TOPO_JSON): for each memory location two lists of RDMA devices,
// preferred and available, by pathsel's affinity. Rejected devices are in
// neither. Notes say what a user should know and JSON has no place for.
//
// Mooncake's peers name devices by number, and each side numbers them anew, in
// the order in which it put the locations into its table: a host that discovers
// them in the order of discovery, its peer in the byte order of their names, so
// that on hosts with ten GPUs and more a peer writes to another NIC than it was
// told. This document is in byte order, which is also the order in which
// Mooncake reads any such file, so both sides count alike.
// Source: Mooncake 3b5a594 mooncake-transfer-engine/src/topology.cpp.
func Mooncake(w io.Writer, h *pathsel.Host, v Visible) (notes []string, err error) {
	m := matrix{index: h.Index(), port: enginePort(h), left: map[string]bool{}}
	if h.Transport() != pathsel.RDMA {
		return nil, pkgerr.Errorf("export", "no usable RDMA device: Mooncake's matrix holds nothing else")
	}
	keys := map[string]pathsel.Location{}
	for _, l := range h.Locations() {
		if strings.HasPrefix(string(l), "cpu:") {
			keys[string(l)] = l
		}
	}
	for n, g := range v.GPUs {
		prefix, ok := gpuPrefixes[g.GPU.Vendor]
		if g.GPU.Vendor == "" {
			m.note("%s is left out: the input does not tell its vendor, and Mooncake's name for a GPU depends on that", g.Location)
			continue
		}
		if !ok {
			m.note("%s is left out: which name Mooncake has for GPUs of %q is not known", g.Location, g.GPU.Vendor)
			continue
		}
		keys[prefix+":"+strconv.Itoa(n)] = g.Location
	}
	names := make([]string, 0, len(keys))
	for k := range keys {
		names = append(names, k)
	}
	slices.Sort(names) // bytewise, as std::map
	var gpus []pathsel.Location
	for _, name := range names {
		if err := m.add(h, name, keys[name]); err != nil {
			return nil, err
		}
		if strings.HasPrefix(string(keys[name]), "gpu:") {
			gpus = append(gpus, keys[name])
		}
	}
	if why := h.Blind(gpus...); why != nil {
		m.note("%s, so no device is preferred for that; %s", why.Text, h.HowToSee())
	}
	if why := unnamed(h.Topology(), eachOnce(m.ports)); why != "" {
		return nil, pkgerr.Errorf("export", "%s, which Mooncake's matrix is made of: give a capture of the host, or what topoctl discover writes on it", why)
	}
	if !m.some {
		return nil, pkgerr.Errorf("export", "none of the usable RDMA devices can be written")
	}
	if m.port != 1 {
		m.note("MC_IB_PORT must be %d: no usable device has a port 1, which Mooncake takes", m.port)
	}
	out := append([]byte("{\n"), bytes.Join(m.lines, []byte(",\n"))...)
	if _, err := w.Write(append(out, "\n}\n"...)); err != nil {
		return nil, pkgerr.Errorf("export", "write: %w", err)
	}
	return append(slices.Clone(v.Notes), m.notes...), nil
}

// matrix collects the document.
type matrix struct {
	index *topo.Index
	port  int
	lines [][]byte
	ports []pathsel.Port  // of all locations, each as often as it has them
	some  bool            // a device is in it
	left  map[string]bool // devices that a note says are left out
	notes []string
}

func (m *matrix) note(format string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

// add writes the lists of one location.
func (m *matrix) add(h *pathsel.Host, name string, l pathsel.Location) error {
	a, err := h.Affinity(l, nil)
	if err != nil {
		return err
	}
	lists := [2][]string{{}, {}}
	seen := map[string]bool{}
	take := func(list int, ids []topo.ID) {
		for _, id := range ids {
			p, _ := h.Port(id)
			m.ports = append(m.ports, p)
			if m.takes(&p) && !seen[p.Device] {
				seen[p.Device], m.some = true, true
				lists[list] = append(lists[list], p.Device)
			}
		}
	}
	take(0, a.Preferred())
	take(1, a.Available())
	key, err := json.Marshal(name)
	if err != nil {
		return pkgerr.Errorf("export", "%q: %w", name, err)
	}
	value, err := json.Marshal(lists)
	if err != nil {
		return pkgerr.Errorf("export", "%q: %w", name, err)
	}
	m.lines = append(m.lines, append(append(key, ':'), value...))
	return nil
}

// takes says whether Mooncake can use a port: it knows devices only, of each
// the same port, and connects without rdma_cm, which iWARP needs.
func (m *matrix) takes(p *pathsel.Port) bool {
	why := ""
	switch d := m.index.RDMADevice(p.NIC); {
	case d == nil:
		why = "it is no RDMA device"
	case d.Transport == "iwarp":
		why = "iWARP connects through rdma_cm only"
	case p.Number != 0 && p.Number != m.port:
		why = fmt.Sprintf("Mooncake uses port %d of every device", m.port)
	}
	if why != "" && !m.left[p.Name] {
		m.left[p.Name] = true
		m.note("%s is left out: %s", p.Name, why)
	}
	return why == ""
}
