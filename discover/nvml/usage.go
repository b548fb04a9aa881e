//go:build linux && cgo && !nonvml

package nvml

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
)

// kept is the library that Load started, guarded by one.
type kept struct {
	lib gonvml.Interface // nil: none
	has map[string]bool
}

// Load returns the current load of every GPU. It starts NVML once and keeps it until Close. NVML
// measures PCIe rates for 20 ms in each direction, so Load takes 40 ms for each GPU. ctx is
// checked between GPUs. A GPU or a call that fails becomes a note; if the whole library fails,
// the next Load starts it again.
func (s *Source) Load(ctx context.Context) (loads []counters.GPULoad, notes []string, err error) {
	if err := lock(ctx); err != nil {
		return nil, nil, err
	}
	defer unlock()
	if s.kept.lib == nil {
		lib, err := start(cmp.Or(s.path, soname))
		if err != nil {
			return nil, nil, err
		}
		s.kept = kept{lib: lib, has: map[string]bool{}}
	}
	a := &asker{lib: s.kept.lib, has: s.kept.has}
	if loads, err = a.loads(ctx); err != nil {
		if ctx.Err() == nil {
			_ = s.kept.end() // what it answers then says less than err
		}
		return nil, nil, err
	}
	for _, w := range a.warnings {
		notes = append(notes, w.Detail)
	}
	return loads, notes, nil
}

// closeLimit is how long Close waits for calls that are under way.
const closeLimit = 5 * time.Second

// Close unloads the library that Load keeps, unless a call in it hangs. Another Load loads it
// again.
func (s *Source) Close() error {
	ctx, stop := context.WithTimeout(context.Background(), closeLimit)
	defer stop()
	if err := lock(ctx); err != nil {
		return err
	}
	defer unlock()
	return s.kept.end()
}

// end stops the library.
func (k *kept) end() error {
	if k.lib == nil {
		return nil
	}
	lib := k.lib
	*k = kept{}
	if ret := lib.Shutdown(); ret != gonvml.SUCCESS {
		return errors.New("nvml: nvmlShutdown: " + (&asker{lib: lib}).text(ret))
	}
	return nil
}

// loads asks for the load of every GPU.
func (a *asker) loads(ctx context.Context) (loads []counters.GPULoad, err error) {
	err = a.each(ctx, func(g *gpu) { loads = append(loads, g.load()) })
	return loads, err
}

// load asks for one GPU's load.
func (g *gpu) load() counters.GPULoad {
	l := counters.GPULoad{UUID: text1(g, "nvmlDeviceGetUUID", g.dev.GetUUID)}
	if info, ok := ask(g, "nvmlDeviceGetPciInfo_v3", g.dev.GetPciInfo); ok {
		l.BDF = address(info)
	}
	if u, ok := ask(g, "nvmlDeviceGetUtilizationRates", g.dev.GetUtilizationRates); ok && u.Gpu <= 100 {
		l.UtilizationPercent = new(int(u.Gpu))
	}
	l.MemoryUsedBytes = g.memoryUsed()
	l.PCIeSentBytesPerSec = g.pcie(gonvml.PCIE_UTIL_TX_BYTES)
	l.PCIeReceivedBytesPerSec = g.pcie(gonvml.PCIE_UTIL_RX_BYTES)
	l.NVLinkSentBytes = g.nvlinkBytes(gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX)
	l.NVLinkReceivedBytes = g.nvlinkBytes(gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX)
	return l
}

// memoryUsed is what processes use. The older function counts what the driver keeps for
// itself too.
func (g *gpu) memoryUsed() *int64 {
	used, known := uint64(0), false
	if m, ok := ask(g, "nvmlDeviceGetMemoryInfo_v2", g.dev.GetMemoryInfo_v2); ok {
		used, known = m.Used, m.Total > 0 && m.Used <= m.Total
	} else if m, ok := ask(g, "nvmlDeviceGetMemoryInfo", g.dev.GetMemoryInfo); ok {
		used, known = m.Used, m.Total > 0 && m.Used <= m.Total
	}
	if !known || used > math.MaxInt64 {
		return nil
	}
	return new(int64(used))
}

// pcie is a direction's rate as the GPU sees it, counted in steps of a KB each second. The
// call waits while NVML counts.
// Source: nvml.h, nvmlDeviceGetPcieThroughput.
func (g *gpu) pcie(direction gonvml.PcieUtilCounter) *topo.Rate {
	kb, ok := ask(g, "nvmlDeviceGetPcieThroughput", func() (uint32, gonvml.Return) { return g.dev.GetPcieThroughput(direction) })
	if !ok {
		return nil
	}
	return new(topo.Rate(kb) * 1000)
}

// allLinks asks for the sum of all NVLinks.
// Source: nvml.h, NVML_FI_DEV_NVLINK_THROUGHPUT_*, which are in KiB.
const allLinks = math.MaxUint32

func (g *gpu) nvlinkBytes(field uint32) *uint64 {
	kib, ok := g.field(field, allLinks)
	if !ok || kib > math.MaxUint64>>10 {
		return nil
	}
	return new(kib << 10)
}
