package discover

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/internal/sysfs"
	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/internal/hosttree/machine"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// smallMachine has two GPUs and an RDMA NIC below a switch, and a bare NIC.
const smallMachine = `machine: small
description: two GPUs and a NIC below one switch
host: {arch: x86_64, kernel: 6.8.0, name: small}
cpu: {vendor: GenuineIntel, family: 6, model: 106, name: Test CPU, threads: 1}
numa:
- {node: 0, package: 0, cpus: 0-7, mem: 64GiB, distance: 10}
nvidia: {driver: 580.95.05, cuda: 13.0}
pci:
- root: 0000:16
  numa: 0
  below:
  - port: 16:02.0
    part: intel-port-gen4
    below:
    - switch: 17:00.0
      part: broadcom-c010
      below:
      - down: 18:00.0
        below:
        - {gpu: 19:00.0, part: a10}
      - down: 18:02.0
        below:
        - {gpu: 1a:00.0, part: a10}
      - down: 18:04.0
        below:
        - {nic: 1b:00.0, part: connectx6-dx, layer: eth, rdma: mlx5_0, net: ens1, mtu: 4200, ip: 10.2.0.5/24}
  - port: 16:03.0
    part: intel-port-gen4
    below:
    - {nic: 1c:00.0, part: i350, net: eno1, ip: 10.1.0.5/24}
routes:
- {to: default, dev: eno1, via: 10.1.0.1}
`

// smallTree is the small machine's files, with the recorded answers that the
// spec makes.
func smallTree(t testing.TB) *hosttree.Mem {
	t.Helper()
	spec, err := machine.Parse([]byte(smallMachine))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := spec.Tree()
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// smallDir is the small machine on disk.
func smallDir(t testing.TB) string {
	t.Helper()
	dir := longtest.TempDir(t)
	if err := os.CopyFS(dir, smallTree(t)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// recorded reads the answers that a tree carries.
func recorded[T any](t testing.TB, tree hosttree.Tree, name string) *T {
	t.Helper()
	data, err := tree.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
	return v
}

// live is a pipeline that takes the small machine for this one: it asks the
// given sources.
func live(t testing.TB, gpus GPUSource, rtnl func(context.Context) (*replies.NetlinkReport, error)) pipeline {
	return pipeline{
		target: target{tree: smallTree(t), live: true}, opts: Options{GPUs: gpus}, limit: time.Minute,
		read: sysfsForeign, listPCI: listPCI, dumpNetlink: rtnl,
	}
}

// sysfsForeign reads a tree as another machine's, so that this machine's
// devices and CPUs do not get into a test.
func sysfsForeign(tree hosttree.Tree, _ bool) *topo.Topology { return sysfs.Read(tree, false) }

// gpuFunc is a GPUSource.
type gpuFunc func(context.Context) (*replies.GPUReport, error)

func (f gpuFunc) GPUs(ctx context.Context) (*replies.GPUReport, error) { return f(ctx) }

func okGPUs(t testing.TB) gpuFunc {
	r := recorded[replies.GPUReport](t, smallTree(t), replies.NVMLPath)
	return func(context.Context) (*replies.GPUReport, error) { return r, nil }
}

func okNetlink(t testing.TB) func(context.Context) (*replies.NetlinkReport, error) {
	r := recorded[replies.NetlinkReport](t, smallTree(t), replies.NetlinkPath)
	return func(context.Context) (*replies.NetlinkReport, error) { return r, nil }
}

func reportOf(t testing.TB, tp *topo.Topology, s topo.Source) topo.SourceReport {
	t.Helper()
	for _, r := range tp.Sources {
		if r.Source == s {
			return r
		}
	}
	t.Fatalf("no report of source %s in %v", s, tp.Sources)
	return topo.SourceReport{}
}

// warningsOf are the warnings of a code.
func warningsOf(tp *topo.Topology, code topo.Code) []topo.Warning {
	var out []topo.Warning
	for _, w := range tp.Warnings {
		if w.Code == code {
			out = append(out, w)
		}
	}
	return out
}

func hasWarning(tp *topo.Topology, code topo.Code, detail string) bool {
	for _, w := range warningsOf(tp, code) {
		if strings.Contains(w.Detail, detail) {
			return true
		}
	}
	return false
}

// noLeaks fails a test that leaves goroutines behind.
func noLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if runtime.NumGoroutine() <= before {
				return
			}
		}
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
	})
}

// quiet fails a test during which something is written to standard error.
func quiet(t *testing.T, work func()) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stderr
	os.Stderr = w
	work()
	os.Stderr = old
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	buf := make([]byte, 4096)
	if n, _ := r.Read(buf); n > 0 {
		t.Errorf("written to standard error: %s", buf[:n])
	}
}
