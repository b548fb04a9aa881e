package pathsel_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// namespace is what `topoctl discover` reads in a network namespace of a machine
// that has a veth in each of several networks (taken from one with ip link add
// r0 type veth, sysfs mounted in the namespace): the driver claims 10 Gb/s of
// each, the machine's NUMA node is there, its own NIC is not.
func namespace(t testing.TB, name string, last int, interfaces ...string) *topo.Topology {
	t.Helper()
	var b strings.Builder
	b.WriteString("machine: " + name + `
description: a network namespace
host: {arch: x86_64, kernel: 6.18.0, vendor: QEMU, product: none}
cpu: {vendor: GenuineIntel, family: 6, model: 143, name: Intel Xeon, threads: 1}
numa:
- {node: 0, package: 0, cpus: 0-1, mem: 24GiB}
interfaces:
`)
	for i, n := range interfaces {
		fmt.Fprintf(&b, "- {name: %s, kind: veth, ip: 10.77.%d.%d/30}\n", n, i, last)
	}
	top := fixturetest.Spec(t, b.String())
	for i := range top.Netdevs {
		rate := 1250 * topo.MBPerSec
		top.Netdevs[i].BytesPerSec = &rate
	}
	return top
}

// Two namespaces of one machine: the veth pairs are the lanes, whatever the
// interfaces are called, and nothing is made up about their rates.
func TestLanesBetweenNamespaces(t *testing.T) {
	for _, tt := range []struct {
		name, there string
		want        string
	}{
		{"names of their own", "q0 q1", "r0>q0 r1>q1"},
		{"the same names", "r0 r1", "r0>r0 r1>r1"},
		{"the same names crossed over", "r1 r0", "r0>r1 r1>r0"},
		{"one pair more on the other side", "q0 q1 q2", "r0>q0 r1>q1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			here := prepare(t, namespace(t, "lab", 1, "r0", "r1"), pathsel.Options{})
			there := prepare(t, namespace(t, "lab", 2, strings.Fields(tt.there)...), pathsel.Options{})
			set := laneSet(t, here, there, "cpu:0", "cpu:0", pathsel.PairOptions{})
			if set == nil || chosen(set) != tt.want || len(set.Lanes) != 2 {
				t.Fatalf("want %s\n%s", tt.want, set.Text())
			}
			for _, l := range set.Lanes {
				if l.Reach != pathsel.ReachYes || l.ReachReason.Code != "same-subnet" || l.BytesPerSec != nil {
					t.Errorf("%+v", l)
				}
				if x, y := l.Contact.LocalAddress, l.Contact.RemoteAddress; x.Next() != y {
					t.Errorf("from %s to %s", x, y)
				}
			}
		})
	}
}

// A link that came up a moment ago: the carrier is there, the state follows. One
// without carrier is down.
func TestVethThatComesUp(t *testing.T) {
	lab := func(carrier *bool) *pathsel.Host {
		top := namespace(t, "lab", 1, "r0")
		n := netdev(t, top, "r0")
		n.State, n.Carrier = "down", carrier
		return prepare(t, top, pathsel.Options{})
	}
	yes, no := true, false
	for _, tt := range []struct {
		carrier *bool
		want    string
	}{{&yes, "r0"}, {&no, ""}, {nil, ""}} {
		if got := usable(lab(tt.carrier)); got != tt.want {
			t.Errorf("carrier %v: %q, want %q", tt.carrier, got, tt.want)
		}
	}
}

// A namespace that has the machine's NIC beside the veths: the NIC is there for
// data, and veths are used where the user says so.
func TestVethBesideHardware(t *testing.T) {
	const nic = "pci:\n- root: 0000:15\n  numa: 0\n  below:\n  - port: 15:01.0\n    below:\n    - {nic: 16:00.0, part: connectx6-dx, layer: eth, gbps: 100, net: eth0, ip: 192.168.1.7/24}\n"
	top := fixturetest.Spec(t, "machine: m\ndescription: m\nhost: {kernel: 6.1.0}\n"+oneSocket+nic+"interfaces:\n- {name: r0, kind: veth, ip: 10.77.0.2/30}\n- {name: r1, kind: veth, ip: 10.77.1.2/30}\n")
	lab := prepare(t, namespace(t, "lab", 1, "r0", "r1"), pathsel.Options{})
	if set := laneSet(t, lab, prepare(t, top, pathsel.Options{Transport: pathsel.TCP}), "cpu:0", "cpu:0", pathsel.PairOptions{}); set != nil {
		t.Errorf("lanes to hardware in another network:\n%s", set.Text())
	}
	roles := map[topo.ID]pathsel.Role{"net:r0": pathsel.RoleData, "net:r1": pathsel.RoleData}
	set := laneSet(t, lab, prepare(t, top, pathsel.Options{Transport: pathsel.TCP, Roles: roles}), "cpu:0", "cpu:0", pathsel.PairOptions{})
	if set == nil || chosen(set) != "r0>r0 r1>r1" {
		t.Errorf("%s", set.Text())
	}
}
