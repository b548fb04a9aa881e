package audit_test

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/audit"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/internal/audit/owners"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

const mib = 1 << 20

// newAudit is an audit of a host against its own plan.
func newAudit(t testing.TB, of *topo.Topology, transport pathsel.Transport) *audit.Audit {
	t.Helper()
	h, err := pathsel.New(of, pathsel.Options{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := h.Plan(nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := audit.New(audit.Options{Host: h, Plan: plan, PlanFrom: "topoctl path --plan"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// port is a reading of a port that counts bytes and packets.
func port(id string, sent, received uint64) counters.Port {
	packets := [2]uint64{sent / 1000, received / 1000}
	return counters.Port{ID: topo.ID(id), State: "ACTIVE", SentBytes: &sent, ReceivedBytes: &received, SentPackets: &packets[0], ReceivedPackets: &packets[1]}
}

// packets is a reading of a port that counts packets alone.
func packets(id string, n uint64) counters.Port {
	return counters.Port{ID: topo.ID(id), State: "ACTIVE", SentPackets: &n, ReceivedPackets: new(uint64)}
}

func sample(second int, ports ...counters.Port) *counters.Sample {
	return &counters.Sample{AtNS: int64(second) * int64(time.Second), Ports: ports}
}

// dgx are the ports of a DGX H100's plan.
var dgx = []string{"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"}

// evenly is a reading in which each of the ports has carried so much, but for those in other.
func evenly(second int, each uint64, other map[string]uint64) *counters.Sample {
	all := zero("mlx5_1", "mlx5_2", "mlx5_7", "mlx5_8") // of the storage network
	for _, name := range dgx {
		all[name] = each
	}
	maps.Copy(all, other)
	s := sample(second)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		id := "port:" + name + "/1"
		if !strings.HasPrefix(name, "mlx5") {
			id = "net:" + name
		}
		s.Ports = append(s.Ports, port(id, all[name], all[name]/2))
	}
	return s
}

// verdicts are those of a report's ports and interfaces but for what carried nothing beside the plan.
func verdicts(r *audit.Report) map[string]audit.Verdict {
	out := map[string]audit.Verdict{}
	for _, p := range r.Ports {
		if p.Verdict != audit.NotPlanned {
			out[p.Name] = p.Verdict
		}
	}
	for _, n := range r.Interfaces {
		if n.Verdict != audit.NotPlanned {
			out[n.Name] = n.Verdict
		}
	}
	return out
}

// all is one verdict for each port of a DGX's plan, but for those in other.
func all(v audit.Verdict, other map[string]audit.Verdict) map[string]audit.Verdict {
	out := map[string]audit.Verdict{}
	for _, name := range dgx {
		out[name] = v
	}
	maps.Copy(out, other)
	return out
}

func zero(names ...string) map[string]uint64 {
	out := map[string]uint64{}
	for _, n := range names {
		out[n] = 0
	}
	return out
}

func TestVerdicts(t *testing.T) {
	gone := func(s *counters.Sample, name string) *counters.Sample {
		s.Ports = slices.DeleteFunc(s.Ports, func(p counters.Port) bool { return p.ID.Name() == name+"/1" })
		return s
	}
	unread := all(audit.CouldNotCheck, map[string]audit.Verdict{
		"mlx5_1": audit.CouldNotCheck, "mlx5_2": audit.CouldNotCheck, "mlx5_7": audit.CouldNotCheck, "mlx5_8": audit.CouldNotCheck,
	})
	for _, tt := range []struct {
		name    string
		samples []*counters.Sample
		answer  audit.Answer
		text    string
		want    map[string]audit.Verdict
	}{
		{"as planned", []*counters.Sample{evenly(0, 0, nil), evenly(10, 100*mib, nil)},
			audit.AsPlanned, "As planned: 8 ports carried 1.2 GiB, each its part", all(audit.OK, nil)},
		{"the readings begin anywhere", []*counters.Sample{evenly(0, 1<<60, nil), evenly(10, 1<<60+100*mib, nil)},
			audit.AsPlanned, "As planned", all(audit.OK, nil)},
		{"one port has all", []*counters.Sample{evenly(0, 0, nil), evenly(10, 0, map[string]uint64{"mlx5_0": 800 * mib})},
			audit.Missed, "Plan missed: mlx5_0 carried 100.0 % of 1.2 GiB (planned: 12.5 %), mlx5_3, mlx5_4, mlx5_5, mlx5_6 and 3 more were idle",
			all(audit.Idle, map[string]audit.Verdict{"mlx5_0": audit.Above})},
		{"one is slow", []*counters.Sample{evenly(0, 0, nil), evenly(10, 100*mib, map[string]uint64{"mlx5_9": 40 * mib})},
			audit.Missed, "Plan missed: mlx5_9 carried less than planned", all(audit.OK, map[string]audit.Verdict{"mlx5_9": audit.Below})},
		{"a storage port", []*counters.Sample{evenly(0, 0, map[string]uint64{"mlx5_1": 0}), evenly(10, 100*mib, map[string]uint64{"mlx5_1": 100 * mib})},
			audit.Missed, "Plan missed: mlx5_1 carried 11.1 % of 1.3 GiB (planned: 0.0 %)", all(audit.OK, map[string]audit.Verdict{"mlx5_1": audit.Above})},
		{"a storage port that is quiet", []*counters.Sample{evenly(0, 0, map[string]uint64{"mlx5_1": 0}), evenly(10, 100*mib, map[string]uint64{"mlx5_1": 10 * mib})},
			audit.AsPlanned, "As planned", all(audit.OK, nil)},
		{"nothing moved", []*counters.Sample{evenly(0, 0, nil), evenly(10, 100_000, nil)},
			audit.NothingSeen, "Nothing moved in 10s: the plan could not be checked", all(audit.CouldNotCheck, nil)},
		{"TCP instead", []*counters.Sample{evenly(0, 0, zero("eno1")), evenly(10, 1000, map[string]uint64{"eno1": 300 * mib})},
			audit.Fallback, "TCP fallback: eno1 carried 450 MiB, the RDMA ports nothing", all(audit.Idle, map[string]audit.Verdict{"eno1": audit.TCPFallback})},
		{"TCP beside it", []*counters.Sample{evenly(0, 0, zero("eno1")), evenly(10, 100*mib, map[string]uint64{"eno1": 300 * mib})},
			audit.AsPlanned, "As planned", all(audit.OK, nil)},
		{"one counter began anew", []*counters.Sample{evenly(0, 1<<40, nil), evenly(5, 1<<40+50*mib, nil), evenly(10, 1<<40+100*mib, map[string]uint64{"mlx5_4": 7})},
			audit.Unchecked, "Could not check 1 of 8 planned ports: mlx5_4: its counters were reset 10s into the run", all(audit.OK, map[string]audit.Verdict{"mlx5_4": audit.CouldNotCheck})},
		{"one port vanished", []*counters.Sample{evenly(0, 0, nil), evenly(5, 50*mib, nil), gone(evenly(10, 100*mib, nil), "mlx5_4")},
			audit.Unchecked, "Could not check 1 of 8 planned ports: mlx5_4: it vanished: its counters were last read 5s into the run", all(audit.OK, map[string]audit.Verdict{"mlx5_4": audit.CouldNotCheck})},
		{"one port appeared", []*counters.Sample{gone(evenly(0, 0, nil), "mlx5_4"), evenly(5, 50*mib, nil), evenly(10, 100*mib, nil)},
			audit.Unchecked, "Could not check 1 of 8 planned ports: mlx5_4: it appeared during the run", all(audit.OK, map[string]audit.Verdict{"mlx5_4": audit.CouldNotCheck})},
		{"one port has no counters", []*counters.Sample{gone(evenly(0, 0, nil), "mlx5_4"), gone(evenly(10, 100*mib, nil), "mlx5_4")},
			audit.Unchecked, "Could not check 1 of 8 planned ports: mlx5_4: its counters could not be read", all(audit.OK, map[string]audit.Verdict{"mlx5_4": audit.CouldNotCheck})},
		{"one reading", []*counters.Sample{evenly(0, 0, nil)},
			audit.Unchecked, "Could not check: the counters were not read twice", unread},
		{"no reading", nil, audit.Unchecked, "Could not check: the counters were not read twice", unread},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAudit(t, fixturetest.Topology(t, "dgx-h100"), pathsel.Auto)
			for _, s := range tt.samples {
				a.Sample(s)
			}
			r := a.Report()
			if r.Answer != tt.answer || !strings.HasPrefix(r.Text, tt.text) {
				t.Errorf("%s: %q, want %s: %q", r.Answer, r.Text, tt.answer, tt.text)
			}
			if diff := cmp.Diff(tt.want, verdicts(r)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What went wrong is told from what processes hold, what they are told, and what they log.
func TestReasons(t *testing.T) {
	a := newAudit(t, fixturetest.Topology(t, "dgx-h100"), pathsel.Auto)
	a.Sample(evenly(0, 0, nil))
	a.Owners(&owners.Snapshot{
		QueuePairs: []owners.QueuePair{{Device: "mlx5_0", Port: 1, PID: 4312}, {Device: "mlx5_0", Port: 1, PID: 4312}},
		Processes: map[int]*owners.Process{
			4312: {PID: 4312, Name: "python3", Variables: map[string]string{"UCX_NET_DEVICES": "mlx5_0:1,mlx5_3:1"}, Readable: true},
			77:   {PID: 77, Name: "other", Variables: map[string]string{"NCCL_IB_HCA": "^mlx5_3"}, Readable: true},
		},
	})
	log := audit.Parse([]byte("dgx-h100:4312:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB eno1:10.0.0.1<0>\ndgx-h100:4312:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n"))
	if err := a.Log("log", log); err != nil {
		t.Fatal(err)
	}
	a.Sample(evenly(10, 0, map[string]uint64{"mlx5_0": 800 * mib}))
	r := a.Report()
	reasons := map[string]string{}
	for _, p := range r.Ports {
		reasons[p.Name] = strings.Join(p.Reasons, "; ")
	}
	for name, want := range map[string]string{
		"mlx5_0": "it carries what 7 idle or slow ports should",
		"mlx5_3": `the port of gpu:1; NCCL_IB_HCA of other (PID 77) is "^mlx5_3"; no process of this PID namespace has a queue pair on it; the log names no channel on it`,
		"mlx5_4": `the port of gpu:2; UCX_NET_DEVICES of python3 (PID 4312) is "mlx5_0:1,mlx5_3:1"; no process of this PID namespace has a queue pair on it; the log names no channel on it`,
	} {
		if reasons[name] != want {
			t.Errorf("%s: %s\nwant: %s", name, reasons[name], want)
		}
	}
	if p := r.Ports[0]; p.Name != "mlx5_0" || len(p.Users) != 1 || p.Users[0] != (audit.User{PID: 4312, Name: "python3", QueuePairs: 2}) || *p.Channels != 1 {
		t.Errorf("%+v", p)
	}
}

// lab is a host of Soft-RoCE ports, which count packets alone, over interfaces that count these too.
func lab(t *testing.T) *topo.Topology {
	t.Helper()
	return fixturetest.Topology(t, "lab-softrdma")
}

func TestPackets(t *testing.T) {
	of := lab(t)
	h, err := pathsel.New(of, pathsel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := h.Plan(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Ports) < 2 || h.Transport() != pathsel.RDMA {
		t.Fatalf("%s: %d ports", h.Transport(), len(plan.Ports))
	}
	run := func(rdma, onWire func(i int) uint64) *audit.Report {
		a := newAudit(t, of, pathsel.Auto)
		for second := range 2 {
			s := sample(10 * second)
			for i := range plan.Ports {
				p, _ := h.Port(plan.Ports[i].Port)
				s.Ports = append(s.Ports, packets(string(p.ID), rdma(i)*uint64(second)), port("net:"+p.Netdev, 1000*onWire(i)*uint64(second), 0))
			}
			a.Sample(s)
		}
		return a.Report()
	}
	equal := func(int) uint64 { return 50_000 }
	r := run(equal, equal)
	if r.Answer != audit.AsPlanned || r.Unit != audit.Packets || len(r.Notes) == 0 || !strings.Contains(r.Notes[0], "counts packets and no bytes") {
		t.Errorf("%s, %s, %q", r.Text, r.Unit, r.Notes)
	}
	first := func(i int) uint64 { return map[bool]uint64{true: 50_000}[i == 0] }
	if r := run(first, first); r.Answer != audit.Missed || r.Ports[0].Verdict != audit.Above || r.Ports[1].Verdict != audit.Idle {
		t.Error(r.Text)
	}
	nothing := func(int) uint64 { return 0 }
	if r := run(nothing, first); r.Answer != audit.Fallback || !strings.Contains(r.Text, "50000 packets") {
		t.Error(r.Text)
	}
}

// bonded has a bond of two interfaces, and one interface beside it.
const bonded = `machine: bonded
description: TCP over a bond
host: {virtual: none}
cpu: {vendor: GenuineIntel, family: 6, model: 143, name: Intel(R) Xeon(R), threads: 2}
numa:
- {node: 0, package: 0, cpus: 0-7, mem: 64GiB}
pci:
- root: 0000:10
  numa: 0
  below:
  - port: 10:01.0
    below:
    - {nic: 11:00.0, part: e810, net: eth0, gbps: 100}
    - {nic: 11:00.1, part: e810, net: eth1, gbps: 100}
  - port: 10:02.0
    below:
    - {nic: 12:00.0, part: e810, net: eth2, gbps: 100, ip: 10.2.0.1/24}
interfaces:
- {name: bond0, kind: bond, legs: [eth0, eth1], mode: 802.3ad, hash: layer3+4, ip: 10.1.0.1/24}
`

// Over TCP a bond is one port: what its legs carry is its own, whichever the kernel chose, and is counted once.
func TestBond(t *testing.T) {
	of := fixturetest.Spec(t, bonded)
	reading := func(second int, eth0, eth1, eth2 uint64) *counters.Sample {
		return sample(second, port("net:bond0", eth0+eth1, (eth0+eth1)/2), port("net:eth0", eth0, eth0/2), port("net:eth1", eth1, eth1/2), port("net:eth2", eth2, eth2/2))
	}
	for _, c := range []struct {
		name             string
		eth0, eth1, eth2 uint64
		text             string
		bond, beside     audit.Verdict
		legs             string
	}{
		{"both legs", 100 * mib, 100 * mib, 200 * mib, "As planned: 2 ports carried 600 MiB, each its part", audit.OK, audit.OK, "it is a bond of eth0 and eth1, which carried 50.0 % and 50.0 %"},
		{"the other leg", 0, 200 * mib, 200 * mib, "As planned: 2 ports carried 600 MiB, each its part", audit.OK, audit.OK, "it is a bond of eth0 and eth1, which carried 0.0 % and 100.0 %"},
		{"the bond alone", 0, 200 * mib, 0, "Plan missed: bond0 carried 100.0 % of 300 MiB (planned: 50.0 %), eth2 was idle", audit.Above, audit.Idle, "it is a bond of eth0 and eth1, which carried 0.0 % and 100.0 %"},
		{"beside it", 0, 0, 200 * mib, "Plan missed: eth2 carried 100.0 % of 300 MiB (planned: 50.0 %), bond0 was idle", audit.Idle, audit.Above, "it is a bond of eth0 and eth1"},
	} {
		a := newAudit(t, of, pathsel.TCP)
		a.Sample(reading(0, 7, 9, 11))
		a.Sample(reading(10, 7+c.eth0, 9+c.eth1, 11+c.eth2))
		r := a.Report()
		if got, want := verdicts(r), map[string]audit.Verdict{"bond0": c.bond, "eth2": c.beside}; !cmp.Equal(got, want) || r.Text != c.text || len(r.Ports) != 2 {
			t.Errorf("%s: %q %v %d ports, want %q %v", c.name, r.Text, got, len(r.Ports), c.text, want)
		}
		i := slices.IndexFunc(r.Ports, func(p audit.Port) bool { return p.Name == "bond0" })
		if i < 0 || !slices.Contains(r.Ports[i].Reasons, c.legs) {
			t.Errorf("%s: %+v, want %q", c.name, r.Ports, c.legs)
		}
	}
}

// A bond of InfiniBand interfaces sends by one leg: what IP moved is taken off the port that it went by, and no other.
func TestBondOfInfiniBand(t *testing.T) {
	of := fixturetest.Topology(t, "dgx-h100")
	of.Netdevs = append(of.Netdevs, topo.Netdev{Node: topo.Node{ID: "net:bond0"}, Name: "bond0", LinkKind: "bond", Lower: []string{"ib0", "ib1"}, Addresses: []string{"10.9.0.1/24"}})
	for i, name := range []string{"ib0", "ib1"} {
		of.Netdevs = append(of.Netdevs, topo.Netdev{Node: topo.Node{ID: topo.NetdevID(name)}, Name: name, Type: "infiniband", Master: "bond0"})
		for k := range of.Ports {
			if of.Ports[k].ID == topo.ID("port:"+dgx[i]+"/1") {
				of.Ports[k].Netdevs = []string{name}
			}
		}
	}
	a := newAudit(t, of, pathsel.RDMA)
	a.Sample(evenly(0, 0, zero("bond0", "ib0", "ib1")))
	a.Sample(evenly(10, 300*mib, map[string]uint64{dgx[0]: 400 * mib, "bond0": 100 * mib, "ib0": 100 * mib, "ib1": 0}))
	if r := a.Report(); r.Answer != audit.AsPlanned || *r.Carried != 8*450*mib {
		t.Errorf("%s, %d bytes: %v", r.Text, *r.Carried, verdicts(r))
	}
}

// Over InfiniBand what IP moves is in the port's counters too, and is no RDMA.
func TestIPOverInfiniBand(t *testing.T) {
	of := fixturetest.Topology(t, "dgx-h100")
	of.Netdevs = append(of.Netdevs, topo.Netdev{Node: topo.Node{ID: "net:ib0"}, Name: "ib0", Type: "infiniband", Addresses: []string{"10.9.0.1/24"}})
	for i := range of.Ports {
		if of.Ports[i].ID == "port:mlx5_0/1" {
			of.Ports[i].Netdevs = []string{"ib0"}
		}
	}
	of.Derive()
	a := newAudit(t, of, pathsel.Auto)
	a.Sample(evenly(0, 0, zero("ib0")))
	a.Owners(&owners.Snapshot{Connections: []owners.Connection{{Cookie: 1, PID: 5, Local: netip.MustParseAddr("10.9.0.1"), SentBytes: 100}}})
	a.Owners(&owners.Snapshot{Connections: []owners.Connection{{Cookie: 1, PID: 5, Local: netip.MustParseAddr("10.9.0.1"), SentBytes: 300*mib + 100}},
		Processes: map[int]*owners.Process{5: {PID: 5, Name: "iperf3"}}})
	a.Sample(evenly(10, 0, map[string]uint64{"mlx5_0": 301 * mib, "ib0": 300 * mib}))
	r := a.Report()
	if r.Answer != audit.Fallback || !strings.HasPrefix(r.Text, "TCP fallback: ib0 carried 450 MiB") {
		t.Error(r.Text)
	}
	for _, n := range r.Interfaces {
		if n.Name == "ib0" && !slices.Equal(n.Users, []audit.User{{PID: 5, Name: "iperf3", TCPBytes: 300 * mib}}) {
			t.Errorf("%+v", n)
		}
	}
}

// A log without counters: channels are what is shared.
func TestLogAlone(t *testing.T) {
	var b strings.Builder
	b.WriteString("dgx-h100:1:1 [0] NCCL INFO NET/IB : Using ")
	for i, name := range dgx {
		b.WriteString("[" + string(rune('0'+i)) + "]" + name + ":1/IB ")
	}
	b.WriteString("; OOB eno1:10.0.0.1<0>\n")
	channel := func(n int) string {
		return "dgx-h100:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/" + string(rune('0'+n)) + "/GDRDMA\n"
	}
	even, half := b.String(), b.String()
	for i := range dgx {
		even += channel(i) + channel(i)
		half += channel(i%4) + channel(i%4)
	}
	socket := "dgx-h100:1:1 [0] NCCL INFO NET/Socket : Using [0]eno1:10.0.0.1<0>\ndgx-h100:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n"
	for text, want := range map[string]audit.Answer{even: audit.AsPlanned, half: audit.Missed, socket: audit.Fallback} {
		a := newAudit(t, fixturetest.Topology(t, "dgx-h100"), pathsel.Auto)
		if err := a.Log("x.log", audit.Parse([]byte(text))); err != nil {
			t.Fatal(err)
		}
		if r := a.Report(); r.Answer != want || r.Unit != audit.Channels {
			t.Errorf("%s: %s, want %s", r.Answer, r.Text, want)
		}
	}
}

func TestLogOfOtherHosts(t *testing.T) {
	line := func(host string) string {
		return host + ":1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/X/0\n"
	}
	for text, want := range map[string]string{
		line("a") + line("b"):                        "it is of a and b, and none is dgx-h100",
		"nothing\n":                                  "no line says which network device NCCL or UCX uses",
		line("dgx-h100") + line("other"):             "",
		line("container-1"):                          "",
		line("dgx-h100.example.com") + line("other"): "",
	} {
		a := newAudit(t, fixturetest.Topology(t, "dgx-h100"), pathsel.Auto)
		err := a.Log("x.log", audit.Parse([]byte(text)))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if r := a.Report(); want == "" && len(r.Log) != 1 {
			t.Errorf("%q: %+v", text, r.Log)
		}
	}
}

// What the log says of GPUDirect RDMA is in the first line, and a job without it is never as planned.
func TestGPUDirect(t *testing.T) {
	list := "[0]mlx5_0:1/IB [1]mlx5_3:1/IB [2]mlx5_4:1/IB [3]mlx5_5:1/IB [4]mlx5_6:1/IB [5]mlx5_9:1/IB [6]mlx5_10:1/IB [7]mlx5_11:1/IB"
	log := func(suffix string, lines ...string) string {
		var b strings.Builder
		say := func(s string) { b.WriteString("dgx-h100:1:1 [0] NCCL INFO " + s + "\n") }
		say("NET/IB : Using " + list + " ; OOB eno1:10.0.0.1<0>")
		for i := range 8 {
			if suffix != "none" {
				say("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/" + string(rune('0'+i)) + suffix)
			}
		}
		for _, l := range lines {
			say(l)
		}
		return b.String()
	}
	const off = "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)"
	shares := "; 8 ports carried 8 channels, each its part"
	for _, c := range []struct {
		name, log string
		answer    audit.Answer
		text      string
	}{
		{"with it", log("/GDRDMA"), audit.AsPlanned, "As planned: 8 ports carried 8 channels, each its part"},
		{"one far pair, none used", log("/GDRDMA", "GPU Direct RDMA Disabled for GPU 3 / HCA 7 (distance 5 > 4)"), audit.AsPlanned, "As planned: 8 ports carried 8 channels, each its part"},
		{"no module", log("", off), audit.NoGPUDirect, "8 of 8 channels go without GPUDirect RDMA (the log: Disabled for HCA 0 'mlx5_0' (no module))" + shares},
		{"too far", log("", "GPU Direct RDMA Disabled for GPU 3 / HCA 1 (distance 5 > 4)"), audit.NoGPUDirect,
			"8 of 8 channels go without GPUDirect RDMA (the log: Disabled for GPU 3 / HCA 1 (distance 5 > 4))" + shares},
		{"the communicator", log("", "Connected all rings, use ring PXN 0 GDR 0"), audit.NoGPUDirect, "8 of 8 channels go without GPUDirect RDMA (the log: GDR 0)" + shares},
		{"no reason", log(""), audit.NoGPUDirect, "8 of 8 channels go without GPUDirect RDMA (no line of the log says why)" + shares},
		{"one of both", log("", "Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA"), audit.Missed,
			"Plan missed: mlx5_0 carried 22.2 % of 9 channels (planned: 12.5 %); 8 of 9 channels go without GPUDirect RDMA (no line of the log says why)"},
		{"no channel", log("none", off), audit.NoGPUDirect, "GPUDirect RDMA is disabled for HCA 0 'mlx5_0' (no module); could not check: the log has no channel that leaves the host"},
		{"nothing but devices", log("none"), audit.Unchecked, "Could not check: the log has no channel that leaves the host"},
		{"a plugin without names", strings.ReplaceAll(log("/GDRDMA"), "NET/IB/", "NET/AWS Libfabric/"), audit.Unchecked,
			"Could not check: the log does not say by which device 8 of 8 channels go (AWS Libfabric/0, AWS Libfabric/1, AWS Libfabric/2, AWS Libfabric/3 and 4 more)"},
		{"one without a name", log("/GDRDMA", "Channel 01/0 : 0[0] -> 8[0] [send] via NET/FasTrak/0"), audit.NoGPUDirect,
			"1 of 9 channels go without GPUDirect RDMA (no line of the log says why); could not check: the log does not say by which device 1 of 9 channels go (FasTrak/0)"},
		{"devices of another host", log("/GDRDMA", "NET/IB : Made virtual device [8] name=mlx5_77+mlx5_78 speed=1 ndevs=2", "Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/8/GDRDMA"), audit.Unchecked,
			"Could not check 2 of 10 channels: 2 devices of the log are not among this host's ports for rdma (mlx5_77 and mlx5_78)"},
		{"data direct", strings.NewReplacer("mlx5_3:1", "mlx5_3_dma:1", "mlx5_4:1", "mlx5_4_dma:1").Replace(log("/GDRDMA")), audit.AsPlanned, "As planned: 8 ports carried 8 channels, each its part"},
		{"UCX", ucxOf(dgx), audit.AsPlanned, "As planned: 8 ports carried 8 channels, each its part; could not check GPUDirect RDMA: the log does not say"},
	} {
		a := newAudit(t, fixturetest.Topology(t, "dgx-h100"), pathsel.Auto)
		if err := a.Log("x.log", audit.Parse([]byte(c.log))); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if r := a.Report(); r.Answer != c.answer || r.Text != c.text {
			t.Errorf("%s: %s\n%s\nwant %s\n%s", c.name, r.Answer, r.Text, c.answer, c.text)
		}
	}
}

// ucxOf is a log of UCX with a lane on each device.
func ucxOf(devices []string) string {
	var b strings.Builder
	for _, name := range devices {
		b.WriteString("[1556608533.470652] [dgx-h100:9:0] wireup.c:825  UCX  INFO  ep_cfg[2]: tag(rc_mlx5/" + name + ":1);\n")
	}
	return b.String()
}

// A host whose ports have no known number, as that of a matrix of classes, is matched by the names of its devices.
func TestPortsWithoutNumbers(t *testing.T) {
	of := fixturetest.Topology(t, "dgx-h100")
	for i := range of.Ports {
		of.Ports[i].Number = 0
	}
	of.Derive()
	a := newAudit(t, of, pathsel.Auto)
	if err := a.Log("x.log", audit.Parse([]byte(ucxOf(dgx)))); err != nil {
		t.Fatal(err)
	}
	a.Owners(&owners.Snapshot{QueuePairs: []owners.QueuePair{{Device: "mlx5_0", Port: 1, PID: 1}}})
	r := a.Report()
	if r.Answer != audit.AsPlanned || len(r.Ports[0].Users) != 1 {
		t.Errorf("%s: %+v", r.Text, r.Ports[0])
	}
}

// Over TCP the interfaces of a plan are compared, whatever RDMA devices stand beside them.
func TestTCP(t *testing.T) {
	of := fixturetest.Topology(t, "dgx-h100")
	a := newAudit(t, of, pathsel.TCP)
	r := a.Report()
	id := r.Ports[0].ID
	a.Sample(sample(0, port(string(id), 0, 0)))
	a.Sample(sample(10, port(string(id), 500*mib, 0)))
	if r := a.Report(); r.Transport != pathsel.TCP || len(r.Interfaces) != 0 || r.Answer == audit.Fallback {
		t.Errorf("%+v", r)
	}
}

// The plan of another host is refused.
func TestPlanOfAnotherHost(t *testing.T) {
	h, err := pathsel.New(fixturetest.Topology(t, "dgx-h100"), pathsel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plan := &pathsel.Plan{Assignments: []pathsel.Assignment{{Consumer: "gpu:0", Ports: []pathsel.Candidate{{Port: "port:mlx4_0/1"}}}}}
	if _, err := audit.New(audit.Options{Host: h, Plan: plan}); err == nil || !strings.Contains(err.Error(), "another host") {
		t.Error(err)
	}
	if _, err := audit.New(audit.Options{Host: h, Plan: &pathsel.Plan{}}); err == nil {
		t.Error("a plan without ports is taken")
	}
}

// Whatever the readings are: shares add up to at most one, ports of the plan have a verdict, OK for all
// means that each is near its share, and readings between the first and the last change nothing.
func TestProperties(t *testing.T) {
	of := fixturetest.Topology(t, "dgx-h100")
	rapid.Check(t, func(t *rapid.T) {
		const readings = 5
		var totals [readings][]uint64
		for range dgx {
			at := rapid.Uint64Range(0, 1<<50).Draw(t, "start")
			for k := range readings {
				at += rapid.Uint64Range(0, 50*mib).Draw(t, "step")
				totals[k] = append(totals[k], at)
			}
		}
		run := func(which ...int) *audit.Report {
			h, err := pathsel.New(of, pathsel.Options{})
			if err != nil {
				t.Fatal(err)
			}
			plan, err := h.Plan(nil)
			if err != nil {
				t.Fatal(err)
			}
			a, err := audit.New(audit.Options{Host: h, Plan: plan})
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range which {
				s := sample(k)
				for i, name := range dgx {
					s.Ports = append(s.Ports, port("port:"+name+"/1", totals[k][i], 0))
				}
				a.Sample(s)
			}
			return a.Report()
		}
		r := run(0, 1, 2, 3, 4)
		sum, near := 0.0, true
		for _, p := range r.Ports {
			if *p.PlannedShare > 0 && p.Verdict == audit.NotPlanned {
				t.Errorf("%s is planned and has no verdict", p.Name)
			}
			if p.CarriedShare != nil {
				sum += *p.CarriedShare
				if *p.PlannedShare > 0 {
					near = near && *p.CarriedShare >= 0.75**p.PlannedShare && *p.CarriedShare <= 1.25**p.PlannedShare
				}
			}
		}
		if sum > 1+1e-9 || (r.Answer == audit.AsPlanned) != (near && *r.Carried > 0) && r.Answer != audit.NothingSeen {
			t.Errorf("%s, shares add up to %f, near: %v", r.Text, sum, near)
		}
		few := run(0, 4)
		few.Readings = r.Readings
		a, _ := json.Marshal(r)
		b, _ := json.Marshal(few)
		if string(a) != string(b) {
			t.Errorf("readings in between change the answer:\n%s\n%s", a, b)
		}
	})
}
