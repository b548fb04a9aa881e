// Package lspci reads the text of lspci -vv: with or without -nn, -D and -k, run by root or by a user
// without permission to read capabilities.
//
// Such a text holds PCI functions and the bridges between them, so places and links are known. What
// the kernel or a driver makes of a function is not: RDMA devices and interfaces have the PCI address
// as their name.
// Source: pciutils 3.14: lspci.c, ls-caps.c, ls-ecaps.c, ls-vpd.c, ls-kernel.c and lib/names.c.
package lspci

import (
	"bytes"
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Source is the origin of such a topology, and of its facts.
const Source topo.Source = "import:lspci"

const (
	maxFunctions = 1 << 16
	maxDevices   = 1024 // bounds the relations, which grow with its square
)

// Detect says whether head, the first bytes of a text, holds a line of lspci's that names a function.
func Detect(head []byte) bool {
	if trimmed := bytes.TrimSpace(head); len(trimmed) > 0 && (trimmed[0] == '<' || trimmed[0] == '{') {
		return false
	}
	for line := range bytes.Lines(head) {
		if headLine.Match(bytes.TrimRight(line, "\r\n")) {
			return true
		}
	}
	return false
}

// Decode reads a text; its relations are derived.
func Decode(data []byte) (*topo.Topology, error) {
	functions, err := parse(data)
	if err != nil {
		return nil, err
	}
	b := newBuilder()
	names, err := openNames()
	if err != nil {
		return nil, pkgerr.Errorf("lspci", "%w", err)
	}
	for i := range functions {
		b.function(&functions[i], names)
	}
	b.findParents()
	b.virtualFunctions()
	b.nodes()
	b.host()
	b.devices()
	if n := len(b.t.GPUs) + len(b.t.RDMADevices) + len(b.t.Netdevs) + len(b.t.NUMANodes); n > maxDevices {
		return nil, pkgerr.Errorf("lspci", "%d GPUs, network functions and NUMA nodes: at most %d are read", n, maxDevices)
	}
	b.t.Derive()
	return b.t, nil
}

// lacks is what no text of lspci tells.
var lacks = []string{
	"names of RDMA devices and interfaces: they are called by their PCI address",
	"which interfaces have an RDMA device, other than those of mlx5_core, mlx4_core and InfiniBand",
	"network ports: their states, rates, link layers and addresses",
	"links between GPUs other than PCIe, GPU UUIDs and memory",
	"CPUs and memory of NUMA nodes",
}

// warn adds a warning about a function, or about the text if f is nil.
func (b *builder) warn(code topo.Code, f *function, detail string) {
	w := topo.Warning{Code: code, Detail: detail, Source: Source}
	if f != nil {
		w.Subject, w.Evidence = topo.PCIID(f.bdf), f.evidence()
	}
	b.t.Warnings = append(b.t.Warnings, w)
}

func (f *function) evidence() string { return fmt.Sprintf("line %d", f.line) }
