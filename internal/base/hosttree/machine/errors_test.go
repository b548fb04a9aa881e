package machine_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/base/hosttree/machine"
)

// TestErrors pins what a person reads who made a mistake in a spec.
func TestErrors(t *testing.T) {
	const start = "machine m \"x\"\nnuma 0 cpus 0-3 mem 1GiB\nroot 0000:10 numa 0\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", `line 1: a spec must begin with: machine NAME "DESCRIPTION"`},
		{"no machine line", "numa 0 cpus 0\n", `line 1: a spec must begin with: machine NAME "DESCRIPTION"`},
		{"no description", "machine m\n", `line 1: machine needs NAME DESCRIPTION`},
		{"machine's name", "machine ../m \"x\"\n", `line 1: machine: name "../m": want a name of letters, digits and . _ + -`},
		{"no numa", "machine m \"x\"\n", `line 1: a machine needs at least one numa statement`},
		{"unknown statement", start + "gpus 8\n", `line 4: unknown statement "gpus"; allowed: base, bond, change, cpu, host, link, machine, module, move, netdev, numa, nvidia, nvlink, p2p, part, remove, root, route, set, softrdma, source, unreadable, vlan, xgmi`},
		{"tab", "machine m \"x\"\n\tnuma 0\n", `line 2: indent with spaces, not with tabs`},
		{"unfinished quote", "machine m \"x\n", `line 1: a quoted word is not closed or contains an unknown escape: "x`},
		{"indented first", "  machine m \"x\"\n", `line 1: machine is indented, but there is no statement above it`},
		{"ragged", start + "  port 10:00.0\n   port 10:01.0\n", `line 5: port cannot be below port; allowed: bridge, device, gpu, nic, nvme, nvswitch, switch`},
		{"uneven", start + "    port 10:00.0\n  port 10:01.0\n", `line 5: indented by 2 spaces, but the lines beside it by 4`},
		{"unknown option", start + "  gpu 10:00.0 h100-sxm nvlnk 18\n", `line 4: gpu: unknown word "nvlnk"; allowed: acs, at, c2c, c2c-rate, class, driver, id, link, memory-numa, mig, minor, numa, nvlink, nvml-index, rev, serial, sub, title, uuid`},
		{"no value", start + "  gpu 10:00.0 h100-sxm nvlink\n", `line 4: gpu: nvlink needs a value`},
		{"twice", start + "  gpu 10:00.0 h100-sxm at x8 at x4\n", `line 4: gpu: at is given twice`},
		{"no part", start + "  gpu 10:00.0\n", `line 4: gpu needs BDF PART`},
		{"unknown part", start + "  nvswitch 10:00.0 nvswitch9\n", `line 4: nvswitch 0000:10:00.0: unknown part "nvswitch9"; allowed: nvswitch2, nvswitch3`},
		{"wrong kind", start + "  gpu 10:00.0 connectx7\n", `line 4: gpu 0000:10:00.0: part connectx7 is a nic, not a gpu`},
		{"address", start + "  gpu 10-00.0 h100-sxm\n", `line 4: gpu: address "10-00.0": want bus:device.function such as 1b:00.0`},
		{"address twice", start + "  gpu 10:00.0 h100-sxm\n  gpu 10:00.0 h100-sxm\n", `line 5: gpu 0000:10:00.0 is already defined in line 4`},
		{"bus", start + "  gpu 11:00.0 h100-sxm\n", `line 4: gpu 0000:11:00.0: the bus here is 10`},
		{"bus goes down", start + "  port 10:00.0\n    gpu 0f:00.0 h100-sxm\n", `line 5: gpu 0000:0f:00.0: bus 0f below a bridge on bus 10: it must be higher`},
		{"bus twice", start + "  port 10:00.0\n    gpu 11:00.0 h100-sxm\n  port 10:01.0\n    gpu 11:01.0 h100-sxm\n", `line 6: bus 11 is already below line 4`},
		{"domain", start + "  gpu 0001:10:00.0 h100-sxm\n", `line 4: gpu 0001:10:00.0: its root has domain 0000`},
		{"below a gpu", start + "  gpu 10:00.0 h100-sxm\n    gpu 11:00.0 h100-sxm\n", `line 5: gpu cannot be below gpu; nothing can`},
		{"link", start + "  gpu 10:00.0 h100-sxm at gen9x16\n", `line 4: gpu: at "gen9x16": want genNxW, genN or xW with N up to 7 and W of 1, 2, 4, 8, 12, 16, 32`},
		{"numa of a device", start + "  gpu 10:00.0 h100-sxm numa 3\n", `line 4: there is no numa 3`},
		{"cpus", "machine m \"x\"\nnuma 0 cpus 0-9000\n", `line 2: numa: cpus "0-9000": want CPUs such as 0-7,16-23, below 8192`},
		{"cpu twice", "machine m \"x\"\nnuma 0 cpus 0-3\nnuma 1 cpus 3-5\n", `line 3: numa 1: CPU 3 already belongs to numa 0`},
		{"distances", "machine m \"x\"\nnuma 0 cpus 0-3 distance \"10 20\"\n", `line 2: numa 0: 2 distances, but 1 nodes`},
		{"size", "machine m \"x\"\nnuma 0 cpus 0-3 mem 64GB\n", `line 2: numa: mem "64GB": want a whole number with KiB, MiB, GiB or TiB`},
		{"vf without pf", start + "  nic 10:00.1 connectx7-vf vf-of 10:00.0\n", `line 4: nic 0000:10:00.1: vf-of 0000:10:00.0, which is not a physical function of a nic`},
		{"interface twice", start + "  nic 10:00.0 connectx7 net a\n  nic 10:00.1 connectx7 net a\n", `line 5: nic: interface "a" is already defined in line 4`},
		{"lo", start + "netdev lo kind dummy\n", `line 4: netdev: every machine already has the interface lo`},
		{"leg", start + "bond b legs x\n", `line 4: bond b: there is no interface "x"`},
		{"ip", start + "  nic 10:00.0 connectx7 net a ip 10.0.0.300/8\n", `line 4: nic: ip "10.0.0.300/8": want an address such as 10.0.0.1/24`},
		{"driverless", start + "  nic 10:00.0 connectx7 driver none net a\n", `line 4: nic 0000:10:00.0: without a driver it cannot have net or rdma`},
		{"memlock", "machine m \"x\"\nhost memlock 8MiB\n", `line 2: host: memlock "8MiB": want unlimited, or a number from 0 to 9223372036854775807`},
		{"nvidia module", "machine m \"x\"\nnvidia module closed\n", `line 2: nvidia: module "closed": want open, proprietary`},
		{"traffic class", start + "  nic 10:00.0 connectx7 rdma a tc 256\n", `line 4: nic: tc "256": want unset, or a number from 0 to 255`},
		{"partition key", start + "  nic 10:00.0 connectx7 rdma a pkeys 0xffff,8001\n", `line 4: nic: pkeys "0xffff,8001": want at most 128 keys such as 0xffff,0x8001`},
		{"partition key of nothing", start + "  nic 10:00.0 connectx7 net a pkeys 0xffff\n", `line 4: nic 0000:10:00.0: pkeys and tc need an RDMA device (rdma NAME)`},
		{"pair", start + "  gpu 10:00.0 h100-sxm\nnvlink gpu0 gpu1 4\n", `line 5: there is no gpu1, the machine has 1`},
		{"pair words", start + "nvlink gpu0 4\n", `line 4: nvlink needs two GPUs, or all, and then one more word`},
		{"pair with itself", start + "nvlink gpu0 gpu0 4\n", `line 4: nvlink needs two different GPUs`},
		{"nvml index", start + "  gpu 10:00.0 h100-sxm nvml-index 1\n  gpu 10:01.0 h100-sxm nvml-index 1\n", `line 5: gpu 0000:10:01.0: another GPU already has nvml-index 1`},
		{"variant with hardware", "machine m \"x\"\nbase b\nroot 0000:10\n", `line 3: root: a variant (base) can only have patches; allowed: change, link, move, remove, set, unreadable`},
		{"errno", start + "unreadable proc/version EFAULT\n", `line 4: unreadable: error "EFAULT": want EACCES, EINVAL, EIO, ENODEV`},
		{"change", start + "change 10:05.0 at x4\n", `line 4: change: there is no function 0000:10:05.0`},
		{"change's option", start + "  gpu 10:00.0 h100-sxm\nchange 10:00.0 lid 4\n", `line 5: change: gpu: unknown word "lid"; allowed: acs, at, c2c, c2c-rate, class, driver, id, link, memory-numa, mig, minor, numa, nvlink, nvml-index, rev, serial, sub, title, uuid`},
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
	const start = "machine m \"x\"\nnuma 0 cpus 0-3 mem 1GiB\nroot 0000:10 numa 0\n  gpu 10:00.0 h100-sxm\n"
	for text, want := range map[string]string{
		"remove sys/nothing":                              "machine: line 5: remove sys/nothing: ",
		"set sys/bus/pci/devices/0000:11:00.0/class 0x01": "machine: line 5: set sys/bus/pci/devices/0000:11:00.0/class: ",
		"set sys/bus/pci/devices/*/nothing/x 1":           "machine: line 5: set sys/bus/pci/devices/*/nothing/x: nothing matches",
		"remove ../../etc":                                "machine: line 5: remove ../../etc: ",
		"set proc 1":                                      "machine: m: ",
	} {
		_, err := parse(t, start+text+"\n").Tree()
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s...", text, err, want)
		}
	}
}

func TestManyErrors(t *testing.T) {
	_, err := machine.Parse([]byte("machine m \"x\"\n" + strings.Repeat("nonsense\n", 50)))
	if n := strings.Count(err.Error(), "\n"); n != 10 || !strings.HasSuffix(err.Error(), "and 40 more errors") {
		t.Errorf("%d lines of errors: %v", n+1, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		head + "root 0000:10 numa 0\n  port 10:00.0 acs 1d\n    switch 11:00.0 broadcom-c030\n      down 12:00.0\n        gpu 13:00.0 h100-sxm at gen1x8 nvlink 18\n",
		head + "root 10000:e0\n  nic e0:00.0 connectx7 ib rdma a net b lid 7 pkeys 0xffff,0x8001 tc 106\n  nic e0:00.1 connectx7-vf vf-of e0:00.0\nbond x legs b\nvlan y on x id 3\nsoftrdma r on y\n",
		head + "part p gpu id 1:2 class 030000\nroot 0000:10\n  gpu 10:00.0 p c2c 5 c2c-rate 9GB/s mig 1g.5gb\n  gpu 10:01.0 p\nnvlink all 2\np2p all ok\nset proc/* \"\"\nremove sys/*/cpu\nmove proc -> sys\n",
		head + "host memlock 65536\nnvidia driver 1 module open\nchange 10:00.0 at x8\n", "machine a \"b\"\nbase c\nset d e\n", "machine a \"\\x00\"", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		spec, err := machine.Parse(text)
		if err != nil || len(text) > 4096 || bytes.Count(text, []byte("*")) > 4 {
			return // large, and so slow
		}
		if spec.Base() != "" {
			base := parse(t, head+"root 0000:10\n  gpu 10:00.0 h100-sxm\n")
			if spec, err = spec.On(base); err != nil {
				return
			}
		}
		_, _ = spec.Tree() // may refuse, must not panic
	})
}
