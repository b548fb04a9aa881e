package pathsel_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// Figures that no link has end nothing: a negative or absurd rate is bounded.
func TestHostileRates(t *testing.T) {
	top := fixturetest.Topology(t, "a10-2nic")
	for _, rate := range []topo.Rate{-1, math.MinInt64, math.MaxInt64, 0} {
		h := prepare(t, top, pathsel.Options{Overlay: topo.Overlay{"port:mlx5_0/1": rate, "pcie:0000:19:00.0": rate, "smp:0/1": rate}})
		c, err := h.Capacity("gpu:0", ids("mlx5_0", "mlx5_1"))
		if err != nil {
			t.Fatal(err)
		}
		if c.BytesPerSec == nil || *c.BytesPerSec < 0 || rate <= 0 && *c.BytesPerSec != 0 {
			t.Errorf("rate %d: %v together", rate, *c.BytesPerSec)
		}
		if _, err := h.Plan(nil); err != nil {
			t.Error(err)
		}
	}
}

// A document whose link has a negative rate is refused.
func TestNegativeRateIsRefused(t *testing.T) {
	doc, err := fixturetest.Topology(t, "a10-2nic").Encode()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(doc), `"id":"port:mlx5_0/1","kind":"port","a":"rdma:mlx5_0","b":"port:mlx5_0/1","bytes_per_sec":12500000000`,
		`"id":"port:mlx5_0/1","kind":"port","a":"rdma:mlx5_0","b":"port:mlx5_0/1","bytes_per_sec":-1`, 1)
	if _, err := topo.Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), "want 0 or more") {
		t.Errorf("%v", err)
	}
}

const oneSocket = "cpu: {vendor: GenuineIntel, family: 6, model: 143, name: x, threads: 2}\nnuma:\n- {node: 0, package: 0, cpus: 0-7, mem: 64GiB}\n"

func usable(h *pathsel.Host) string {
	var names []string
	for _, p := range h.Ports() {
		if p.Usable {
			names = append(names, p.Name)
		}
	}
	return strings.Join(names, " ")
}

// EFA is for data wherever it stands; another NIC away from the GPUs is not.
func TestEFAAwayFromGPUsIsForData(t *testing.T) {
	const spec = "machine: m\ndescription: m\nhost: {kernel: 6.8.0}\n" + oneSocket + `pci:
- root: 0000:90
  numa: 0
  below:
  - port: 90:01.0
    part: nitro-port
    below:
    - switch: 91:00.0
      part: virtual-switch
      below:
      - down: 92:00.0
        below:
        - {nic: 93:00.0, part: efa, rdma: rdmap147s0}
      - down: 92:01.0
        below:
        - {gpu: 94:00.0, part: h100-sxm}
- root: 0000:a0
  numa: 0
  below:
  - port: a0:01.0
    part: nitro-port
    below:
    - switch: a1:00.0
      part: virtual-switch
      below:
      - down: a2:00.0
        below:
        - {nic: a3:00.0, part: %s, rdma: rdmap163s0}
`
	for model, want := range map[string]pathsel.Role{"efa": pathsel.RoleData, "connectx6-dx, layer: eth, gbps: 100": pathsel.RoleStorage} {
		h := prepare(t, fixturetest.Spec(t, fmt.Sprintf(spec, model)), pathsel.Options{})
		for _, p := range h.Ports() {
			if p.Device == "rdmap163s0" && p.Role != want {
				t.Errorf("%s: %s (%s), want %s", model, p.Role, p.RoleReason.Text, want)
			}
		}
	}
}

// A dual-port card with a slow and a fast port: the fast one is for data.
func TestFastPortBesideManagement(t *testing.T) {
	h := prepare(t, fixturetest.Spec(t, "machine: m\ndescription: m\nhost: {kernel: 6.1.0}\n"+oneSocket+`pci:
- root: 0000:15
  numa: 0
  below:
  - port: 15:01.0
    below:
    - {nic: 16:00.0, part: connectx6-dx, layer: eth, gbps: 10, rdma: mlx5_0, net: eth0, ip: 10.0.0.1/24}
    - {nic: 16:00.1, part: connectx6-dx, layer: eth, gbps: 100, rdma: mlx5_1, net: eth1, ip: 10.0.1.1/24}
`), pathsel.Options{})
	if got := usable(h); got != "mlx5_1" {
		t.Errorf("usable: %s", got)
	}
}

// A port beside a GPU that came up slow is a slow data port, no management port.
func TestSlowDataPortStaysData(t *testing.T) {
	h := prepare(t, fixturetest.Spec(t, "machine: m\ndescription: m\nbase: dgx-h100\npatches:\n- {change: 0000:18:00.0, rate: 10 Gb/sec (4X SDR)}\n"), pathsel.Options{})
	if p, _ := h.Port("port:mlx5_0/1"); p.Role != pathsel.RoleData || !p.Usable {
		t.Errorf("%s, %+v", p.Role, p.Reasons)
	}
}

// Virtual functions whose physical function is not visible share one wire.
func TestHiddenPhysicalFunction(t *testing.T) {
	h := prepare(t, fixturetest.Spec(t, "machine: m\ndescription: m\nbase: sriov-pf-vf\npatches:\n- {remove: sys/class/infiniband/mlx5_0}\n- {remove: sys/class/net/ens1f0np0}\n"), pathsel.Options{})
	c, err := h.Capacity("cpu:0", ids("mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5"))
	if err != nil {
		t.Fatal(err)
	}
	if *c.BytesPerSec != 12_500*topo.MBPerSec {
		t.Errorf("four virtual functions of one 100 Gb/s port carry %d", *c.BytesPerSec)
	}
}

// Over TCP a bond is one port, and a leg that is down is none.
func TestBondOverTCP(t *testing.T) {
	text := "machine: m\ndescription: m\nhost: {kernel: 6.1.0}\n" + oneSocket + `pci:
- root: 0000:15
  numa: 0
  below:
  - port: 15:01.0
    below:
    - {nic: 16:00.0, part: connectx6-dx, layer: eth, gbps: 100, net: eth0, state: STATE}
    - {nic: 16:00.1, part: connectx6-dx, layer: eth, gbps: 100, net: eth1}
interfaces:
- {name: bond0, kind: bond, legs: [eth0, eth1], mode: 802.3ad, ip: 10.0.0.1/24}
`
	for state, want := range map[string]string{"active": "eth0", "down": "eth1"} {
		h := prepare(t, fixturetest.Spec(t, strings.Replace(text, "STATE", state, 1)), pathsel.Options{})
		if got := usable(h); got != want {
			t.Errorf("%q: usable %q, want %q", state, got, want)
		}
	}
}

// A fast interface comes before software RDMA on a slow one.
func TestSoftwareRDMABesideFastTCP(t *testing.T) {
	h := prepare(t, fixturetest.Spec(t, "machine: m\ndescription: m\nhost: {kernel: 6.1.0}\n"+oneSocket+`pci:
- root: 0000:15
  numa: 0
  below:
  - port: 15:01.0
    below:
    - {nic: 16:00.0, part: x550, net: eth0, gbps: 10, ip: 10.0.0.1/24}
  - port: 15:02.0
    below:
    - {nic: 17:00.0, part: connectx6-dx, layer: eth, gbps: 100, net: eth1, ip: 10.0.1.1/24}
softrdma:
- {name: rxe0, driver: rxe, on: eth0}
`), pathsel.Options{})
	if h.Transport() != pathsel.TCP || !strings.Contains(usable(h), "eth1") {
		t.Errorf("%s: %s", h.Transport(), usable(h))
	}
}
