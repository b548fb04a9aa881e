//go:build linux && cgo && !nonvml

package nvml

import (
	"context"
	"errors"
	"fmt"
	"math"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
)

// asker asks one loaded NVML and collects what failed.
type asker struct {
	lib      gonvml.Interface
	has      map[string]bool // functions by name: does the library have it
	warnings []topo.Warning
}

// have reports whether the library has a function. Older drivers lack newer
// functions, and calling a missing one ends the process.
func (a *asker) have(symbol string) bool {
	has, known := a.has[symbol]
	if !known {
		has = a.lib.Extensions().LookupSymbol(symbol) == nil
		a.has[symbol] = has
	}
	return has
}

// text is NVML's text for a return code.
func (a *asker) text(ret gonvml.Return) string {
	return fmt.Sprintf("%s (%d)", a.lib.ErrorString(ret), int(ret))
}

// gpu asks about one device.
type gpu struct {
	*asker
	dev    gonvml.Device
	index  int
	warned map[string]bool
	lost   bool // it fell off the bus: each further call would only fail again
}

// ask calls an NVML function. It returns false if the driver does not have the
// function or says that it does not apply. Any other failure becomes a warning,
// one for each function.
func ask[T any](g *gpu, symbol string, call func() (T, gonvml.Return)) (T, bool) {
	var none T
	if g.lost || !g.have(symbol) {
		return none, false
	}
	v, ret := call()
	switch ret {
	case gonvml.SUCCESS:
		return v, true
	case gonvml.ERROR_NOT_SUPPORTED, gonvml.ERROR_FUNCTION_NOT_FOUND, gonvml.ERROR_NOT_FOUND,
		gonvml.ERROR_INVALID_ARGUMENT, gonvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		return none, false
	}
	g.lost = ret == gonvml.ERROR_GPU_IS_LOST
	if !g.warned[symbol] {
		g.warned[symbol] = true
		g.warn(symbol, "NVML GPU %d: %s: %s", g.index, symbol, g.text(ret))
	}
	return none, false
}

func (a *asker) warn(symbol, format string, args ...any) {
	a.warnings = append(a.warnings, topo.Warning{
		Code: topo.CodeUnreadable, Detail: fmt.Sprintf(format, args...), Evidence: symbol, Source: topo.SourceNVML,
	})
}

// text1 asks for a text, number for a number that must not be negative.
func text1(g *gpu, symbol string, call func() (string, gonvml.Return)) string {
	s, _ := ask(g, symbol, call)
	return s
}

func number(g *gpu, symbol string, call func() (int, gonvml.Return)) *int {
	n, ok := ask(g, symbol, call)
	if !ok || n < 0 || n >= math.MaxInt32 {
		return nil
	}
	return &n
}

// report asks for everything.
func (a *asker) report(ctx context.Context) (*replies.GPUReport, error) {
	r := &replies.GPUReport{Schema: replies.SchemaNVML, GPUs: []replies.GPU{}}
	system := &gpu{asker: a, warned: map[string]bool{}}
	r.DriverVersion = text1(system, "nvmlSystemGetDriverVersion", a.lib.SystemGetDriverVersion)
	r.NVMLVersion = text1(system, "nvmlSystemGetNVMLVersion", a.lib.SystemGetNVMLVersion)
	if v := number(system, "nvmlSystemGetCudaDriverVersion", a.lib.SystemGetCudaDriverVersion); v != nil {
		r.CUDAVersion = fmt.Sprintf("%d.%d", *v/1000, *v%1000/10)
	}
	var gpus []*gpu
	err := a.each(ctx, func(g *gpu) {
		gpus = append(gpus, g)
		r.GPUs = append(r.GPUs, g.answer())
	})
	if err != nil {
		return nil, err
	}
	for i, g := range gpus {
		r.GPUs[i].P2P = g.peers(gpus)
	}
	r.Warnings = a.warnings
	return r, nil
}

// each visits every GPU. ctx is checked between them.
func (a *asker) each(ctx context.Context, visit func(*gpu)) error {
	count, ret := a.lib.DeviceGetCount()
	if ret != gonvml.SUCCESS {
		return errors.New("nvml: nvmlDeviceGetCount: " + a.text(ret))
	}
	for i := range count {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("nvml: after %d of %d GPUs: %w", i, count, err)
		}
		dev, ret := a.lib.DeviceGetHandleByIndex(i)
		if ret != gonvml.SUCCESS {
			a.warn("nvmlDeviceGetHandleByIndex", "NVML GPU %d: %s", i, a.text(ret))
			continue
		}
		visit(&gpu{asker: a, dev: dev, index: i, warned: map[string]bool{}})
	}
	return nil
}

// answer asks for one GPU.
func (g *gpu) answer() replies.GPU {
	d := g.dev
	a := replies.GPU{
		Index:        g.index,
		UUID:         text1(g, "nvmlDeviceGetUUID", d.GetUUID),
		Serial:       text1(g, "nvmlDeviceGetSerial", d.GetSerial),
		Name:         text1(g, "nvmlDeviceGetName", d.GetName),
		Minor:        number(g, "nvmlDeviceGetMinorNumber", d.GetMinorNumber),
		PCIeGen:      number(g, "nvmlDeviceGetCurrPcieLinkGeneration", d.GetCurrPcieLinkGeneration),
		PCIeWidth:    number(g, "nvmlDeviceGetCurrPcieLinkWidth", d.GetCurrPcieLinkWidth),
		PCIeMaxGen:   number(g, "nvmlDeviceGetMaxPcieLinkGeneration", d.GetMaxPcieLinkGeneration),
		PCIeMaxWidth: number(g, "nvmlDeviceGetMaxPcieLinkWidth", d.GetMaxPcieLinkWidth),
		MemoryNUMA:   number(g, "nvmlDeviceGetNumaNodeId", d.GetNumaNodeId),
		CPUAffinity:  g.cpuAffinity(),
		CPUNUMA:      g.cpuNUMA(),
	}
	if info, ok := ask(g, "nvmlDeviceGetPciInfo_v3", d.GetPciInfo); ok {
		if bdf := address(info); bdf != nil {
			a.BDF = *bdf
		}
	}
	if m, ok := ask(g, "nvmlDeviceGetMemoryInfo", d.GetMemoryInfo); ok && m.Total > 0 && m.Total <= math.MaxInt64 {
		total := int64(m.Total)
		a.MemoryBytes = &total
	}
	a.ComputeCap, _ = ask(g, "nvmlDeviceGetCudaComputeCapability", func() (string, gonvml.Return) {
		major, minor, ret := d.GetCudaComputeCapability()
		return fmt.Sprintf("%d.%d", major, minor), ret
	})
	a.MIG = g.mig()
	a.NVLinks = g.nvlinks()
	a.C2C = g.c2c()
	a.NVLinkFabric = g.nvlinkFabric()
	return a
}

// nvlinkFabric is the NVLink domain of several hosts that the GPU has joined. One host alone has a
// cluster of zeros, and what has not come up, or failed, has an identity of which nothing is known.
func (g *gpu) nvlinkFabric() *topo.NVLinkFabric {
	// The first form of the call has all that is wanted, and every driver with such domains has it.
	f, ok := ask(g, "nvmlDeviceGetGpuFabricInfo", g.dev.GetGpuFabricInfo)
	if !ok || f.State != gonvml.GPU_FABRIC_STATE_COMPLETED || gonvml.Return(f.Status) != gonvml.SUCCESS || f.ClusterUuid == [16]uint8{} || f.CliqueId > math.MaxInt32 {
		return nil
	}
	u := f.ClusterUuid
	return &topo.NVLinkFabric{ClusterUUID: fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]), Clique: int(f.CliqueId)}
}

// address is a device's PCI address by its numbers, nil for none: an NVSwitch
// that a guest may not see has all bits set. NVML names functions 0 only.
func address(p gonvml.PciInfo) *topo.BDF {
	if p.Bus > 0xff || p.Device > 0x1f || p.Domain == math.MaxUint32 || p.Domain|p.Bus|p.Device == 0 {
		return nil
	}
	return &topo.BDF{Domain: p.Domain, Bus: uint8(p.Bus), Device: uint8(p.Device)}
}
