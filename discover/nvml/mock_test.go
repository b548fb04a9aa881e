//go:build linux && cgo && !nonvml

package nvml

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/topoctl/topoctl/discover/topo"
)

// simulated are the functions that the mock has; any other panics.
var simulated = []string{
	"nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion",
	"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMinorNumber",
	"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMigMode",
}

// eight asks a mock of a host with eight GPUs, which has the given functions
// beside the simulated ones.
func eight(more ...string) (*asker, []*mock.Device) {
	var devices []*mock.Device
	for i := range 8 {
		devices = append(devices, &mock.Device{
			GetPciInfoFunc:               func() (gonvml.PciInfo, gonvml.Return) { return gonvml.PciInfo{Bus: uint32(0x10 + i)}, 0 },
			GetUUIDFunc:                  func() (string, gonvml.Return) { return "GPU-" + strconv.Itoa(i), 0 },
			GetNameFunc:                  func() (string, gonvml.Return) { return "NVIDIA H100 80GB HBM3", 0 },
			GetMinorNumberFunc:           func() (int, gonvml.Return) { return i, 0 },
			GetMemoryInfoFunc:            func() (gonvml.Memory, gonvml.Return) { return gonvml.Memory{Total: 80 << 30}, 0 },
			GetCudaComputeCapabilityFunc: func() (int, int, gonvml.Return) { return 9, 0, 0 },
			GetMigModeFunc:               func() (int, int, gonvml.Return) { return gonvml.DEVICE_MIG_DISABLE, 0, 0 },
		})
	}
	lib := &mock.Interface{
		SystemGetDriverVersionFunc:     func() (string, gonvml.Return) { return "580.95.05", 0 },
		SystemGetNVMLVersionFunc:       func() (string, gonvml.Return) { return "13.580.95.05", 0 },
		SystemGetCudaDriverVersionFunc: func() (int, gonvml.Return) { return 13000, 0 },
		DeviceGetCountFunc:             func() (int, gonvml.Return) { return len(devices), 0 },
		DeviceGetHandleByIndexFunc:     func(i int) (gonvml.Device, gonvml.Return) { return devices[i], 0 },
		ErrorStringFunc:                func(gonvml.Return) string { return "some error" },
		ExtensionsFunc: func() gonvml.ExtendedInterface {
			return &mock.ExtendedInterface{LookupSymbolFunc: func(symbol string) error {
				if slices.Contains(simulated, symbol) || slices.Contains(more, symbol) {
					return nil
				}
				return errors.New("no such symbol")
			}}
		},
	}
	return &asker{lib: lib, has: map[string]bool{}}, devices
}

func TestMock(t *testing.T) {
	a, _ := eight()
	r, err := a.report(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.GPUs) != 8 || len(r.Warnings) != 0 || r.DriverVersion != "580.95.05" || r.CUDAVersion != "13.0" {
		t.Fatalf("%d GPUs, driver %q, warnings %v; want 8 without warnings", len(r.GPUs), r.DriverVersion, r.Warnings)
	}
	for i, g := range r.GPUs {
		if g.Index != i || g.BDF.Bus != uint8(0x10+i) || !strings.HasPrefix(g.UUID, "GPU-") || g.ComputeCap != "9.0" || g.MemoryBytes == nil {
			t.Errorf("GPU %d: %+v", i, g)
		}
		if g.MIG == nil || g.MIG.Enabled {
			t.Errorf("GPU %d: MIG %v, want it known and off", i, g.MIG)
		}
		if g.NVLinks != nil || g.CPUAffinity != "" || g.C2C != nil {
			t.Errorf("GPU %d: told what the library lacks: %+v", i, g)
		}
	}
}

// A GPU that falls off the bus midway is asked nothing more, and says so once.
func TestMockLostGPU(t *testing.T) {
	a, devices := eight("nvmlDeviceGetNvLinkState")
	asked := 0
	for i := range 8 {
		devices[i].GetNvLinkStateFunc = func(link int) (gonvml.EnableState, gonvml.Return) {
			if i == 2 {
				asked++
				return 0, gonvml.ERROR_GPU_IS_LOST
			}
			return gonvml.FEATURE_DISABLED, gonvml.SUCCESS
		}
	}
	r, err := a.report(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if asked != 1 || len(r.Warnings) != 1 || r.Warnings[0].Code != topo.CodeUnreadable {
		t.Errorf("asked %d times, warnings %v; want one of each", asked, r.Warnings)
	}
	if len(r.GPUs) != 8 || len(r.GPUs[3].NVLinks) != gonvml.NVLINK_MAX_LINKS {
		t.Errorf("the other GPUs lost something too")
	}
}

func TestMockCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	a, devices := eight()
	devices[1].GetUUIDFunc = func() (string, gonvml.Return) { cancel(); return "GPU-x", gonvml.SUCCESS }
	if _, err := a.report(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "2 of 8") {
		t.Errorf("error %v, want cancelled after 2 of 8 GPUs", err)
	}
}

// An NVLink domain is known once the GPU has joined it; on one host alone it has no identity.
func TestMockNVLinkFabric(t *testing.T) {
	a, devices := eight("nvmlDeviceGetGpuFabricInfo")
	cluster := [16]uint8{0x0b, 0x0d, 0x27, 0xa8, 0x3a, 0x0f, 0x4a, 0x5d, 0x9c, 0x5e, 0x1f, 0x2e, 0x3d, 0x4c, 0x5b, 0x6a}
	const done = gonvml.GPU_FABRIC_STATE_COMPLETED
	infos := []struct {
		info gonvml.GpuFabricInfo
		ret  gonvml.Return
		want string
	}{
		{gonvml.GpuFabricInfo{ClusterUuid: cluster, CliqueId: 7, State: done}, gonvml.SUCCESS, "0b0d27a8-3a0f-4a5d-9c5e-1f2e3d4c5b6a 7"},
		{gonvml.GpuFabricInfo{ClusterUuid: cluster, State: done}, gonvml.SUCCESS, "0b0d27a8-3a0f-4a5d-9c5e-1f2e3d4c5b6a 0"},
		{gonvml.GpuFabricInfo{State: done}, gonvml.SUCCESS, ""},
		{gonvml.GpuFabricInfo{ClusterUuid: cluster, State: gonvml.GPU_FABRIC_STATE_IN_PROGRESS}, gonvml.SUCCESS, ""},
		{gonvml.GpuFabricInfo{ClusterUuid: cluster, State: done, Status: uint32(gonvml.ERROR_UNKNOWN)}, gonvml.SUCCESS, ""},
		{gonvml.GpuFabricInfo{ClusterUuid: cluster, CliqueId: 1 << 31, State: done}, gonvml.SUCCESS, ""},
		{gonvml.GpuFabricInfo{}, gonvml.ERROR_NOT_SUPPORTED, ""},
		{gonvml.GpuFabricInfo{ClusterUuid: cluster, State: done}, gonvml.ERROR_GPU_IS_LOST, ""},
	}
	for i, tt := range infos {
		devices[i].GetGpuFabricInfoFunc = func() (gonvml.GpuFabricInfo, gonvml.Return) { return tt.info, tt.ret }
	}
	r, err := a.report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, tt := range infos {
		got := ""
		if f := r.GPUs[i].NVLinkFabric; f != nil {
			got = f.ClusterUUID + " " + strconv.Itoa(f.Clique)
		}
		if got != tt.want {
			t.Errorf("GPU %d: %+v: %q, want %q", i, tt.info, got, tt.want)
		}
	}
}
