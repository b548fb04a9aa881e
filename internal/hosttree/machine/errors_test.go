package machine_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/hosttree/machine"
)

// TestErrors pins what a person reads who made a mistake in a description.
func TestErrors(t *testing.T) {
	const top = "machine: m\ndescription: x\n"
	const start = top + "numa: [{node: 0, cpus: 0-3, mem: 1GiB}]\npci:\n- root: 0000:10\n  numa: 0\n  below:\n"
	const after = top + "numa: [{node: 0, cpus: 0-3, mem: 1GiB}]\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "line 1, column 1: top level needs description\nmachine: line 1, column 1: top level needs machine"},
		{"a list", "- machine: m\n", `line 1, column 1: top level: want keys with values, such as {key: value}`},
		{"no description", "machine: m\n", `line 1, column 1: top level needs description`},
		{"machine's name", "machine: ../m\ndescription: x\n", `line 1, column 10: machine "../m": want a name of letters, digits and . _ + -`},
		{"no YAML", "machine: m\n\tdescription: x\n", `line 2: found a tab character that violates indentation`},
		{"two documents", top + "---\n" + top, `one text holds one machine: nothing may follow "---"`},
		{"an alias", top + "sources: [&a x, *a]\n", "line 3, column 11: anchors and aliases are not read: write it out\nmachine: line 3, column 17: anchors and aliases are not read: write it out"},
		{"a tag", "machine: !!binary bQ==\ndescription: x\n", `line 1, column 10: tags are not read: leave "!!binary" out`},
		{"no numa", top, `line 1, column 1: a machine needs numa, with at least one node`},
		{"a key like another", top + "pcie: []\n", `line 3, column 1: top level: unknown key "pcie"; the nearest is pci`},
		{"a key like none", top + "accelerators: 8\n", `line 3, column 1: top level: unknown key "accelerators"; allowed: assumed, base, cpu, description, host, interfaces, machine, modules, numa, nvidia, nvlink, p2p, parts, patches, pci, published, routes, softrdma, sources, xgmi`},
		{"a key twice", top + "description: y\n", `line 3, column 1: top level: "description" is given twice`},
		{"no mapping", top + "host: x86_64\n", `line 3, column 7: host: want keys with values, such as {key: value}`},
		{"no word", top + "host: {arch: [x86_64]}\n", `line 3, column 14: host: arch: want one word, no list and no mapping`},
		{"an option like another", start + "  - {gpu: 10:00.0, part: h100-sxm, nvlnk: 18}\n", `line 8, column 36: gpu: unknown key "nvlnk"; the nearest is nvlink`},
		{"an option of another kind", start + "  - {gpu: 10:00.0, part: h100-sxm, lid: 4}\n", `line 8, column 36: gpu: unknown key "lid"; the nearest is id`},
		{"no part", start + "  - {gpu: 10:00.0}\n", `line 8, column 5: gpu 0000:10:00.0 needs part`},
		{"unknown part", start + "  - {nvswitch: 10:00.0, part: nvswitch9}\n", `line 8, column 5: nvswitch 0000:10:00.0: unknown part "nvswitch9"; the nearest is nvswitch2`},
		{"wrong kind", start + "  - {gpu: 10:00.0, part: connectx7}\n", `line 8, column 5: gpu 0000:10:00.0: part connectx7 is a nic, not a gpu`},
		{"no kind", start + "  - {gup: 10:00.0, part: h100-sxm}\n", `line 8, column 6: pci: below: unknown key "gup"; allowed: bridge, device, down, gpu, nic, nvme, nvswitch, port, switch`},
		{"nothing", start + "  - {}\n", `line 8, column 5: pci: below: want one of port, down, bridge, switch, gpu, nic, nvme, nvswitch, device`},
		{"address", start + "  - {gpu: 10-00.0, part: h100-sxm}\n", `line 8, column 5: gpu: address "10-00.0": want bus:device.function such as 1b:00.0`},
		{"address twice", start + "  - {gpu: 10:00.0, part: h100-sxm}\n  - {gpu: 10:00.0, part: h100-sxm}\n", `line 9, column 5: gpu 0000:10:00.0 is already defined in line 8`},
		{"two addresses", start + "  - {gpu: [10:00.0, 10:01.0], part: h100-sxm}\n", `line 8, column 5: gpu: want one address`},
		{"bus", start + "  - {gpu: 11:00.0, part: h100-sxm}\n", `line 8, column 5: gpu 0000:11:00.0: the bus here is 10`},
		{"bus goes down", start + "  - port: 10:00.0\n    below: [{gpu: 0f:00.0, part: h100-sxm}]\n", `line 9, column 13: gpu 0000:0f:00.0: bus 0f below a bridge on bus 10: it must be higher`},
		{"bus twice", start + "  - {port: 10:00.0, below: [{gpu: 11:00.0, part: h100-sxm}]}\n  - {port: 10:01.0, below: [{gpu: 11:01.0, part: h100-sxm}]}\n", `line 9, column 5: bus 11 is already below line 8`},
		{"domain", start + "  - {gpu: 0001:10:00.0, part: h100-sxm}\n", `line 8, column 5: gpu 0001:10:00.0: its root has domain 0000`},
		{"root twice", start + "  - {gpu: 10:00.0, part: h100-sxm}\n- root: 0000:10\n", `line 9, column 3: bus 10 is already below line 5`},
		{"below a gpu", start + "  - {gpu: 10:00.0, part: h100-sxm, below: [{gpu: 11:00.0, part: h100-sxm}]}\n", `line 8, column 36: gpu: unknown key "below"; allowed: acs, at, c2c, c2c-rate, class, driver, id, link, memory-numa, mig, minor, numa, nvlink, nvml-index, rev, serial, sub, title, uuid`},
		{"port below port", start + "  - {port: 10:00.0, below: [{port: 11:00.0}]}\n", `line 8, column 29: port cannot be below port; allowed: bridge, switch, gpu, nic, nvme, nvswitch, device`},
		{"link", start + "  - {gpu: 10:00.0, part: h100-sxm, at: gen9x16}\n", `line 8, column 40: gpu: at "gen9x16": want genNxW, genN or xW with N up to 7 and W of 1, 2, 4, 8, 12, 16, 32`},
		{"numa of a device", start + "  - {gpu: 10:00.0, part: h100-sxm, numa: 3}\n", `line 8, column 5: there is no numa 3`},
		{"cpus", top + "numa: [{node: 0, cpus: 0-9000}]\n", `line 3, column 24: numa: cpus "0-9000": want CPUs such as 0-7,16-23, below 8192`},
		{"cpu twice", top + "numa: [{node: 0, cpus: 0-3}, {node: 1, cpus: 3-5}]\n", `line 3, column 30: numa 1: CPU 3 already belongs to numa 0`},
		{"node twice", top + "numa: [{node: 0, cpus: 0-3}, {node: 0, cpus: 4-5}]\n", `line 3, column 30: numa 0 is already defined in line 3`},
		{"no node", top + "numa: [{cpus: 0-3}]\n", `line 3, column 8: numa needs node`},
		{"distances", top + "numa: [{node: 0, cpus: 0-3, distance: [10, 20]}]\n", `line 3, column 8: numa 0: 2 distances, but 1 nodes`},
		{"size", top + "numa: [{node: 0, cpus: 0-3, mem: 64GB}]\n", `line 3, column 34: numa: mem "64GB": want a whole number with KiB, MiB, GiB or TiB`},
		{"part twice", after + "parts: [{part: p, kind: gpu, id: 10de:1}, {part: p, kind: gpu, id: 10de:1}]\n", `line 4, column 43: part p is defined twice`},
		{"part without id", after + "parts: [{part: p, kind: gpu}]\n", `line 4, column 9: part p needs id`},
		{"vf without pf", start + "  - {nic: 10:00.1, part: connectx7-vf, vf-of: 10:00.0}\n", `line 8, column 5: nic 0000:10:00.1: vf-of 0000:10:00.0, which is not a physical function of a nic`},
		{"interface twice", start + "  - {nic: 10:00.0, part: connectx7, net: a}\n  - {nic: 10:00.1, part: connectx7, net: a}\n", `line 9, column 5: interface "a" is already defined in line 8`},
		{"lo", after + "interfaces: [{name: lo, kind: dummy}]\n", `line 4, column 14: every machine already has the interface lo`},
		{"leg", after + "interfaces: [{name: b, kind: bond, legs: x}]\n", `line 4, column 14: bond b: there is no interface "x"`},
		{"no legs", after + "interfaces: [{name: b, kind: bond}]\n", `line 4, column 14: interface b: a bond needs legs, and only a bond has legs, mode and hash`},
		{"an ID of a bridge", after + "interfaces: [{name: b, kind: bridge, id: 7}]\n", `line 4, column 14: interface b: a vlan needs on, and only a vlan has on and id`},
		{"ip", start + "  - {nic: 10:00.0, part: connectx7, net: a, ip: 10.0.0.300/8}\n", `line 8, column 49: nic: ip "10.0.0.300/8": want an address such as 10.0.0.1/24`},
		{"driverless", start + "  - {nic: 10:00.0, part: connectx7, driver: none, net: a}\n", `line 8, column 5: nic 0000:10:00.0: without a driver it cannot have net or rdma`},
		{"memlock", top + "host: {memlock: 8MiB}\n", `line 3, column 17: host: memlock "8MiB": want unlimited, or a number of bytes`},
		{"nvidia module", top + "nvidia: {module: closed}\n", `line 3, column 18: nvidia: module "closed": want open, proprietary`},
		{"traffic class", start + "  - {nic: 10:00.0, part: connectx7, rdma: a, tc: 256}\n", `line 8, column 50: nic: tc "256": want unset, or a number from 0 to 255`},
		{"partition key", start + "  - {nic: 10:00.0, part: connectx7, rdma: a, pkeys: [0xffff, 8001]}\n", `line 8, column 62: nic: pkeys "8001": want a key such as 0x8001`},
		{"partition key of nothing", start + "  - {nic: 10:00.0, part: connectx7, net: a, pkeys: 0xffff}\n", `line 8, column 5: nic 0000:10:00.0: pkeys and tc need an RDMA device (rdma: NAME)`},
		{"pair", start + "  - {gpu: 10:00.0, part: h100-sxm}\nnvlink: [{gpus: [0, 1], links: 4}]\n", `line 9, column 10: there is no GPU 1, the machine has 1`},
		{"half a pair", after + "nvlink: [{gpus: 0, links: 4}]\n", `line 4, column 10: gpus: want all, or two different GPUs such as [0, 1], in PCI order`},
		{"no GPUs", after + "nvlink: [{gpus: [], links: 4}]\n", `line 4, column 10: gpus: want all, or two different GPUs such as [0, 1], in PCI order`},
		{"no count", after + "nvlink: [{gpus: all}]\n", `line 4, column 10: nvlink needs links`},
		{"pair with itself", after + "nvlink: [{gpus: [0, 0], links: 4}]\n", `line 4, column 10: gpus: want all, or two different GPUs such as [0, 1], in PCI order`},
		{"nvml index", start + "  - {gpu: 10:00.0, part: h100-sxm, nvml-index: 1}\n  - {gpu: 10:01.0, part: h100-sxm, nvml-index: 1}\n", `line 9, column 5: gpu 0000:10:01.0: another GPU already has nvml-index 1`},
		{"variant with hardware", top + "base: b\npci: [{root: 0000:10}]\n", `line 4, column 1: pci: a variant (base) can only have patches`},
		{"errno", after + "patches: [{unreadable: proc/version, error: EFAULT}]\n", `line 4, column 45: unreadable: error "EFAULT": want EACCES, EINVAL, EIO, ENODEV`},
		{"no value", after + "patches: [{set: proc/version}]\n", `line 4, column 11: set needs to`},
		{"no verb", after + "patches: [{rm: proc/version}]\n", `line 4, column 12: patches: unknown key "rm"; allowed: change, link, move, remove, set, unreadable`},
		{"change", after + "patches: [{change: 10:05.0, at: x4}]\n", `line 4, column 11: change: there is no function 0000:10:05.0`},
		{"change's option", start + "  - {gpu: 10:00.0, part: h100-sxm}\npatches: [{change: 10:00.0, lid: 4}]\n", `line 9, column 29: gpu: unknown key "lid"; the nearest is id`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := machine.Parse([]byte(c.text))
			if err == nil {
				t.Fatal("no error")
			}
			if got := err.Error(); got != "machine: "+c.want {
				t.Errorf("got  %s\nwant machine: %s", got, c.want)
			}
		})
	}
}

func TestPatchErrors(t *testing.T) {
	for text, want := range map[string]string{
		"{remove: sys/nothing}":                                   "machine: line 7, column 3: remove sys/nothing: ",
		"{set: sys/bus/pci/devices/0000:11:00.0/class, to: 0x01}": "machine: line 7, column 3: set sys/bus/pci/devices/0000:11:00.0/class: ",
		"{set: sys/bus/pci/devices/*/nothing/x, to: 1}":           "machine: line 7, column 3: set sys/bus/pci/devices/*/nothing/x: nothing matches",
		"{remove: ../../etc}":                                     "machine: line 7, column 3: remove ../../etc: ",
		"{set: proc, to: 1}":                                      "machine: m: ",
	} {
		_, err := parse(t, head+"pci: [{root: 0000:10, below: [{gpu: 10:00.0, part: h100-sxm}]}]\npatches:\n- "+text+"\n").Tree()
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s...", text, err, want)
		}
	}
}

func TestManyErrors(t *testing.T) {
	var text strings.Builder
	text.WriteString("machine: m\ndescription: x\n")
	for i := range 50 {
		fmt.Fprintf(&text, "nonsense%d: 1\n", i)
	}
	_, err := machine.Parse([]byte(text.String()))
	if n := strings.Count(err.Error(), "\n"); n != 10 || !strings.HasSuffix(err.Error(), "and 40 more errors") {
		t.Errorf("%d lines of errors: %v", n+1, err)
	}
}

// What a hostile text costs is bounded.
func TestLimits(t *testing.T) {
	for name, text := range map[string]string{
		"long":    "machine: m\ndescription: x\n#" + strings.Repeat(" ", 1<<20),
		"deep":    "machine: m\ndescription: x\npci: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"deeper":  "machine: m\ndescription: x\npci: " + strings.Repeat("[", 100_000),
		"list":    "machine: m\ndescription: x\nmodules: [" + strings.Repeat("a,", 5000) + "a]",
		"patches": head + "patches:\n" + strings.Repeat("- {remove: proc}\n", 257),
		"wide":    head + "patches:\n" + strings.Repeat("- {remove: proc/*}\n", 33),
		"laughs":  "machine: m\ndescription: x\na: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c]\n",
	} {
		start := time.Now()
		if _, err := machine.Parse([]byte(text)); err == nil || len(err.Error()) > 2000 {
			t.Errorf("%s: %.200v", name, err)
		}
		t.Logf("%s: %v", name, time.Since(start))
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		head + "pci: [{root: 0000:10, numa: 0, below: [{port: 10:00.0, acs: 1d, below: [{switch: 11:00.0, part: broadcom-c030, below: [{down: 12:00.0, below: [{gpu: 13:00.0, part: h100-sxm, at: gen1x8, nvlink: 18}]}]}]}]}]\n",
		head + "pci:\n- root: 10000:e0\n  below:\n  - {nic: e0:00.0, part: connectx7, layer: ib, rdma: a, net: b, lid: 7, pkeys: [0xffff, 0x8001], tc: 106}\n  - {nic: e0:00.1, part: connectx7-vf, vf-of: e0:00.0}\n" +
			"interfaces:\n- {name: x, kind: bond, legs: b}\n- {name: y, kind: vlan, on: x, id: 3}\nsoftrdma: [{name: r, on: y}]\n",
		head + "parts: [{part: p, kind: gpu, id: 1:2, class: 030000}]\npci: [{root: 0000:10, below: [{gpu: 10:00.0, part: p, c2c: 5, c2c-rate: 9GB/s, mig: 1g.5gb}, {gpu: 10:01.0, part: p}]}]\n" +
			"nvlink: [{gpus: all, links: 2}]\np2p: [{gpus: [0, 1], answer: ok}]\npatches:\n- {set: proc/*, to: \"\"}\n- {remove: sys/*/cpu}\n- {move: proc, to: sys}\n",
		head + "host: {memlock: 65536}\nnvidia: {driver: 1, module: open}\npatches: [{change: 10:00.0, at: x8}]\n",
		"machine: a\ndescription: b\nbase: c\npatches: [{set: d, to: e}]\n", "machine: &a [*a]", "machine: \"\\x00\"\n? [a]\n: <<", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		spec, err := machine.Parse(text)
		if err != nil || len(text) > 4096 || bytes.Count(text, []byte("*")) > 4 {
			return // large, and so slow
		}
		if spec.Base != "" {
			base := parse(t, head+"pci: [{root: 0000:10, below: [{gpu: 10:00.0, part: h100-sxm}]}]\n")
			if spec, err = spec.On(base); err != nil {
				return
			}
		}
		_, _ = spec.Tree() // may refuse, must not panic
	})
}
