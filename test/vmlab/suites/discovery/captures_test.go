//go:build !vmlab

package discovery

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/test/vmlab"
)

// eachCapture runs a test for each machine of the lab that was captured.
func eachCapture(t *testing.T, test func(t *testing.T, m *vmlab.Machine, host *topo.Topology)) {
	for _, name := range fixtures.Captures() {
		t.Run(name, func(t *testing.T) {
			m, err := vmlab.Layout(strings.TrimPrefix(name, "lab-"))
			if err != nil {
				t.Fatal(err)
			}
			tree, err := fixtures.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			host, err := discover.Discover(t.Context(), discover.Options{FS: tree})
			if err != nil {
				t.Fatal(err)
			}
			test(t, m, host)
		})
	}
}

// What the lab's machines said when they were captured is still read as what was stated.
// Addresses and GUIDs in a capture are stand-ins: they are compared inside the lab only.
func TestCaptures(t *testing.T) {
	eachCapture(t, func(t *testing.T, m *vmlab.Machine, host *topo.Topology) {
		diff(t, "NUMA nodes", numaNodes(host), statedNodes(m))
		diff(t, "host bridges", hostBridges(host), statedBridges(m))
		diff(t, "PCI functions", functions(host), statedFunctions(m))
		diff(t, "switches", switches(host), statedSwitches(m))
		diff(t, "GPUs", gpus(host), statedGPUs(m))
		diff(t, "matrix", matrix(host), statedClasses(m))
		if host.Host.Virtual != "qemu" {
			t.Errorf("an emulated processor is %q", host.Host.Virtual)
		}
		checkRates(t, host)
	})
}

// checkRates: Soft-RoCE carries no more than the interface below it.
func checkRates(t *testing.T, host *topo.Topology) {
	speeds := map[string]topo.Rate{}
	for i := range host.Netdevs {
		if n := &host.Netdevs[i]; n.BytesPerSec != nil {
			speeds[n.Name] = *n.BytesPerSec
		}
	}
	for i := range host.Ports {
		p := &host.Ports[i]
		for _, name := range p.Netdevs {
			if speed, ok := speeds[name]; !ok || p.BytesPerSec == nil || *p.BytesPerSec > speed {
				t.Errorf("%s carries %v bytes per second, %s %d", p.ID, p.BytesPerSec, name, speed)
			}
		}
		if len(p.Netdevs) == 0 {
			t.Errorf("%s has no interface", p.ID)
		}
	}
}

// matrix has the classes of all GPUs and NICs by the addresses of their functions.
func matrix(host *topo.Topology) []string {
	at := map[topo.ID]string{}
	for i := range host.GPUs {
		at[host.GPUs[i].ID] = host.GPUs[i].BDF.String()
	}
	for i := range host.RDMADevices {
		at[host.RDMADevices[i].ID] = host.RDMADevices[i].BDF.String()
	}
	for i := range host.Netdevs {
		if n := &host.Netdevs[i]; n.BDF != nil {
			at[n.ID] = n.BDF.String()
		}
	}
	var out []string
	axis := append(host.MatrixAxis(topo.KindGPU), host.MatrixAxis(topo.KindNIC)...)
	for _, a := range axis {
		for _, b := range axis {
			class := host.Relate(a, b).Class.String()
			if class == "" {
				class = "?"
			}
			out = append(out, fmt.Sprintf("%s %s: %s", at[a], at[b], class))
		}
	}
	slices.Sort(out)
	return out
}
