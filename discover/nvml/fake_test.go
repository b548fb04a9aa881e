//go:build linux && cgo && !nonvml

package nvml

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
)

// envLibrary makes the test binary a child that asks the named library and
// writes the report: a library that lacks functions would end its process.
const envLibrary = "TOPOCTL_TEST_NVML"

func TestMain(m *testing.M) {
	path := os.Getenv(envLibrary)
	if path == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(envLoad) != "" {
		os.Exit(loadChild(path))
	}
	report, err := (&Source{path: path}).GPUs(context.Background())
	if err == nil { // a second time: the library was let go in between
		report, err = (&Source{path: path}).GPUs(context.Background())
	}
	var absent interface{ Absent() bool }
	switch {
	case errors.As(err, &absent):
		fmt.Fprintln(os.Stderr, "absent:", err)
		os.Exit(4)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		os.Exit(2)
	}
	os.Exit(0)
}

// buildFake compiles the stand-in library, or skips the test.
func buildFake(t *testing.T, flags ...string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed: the stand-in for libnvidia-ml.so.1 cannot be built")
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Skipf("go list finds no go-nvml, whose nvml.h is needed: %v", err)
	}
	so := filepath.Join(t.TempDir(), "libfake.so")
	args := append([]string{"-shared", "-fPIC", "-w", "-o", so}, flags...)
	args = append(args, "-I", filepath.Join(strings.TrimSpace(string(dir)), "pkg", "nvml"), "testdata/fakenvml.c")
	if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return so
}

// askChild asks a library in a child process with the given machine, and decodes what it answers. The exit
// status is 0, 3 for a failure and 4 for an absent library.
func askChild(t *testing.T, answer any, so, machine string, env ...string) (status int, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "machine")
	if err := os.WriteFile(file, []byte(machine), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), envLibrary+"="+so, "FAKE_NVML="+file), env...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), errs.String()
	}
	if err == nil {
		err = json.Unmarshal(out.Bytes(), answer)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return 0, errs.String()
}

// askFake asks a library for its report.
func askFake(t *testing.T, so, machine string) (report *replies.GPUReport, status int, stderr string) {
	t.Helper()
	report = &replies.GPUReport{}
	status, stderr = askChild(t, report, so, machine)
	return report, status, stderr
}

// hopper is a pair of GPUs: one joined to the other by two NVLinks and to a
// switch by one, cut up by MIG, coherent with its CPU; the other bare.
const hopper = `init ok
driver 580.95.05
nvml 13.580.95.05
cuda 13010
count 2
gpu0.pci 0:1b:0
gpu0.uuid GPU-0
gpu0.serial 1650
gpu0.name NVIDIA GH200
gpu0.minor 3
gpu0.memory 0x17f0000000
gpu0.capability 9.0
gpu0.gen 1
gpu0.width 8
gpu0.maxgen 5
gpu0.maxwidth 16
gpu0.cpus 100ff 1
gpu0.cpunuma 1
gpu0.numa 9
gpu0.link0 1
gpu0.linktype0 0
gpu0.linkpci0 10000:9b:0
gpu0.linkversion0 4
gpu0.link1 1
gpu0.linktype1 0
gpu0.linkpci1 10000:9b:0
gpu0.link2 0
gpu0.link4 1
gpu0.linktype4 2
gpu0.linkpci4 ffffffff:ff:ff
gpu0.field170.0 2
gpu0.field171.0 1
gpu0.field172.0 44712
gpu0.field171.1 1
gpu0.field172.1 44712
gpu0.mig 1
gpu0.maxmig 7
gpu0.mig0.uuid MIG-a
gpu0.mig0.name NVIDIA GH200 MIG 1g.12gb
gpu0.mig0.memory 12884901888
gpu0.mig2.uuid MIG-c
gpu0.p2p1 0
gpu1.pci 10000:9b:0
gpu1.uuid !4
gpu1.p2p0 4
`

func ptr[T any](v T) *T { return &v }

func TestFakeLibrary(t *testing.T) {
	so := buildFake(t)
	got, status, stderr := askFake(t, so, hopper)
	if status != 0 {
		t.Fatalf("exit status %d\n%s", status, stderr)
	}
	remote := topo.BDF{Domain: 0x10000, Bus: 0x9b}
	want := &replies.GPUReport{
		Schema: replies.SchemaNVML, DriverVersion: "580.95.05", NVMLVersion: "13.580.95.05", CUDAVersion: "13.1",
		GPUs: []replies.GPU{{
			Index: 0, BDF: topo.BDF{Bus: 0x1b}, UUID: "GPU-0", Serial: "1650", Name: "NVIDIA GH200",
			Minor: ptr(3), MemoryBytes: ptr(int64(0x17f0000000)), ComputeCap: "9.0",
			PCIeGen: ptr(1), PCIeWidth: ptr(8), PCIeMaxGen: ptr(5), PCIeMaxWidth: ptr(16),
			CPUAffinity: "0-7,16,64", CPUNUMA: ptr(1), MemoryNUMA: ptr(9),
			NVLinks: []replies.NVLink{
				{Link: 0, Active: true, RemoteType: "gpu", RemoteBDF: &remote, Version: ptr(4)},
				{Link: 1, Active: true, RemoteType: "gpu", RemoteBDF: &remote},
				{Link: 2},
				{Link: 4, Active: true, RemoteType: "switch"},
			},
			C2C: &replies.C2C{Links: 2, BytesPerSec: ptr(topo.Rate(89_424_000_000))},
			MIG: &topo.MIG{Enabled: true, Instances: []topo.MIGInstance{
				{UUID: "MIG-a", Profile: "1g.12gb", MemoryBytes: ptr(int64(12884901888))}, {UUID: "MIG-c"},
			}},
			P2P: map[int]string{1: "ok"},
		}, {
			Index: 1, BDF: remote, P2P: map[int]string{0: "disabled by registry key"},
		}},
		Warnings: []topo.Warning{{
			Code: topo.CodeUnreadable, Detail: "NVML GPU 1: nvmlDeviceGetUUID: some error (4)",
			Evidence: "nvmlDeviceGetUUID", Source: topo.SourceNVML,
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report differs (-want +got)\n%s", diff)
	}
}

// A driver that is older than functions we know must not end the process.
func TestFakeLibraryLacksFunctions(t *testing.T) {
	so := buildFake(t, "-DOLD")
	got, status, stderr := askFake(t, so, hopper)
	if status != 0 {
		t.Fatalf("exit status %d\n%s", status, stderr)
	}
	g := got.GPUs[0]
	if g.UUID != "GPU-0" || g.CPUAffinity != "0-7,16,64" || len(g.NVLinks) != 4 {
		t.Errorf("what the old library has is not there: %+v", g)
	}
	if g.CPUNUMA != nil || g.MemoryNUMA != nil || g.C2C != nil || g.MIG != nil || g.NVLinks[0].RemoteType != "" {
		t.Errorf("the old library cannot have told these: %+v", g)
	}
	if g.NVLinks[0].RemoteBDF == nil || g.NVLinks[0].RemoteBDF.Bus != 0x9b {
		t.Errorf("link 0 leads to %v, want 10000:9b:00.0", g.NVLinks[0].RemoteBDF)
	}
}

func TestFakeLibraryFailures(t *testing.T) {
	so := buildFake(t)
	for _, tt := range []struct {
		name, so, machine string
		status            int
		stderr            string
	}{
		{"no library", filepath.Join(t.TempDir(), "none.so"), "", 4, "is not installed"},
		{"driver not loaded", so, "init !9\n", 4, "driver is not loaded"},
		{"other versions of library and driver", so, "init !18\n", 3, "some error (18)"},
		{"no count", so, "init ok\n", 3, "nvmlDeviceGetCount"},
		{"not NVML", buildOther(t), "", 3, "has no nvmlInit_v2"},
		{"no library file", "testdata/fakenvml.c", "", 3, "nvml: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, status, stderr := askFake(t, tt.so, tt.machine)
			if status != tt.status || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit status %d, want %d; stderr %q, want %q in it", status, tt.status, stderr, tt.stderr)
			}
		})
	}
}

// buildOther compiles a library that is something else.
func buildOther(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, so := filepath.Join(dir, "other.c"), filepath.Join(dir, "other.so")
	if err := os.WriteFile(source, []byte("int other(void) { return 1; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", so, source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return so
}

// A GPU that is lost, or whose handle is refused, costs only itself.
func TestFakeLibraryOneGPUFails(t *testing.T) {
	so := buildFake(t)
	machine := "init ok\ncount 3\ngpu0.handle !15\ngpu1.uuid !15\ngpu1.pci 0:2:0\ngpu2.pci 0:3:0\ngpu2.uuid GPU-2\ngpu2.p2p1 0\n"
	got, status, stderr := askFake(t, so, machine)
	if status != 0 {
		t.Fatalf("exit status %d\n%s", status, stderr)
	}
	if len(got.GPUs) != 2 || got.GPUs[1].UUID != "GPU-2" || got.GPUs[1].Index != 2 {
		t.Errorf("GPUs %+v, want 1 (lost) and 2", got.GPUs)
	}
	if len(got.Warnings) != 2 {
		t.Errorf("warnings %v, want one for each broken GPU", got.Warnings)
	}
	if got.GPUs[1].P2P != nil {
		t.Errorf("peer access to a lost GPU: %v", got.GPUs[1].P2P)
	}
}
