package export_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/export"
)

func prepare(t testing.TB, top *topo.Topology) *pathsel.Host {
	t.Helper()
	h, err := pathsel.New(top, pathsel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// wide is a host of so many GPUs, each with a NIC behind its own switch, half
// of them on each of two sockets. NIC 0 belongs to the last GPU, so that no
// numbering of devices is right by accident.
func wide(gpus int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "machine: wide\ndescription: %d GPUs\ncpu: {vendor: GenuineIntel, family: 6, model: 143}\n", gpus)
	b.WriteString("numa:\n- {node: 0, package: 0, cpus: 0-7, mem: 64GiB, distance: [10, 21]}\n- {node: 1, package: 1, cpus: 8-15, mem: 64GiB, distance: [21, 10]}\n")
	b.WriteString("nvidia: {driver: 550.90.07, cuda: 12.4}\np2p:\n- {gpus: all, answer: ok}\npci:\n")
	for g := range gpus {
		bus := 0x08 * (g + 1)
		fmt.Fprintf(&b, "- root: 0000:%02x\n  numa: %d\n  below:\n  - port: %02x:01.0\n    below:\n    - switch: %02x:00.0\n      part: broadcom-c030\n      below:\n", bus, 2*g/gpus, bus, bus+1)
		fmt.Fprintf(&b, "      - down: %02x:00.0\n        below: [{gpu: %02x:00.0, part: h100-sxm}]\n", bus+2, bus+3)
		fmt.Fprintf(&b, "      - down: %02x:01.0\n        below: [{nic: %02x:00.0, part: connectx7, layer: ib, rdma: mlx5_%d, net: ib%d, lid: %d}]\n", bus+2, bus+4, gpus-1-g, g, g+1)
	}
	return b.String()
}

// mooncake gives the priority matrix of a host and the notes.
func mooncake(t testing.TB, h *pathsel.Host, v export.Visible) ([]byte, []string) {
	t.Helper()
	var b bytes.Buffer
	notes, err := export.Mooncake(&b, h, v)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), notes
}

// environment gives the settings of an engine.
func environment(t testing.TB, h *pathsel.Host, o export.EnvOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := export.Env(&b, h, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// metrics gives the Prometheus text of a host.
func metrics(t testing.TB, h *pathsel.Host, o export.PrometheusOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := export.Prometheus(&b, h, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
