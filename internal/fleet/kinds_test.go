package fleet_test

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// An ordinary run tries fewer cases.
func TestMain(m *testing.M) { longtest.Main(m) }

// machines are fixtures; an ordinary run takes some, and not the largest ones.
func machines() []string {
	return longtest.Sample(slices.DeleteFunc(fixtures.Names(), func(name string) bool {
		return !longtest.On() && slices.Contains([]string{"nvl72-synthetic", "aws-p5-44nic-synthetic"}, name)
	}), 12)
}

// formats are what hosts are known from: topoctl itself, and files of other tools.
var formats = map[string]func(t *topo.Topology) (*topo.Topology, error){
	"topoctl": func(t *topo.Topology) (*topo.Topology, error) { return t, nil },
	"nccl":    throughNCCL,
	"hwloc":   asHwloc,
	"nvsmi":   throughMatrix,
}

func throughNCCL(t *topo.Topology) (*topo.Topology, error) {
	var b bytes.Buffer
	if err := ncclxml.Encode(&b, t); err != nil {
		return nil, err
	}
	return ncclxml.Decode(b.Bytes())
}

// throughMatrix prints a host as nvidia-smi topo -m does, and reads that.
func throughMatrix(t *topo.Topology) (*topo.Topology, error) {
	index, ids, legend := topo.NewIndex(t), t.MatrixAxis(topo.KindGPU), "\nNIC Legend:\n\n"
	var heads []string
	for i := range t.GPUs {
		heads = append(heads, fmt.Sprintf("GPU%d", t.GPUs[i].Index))
	}
	for i, id := range texts.NICs(t) {
		ids, heads = append(ids, id), append(heads, fmt.Sprintf("NIC%d", i))
		legend += fmt.Sprintf("  NIC%d: %s\n", i, id.Name())
	}
	text := "\t" + strings.Join(heads, "\t") + "\tCPU Affinity\tNUMA Affinity\n"
	for i, a := range ids {
		text += heads[i]
		for _, b := range ids {
			r, _ := index.Relation(a, b)
			text += "\t" + cmp.Or(r.Class.String(), "?")
		}
		if i < len(t.GPUs) && t.GPUs[i].NUMA != nil {
			text += fmt.Sprintf("\t%s\t%d", t.GPUs[i].CPUAffinity, *t.GPUs[i].NUMA)
		}
		text += "\n"
	}
	return texts.Decode([]byte(text + legend))
}

// asHwloc is a host as a file of hwloc's tells it, which has no rates of ports and no maxima of links.
func asHwloc(t *topo.Topology) (*topo.Topology, error) {
	t.Origin = string(topo.SourceHwloc)
	t.Host.Lacks = []string{"network rates", "maximum PCIe speeds and widths"}
	for i := range t.Ports {
		p := &t.Ports[i]
		p.BytesPerSec, p.RateRaw = nil, ""
	}
	for i := range t.PCIDevices {
		if l := t.PCIDevices[i].Link; l != nil {
			l.MaxSpeedMTs, l.MaxWidth = nil, nil
		}
	}
	t.Links = slices.DeleteFunc(t.Links, func(l topo.Link) bool { return l.Kind == topo.LinkPort || l.Kind == topo.LinkPCIe })
	t.Derived = nil
	t.Derive()
	return t, nil
}

// lacking takes a function off a host with all that stands on it, and what else has one of some IDs.
func lacking(t *topo.Topology, function topo.ID, ids ...topo.ID) *topo.Topology {
	ids = append(ids, function)
	gone := func(id topo.ID) bool { return id != "" && slices.Contains(ids, id) }
	for i := range t.RDMADevices {
		if r := &t.RDMADevices[i]; gone(r.PCI) {
			ids = append(ids, r.ID)
		}
	}
	t.PCIDevices = slices.DeleteFunc(t.PCIDevices, func(d topo.PCIDevice) bool { return gone(d.ID) })
	t.GPUs = slices.DeleteFunc(t.GPUs, func(g topo.GPU) bool { return gone(g.ID) })
	t.RDMADevices = slices.DeleteFunc(t.RDMADevices, func(r topo.RDMADevice) bool { return gone(r.ID) })
	t.Ports = slices.DeleteFunc(t.Ports, func(p topo.Port) bool { return gone(p.RDMA) })
	t.Netdevs = slices.DeleteFunc(t.Netdevs, func(n topo.Netdev) bool { return gone(n.PCI) })
	t.NVMes = slices.DeleteFunc(t.NVMes, func(n topo.NVMe) bool { return gone(n.PCI) })
	t.Links = slices.DeleteFunc(t.Links, func(l topo.Link) bool { return gone(l.A) || gone(l.B) })
	t.NICs, t.Switches, t.Derived = nil, nil, nil
	t.Derive()
	return t
}

// summary is what a fleet keeps of a topology.
func summary(tb testing.TB, t *topo.Topology) *fleet.Host {
	tb.Helper()
	h, err := fleet.Summarize("", t)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// odd are the findings about hosts that differ, of three hosts of one kind and another one.
func odd(tb testing.TB, good, other *fleet.Host) []string {
	tb.Helper()
	var list []fleet.Host
	for i, h := range []*fleet.Host{good, good, good, other} {
		list = append(list, *h)
		list[i].Host = fmt.Sprint("n", i)
	}
	var out []string
	for _, x := range found(build(tb, list, nil), fleet.CodeHostOdd) {
		out = append(out, strings.Join(x.Hosts, " ")+": "+x.Text)
	}
	return out
}

// A host that lacks a GPU or a NIC, or links of a GPU, is found among hosts like it, whatever they are known from.
func TestWhatIsMissingIsFound(t *testing.T) {
	tried := map[string]int{}
	for _, name := range machines() {
		for format, read := range formats {
			good, err := read(fixturetest.Topology(t, name))
			if err != nil || len(good.GPUs) < 2 {
				continue // no form for such a host
			}
			usual := summary(t, good)
			check := func(what string, broken *topo.Topology, want string) {
				t.Helper()
				other, err := read(broken)
				if err != nil {
					t.Fatalf("%s without %s as %s: %v", name, what, format, err)
				}
				tried[format+" "+what]++
				got := odd(t, usual, summary(t, other))
				if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "n3: ") && strings.Contains(s, want) }) ||
					slices.ContainsFunc(got, func(s string) bool { return !strings.HasPrefix(s, "n3: ") }) {
					t.Errorf("%s without %s as %s: %q, want %q", name, what, format, got, want)
				}
			}
			top := fixturetest.Topology(t, name)
			g := top.GPUs[len(top.GPUs)-1]
			check("a GPU", lacking(top, g.PCI, g.ID), fmt.Sprintf("%d GPU", len(good.GPUs)-1))
			top = fixturetest.Topology(t, name)
			for i := len(top.RDMADevices) - 1; i > 0; i-- {
				r := top.RDMADevices[i]
				virtual := slices.ContainsFunc(top.PCIDevices, func(d topo.PCIDevice) bool { return d.PF != "" && (d.ID == r.PCI || d.PF == r.PCI) })
				if r.PCI != "" && !virtual && slices.ContainsFunc(good.RDMADevices, func(o topo.RDMADevice) bool { return o.Name == r.Name }) {
					check("a NIC", lacking(top, r.PCI), "") // fewer of them, or a bond of fewer
					break
				}
			}
			top = fixturetest.Topology(t, name)
			if i := slices.IndexFunc(top.Links, func(l topo.Link) bool { return l.Kind == topo.LinkNVLink && l.Count > 2 }); i >= 0 && (format != "nvsmi" || len(top.GPUs) > 2) {
				top.Links[i].Count -= 2
				top.Derived = nil
				top.Derive()
				check("two NVLinks", top, "NVLink or xGMI links of gpu:0")
			}
		}
	}
	for format := range formats {
		for _, what := range []string{"a GPU", "a NIC", "two NVLinks"} {
			if tried[format+" "+what] < 2 {
				t.Errorf("%s as %s was tried %d times", what, format, tried[format+" "+what])
			}
		}
	}
}

// Hosts of another kind are not odd ones of this one.
func TestOtherKindsAreNotOdd(t *testing.T) {
	family := func(name, format string) string {
		switch {
		case strings.HasPrefix(name, "dgx-h100"), format == "nvsmi" && name == "b200": // a matrix has no models
			return "dgx-h100"
		case format == "nvsmi" && strings.HasPrefix(name, "hgx-"):
			return "hgx"
		}
		return name
	}
	for format, read := range formats {
		tops := map[string]*fleet.Host{}
		for _, name := range machines() {
			if top, err := read(fixturetest.Topology(t, name)); err == nil {
				tops[name] = summary(t, top)
			}
		}
		for a, x := range tops {
			for b, y := range tops {
				if family(a, format) == family(b, format) {
					continue
				}
				if got := odd(t, x, y); len(got) > 0 {
					t.Errorf("%s among %s as %s: %q", b, a, format, got)
				}
			}
		}
	}
}
