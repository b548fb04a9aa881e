package export_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/export"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// source runs a script in a shell with nothing but a local rank in its
// environment, and gives the variables that it sets and what it says.
func source(t *testing.T, script, rank string) (vars map[string]string, said string) {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh: the scripts cannot be run")
	}
	file := filepath.Join(t.TempDir(), "env.sh")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	// The printf is the shell's own: PATH leads nowhere, so that a script which
	// runs anything else fails.
	cmd := exec.Command(sh, "-eu", "-c", `. "$1"; export topoctl_ib_device="${topoctl_ib_device-}"; exec "$2" -0`, "sh", file, envProgram(t))
	cmd.Env = []string{"PATH=/nonexistent"}
	if rank != "" {
		cmd.Env = append(cmd.Env, "LOCAL_RANK="+rank)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s\n%s", err, errs.String(), script)
	}
	vars = map[string]string{}
	for _, v := range strings.Split(strings.TrimSuffix(out.String(), "\x00"), "\x00") {
		name, value, _ := strings.Cut(v, "=")
		switch name {
		case "PATH", "PWD", "OLDPWD", "SHLVL", "_", "LOCAL_RANK":
		default:
			if value != "" || name != "topoctl_ib_device" {
				vars[name] = value
			}
		}
	}
	return vars, errs.String()
}

func envProgram(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("env")
	if err != nil {
		t.Skip("no env: the variables cannot be read back")
	}
	return program
}

// Golden files: what people read, comments and all.
func TestEnvGolden(t *testing.T) {
	for _, c := range []struct {
		fixture string
		engines []export.Engine
	}{
		{"dgx-h100-port-down", export.Engines()},
		{"bonds", export.Engines()},
		{"b300-16nic", export.Engines()},
		{"h20-4ib-1roce", []export.Engine{export.NCCL, export.UCX, export.NVSHMEM}},
		{"gb200-tray", []export.Engine{export.NCCL, export.UCX, export.VLLM}},
		{"sriov-pf-vf", []export.Engine{export.NCCL, export.UCX, export.MooncakeTool}},
		{"vm-flat", []export.Engine{export.NCCL}},
		{"lab-softrdma", []export.Engine{export.NCCL, export.UCX, export.NVSHMEM}},
		{"cpu-2eth", []export.Engine{export.NCCL, export.UCX}},
	} {
		top := fixturetest.Topology(t, c.fixture)
		for _, engine := range c.engines {
			text := environment(t, prepare(t, top), export.EnvOptions{For: engine, Visible: export.AllGPUs(top), Rank: -1})
			golden.Check(t, fmt.Sprintf("testdata/env/%s.%s.sh", c.fixture, engine), []byte(text))
		}
	}
}

// Whatever the host, each script runs in a shell, sets what belongs to its
// engine only, and what it sets is what the engine's own parser takes and names
// ports that the plan gives.
func TestEnvOfFixtures(t *testing.T) {
	for _, name := range fixtures.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := fixturetest.Topology(t, name)
			h := prepare(t, top)
			v := export.AllGPUs(top)
			for _, engine := range export.Engines() {
				o := export.EnvOptions{For: engine, Visible: v, Rank: -1}
				all := environment(t, h, o)
				vars, said := source(t, all, "77777")
				for variable, value := range vars {
					checkVariable(t, h, variable, value)
				}
				if perRank := strings.Contains(all, "\nesac\n"); perRank != strings.Contains(said, "no settings: local rank") {
					t.Errorf("%s: an unknown rank: %q", engine, said)
				}
				if !checkRank(t, h, o, all, 1) {
					checkRank(t, h, o, all, 0)
				}
			}
		})
	}
}

// checkRank compares one rank's part of the script for all with the script for
// that rank, and checks its values. It says whether there is such a rank.
func checkRank(t *testing.T, h *pathsel.Host, o export.EnvOptions, all string, rank int) bool {
	t.Helper()
	o.Rank = rank
	var one bytes.Buffer
	if err := export.Env(&one, h, o); err != nil {
		if !strings.Contains(err.Error(), "local ranks, counted from 0") {
			t.Errorf("%s: rank %d: %v", o.For, rank, err)
		}
		return false
	}
	want, _ := source(t, all, strconv.Itoa(rank))
	got, said := source(t, one.String(), "")
	if said != "" {
		t.Errorf("%s: rank %d says %q", o.For, rank, said)
	}
	delete(want, "topoctl_ib_device") // a map for all, a list for one
	for name, value := range got {
		checkVariable(t, h, name, value)
		if name != "topoctl_ib_device" && want[name] != value {
			t.Errorf("%s: rank %d: %s=%q alone, %q among all", o.For, rank, name, value, want[name])
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("%s: rank %d: %s is set among all only", o.For, rank, name)
		}
	}
	return true
}

// checkVariable reads a value as its engine does.
func checkVariable(t *testing.T, h *pathsel.Host, name, value string) {
	t.Helper()
	usable := func(device string, port int) {
		t.Helper()
		ok := slices.ContainsFunc(h.Ports(), func(p pathsel.Port) bool {
			return p.Usable && p.Device == device && (port < 0 || p.Number == port)
		})
		if !ok {
			t.Errorf("%s=%q: %s port %d is no usable port", name, value, device, port)
		}
	}
	switch name {
	case "NCCL_IB_HCA":
		exact, ok := strings.CutPrefix(value, "=")
		if !ok {
			t.Errorf("%s=%q: names match as prefixes", name, value)
		}
		for _, f := range ncclList(exact) {
			usable(f.name, f.port)
		}
	case "NCCL_SOCKET_IFNAME":
		for _, f := range ncclList(strings.TrimPrefix(value, "=")) {
			if !slices.ContainsFunc(h.Topology().Netdevs, func(n topo.Netdev) bool { return n.Name == f.name && n.State != "down" }) {
				t.Errorf("%s=%q: no such interface", name, value)
			}
		}
	case "UCX_NET_DEVICES":
		for _, d := range strings.Split(value, ",") {
			if device, port, ok := strings.Cut(d, ":"); ok {
				n, err := strconv.Atoi(port)
				if err != nil {
					t.Errorf("%s=%q: %v", name, value, err)
				}
				usable(device, n)
			} else if !slices.ContainsFunc(h.Ports(), func(p pathsel.Port) bool { return p.Usable && p.Netdev == d }) {
				t.Errorf("%s=%q: no such interface", name, value)
			}
		}
	case "NVSHMEM_HCA_LIST":
		list := nvshmemList(value)
		if len(list) != 1 {
			t.Errorf("%s=%q: %d devices, a rank uses one", name, value, len(list))
		}
		for _, f := range list {
			usable(f.name, f.port)
		}
	case "MC_TE_FILTERS":
		for _, d := range strings.Split(value, ",") {
			usable(d, 1)
		}
	case "VLLM_GPU_NIC_PCIE_MAPPING":
		checkVLLM(t, h, value)
	case "VLLM_NIC_SELECTION_VARS":
		if value != "UCX_NET_DEVICES:1" {
			t.Errorf("%s=%q", name, value)
		}
	case "topoctl_ib_device":
		for _, devices := range sglangMap(t, value) {
			for _, d := range strings.Split(devices, ",") {
				usable(d, -1)
			}
		}
	case "NVSHMEM_HCA_PREFIX":
		if !slices.ContainsFunc(h.Ports(), func(p pathsel.Port) bool { return p.Usable && strings.Contains(p.Device, value) }) {
			t.Errorf("%s=%q: no device has it in its name", name, value)
		}
	case "NVSHMEM_ENABLE_NIC_PE_MAPPING":
		if value != "1" {
			t.Errorf("%s=%q", name, value)
		}
	case "NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", "NVSHMEM_IB_GID_INDEX", "MC_GID_INDEX", "UCX_MAX_RNDV_RAILS":
		if n, err := strconv.Atoi(value); err != nil || n < 0 || n > 255 {
			t.Errorf("%s=%q", name, value)
		}
	default:
		t.Errorf("%s=%q is set, and no engine is known to read it", name, value)
	}
}

type listed struct {
	name  string
	port  int
	count int
}

// ncclList reads a list as NCCL does: entries between commas, each a name of at
// most 63 bytes, a port and more after colons.
// Source: NCCL 2.30.7 src/misc/utils.cc, parseStringList.
func ncclList(s string) []listed {
	var out []listed
	for _, entry := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) {
		parts := strings.Split(entry, ":")
		if parts[0] == "" {
			continue
		}
		f := listed{name: parts[0][:min(len(parts[0]), 63)], port: -1}
		if len(parts) > 1 && parts[1] != "" {
			f.port, _ = strconv.Atoi(parts[1])
		}
		if out = append(out, f); len(out) == 32 {
			break
		}
	}
	return out
}

// nvshmemList reads a list as NVSHMEM does.
// Source: nvshmem 2d7d25f src/modules/transport/common/transport_common.cpp.
func nvshmemList(s string) []listed {
	var out []listed
	for _, entry := range strings.Split(strings.TrimPrefix(s, "^"), ",") {
		parts := strings.Split(entry, ":")
		f := listed{name: parts[0], port: -1, count: 1}
		if len(parts) > 1 {
			f.port, _ = strconv.Atoi(parts[1])
		}
		if len(parts) > 2 {
			f.count, _ = strconv.Atoi(parts[2])
		}
		if f.name != "" {
			out = append(out, f)
		}
	}
	return out
}

// checkVLLM reads the mapping as vLLM does, and finds for each GPU the RDMA
// device that vLLM finds: the first by name at the NIC's address.
// Source: vllm/v1/executor/vllm_net_devices.py.
func checkVLLM(t *testing.T, h *pathsel.Host, value string) {
	t.Helper()
	top := h.Topology()
	for _, pair := range strings.Split(value, ",") {
		gpu, nic, ok := strings.Cut(pair, "=")
		if !ok {
			t.Errorf("VLLM_GPU_NIC_PCIE_MAPPING: %q is no pair", pair)
		}
		if !slices.ContainsFunc(top.GPUs, func(g topo.GPU) bool { return g.BDF != nil && g.BDF.String() == gpu }) {
			t.Errorf("%s is no GPU", gpu)
		}
		var names []string
		for i := range top.RDMADevices {
			if r := &top.RDMADevices[i]; r.BDF != nil && r.BDF.String() == nic {
				names = append(names, r.Name)
			}
		}
		slices.Sort(names)
		if len(names) == 0 || !slices.ContainsFunc(h.Ports(), func(p pathsel.Port) bool { return p.Usable && p.Device == names[0] && p.Number == 1 }) {
			t.Errorf("%s: vLLM takes %v there, which is not usable", nic, names)
		}
	}
}

// sglangMap reads what SGLang takes for --disaggregation-ib-device.
// Source: sglang mooncake_transfer_engine.py, get_ib_devices_for_gpu.
func sglangMap(t *testing.T, value string) map[string]string {
	t.Helper()
	if !strings.HasPrefix(value, "{") {
		return map[string]string{"": value}
	}
	var m map[string]string
	if err := json.Unmarshal([]byte(value), &m); err != nil {
		t.Errorf("%s: %v", value, err)
	}
	for key := range m {
		if !regexp.MustCompile(`^[0-9]+$`).MatchString(key) {
			t.Errorf("%s: key %q is no number", value, key)
		}
	}
	return m
}

// The decisions that a reader should be able to check against the machine.
func TestEnvDecisions(t *testing.T) {
	for _, c := range []struct {
		about, fixture string
		engine         export.Engine
		rank           int
		name, want     string
	}{
		{"the NIC of the GPU's own switch, not the one of its index", "hgx-h20-8nic", export.UCX, 0, "UCX_NET_DEVICES", "mlx5_1:1"},
		{"a NIC whose port is down is replaced", "dgx-h100-port-down", export.UCX, 4, "UCX_NET_DEVICES", "mlx5_9:1"},
		{"more NICs than GPUs: two for each", "b300-16nic", export.UCX, 3, "UCX_NET_DEVICES", "mlx5_6:1,mlx5_7:1"},
		{"and as many rails", "b300-16nic", export.UCX, 3, "UCX_MAX_RNDV_RAILS", "2"},
		{"fewer NICs than GPUs: neighbours share", "h20-4ib-1roce", export.UCX, 3, "UCX_NET_DEVICES", "ibp71s0:1"},
		{"decoys are not in the list", "b200", export.NCCL, 0, "NCCL_IB_HCA", "=mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_7:1,mlx5_8:1,mlx5_9:1"},
		{"neither are virtual functions", "sriov-pf-vf", export.NCCL, 1, "NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"},
		{"the interface with the default route", "sriov-pf-vf", export.NCCL, 1, "NCCL_SOCKET_IFNAME", "=eno1"},
		{"RoCE v2 with an IPv4 address", "sriov-pf-vf", export.NCCL, 0, "NCCL_IB_GID_INDEX", "3"},
		{"one domain for each device", "gb200-tray", export.VLLM, 0, "VLLM_GPU_NIC_PCIE_MAPPING",
			"0008:01:00.0=0000:01:00.0,0009:01:00.0=0002:01:00.0,0018:01:00.0=0010:01:00.0,0019:01:00.0=0012:01:00.0"},
		{"NVSHMEM skips what is not called mlx5", "h20-4ib-1roce", export.NVSHMEM, 0, "NVSHMEM_HCA_PREFIX", "ibp"},
		{"one NIC for each process", "b300-16nic", export.NVSHMEM, 3, "NVSHMEM_HCA_LIST", "mlx5_6:1"},
		{"SGLang takes devices", "b300-16nic", export.SGLang, 3, "topoctl_ib_device", "mlx5_6,mlx5_7"},
		{"without RDMA UCX takes interfaces", "cpu-2eth", export.UCX, 0, "UCX_NET_DEVICES", "ens5f0"},
	} {
		top := fixturetest.Topology(t, c.fixture)
		script := environment(t, prepare(t, top), export.EnvOptions{For: c.engine, Visible: export.AllGPUs(top), Rank: c.rank})
		vars, _ := source(t, script, "")
		if vars[c.name] != c.want {
			t.Errorf("%s: %s %s rank %d: %s=%q, want %q", c.about, c.fixture, c.engine, c.rank, c.name, vars[c.name], c.want)
		}
	}
}

// Ranks are counted over the visible GPUs, and the others keep their NICs.
func TestEnvVisible(t *testing.T) {
	top := fixturetest.Topology(t, "hgx-h20-8nic")
	h := prepare(t, top)
	v, err := export.AllGPUs(top).Select("5,2,7")
	if err != nil {
		t.Fatal(err)
	}
	for rank, want := range []string{"mlx5_6:1", "mlx5_3:1", "mlx5_8:1"} {
		vars, _ := source(t, environment(t, h, export.EnvOptions{For: export.UCX, Visible: v, Rank: rank}), "")
		if vars["UCX_NET_DEVICES"] != want {
			t.Errorf("rank %d: %q, want %q", rank, vars["UCX_NET_DEVICES"], want)
		}
	}
	vars, _ := source(t, environment(t, h, export.EnvOptions{For: export.SGLang, Visible: v, Rank: -1}), "")
	if want := `{"0":"mlx5_6","1":"mlx5_3","2":"mlx5_8"}`; vars["topoctl_ib_device"] != want {
		t.Errorf("SGLang: %s, want %s", vars["topoctl_ib_device"], want)
	}
	vars, _ = source(t, environment(t, h, export.EnvOptions{For: export.NCCL, Visible: v, Ranks: 2, Rank: 1}), "")
	if want := "=mlx5_3:1,mlx5_6:1"; vars["NCCL_IB_HCA"] != want {
		t.Errorf("NCCL with two ranks: %s, want %s", vars["NCCL_IB_HCA"], want)
	}
	for _, o := range []export.EnvOptions{{For: "nosuch", Visible: v}, {For: export.UCX}, {For: export.UCX, Visible: v, Ranks: 4},
		{For: export.UCX, Visible: v, Rank: 3}} {
		if err := export.Env(io.Discard, h, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// One GID index is written only where it is right for all ports.
func TestEnvGIDIndex(t *testing.T) {
	const gid = "sys/class/infiniband/mlx5_bond_0/ports/1/"
	moved := fixturetest.Variant(t, "bonds",
		"{set: "+gid+"gids/5, to: 0000:0000:0000:0000:0000:ffff:0a16:0a0a}", "{set: "+gid+"gid_attrs/types/5, to: RoCE v2}",
		"{set: "+gid+"gid_attrs/ndevs/5, to: bond0}", "{set: "+gid+"gids/3, to: 0000:0000:0000:0000:0000:0000:0000:0000}")
	both := fixturetest.Variant(t, "bonds",
		"{set: "+gid+"gids/5, to: 0000:0000:0000:0000:0000:ffff:0a16:0a0a}", "{set: "+gid+"gid_attrs/types/5, to: RoCE v2}",
		"{set: "+gid+"gid_attrs/ndevs/5, to: bond0}")
	unknown := fixturetest.Topology(t, "bonds")
	for i := range unknown.Ports {
		unknown.Ports[i].GIDs, unknown.Ports[i].GIDTable = nil, nil
	}
	for _, c := range []struct {
		about     string
		top       *topo.Topology
		engine    export.Engine
		rank      int
		want, why string
	}{
		{"another index on one port", moved, export.NCCL, 0, "", "NCCL_IB_GID_INDEX is left out: no index is right for all ports: mlx5_bond_0 5, mlx5_bond_1 3"},
		{"its rank has its own", moved, export.UCX, 0, "5", "RoCE v2, 10.22.10.10"},
		{"others have theirs", moved, export.UCX, 1, "3", ""},
		{"a second index on one port", both, export.NCCL, 0, "3", "on each of the 8 ports"},
		{"not known", unknown, export.UCX, 0, "", "UCX_IB_GID_INDEX is left out: the origin does not tell the GID table of mlx5_bond_0"},
		{"InfiniBand needs none", fixturetest.Topology(t, "dgx-h100"), export.NCCL, 0, "", ""},
	} {
		script := environment(t, prepare(t, c.top), export.EnvOptions{For: c.engine, Visible: export.AllGPUs(c.top), Rank: c.rank})
		vars, _ := source(t, script, "")
		if got := vars[strings.ToUpper(string(c.engine))+"_IB_GID_INDEX"]; got != c.want || !strings.Contains(script, c.why) {
			t.Errorf("%s: %q, want %q because %q:\n%s", c.about, got, c.want, c.why, script)
		}
		if c.want == "" && c.why == "" && strings.Contains(script, "GID") {
			t.Errorf("%s, and the script speaks of it:\n%s", c.about, script)
		}
	}
}

// A traffic class is written only where the host tells one for all ports.
func TestEnvTrafficClass(t *testing.T) {
	tc := func(port int, value string) string {
		return fmt.Sprintf("{change: 0000:%s.0, tc: %s}", []string{"15:00", "16:00", "35:00", "36:00", "85:00", "86:00", "a5:00", "a6:00"}[port], value)
	}
	all := func(value string) (out []string) {
		for port := range 8 {
			out = append(out, tc(port, value))
		}
		return out
	}
	for _, c := range []struct {
		about     string
		changes   []string
		want, why string
	}{
		{"known", all("106"), "106", "what the host forces on these ports"},
		{"differing", append(all("106"), tc(3, "96")), "", "mlx5_bond_0 has 106, mlx5_bond_3 has 96"},
		{"set to nothing", all("unset"), "", "the host sets none for mlx5_bond_0"},
		{"known of one only", []string{tc(0, "106")}, "", "not known for mlx5_bond_1"},
		{"not known", nil, "", "not known for mlx5_bond_0"},
	} {
		top := fixturetest.Variant(t, "bonds", c.changes...)
		for engine, name := range map[export.Engine]string{export.NCCL: "NCCL_IB_TC", export.MooncakeTool: "MC_IB_TC"} {
			script := environment(t, prepare(t, top), export.EnvOptions{For: engine, Visible: export.AllGPUs(top), Rank: 7, TopologyFile: "/t.json"})
			vars, _ := source(t, script, "")
			if vars[name] != c.want || !strings.Contains(script, c.why) {
				t.Errorf("%s: %s=%q, want %q because %q:\n%s", c.about, name, vars[name], c.want, c.why, script)
			}
		}
	}
	top := fixturetest.Variant(t, "bonds", append(all("106"), tc(3, "96"))...)
	for rank, want := range []string{"106", "106", "106", "96"} {
		vars, _ := source(t, environment(t, prepare(t, top), export.EnvOptions{For: export.UCX, Visible: export.AllGPUs(top), Rank: rank}), "")
		if got := vars["UCX_IB_TRAFFIC_CLASS"]; vars["UCX_NET_DEVICES"] != fmt.Sprintf("mlx5_bond_%d:1", rank) || got != want {
			t.Errorf("rank %d: %q, want %q (%v)", rank, got, want, vars)
		}
	}
}

// A topology file is named where the engine reads one.
func TestEnvTopologyFile(t *testing.T) {
	top := fixturetest.Topology(t, "vm-flat")
	h := prepare(t, top)
	script := environment(t, h, export.EnvOptions{For: export.NCCL, Visible: export.AllGPUs(top), Rank: -1})
	if !strings.Contains(script, "NCCL_TOPO_FILE is left out: this virtual machine (kvm) shows no PCIe switch") {
		t.Errorf("a flat virtual machine:\n%s", script)
	}
	for engine, name := range map[export.Engine]string{export.NCCL: "NCCL_TOPO_FILE", export.MooncakeTool: "MC_CUSTOM_TOPO_JSON"} {
		vars, _ := source(t, environment(t, h, export.EnvOptions{For: engine, Visible: export.AllGPUs(top), Rank: -1, TopologyFile: "/etc/it's here"}), "0")
		if vars[name] != "/etc/it's here" || vars["MC_TE_FILTERS"] != "" {
			t.Errorf("%s: %q", name, vars)
		}
	}
	for _, name := range []string{"dgx-h100", "nd96asr-v4"} {
		top := fixturetest.Topology(t, name)
		flat := strings.Contains(environment(t, prepare(t, top), export.EnvOptions{For: export.NCCL, Visible: export.AllGPUs(top), Rank: -1}), "NCCL_TOPO_FILE")
		if flat != (name == "nd96asr-v4") {
			t.Errorf("%s: flat is %v", name, flat)
		}
	}
}

// Names come from a host's files: whatever they are, nothing of them is run,
// and no list is cut at them.
func TestEnvHostileNames(t *testing.T) {
	evil := []string{"a'b", "$(kill $$)", "`kill $$`", "x\nkill $$\n#", "m,n", "o:1", "^p", "=q", "a b", "\x1b[2J\u202e", "\xff\xfe", "*", "-n", "\\", "\"", strings.Repeat("z", 5000)}
	for i, name := range evil {
		top := fixturetest.Topology(t, "bonds")
		top.Host.Name = name
		top.GPUs[0].Model = name
		top.RDMADevices[0].Name, top.Host.Virtual = name, name
		for j := range top.Netdevs {
			if top.Netdevs[j].Name == "eth0" {
				top.Netdevs[j].Name = name
			}
		}
		h := prepare(t, top)
		for _, engine := range export.Engines() {
			script := environment(t, h, export.EnvOptions{For: engine, Visible: export.AllGPUs(top), Rank: -1, TopologyFile: name})
			for _, line := range strings.Split(script, "\n") {
				if strings.ContainsAny(line, "\x1b\u202e") && !strings.Contains(line, "export MC_CUSTOM_TOPO_JSON=") && !strings.Contains(line, "export NCCL_TOPO_FILE=") {
					t.Errorf("%d: %s: a line for a terminal: %q", i, engine, line)
				}
			}
			vars, said := source(t, script, "0")
			if said != "" {
				t.Errorf("%d: %s says %q", i, engine, said)
			}
			for v, value := range vars {
				switch {
				case v == "NCCL_TOPO_FILE" || v == "MC_CUSTOM_TOPO_JSON":
					if value != name {
						t.Errorf("%d: %s=%q, want %q", i, v, value, name)
					}
				case strings.Contains(value, name) && name != "=q" && name != "\"":
					t.Errorf("%d: %s=%q has the name %q in a list", i, v, value, name)
				}
			}
		}
	}
}

// What a list or map cannot express is left out with the reason.
func TestEnvLimits(t *testing.T) {
	device := func(top *topo.Topology, name string) *topo.RDMADevice {
		return &top.RDMADevices[slices.IndexFunc(top.RDMADevices, func(r topo.RDMADevice) bool { return r.Name == name })]
	}
	for _, c := range []struct {
		about  string
		engine export.Engine
		edit   func(*topo.Topology)
		name   string // left out, or set to want
		want   string
		why    string
	}{
		{"two RDMA devices of one function: vLLM would take the other", export.VLLM, func(top *topo.Topology) {
			other := *device(top, "mlx5_3")
			other.Name, other.ID, other.Uverbs = "mlx5_2a", "rdma:mlx5_2a", "denied"
			top.RDMADevices = append(top.RDMADevices, other)
		}, "VLLM_GPU_NIC_PCIE_MAPPING", "", "mlx5_3: mlx5_2a has the same PCI address, and vLLM would take that"},
		{"ports of different numbers", export.VLLM, func(top *topo.Topology) {
			for i := range top.Ports {
				if p := &top.Ports[i]; p.RDMA == "rdma:mlx5_4" {
					p.Number, p.ID = 2, "port:mlx5_4/2"
				}
			}
		}, "VLLM_GPU_NIC_PCIE_MAPPING", "", "vLLM adds the same port number to every NIC"},
		{"two default routes: the one with the lower metric", export.NCCL, func(top *topo.Topology) {
			for i := range top.Netdevs {
				if n := &top.Netdevs[i]; n.Name == "eno1" {
					n.Routes = append(n.Routes, topo.Route{Dst: "default", Metric: 50})
				} else if n.Name == "ibp24s0" {
					n.Routes = append(n.Routes, topo.Route{Dst: "0.0.0.0/0", Metric: 700})
				}
			}
		}, "NCCL_SOCKET_IFNAME", "=eno1", "has the default route"},
		{"no default route", export.NCCL, func(top *topo.Topology) {
			for i := range top.Netdevs {
				top.Netdevs[i].Routes = nil
			}
		}, "NCCL_SOCKET_IFNAME", "", "no interface with a default route is known"},
		{"the number of a port is not known", export.UCX, func(top *topo.Topology) { top.Ports = nil },
			"UCX_NET_DEVICES", "", "mlx5_0 cannot be listed: UCX wants the number of the port"},
		{"NCCL takes a device without", export.NCCL, func(top *topo.Topology) { top.Ports = nil },
			"NCCL_IB_HCA", "=mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11", ""},
		{"two kinds of network", export.NCCL, func(top *topo.Topology) {
			for i := range top.Ports {
				if p := &top.Ports[i]; p.RDMA == "rdma:mlx5_4" {
					p.LinkLayer = "Ethernet"
				}
			}
		}, "NCCL_IB_HCA", "=mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_9:1,mlx5_10:1,mlx5_11:1", "of different link layers"},
		{"a network that is not known is no second kind", export.NCCL, func(top *topo.Topology) {
			for i := range top.Ports {
				if p := &top.Ports[i]; p.RDMA == "rdma:mlx5_4" {
					p.LinkLayer = ""
				}
			}
		}, "NCCL_IB_HCA", "=mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_9:1,mlx5_10:1,mlx5_11:1", "!of different link layers"},
		{"different GPUs", export.UCX, func(top *topo.Topology) { top.GPUs[1].Model = "another" }, "UCX_NET_DEVICES", "mlx5_0:1", "the GPUs differ"},
	} {
		top := fixturetest.Topology(t, "dgx-h100")
		c.edit(top)
		top.Derive()
		script := environment(t, prepare(t, top), export.EnvOptions{For: c.engine, Visible: export.AllGPUs(top), Rank: 0})
		vars, _ := source(t, script, "")
		why, absent := strings.CutPrefix(c.why, "!")
		if vars[c.name] != c.want || strings.Contains(script, why) == absent || c.want == "" && !strings.Contains(script, c.name+" is left out: ") {
			t.Errorf("%s: %s=%q, want %q because %q:\n%s", c.about, c.name, vars[c.name], c.want, c.why, script)
		}
	}
	top := fixturetest.Spec(t, wide(16))
	for i := range top.Ports[:3] { // a list of more than NCCL takes
		for n := range 12 {
			p := top.Ports[i]
			p.Number, p.ID = n+2, topo.ID(fmt.Sprintf("%s%d", p.ID, n+2))
			top.Ports = append(top.Ports, p)
		}
	}
	script := environment(t, prepare(t, top), export.EnvOptions{For: export.NCCL, Visible: export.AllGPUs(top), Rank: -1})
	if !strings.Contains(script, "NCCL takes 32 ports at most, these are 52") {
		t.Errorf("52 ports:\n%s", script)
	}
}
