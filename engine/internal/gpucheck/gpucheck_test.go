//go:build cgo && linux && !nonvml

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/cmd/topoctl/inprocess"
	"github.com/topoctl/topoctl/discover/nvml"
	"github.com/topoctl/topoctl/internal/cuda/cudafake"
	"github.com/topoctl/topoctl/internal/verbscheck"
)

// TestMain makes the test binary the programs that gpucheck runs, by the names of links to it.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "gpucheck":
		main()
		os.Exit(0)
	case "topoctl":
		os.Exit(inprocess.Main(context.Background(), os.Args[1:], nvml.New(), verbscheck.New()))
	case "nvidia-smi":
		os.Exit(fakeSMI(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// envSerial is the serial number that the stand-in for nvidia-smi tells.
const envSerial = "FAKE_SMI_SERIAL"

// fakeSMI prints what nvidia-smi would print of the GPU of machine.
func fakeSMI(args []string) int {
	switch {
	case slices.Equal(args, []string{"-q", "-x"}):
		fmt.Printf(`<?xml version="1.0" ?>
<nvidia_smi_log>
	<driver_version>580.95.05</driver_version>
	<cuda_version>13.0</cuda_version>
	<attached_gpus>1</attached_gpus>
	<gpu id="00000000:1B:00.0">
		<product_name>NVIDIA H200</product_name>
		<mig_mode><current_mig>Disabled</current_mig></mig_mode>
		<serial>%s</serial>
		<uuid>GPU-10101010-1010-1010-1010-101010101010</uuid>
		<minor_number>0</minor_number>
		<pci>
			<pci_gpu_link_info>
				<pcie_gen><max_link_gen>5</max_link_gen></pcie_gen>
				<link_widths><max_link_width>16x</max_link_width><current_link_width>16x</current_link_width></link_widths>
			</pci_gpu_link_info>
		</pci>
		<fb_memory_usage><total>143771 MiB</total></fb_memory_usage>
	</gpu>
</nvidia_smi_log>
`, os.Getenv(envSerial))
	case slices.Equal(args, []string{"topo", "-m"}):
		fmt.Print("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-7\t0\t\tN/A\n\nLegend:\n\n  X    = Self\n")
	case slices.Contains(args, "--query-gpu=memory.used"):
		fmt.Println("1024")
	default:
		fmt.Fprintln(os.Stderr, "nvidia-smi: not in this stand-in:", args)
		return 2
	}
	return 0
}

// machine is what the stand-in for NVML tells: one GPU, the first of the stand-in for CUDA.
const machine = `init ok
driver 580.95.05
nvml 13.580.95.05
cuda 13000
count 1
gpu0.pci 0:1b:0
gpu0.uuid GPU-10101010-1010-1010-1010-101010101010
gpu0.serial 1650
gpu0.name NVIDIA H200
gpu0.minor 0
gpu0.memory 150754820096
gpu0.capability 9.0
gpu0.maxgen 5
gpu0.maxwidth 16
gpu0.gen 5
gpu0.width 16
gpu0.cpus ff
gpu0.cpunuma 0
gpu0.used 1073741824
gpu0.utilization 37
gpu0.pcietx 2000000
gpu0.pcierx 3000000
`

// place is a folder with gpucheck and all that it runs, on stand-ins for the driver's libraries.
type place struct {
	t   *testing.T
	dir string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed: the stand-ins for the driver's libraries cannot be built")
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Skipf("go list finds no go-nvml, whose nvml.h is needed: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t, t.TempDir()}
	for _, name := range []string{"gpucheck", "topoctl", "nvidia-smi"} {
		if err := os.Symlink(self, filepath.Join(p.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"fake.c": cudafake.Source, "fake.h": cudafake.Header, "machine": machine} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-w", "-DFAKE_SHARED", "-DFAKE_RATE=1e9", "-o", p.dir + "/libcuda.so.1", p.dir + "/fake.c", "-lpthread"},
		{"-shared", "-fPIC", "-w", "-I", strings.TrimSpace(string(module)) + "/pkg/nvml", "-o", p.dir + "/libnvidia-ml.so.1", "../../../discover/nvml/testdata/fakenvml.c"},
		{"-O2", "-o", p.dir + "/copyloop", "testdata/copyloop.c", "-ldl"},
	} {
		if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
			t.Fatalf("gcc %v: %v\n%s", args, err, out)
		}
	}
	return p
}

// run runs parts and gives the report by part.
func (p *place) run(only string, env ...string) (map[string]result, string) {
	p.t.Helper()
	out := p.t.TempDir()
	cmd := exec.Command(filepath.Join(p.dir, "gpucheck"), "-out", out, "-only", only)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+p.dir, "FAKE_NVML="+filepath.Join(p.dir, "machine"), "PATH="+p.dir+":"+os.Getenv("PATH"),
		envStandIn+"=1", envSerial+"=1650")
	cmd.Env = append(cmd.Env, env...)
	log, runErr := cmd.CombinedOutput()
	data, err := os.ReadFile(filepath.Join(out, "report.json"))
	if err != nil {
		p.t.Fatalf("%v, %v\n%s", runErr, err, log)
	}
	var r report
	if err := json.Unmarshal(data, &r); err != nil || r.Schema != schema {
		p.t.Fatalf("%q: %v", r.Schema, err)
	}
	by := map[string]result{}
	for _, x := range r.Parts {
		by[x.Name] = x
	}
	want := 0
	switch {
	case r.count(failed) > 0:
		want = 1
	case r.count(passed) == 0:
		want = 3
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		p.t.Errorf("gpucheck ends with %d, want %d (%v)", got, want, runErr)
	}
	return by, string(log)
}

// Every part passes on the stand-ins, or says what they lack.
func TestStandIn(t *testing.T) {
	p := newPlace(t)
	by, log := p.run("discovery,memory,transfers,staging,probe,broken,load,visible")
	for name, x := range by {
		if x.Outcome != passed {
			t.Errorf("%s: %s: %s", name, x.Outcome, x.Reason)
		}
	}
	if t.Failed() {
		t.Log(log)
	}
	for part, want := range map[string]string{"staging": "h2d of 1024 KiB, staging beside the C loop", "transfers": "slices of 4 KiB verified over shm", "probe": "cuda both-ways beside the C loop", "broken": "closing both engines afterwards"} {
		if !slices.ContainsFunc(by[part].Figures, func(f figure) bool { return strings.HasSuffix(f.Name, want) && f.Value > 0 }) {
			t.Errorf("%s has no figure %q: %+v", part, want, by[part].Figures)
		}
	}
}

// What another source tells differently fails the part, and a library that we may not use
// is said to be that.
func TestDifferences(t *testing.T) {
	p := newPlace(t)
	by, log := p.run("discovery", envSerial+"=1651")
	if x := by["discovery"]; x.Outcome != failed || !strings.Contains(x.Reason, `gpu:0 serial: topoctl says "1650", the other source "1651"`) {
		t.Errorf("another serial number: %+v\n%s", x, log)
	}
	p.tell("gpu0.mig 1\n")
	if x, _ := p.run("discovery"); x["discovery"].Outcome != failed || !strings.Contains(x["discovery"].Reason, "gpu:0 MIG") {
		t.Errorf("MIG that nvidia-smi does not tell: %+v", x)
	}
	p.tell("gpu0.handle !15\n") // NVML_ERROR_GPU_IS_LOST
	if x, _ := p.run("discovery,memory"); x["discovery"].Outcome == passed || x["memory"].Outcome != passed {
		t.Errorf("a GPU that NVML has lost: %+v", x)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "libcuda.so.1"), []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	by, _ = p.run("memory,transfers,staging,broken")
	for name, x := range by {
		if x.Outcome == passed || x.Reason == "" {
			t.Errorf("%s without a driver: %+v", name, x)
		}
	}
	if x := by["memory"]; x.Outcome != unchecked || !strings.Contains(x.Reason, "libcuda.so.1") {
		t.Errorf("memory without a driver: %+v", x)
	}
}

// tell adds to what NVML's stand-in tells.
func (p *place) tell(more string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "machine"), []byte(machine+more), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// What one part does to its process costs no other: parts that crash or hang are ended, and
// what they measured before is kept.
func TestParts(t *testing.T) {
	var total time.Duration
	for _, p := range parts {
		total += p.limit
	}
	if total >= 10*time.Minute {
		t.Errorf("the limits add up to %v: the whole must be over in ten minutes", total)
	}
	notes := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(notes, []byte(`{"figure":{"name":"a","value":2,"unit":"GB/s"}}`+"\n"+`{"unchecked":"b"}`+"\n"+`{"figu`), 0o600); err != nil {
		t.Fatal(err)
	}
	n := readNotes(notes)
	if len(n.figures) != 1 || n.figures[0].Value != 2 || !slices.Equal(n.unchecked, []string{"b"}) {
		t.Errorf("notes of a child that died while it wrote: %+v", n)
	}
}
