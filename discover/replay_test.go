package discover

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
)

// withAnswers is the small machine with other recorded answers.
func withAnswers(t testing.TB, name, text string) *hosttree.Mem {
	t.Helper()
	tree := hosttree.NewMem()
	if err := copyTree(smallTree(t), tree, ".", "topoctl"); err != nil {
		t.Fatal(err)
	}
	if err := tree.AddFile(name, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return tree
}

// Recorded answers that this program cannot read cost only themselves, and the
// warning says why.
func TestReplayRefuses(t *testing.T) {
	many := func(n int, item string) string { return strings.Repeat(item+",", n-1) + item }
	for _, tt := range []struct{ name, path, text, want string }{
		{"newer major", replies.NVMLPath, `{"schema":"topoctl.nvml/v2","gpus":[]}`, `schema "topoctl.nvml/v2" is of another version; this program reads topoctl.nvml/v1`},
		{"another file", replies.NVMLPath, `{"schema":"topoctl.netlink/v1"}`, `want topoctl.nvml/v1`},
		{"no schema", replies.NetlinkPath, `{"links":[]}`, `schema "": want topoctl.netlink/v1`},
		{"cut off", replies.NetlinkPath, `{"schema":"topoctl.netlink/v1","links":[{`, "unexpected end"},
		{"empty", replies.NetlinkPath, ``, "unexpected end"},
		{"wrong type", replies.NVMLPath, `{"schema":"topoctl.nvml/v1","gpus":[{"index":"zero"}]}`, "gpus.index"},
		{"wrong address", replies.NVMLPath, `{"schema":"topoctl.nvml/v1","gpus":[{"bdf":"nowhere"}]}`, `pci address "nowhere"`},
		{"too many GPUs", replies.NVMLPath, `{"schema":"topoctl.nvml/v1","gpus":[` + many(1025, "{}") + `]}`, "1025 GPUs, more than 1024"},
		{"too many NVLinks", replies.NVMLPath, `{"schema":"topoctl.nvml/v1","gpus":[{"nvlinks":[` + many(257, "{}") + `]}]}`, "more NVLinks"},
		{"too many links", replies.NetlinkPath, `{"schema":"topoctl.netlink/v1","links":[` + many(65537, "{}") + `]}`, "65537 links, more than 65536"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tp, err := Discover(context.Background(), Options{FS: withAnswers(t, tt.path, tt.text)})
			if err != nil {
				t.Fatal(err)
			}
			if !hasWarning(tp, topo.CodeSourceFailed, tt.want) || tp.Complete || len(tp.GPUs) != 2 {
				t.Errorf("complete %v, %d GPUs, warnings %v; want one with %q", tp.Complete, len(tp.GPUs), tp.Warnings, tt.want)
			}
		})
	}
}

func TestReplayTooLarge(t *testing.T) {
	text := `{"schema":"topoctl.nvml/v1","gpus":[]}` + strings.Repeat(" ", maxAnswers)
	err := decodeAnswers([]byte(text), "x", replies.SchemaNVML, &replies.GPUReport{})
	if err == nil || !strings.Contains(err.Error(), "more than 16777216 bytes") {
		t.Errorf("error %v", err)
	}
}

// Keys of a newer minor version are left alone, and the warnings that were
// recorded with the answers come along.
func TestReplayNewerMinor(t *testing.T) {
	text := `{"schema":"topoctl.netlink/v1","colour":"red","links":[{"index":2,"name":"ens1","shape":1}],
		"warnings":[{"code":"source-failed","detail":"netlink: routes: no","source":"nvml"}]}`
	tp, err := Discover(context.Background(), Options{FS: withAnswers(t, replies.NetlinkPath, text)})
	if err != nil {
		t.Fatal(err)
	}
	if r := reportOf(t, tp, topo.SourceNetlink); r.Status != topo.StatusPartial || tp.Complete {
		t.Errorf("%+v, complete %v", r, tp.Complete)
	}
	if w := warningsOf(tp, topo.CodeSourceFailed); len(w) != 1 || w[0].Source != topo.SourceNetlink {
		t.Errorf("warnings %v", tp.Warnings)
	}
}

// fuzzAnswers runs recorded answers through all that they go through.
func fuzzAnswers[T any](f *testing.F, schema string, seeds []string, recordedAt string, check func(*T) error, apply func(*topo.Topology, *T)) {
	good, err := smallTree(f).ReadFile(recordedAt)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	host := func(t testing.TB) *topo.Topology {
		tp := gpuHost(t, "0000:19:00.0", "0000:1a:00.0")
		tp.Netdevs = netHost(t, "lo", "ens1", "bond0").Netdevs
		tp.RDMADevices = []topo.RDMADevice{{Node: topo.Node{ID: "rdma:mlx5_0"}, Name: "mlx5_0"}}
		return tp
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		report := new(T)
		if decodeAnswers(data, "x", schema, report) != nil || check(report) != nil {
			return
		}
		tp := host(t)
		apply(tp, report)
		first, err := json.Marshal(tp.Warnings)
		if err != nil {
			t.Fatal(err)
		}
		again := host(t)
		apply(again, report)
		if second, _ := json.Marshal(again.Warnings); string(first) != string(second) {
			t.Errorf("the same answers gave other warnings\n%s\n%s", first, second)
		}
		ids := map[topo.LinkID]bool{}
		for _, l := range tp.Links {
			if ids[l.ID] {
				t.Errorf("link %s twice", l.ID)
			}
			ids[l.ID] = true
		}
	})
}

func FuzzNVMLAnswers(f *testing.F) {
	fuzzAnswers(f, replies.SchemaNVML, []string{
		`{"schema":"topoctl.nvml/v1","gpus":[{"index":-1,"bdf":"0000:19:00.0","nvlinks":[{"active":true,"remote_bdf":"0000:1a:00.0"}],"p2p":{"0":"ok","-5":"x"}}]}`,
		`{"schema":"topoctl.nvml/v1","gpus":[{"bdf":"0000:19:00.0","index":1},{"bdf":"0000:19:00.0"},{"bdf":"0000:1a:00.0","pcie_gen":-3,"pcie_width":0}]}`,
		`{"schema":"topoctl.nvml/v1","gpus":[{},{},{"bdf":"ffffffff:ff:1f.7","mig":{"enabled":true},"c2c":{"links":1,"bytes_per_sec":-1},"cpu_numa_node":0}]}`,
	}, replies.NVMLPath, checkGPUs, applyNVML)
}

func FuzzNetlinkAnswers(f *testing.F) {
	fuzzAnswers(f, replies.SchemaNetlink, []string{
		`{"schema":"topoctl.netlink/v1","links":[{"index":0,"name":""},{"index":2,"name":"ens1","master":2,"parent":2},{"index":2,"name":"ens1"}]}`,
		`{"schema":"topoctl.netlink/v1","links":[{"index":2,"name":"ens1","parent_bus":"pci","parent_dev":":::"}],"routes":[{"link":2}],"rdma":[{"name":"mlx5_0"}]}`,
	}, replies.NetlinkPath, checkNetlink, applyNetlink)
}
