//go:build linux && cgo && !nonvml

package nvml

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
)

// envLoad makes the child of envLibrary ask for load: "again" or "hang".
const envLoad = "TOPOCTL_TEST_NVML_LOAD"

// loadAnswer is what the child writes.
type loadAnswer struct {
	Loads []counters.GPULoad
	Notes []string
}

// loadChild asks for load as a sampler does: twice with a discovery in between, and once more
// after Close. Where the library hangs, it looks that a discovery is not held up by it.
func loadChild(path string) int {
	s := &Source{path: path}
	if os.Getenv(envLoad) == "hang" {
		go func() { _, _, _ = s.Load(context.Background()) }()
		for len(one) == 0 { // until Load is at it
			time.Sleep(time.Millisecond)
		}
		ctx, stop := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer stop()
		_, err := s.GPUs(ctx)
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	var answers []loadAnswer
	for i := range 3 {
		loads, notes, err := s.Load(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
		answers = append(answers, loadAnswer{loads, notes})
		if i == 0 {
			_, err = s.GPUs(context.Background())
		} else {
			err = s.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
	}
	for _, a := range answers[1:] { // go-nvml words errors otherwise once any library was let go of
		if diff := cmp.Diff(answers[0].Loads, a.Loads); diff != "" || len(a.Notes) != len(answers[0].Notes) {
			fmt.Fprintf(os.Stderr, "a later answer differs: notes %q\n%s", a.Notes, diff)
			return 3
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers[0]); err != nil {
		return 2
	}
	return 0
}

// askLoad asks a library for load.
func askLoad(t *testing.T, so, machine, how string) (answer loadAnswer, status int, stderr string) {
	t.Helper()
	status, stderr = askChild(t, &answer, so, machine, envLoad+"="+how)
	return answer, status, stderr
}

// busy has a GPU that tells everything, one that tells nothing, and one that is lost.
const busy = `init ok
count 3
gpu0.pci 0:1b:0
gpu0.uuid GPU-0
gpu0.memory 85899345920
gpu0.used 1073741824
gpu0.utilization 97
gpu0.pcietx 25000000
gpu0.pcierx 12
gpu0.field138.all 5000000000
gpu0.field139.all 0
gpu1.pci 0:2b:0
gpu1.utilization 250
gpu2.uuid !15
gpu2.utilization 3
`

func TestLoad(t *testing.T) {
	so := buildFake(t)
	got, status, stderr := askLoad(t, so, busy, "again")
	if status != 0 {
		t.Fatalf("exit status %d\n%s", status, stderr)
	}
	want := loadAnswer{
		Loads: []counters.GPULoad{
			{BDF: &topo.BDF{Bus: 0x1b}, UUID: "GPU-0", GPU: counters.GPU{
				UtilizationPercent: ptr(97), MemoryUsedBytes: ptr(int64(1 << 30)),
				PCIeSentBytesPerSec: ptr(25 * topo.GBPerSec), PCIeReceivedBytesPerSec: ptr(topo.Rate(12_000)),
				NVLinkSentBytes: ptr(uint64(5_000_000_000 * 1024)), NVLinkReceivedBytes: ptr(uint64(0)),
			}},
			{BDF: &topo.BDF{Bus: 0x2b}},
			{},
		},
		Notes: []string{"NVML GPU 2: nvmlDeviceGetUUID: GPU is lost (15)"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// An older driver lacks functions, and counts its own memory.
func TestLoadOldLibrary(t *testing.T) {
	so := buildFake(t, "-DOLD")
	got, status, stderr := askLoad(t, so, busy, "again")
	if status != 0 {
		t.Fatalf("exit status %d\n%s", status, stderr)
	}
	g := got.Loads[0]
	if g.MemoryUsedBytes == nil || *g.MemoryUsedBytes != 1<<30+1000 || g.UtilizationPercent == nil || g.NVLinkSentBytes != nil {
		t.Errorf("%+v", g)
	}
}

func TestLoadFails(t *testing.T) {
	so := buildFake(t)
	for _, tt := range []struct{ name, machine, how, stderr string }{
		{"other versions of library and driver", "init !18\n", "again", "some error (18)"},
		{"no count", "init ok\n", "again", "nvmlDeviceGetCount"},
		{"a driver that hangs", "init ok\ncount 1\ngpu0.utilization hang\n", "hang", "another call does not return"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, status, stderr := askLoad(t, so, tt.machine, tt.how)
			if status != 3 || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit status %d, stderr %q, want %q in it", status, stderr, tt.stderr)
			}
		})
	}
}

// ctx is looked at between GPUs, and a GPU's handle that is refused costs that GPU.
func TestMockLoad(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a, devices := eight("nvmlDeviceGetUtilizationRates")
	for i, d := range devices {
		d.GetUtilizationRatesFunc = func() (gonvml.Utilization, gonvml.Return) {
			if i == 5 {
				cancel()
			}
			return gonvml.Utilization{Gpu: uint32(i)}, gonvml.SUCCESS
		}
	}
	if _, err := a.loads(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "6 of 8") {
		t.Errorf("error %v, want cancelled after 6 of 8 GPUs", err)
	}
	got, err := a.loads(context.Background())
	if err != nil || len(got) != 8 || *got[7].UtilizationPercent != 7 || got[7].BDF.Bus != 0x17 || got[7].PCIeSentBytesPerSec != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if got[0].MemoryUsedBytes == nil || *got[0].MemoryUsedBytes != 0 || got[0].NVLinkSentBytes != nil {
		t.Errorf("%+v", got[0])
	}
}
