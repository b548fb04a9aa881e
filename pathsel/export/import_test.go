package export_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/export"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/importtest"
)

// smi is nvidia-smi's matrix of two GPUs and two NICs, with legend below it.
func smi(t testing.TB, legend string) *topo.Topology {
	t.Helper()
	top, err := texts.Decode([]byte("\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n" +
		"GPU0\t X \tNV18\tPXB\tSYS\t0-7\t0\nGPU1\tNV18\t X \tSYS\tPXB\t8-15\t1\n" +
		"NIC0\tPXB\tSYS\t X \tSYS\nNIC1\tSYS\tPXB\tSYS\t X \n\n" + legend))
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// ncclFile is a NCCL file of two GPUs and a NIC for each, with what is in the
// NICs' elements and the attributes of the GPUs.
func ncclFile(t testing.TB, gpu, nic0, nic1 string) *topo.Topology {
	t.Helper()
	node := func(n int, nic string) string {
		return fmt.Sprintf(`<cpu numaid="%d" affinity="000000ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">`+
			`<pci busid="000%d:00:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">`+
			`<pci busid="000%d:01:00.0" class="0x030200" %s link_speed="32.0 GT/s PCIe" link_width="16"/>`+
			`<pci busid="010%d:00:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">%s</pci></pci></cpu>`, n, n+1, n+1, gpu, n+1, nic)
	}
	top, err := ncclxml.Decode([]byte(`<system version="1">` + node(0, nic0) + node(1, nic1) + `</system>`))
	if err != nil {
		t.Fatal(err)
	}
	return top
}

const (
	net0   = `<nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1" maxconn="131072" gdr="1"/></nic>`
	net1   = `<nic><net name="mlx5_1" dev="1" speed="400000" port="1" guid="0x2" maxconn="131072" gdr="1"/></nic>`
	nvidia = `vendor="0x10de" device="0x2330"`
)

// listVariables are the settings that name RDMA devices, and what belongs to
// such a list only.
var listVariables = map[export.Engine][]string{
	export.NCCL:         {"NCCL_IB_HCA"},
	export.UCX:          {"UCX_NET_DEVICES"},
	export.NVSHMEM:      {"NVSHMEM_HCA_LIST", "NVSHMEM_HCA_PREFIX", "NVSHMEM_ENABLE_NIC_PE_MAPPING"},
	export.SGLang:       {"topoctl_ib_device"},
	export.MooncakeTool: {"MC_TE_FILTERS"},
}

// What an import puts in the place of a name that it lacks is no device.
func TestImportWithoutNames(t *testing.T) {
	edited := smi(t, "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n")
	edited.Origin = "capture"
	for i := range edited.RDMADevices {
		edited.RDMADevices[i].Name = fmt.Sprintf("NIC%d", i) // a system may call a device so
	}
	for _, c := range []struct {
		about   string
		top     *topo.Topology
		unnamed string // what has no name, "" if all have
		rank    int    // that it is nearest to
	}{
		{"nvidia-smi without its legend", smi(t, ""), "NIC0 and NIC1", 0},
		{"nvidia-smi with it", smi(t, "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"), "", 0},
		{"nvidia-smi with half of it", smi(t, "NIC Legend:\n\n  NIC0: mlx5_0\n"), "NIC1", 1},
		{"NCCL's file without nets", ncclFile(t, nvidia, "", ""), "0101:00:00.0 and 0102:00:00.0", 0},
		{"NCCL's file with them", ncclFile(t, nvidia, net0, net1), "", 0},
		{"NCCL's file with one", ncclFile(t, nvidia, net0, ""), "0102:00:00.0", 1},
		{"no import", edited, "", 0},
	} {
		h := prepare(t, c.top)
		if h.Transport() != pathsel.RDMA {
			t.Fatalf("%s: transport %s", c.about, h.Transport())
		}
		v := export.AllGPUs(c.top)
		const why = "the input does not tell the device names of "
		for engine, variables := range listVariables {
			script := environment(t, h, export.EnvOptions{For: engine, Visible: v, Rank: c.rank})
			vars, _ := source(t, script, "")
			for _, name := range variables {
				if c.unnamed != "" && vars[name] != "" {
					t.Errorf("%s: %s=%q", c.about, name, vars[name])
				}
			}
			switch named := strings.Contains(script, why); {
			case named != (c.unnamed != ""):
				t.Errorf("%s: %s: says that names are missing: %v\n%s", c.about, engine, named, script)
			case named && !strings.Contains(script, variables[0]+" is left out: "+why):
				t.Errorf("%s: %s:\n%s", c.about, engine, script)
			}
			for _, wrong := range []string{"cannot be written", "UCX wants", "no port of"} {
				if c.unnamed != "" && strings.Contains(script, wrong) {
					t.Errorf("%s: %s gives the reason %q:\n%s", c.about, engine, wrong, script)
				}
			}
		}
		_, err := export.Mooncake(io.Discard, h, v)
		want := why + c.unnamed + ", which Mooncake's matrix is made of: give a capture"
		if (err != nil) != (c.unnamed != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: mooncake: %v, want %q", c.about, err, want)
		}
	}
}

// A matrix that somebody pasted tells names and classes: what an engine wants beside is named with what it
// takes to know it, in the first line where nothing is set at all.
func TestEnvOfAPastedMatrix(t *testing.T) {
	const pasted = "\tGPU0\tGPU1\tNIC0\tNIC1\nGPU0\t X \tNV18\tPIX\tSYS\nGPU1\tNV18\t X \tSYS\tPIX\n" +
		"NIC0\tPIX\tSYS\t X \tSYS\nNIC1\tSYS\tPIX\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
	top, err := texts.Decode([]byte(pasted))
	if err != nil {
		t.Fatal(err)
	}
	const unknown = " is left out: needed with RoCE only, and whether mlx5_0 is RoCE or InfiniBand is not known\n"
	for engine, want := range map[export.Engine]struct {
		first string
		left  []string
	}{
		export.NCCL: {"# NCCL on ", []string{"NCCL_IB_GID_INDEX" + unknown, "NCCL_IB_TC" + unknown}},
		export.UCX:  {"# Nothing is set for UCX on an unnamed host: no port of the rank can be used; mlx5_0 cannot be listed: UCX wants the number", []string{"UCX_IB_GID_INDEX" + unknown}},
		export.VLLM: {"# Nothing is set for vLLM on an unnamed host: gpu:0 and gpu:1: PCI address not known.", []string{
			"VLLM_NIC_SELECTION_VARS is left out: it has no effect without VLLM_GPU_NIC_PCIE_MAPPING\n", "UCX_IB_GID_INDEX" + unknown}},
	} {
		script := environment(t, prepare(t, top), export.EnvOptions{For: engine, Visible: export.AllGPUs(top), Rank: -1})
		first, _, _ := strings.Cut(script, "\n")
		if !strings.HasPrefix(first, want.first) || strings.Contains(first, "Nothing") != strings.Contains(first, "Run topoctl export env on the host itself") {
			t.Errorf("%s: first line %s\nwant %s", engine, first, want.first)
		}
		for _, line := range want.left {
			if !strings.Contains(script, line) {
				t.Errorf("%s: no %q:\n%s", engine, line, script)
			}
		}
	}
}

// A GPU whose vendor the input does not tell has no name in Mooncake's matrix.
func TestImportWithoutVendor(t *testing.T) {
	top := ncclFile(t, "", net0, net1)
	_, notes := mooncake(t, prepare(t, top), export.AllGPUs(top))
	if got := strings.Join(notes, "\n"); !strings.Contains(got, "gpu:1 is left out: the input does not tell its vendor") || strings.Contains(got, `""`) {
		t.Errorf("notes: %s", got)
	}
}

// Interfaces of an import need names too.
func TestImportSockets(t *testing.T) {
	top := fixturetest.Topology(t, "cpu-2eth")
	top.Origin = string(topo.SourceNCCL)
	for i := range top.Netdevs {
		if top.Netdevs[i].BDF != nil {
			top.Netdevs[i].Name = top.Netdevs[i].BDF.String()
		}
	}
	for engine, name := range map[export.Engine]string{export.NCCL: "NCCL_SOCKET_IFNAME", export.UCX: "UCX_NET_DEVICES"} {
		script := environment(t, prepare(t, top), export.EnvOptions{For: engine, Visible: export.AllGPUs(top), Rank: 0})
		if !strings.Contains(script, name+" is left out: the input does not tell the device names of ") {
			t.Errorf("%s:\n%s", engine, script)
		}
	}
}

// The files of others that were found to be exported with names of no device.
func TestImportSharedFiles(t *testing.T) {
	hosts := importtest.Hosts(t)
	for _, file := range []string{"dgx-h100-12nic-partial", "azure-ndv5-topo"} {
		top := hosts[file]
		h, v := prepare(t, top), export.AllGPUs(top)
		if _, err := export.Mooncake(io.Discard, h, v); err == nil || !strings.Contains(err.Error(), "and 7 more, which Mooncake's matrix") {
			t.Errorf("%s: %v", file, err)
		}
		for engine, variables := range listVariables {
			script := environment(t, h, export.EnvOptions{For: engine, Visible: v, Rank: -1})
			if strings.Contains(script, variables[0]+"=") || !strings.Contains(script, variables[0]+" is left out: the input does not tell the device names") {
				t.Errorf("%s: %s:\n%s", file, engine, script)
			}
		}
	}
}
