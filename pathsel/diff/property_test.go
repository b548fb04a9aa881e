package diff_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/redact"
	"github.com/topoctl/topoctl/pathsel/diff"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// A host differs from itself in nothing, read back from its document or not.
func TestSameIsEqual(t *testing.T) {
	for _, name := range longtest.Sample(fixtures.Names(), 11) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := machine(t, "fixture:"+name)
			for _, o := range []diff.Options{{}, {Structure: true}} {
				r := compare(t, top, again(t, top), o)
				if !r.Equal || !r.FingerprintsEqual || len(r.NotCompared) > 0 {
					t.Errorf("structure only %v:\n%s", o.Structure, r.Text(diff.TextOptions{}))
				}
			}
			r := compare(t, top, redact.New(top).Topology(top), diff.Options{})
			if !r.Equal || !r.FingerprintsEqual {
				t.Errorf("redacted:\n%s", r.Text(diff.TextOptions{}))
			}
		})
	}
}

// mirrored says what a report would be the other way round, without what is
// told from one side: names, effects, evidence.
func mirrored(r *diff.Report, turn bool) []string {
	kinds := map[diff.Kind]diff.Kind{diff.Added: diff.Removed, diff.Removed: diff.Added, diff.Degraded: diff.Improved, diff.Improved: diff.Degraded}
	notes := map[string]string{"replaced": "in its place", "in its place": "replaced"}
	nodes := func(list []diff.Node) string {
		var out []string
		for _, n := range list {
			if turn {
				n.Old, n.New = n.New, n.Old
			}
			out = append(out, n.Old+"="+n.New)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	var out []string
	for _, d := range r.Differences {
		if turn {
			d.Old, d.New = d.New, d.Old
			if k, ok := kinds[d.Kind]; ok {
				d.Kind = k
			}
			if n, ok := notes[d.Note]; ok {
				d.Note = n
			}
		}
		out = append(out, fmt.Sprintf("%s %s [%s] %q %q %q", d.Kind, d.Attribute, nodes(d.Nodes), d.Old, d.New, d.Note))
	}
	for _, p := range r.Policy {
		if turn {
			p.Old, p.New = p.New, p.Old
		}
		for _, l := range p.Locations {
			out = append(out, fmt.Sprintf("%s [%s] %q %q", p.Choice, nodes([]diff.Node{l}), p.Old, p.New))
		}
	}
	for _, o := range r.NotCompared {
		side := o.Side
		if turn {
			side = map[string]string{"old": "new", "new": "old"}[side]
		}
		if slices.Contains([]string{diff.ChoicePreferred, diff.ChoicePlan, diff.ChoiceTransport + "_choice"}, o.Attribute) {
			o.Reason, side = "", "" // names the ports of both sides, and the first that is not told
		}
		for _, n := range o.Nodes {
			out = append(out, fmt.Sprintf("%s not compared %s [%s] %s", side, o.Attribute, nodes([]diff.Node{n}), o.Reason))
		}
	}
	slices.Sort(out)
	return out
}

// What was added one way was removed the other way, and so on.
func TestMirror(t *testing.T) {
	names := longtest.Sample(fixtures.Names(), 8)
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := machine(t, "fixture:"+name)
			for _, other := range []string{names[(i+1)%len(names)], "dgx-h100"} {
				b := machine(t, "fixture:"+other)
				for _, o := range []diff.Options{{}, {Structure: true}} {
					there, back := compare(t, a, b, o), compare(t, b, a, o)
					if d := cmp.Diff(mirrored(there, false), mirrored(back, true)); d != "" {
						t.Errorf("%s and %s (-there +back):\n%s", name, other, d)
					}
				}
			}
		})
	}
}

// full is a host on which hardly any attribute is empty.
func full(t testing.TB) *topo.Topology {
	text := swap(t, box, "iommu: identity", "iommu: identity, config: full, cmdline: ro iommu=pt pci=realloc, memlock: 8388608",
		"down: 12:01.0", "down: 12:01.0\n        acs: 0x001d", "ip: 10.2.0.1/24", "ip: 10.2.0.1/24, pkeys: [0xffff, 0x8001], tc: 106, sriov: 8")
	top := machine(t, text+`p2p:
- {gpus: all, answer: ok}
interfaces:
- {name: bond0, kind: bond, legs: [ens3], mode: 802.3ad, hash: layer3+4, ip: 10.9.0.1/24}
- {name: vlan7, kind: vlan, on: ens1, id: 7, ip: 10.7.0.1/24}
routes:
- {to: default, dev: ens1, via: 10.1.0.254, metric: 100}
`)
	yes, seven := true, 7
	bytes := int64(64 << 30)
	top.Tool.Version = "1"
	h := &top.Host
	h.MachineIDSHA256, h.Container, h.AllowedCPUs = strings.Repeat("ab", 32), &yes, "0-3"
	h.Software.GPUModule = "open"
	h.Software.Environment = &topo.Environment{Settings: []topo.Setting{{Name: "NCCL_IB_GID_INDEX", Value: "3", Where: "/proc/self/environ"}}}
	top.NUMANodes[0].Owner = "gpu:0"
	for i := range top.GPUs {
		g := &top.GPUs[i]
		g.MemoryNUMA, g.Serial = &seven, "1650000000001"
		g.NVLinkFabric = &topo.NVLinkFabric{ClusterUUID: "0b0d27a8-3a0f-4a5d-9c5e-1f2e3d4c5b6a", Clique: 7}
		g.MIG = &topo.MIG{Enabled: true, Instances: []topo.MIGInstance{{UUID: "MIG-1", Profile: "1g.10gb", MemoryBytes: &bytes}}}
	}
	for i := range top.PCIDevices {
		if d := &top.PCIDevices[i]; d.SRIOV != nil {
			d.SRIOV.NumVFs, d.SRIOV.VFs = &seven, []topo.ID{"pci:0000:15:00.1"}
		}
	}
	top.PCIDevices[len(top.PCIDevices)-1].PF = top.PCIDevices[len(top.PCIDevices)-2].ID
	top.PCIDevices[0].ATS = "on"
	top.RDMADevices[0].Uverbs = "rw"
	top.Ports[0].MTU, top.Ports[0].GIDsRead = &seven, &seven
	n := &top.Netdevs[slices.IndexFunc(top.Netdevs, func(n topo.Netdev) bool { return n.Name == "ens2" })]
	n.VFs, n.PhysPort, n.PhysSwitch, n.Virtual = &seven, "p0", "a088c20001", true
	for i := range top.Netdevs {
		if b := top.Netdevs[i].Bond; b != nil {
			b.ActiveLeg = "ens3"
		}
	}
	top.Derive()
	return top
}

// unseen are the fields of a topology whose change is no difference, with the
// reason. A name without a dot stands for all fields of that name.
var unseen = map[string]string{
	"Evidence": "where a fact was read", "Facts": "where a fact was read", "Kind": "the list that a node is in",
	"ID":        "made from the name, index or address, which are compared",
	"PCI":       "the function is matched: slot and moved tell",
	"BDF":       "the function is matched: slot and moved tell",
	"Tool.Name": "the program", "Tool.Version": "the program",
	"Topology.CapturedAt": "a time", "Topology.Origin": "the way of reading", "Topology.Complete": "the way of reading",
	"Topology.Switches": "derived", "Topology.NICs": "derived", "Topology.Derived": "derived", "Topology.Asserted": "of imports; see TestImports",
	"Topology.Sources": "the way of reading", "Topology.Warnings": "the way of reading; reasons of omissions",
	"Memlock.Exempt": "of the user who looked", "Setting.Where": "where a fact was read",
	"Host.Fingerprint": "derived; stated apart", "Host.ConfigBytes": "the way of reading", "Host.Lacks": "the way of reading",
	"HostBridge.Domain": "told by the ID", "HostBridge.Bus": "told by the ID", "HostBridge.Synthetic": "the way of reading",
	"PCIDevice.Role": "derived, or read as root only", "PCIDevice.Parent": "the place: slot and moved tell", "PCIDevice.IOMMUGroup": "numbers that every start gives anew",
	"PCIDevice.VendorName": "of pci.ids", "PCIDevice.DeviceName": "of pci.ids", "PCIDevice.Implausible": "derived",
	"PCILink.RawSpeed": "a spelling", "PCILink.RawMaxSpeed": "a spelling", "SRIOV.VFs": "the functions tell",
	"Package.Index": "told by the ID", "NUMANode.Index": "told by the ID", "NVSwitch.NUMA": "the function tells",
	"ACS.RequestRedirect": "told by the register",
	"GPU.KnownFrom":       "the way of reading", "MIGInstance.UUID": "made up when it is set up",
	"RDMADevice.NIC": "derived", "RDMADevice.CharDevs": "numbers that every start gives anew",
	"Port.RDMA": "whose port it is: the devices are matched", "Port.GIDsRead": "the way of reading",
	"GID.Netdev": "told by the interfaces", "Netdev.Index": "numbers that every start gives anew", "Netdev.Virtual": "told by its kind and its function",
	"Link.A": "the ends: the devices are matched", "Link.B": "the ends: the devices are matched", "Link.Kind": "derived", "Link.Cur": "derived", "Link.Max": "derived", "Link.Basis": "derived", "Link.Note": "derived", "Port.AdapterPort": "the port is matched", "Link.Bound": "derived",
}

// mutation changes one field of one node.
type mutation struct {
	path  string // "GPU.Model"
	where string // which node
	apply func(*topo.Topology)
}

// counted says whether a field is one that counts.
func counted(path string) bool {
	_, name, _ := strings.Cut(path, ".")
	return unseen[path] == "" && unseen[name] == ""
}

// mutations lists a change of every field of every node that has a value, among
// the fields that are wanted.
func mutations(top *topo.Topology, wanted func(path string) bool) []mutation {
	var out []mutation
	var walk func(get func(*topo.Topology) reflect.Value, path, where string)
	walk = func(get func(*topo.Topology) reflect.Value, path, where string) {
		v := get(top)
		if path != "" && !wanted(path) {
			return
		}
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				f := v.Type().Field(i)
				if !f.IsExported() {
					continue
				}
				next := v.Type().Name() + "." + f.Name
				if f.Anonymous {
					next = path
				}
				walk(func(t *topo.Topology) reflect.Value { return get(t).Field(i) }, next, where)
			}
		case reflect.Pointer:
			if !v.IsNil() {
				walk(func(t *topo.Topology) reflect.Value { return get(t).Elem() }, path, where)
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(func(t *topo.Topology) reflect.Value { return get(t).Index(i) }, path, fmt.Sprintf("%s[%d]", where, i))
			}
			if v.Len() > 0 && v.Type().Elem().Kind() != reflect.Struct {
				out = append(out, mutation{path, where + " shorter", func(t *topo.Topology) { get(t).SetLen(v.Len() - 1) }})
			}
		case reflect.Map:
			for _, k := range v.MapKeys() {
				out = append(out, mutation{path, fmt.Sprint(where, k), func(t *topo.Topology) { get(t).SetMapIndex(k, reflect.ValueOf("not supported")) }})
			}
		default:
			if !v.IsZero() || v.Kind() != reflect.String {
				out = append(out, mutation{path, where, func(t *topo.Topology) { change(get(t)) }})
			}
		}
	}
	walk(func(t *topo.Topology) reflect.Value { return reflect.ValueOf(t).Elem() }, "", "")
	return out
}

// change gives a value another one that is no less possible.
func change(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "9")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64, reflect.Int32:
		if old := v.Int(); old > 1 && old%2 == 0 {
			v.SetInt(old / 2)
		} else {
			v.SetInt(old*2 + 3)
		}
	case reflect.Uint8, reflect.Uint32:
		v.SetUint(v.Uint() + 1)
	}
}

// Every field of a topology is compared, or is listed as unseen with a reason.
func TestEveryFieldCounts(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compares two hosts once for each of some thousand attributes")
	}
	top := full(t)
	seen := map[string]bool{}
	for _, m := range mutations(top, counted) {
		if seen[m.path] {
			continue // once is enough
		}
		other := again(t, top)
		m.apply(other)
		derive(other)
		r := compare(t, top, other, diff.Options{})
		seen[m.path] = !r.Equal
	}
	for path, found := range seen {
		if !found {
			t.Errorf("a change of %s is not found", path)
		}
	}
	for _, path := range leaves(reflect.TypeFor[topo.Topology](), map[reflect.Type]bool{}) {
		if _, tried := seen[path]; !tried && counted(path) {
			t.Errorf("%s was not tried: give it a value in full()", path)
		}
	}
}

// What says nothing about the host is no difference: where and when a fact was
// read, by what, and numbers that every start gives anew.
func TestUnseenIsNoDifference(t *testing.T) {
	top := full(t)
	still := map[string]bool{"Tool.Name": true, "Tool.Version": true, "Host.Lacks": true, "PCIDevice.IOMMUGroup": true, "PCIDevice.VendorName": true,
		"PCIDevice.DeviceName": true, "RDMADevice.CharDevs": true, "Port.GIDsRead": true, "Netdev.Index": true, "GPU.KnownFrom": true, "MIGInstance.UUID": true}
	tried := map[string]bool{}
	for _, m := range mutations(top, func(path string) bool {
		return still[path] || strings.HasPrefix(path, "Topology.") && !strings.Contains(path, "Derived") && !strings.Contains(path, "Asserted") ||
			path == "GPU.MIG" || path == "MIG.Instances" || path == "Topology.Host"
	}) {
		if !still[m.path] {
			continue
		}
		tried[m.path] = true
		if r := compare(t, top, changed(t, top, m.apply), diff.Options{}); !r.Equal {
			t.Errorf("%s %s is told:\n%s", m.path, m.where, r.Text(diff.TextOptions{}))
		}
	}
	for path := range still {
		if !tried[path] && path != "Host.Lacks" {
			t.Errorf("%s was not tried", path)
		}
	}

	later := changed(t, top, func(x *topo.Topology) {
		now := time.Unix(1_800_000_000, 0).UTC()
		x.CapturedAt, x.Origin = &now, "live"
		*x.Host.MemoryBytes += 100 << 20
		x.Netdevs = append(x.Netdevs, topo.Netdev{Node: topo.Node{ID: "net:veth1"}, Name: "veth1", LinkKind: "veth", Virtual: true, Master: "docker0"})
	})
	if r := compare(t, top, later, diff.Options{}); !r.Equal {
		t.Errorf("a little later:\n%s", r.Text(diff.TextOptions{}))
	}
	idle := machine(t, swap(t, box, "gpu: 13:00.0", "gpu: 13:00.0, at: gen1"))
	if r := compare(t, machine(t, box), idle, diff.Options{}); !r.Equal {
		t.Errorf("an idle GPU:\n%s", r.Text(diff.TextOptions{}))
	}
	slow := machine(t, swap(t, box, "nic: 14:00.0", "nic: 14:00.0, at: gen1"))
	if r := compare(t, machine(t, box), slow, diff.Options{}); r.Equal {
		t.Error("an idle NIC does not lower its link's speed")
	}
}

// derive computes what follows from changed nodes. Links that a document holds
// are kept as they are, so they go first.
func derive(top *topo.Topology) {
	top.Links = slices.DeleteFunc(top.Links, func(l topo.Link) bool { return l.Kind != topo.LinkNVLink })
	top.Derive()
}

// leaves lists the fields of a type that hold values.
func leaves(typ reflect.Type, done map[reflect.Type]bool) []string {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || done[typ] {
		return nil
	}
	done[typ] = true
	var out []string
	for i := range typ.NumField() {
		f := typ.Field(i)
		path := typ.Name() + "." + f.Name
		if !f.IsExported() || !counted(path) {
			continue
		}
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			out = append(out, leaves(inner, done)...)
			continue
		}
		out = append(out, path)
	}
	return out
}

// Whatever changes, a report and its reverse mirror each other, the order of
// the lists changes nothing, and no text is malformed.
func TestRandomChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compares two hosts some hundred times")
	}
	top := full(t)
	all := mutations(top, counted)
	rapid.Check(t, func(rt *rapid.T) {
		other := again(t, top)
		for range rapid.IntRange(1, 6).Draw(rt, "changes") {
			m := all[rapid.IntRange(0, len(all)-1).Draw(rt, "change")]
			rt.Log(m.path, m.where)
			if !strings.HasSuffix(m.where, "shorter") {
				m.apply(other)
			}
		}
		for range rapid.IntRange(0, 3).Draw(rt, "losses") {
			lose(rt, other)
		}
		derive(other)
		there, back := compare(t, top, other, diff.Options{}), compare(t, other, top, diff.Options{})
		if d := cmp.Diff(mirrored(there, false), mirrored(back, true)); d != "" {
			rt.Fatalf("(-there +back):\n%s", d)
		}
		x, y := again(t, top), again(t, other)
		shuffle(rapid.Uint64().Draw(rt, "seed"), x, y)
		if d := cmp.Diff(document(t, there), document(t, compare(t, x, y, diff.Options{}))); d != "" {
			rt.Fatalf("the order of lists matters (-before +after):\n%s", d)
		}
		if strings.Contains(there.Text(diff.TextOptions{}), "%!") {
			rt.Fatalf("malformed:\n%s", there.Text(diff.TextOptions{}))
		}
	})
}

// lose takes a device away.
func lose(rt *rapid.T, top *topo.Topology) {
	switch rapid.IntRange(0, 4).Draw(rt, "what is lost") {
	case 0:
		top.GPUs = cut(rt, top.GPUs)
	case 1:
		top.RDMADevices = cut(rt, top.RDMADevices)
	case 2:
		top.Netdevs = cut(rt, top.Netdevs)
	case 3:
		top.PCIDevices = cut(rt, top.PCIDevices)
	case 4:
		top.Ports = cut(rt, top.Ports)
	}
}

func cut[T any](rt *rapid.T, list []T) []T {
	if len(list) == 0 {
		return list
	}
	i := rapid.IntRange(0, len(list)-1).Draw(rt, "which")
	return slices.Delete(list, i, i+1)
}

// shuffle reorders every list of nodes and those lists within that have no order.
func shuffle(seed uint64, tops ...*topo.Topology) {
	r := rand.New(rand.NewPCG(seed, 1))
	for _, t := range tops {
		mix(r, t.PCIDevices)
		mix(r, t.GPUs)
		mix(r, t.RDMADevices)
		mix(r, t.Ports)
		mix(r, t.Netdevs)
		mix(r, t.NVMes)
		mix(r, t.NUMANodes)
		mix(r, t.Packages)
		mix(r, t.HostBridges)
		mix(r, t.Links)
		mix(r, t.Warnings)
		t.Derive()
	}
}

func mix[T any](r *rand.Rand, list []T) {
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// FuzzCompare: no two documents make it fail, and whatever they hold the text is
// well formed.
func FuzzCompare(f *testing.F) {
	const small = `{"schema":"topoctl.topology/v1","host":{"name":"a","kernel":"6.1","software":{"modules":["nvidia"],"kernel_options":[]}},"nodes":[` +
		`{"id":"numa:0","kind":"numa","index":0,"cpus":"0-3"},{"id":"hb:0000:00","kind":"hostbridge","numa_node":0},` +
		`{"id":"pci:0000:01:00.0","kind":"pci","bdf":"0000:01:00.0","parent":"hb:0000:00","class":"0x030200","vendor":"0x10de","device":"0x2330","link":{"speed_mts":32000,"width":16,"max_speed_mts":32000,"max_width":16}},` +
		`{"id":"gpu:0","kind":"gpu","index":0,"pci":"pci:0000:01:00.0","uuid":"GPU-1","p2p":{"gpu:1":"ok"}},` +
		`{"id":"pci:0000:02:00.0","kind":"pci","bdf":"0000:02:00.0","parent":"hb:0000:00","class":"0x020700","vendor":"0x15b3","device":"0x1021"},` +
		`{"id":"rdma:mlx5_0","kind":"rdma","name":"mlx5_0","pci":"pci:0000:02:00.0","node_guid":"a088:c203:0001:0000","netdevs":["ib0"],"uverbs":"rw"},` +
		`{"id":"port:mlx5_0/1","kind":"port","rdma":"rdma:mlx5_0","number":1,"state":"ACTIVE","bytes_per_sec":1000,"gid_table_size":8,"gids":[{"index":0,"gid":"::ffff:10.0.0.1","type":"RoCE v2"}]},` +
		`{"id":"net:ib0","kind":"netdev","name":"ib0","pci":"pci:0000:02:00.0","mac":"a0:88:c2:01:00:00","state":"up"}],` +
		`"warnings":[{"code":"vanished","subject":"pci:0000:01:00.0","detail":"x: y"}]}`
	f.Add(small, small)
	f.Add(small, strings.ReplaceAll(small, "mlx5_0", "mlx5_9"))
	f.Add(small, strings.ReplaceAll(small, "0000:02", "0000:03"))
	f.Add(`{"schema":"topoctl.topology/v1","nodes":[{"id":"gpu:0","kind":"gpu","pci":"pci:0000:01:00.0"}]}`,
		`{"schema":"topoctl.topology/v1","nodes":[{"id":"pci:0000:01:00.0","kind":"pci","bdf":"0000:01:00.0","parent":"pci:0000:01:00.0"}]}`)
	f.Fuzz(func(t *testing.T, x, y string) {
		a, err1 := topo.Decode([]byte(x))
		b, err2 := topo.Decode([]byte(y))
		if err1 != nil || err2 != nil {
			return // no documents
		}
		r, err := diff.Compare(a, b, diff.Options{})
		if err != nil {
			return // refused
		}
		if !strings.HasSuffix(r.Text(diff.TextOptions{}), "\n") {
			t.Error("the text has no end")
		}
		document(t, r)
		if same, err := diff.Compare(a, a, diff.Options{}); err != nil || !same.Equal {
			t.Errorf("a document differs from itself (%v):\n%s", err, same.Text(diff.TextOptions{}))
		}
	})
}

func document(t testing.TB, r *diff.Report) string {
	t.Helper()
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
