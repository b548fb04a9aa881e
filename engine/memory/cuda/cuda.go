// Package cuda gives blocks of GPU memory to the engine: allocated here, or somebody
// else's. It uses the CUDA driver's libcuda.so.1, which is loaded at run time, and
// nothing else of CUDA; it needs Linux and cgo, and says so where it is without.
//
//	driver, err := cuda.Open(cuda.Options{Topology: t})
//	gpu, err := driver.GPU("gpu:0")
//	block, err := gpu.Alloc(1 << 30)
//	region, err := e.Register(block, engine.RegionOptions{Name: "kv", Grant: memory.PeerWrite})
//
// RDMA hardware reaches such memory by itself where the GPU exports it as dma-buf.
// All else goes through staging buffers: pinned host memory on the GPU's NUMA node,
// as much as Options.StagingBytes for each GPU that is used.
//
// docs/gpu.md tells what was tried on what.
package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/topoctl/topoctl/discover/topo"
	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/memory"
	driver "github.com/topoctl/topoctl/internal/cuda"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// ErrUnavailable says that there is no libcuda, no driver or no GPU, or this program was
// built without cgo.
var ErrUnavailable = driver.ErrUnavailable

// Options configure the driver. The zero value is usable.
type Options struct {
	// Topology says which GPU is "gpu:N" and on which NUMA node it is. Without it GPUs have no
	// location, and the node is read from sysfs.
	Topology *topo.Topology
	// StagingBytes is the pinned host memory of each GPU that is used, half of it for
	// our own requests and half for those of peers; default 64 MiB, at least 4 buffers
	// of 512 KiB. What peers map of it (shared memory) comes on top, at most half as much.
	StagingBytes int64
	// Library is the path of the library to load instead of libcuda.so.1.
	Library string
	// Lib is for this module's tests: a driver that is already loaded. Leave it nil.
	Lib *driver.Lib
}

const defaultStagingBytes = 64 << 20

// Driver is the CUDA driver of this process.
type Driver struct {
	lib  *driver.Lib
	gpus []*GPU
}

// Info describes a GPU.
type Info struct {
	Location  string // "gpu:0", "" where Options.Topology does not have it
	BDF       topo.BDF
	Ordinal   int // as CUDA counts
	Name      string
	UUID      string
	Node      int // NUMA node, -1 not known
	Bytes     int64
	DMABuf    bool // memory can be exported for RDMA hardware
	GPUDirect bool // RDMA hardware can reach it
}

// Open loads the driver. It does nothing on the GPUs yet.
func Open(o Options) (*Driver, error) {
	lib := o.Lib
	if lib == nil {
		var err error
		if lib, err = driver.Load(o.Library); err != nil {
			return nil, err
		}
	}
	o.StagingBytes = cmp.Or(o.StagingBytes, defaultStagingBytes)
	if o.StagingBytes < 4*mem.PieceBytes {
		return nil, pkgerr.Errorf("cuda", "staging of %d bytes: want at least %d, four buffers", o.StagingBytes, 4*mem.PieceBytes)
	}
	d := &Driver{lib: lib}
	for _, info := range lib.Devices() {
		bdf, err := topo.ParseBDF(info.PCIBusID)
		if err != nil {
			return nil, pkgerr.Errorf("cuda", "CUDA device %d: %w", info.Ordinal, err)
		}
		g := &GPU{lib: lib, stagingBytes: o.StagingBytes, info: Info{
			BDF: bdf, Ordinal: info.Ordinal, Name: info.Name, UUID: info.UUID, Node: -1,
			Bytes: info.TotalBytes, DMABuf: info.DMABuf, GPUDirect: info.GPUDirect,
		}}
		g.locate(o.Topology)
		d.gpus = append(d.gpus, g)
	}
	slices.SortStableFunc(d.gpus, func(a, b *GPU) int { return a.info.BDF.Compare(b.info.BDF) })
	return d, nil
}

// locate finds the GPU in the topology by its PCI address, which is the one name
// that CUDA, NVML and the kernel agree on.
func (g *GPU) locate(t *topo.Topology) {
	if t != nil {
		for i := range t.GPUs {
			x := &t.GPUs[i]
			if x.BDF == nil || *x.BDF != g.info.BDF {
				continue
			}
			g.info.Location = fmt.Sprintf("gpu:%d", x.Index)
			if x.NUMA != nil {
				g.info.Node = *x.NUMA
			}
			return
		}
	}
	text, err := os.ReadFile("/sys/bus/pci/devices/" + g.info.BDF.String() + "/numa_node")
	if err != nil {
		return
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		g.info.Node = n
	}
}

// GPUs are those that the driver shows to this process (CUDA_VISIBLE_DEVICES), in PCI
// order.
func (d *Driver) GPUs() []*GPU { return slices.Clone(d.gpus) }

// GPU finds one by its location ("gpu:0"), PCI address ("0000:1b:00.0"), UUID
// ("GPU-…") or CUDA's number ("cuda:0").
func (d *Driver) GPU(name string) (*GPU, error) {
	var have []string
	for _, g := range d.gpus {
		i := &g.info
		number := fmt.Sprintf("cuda:%d", i.Ordinal)
		if name != "" && slices.Contains([]string{i.Location, i.BDF.String(), i.UUID, number}, name) {
			return g, nil
		}
		have = append(have, strings.TrimSpace(fmt.Sprintf("%s (%s %s)", number, i.BDF, i.Location)))
	}
	return nil, pkgerr.Errorf("cuda", "no GPU %q is visible to CUDA; there are %s", name, strings.Join(have, ", "))
}

// Close ends what was used of the GPUs. All blocks must have been freed, which
// closing the engines does.
func (d *Driver) Close() error {
	var errs []error
	for _, g := range d.gpus {
		errs = append(errs, g.close())
	}
	return errors.Join(errs...)
}

// GPU is a graphics processor whose memory blocks are made of. Its methods may be
// used by many goroutines. The first use of its memory takes hold of its primary
// context.
type GPU struct {
	lib          *driver.Lib
	info         Info
	stagingBytes int64

	mu     sync.Mutex
	used   *used // nil: not yet, or closed
	blocks int
}

// Info says which GPU it is.
func (g *GPU) Info() Info { return g.info }

// String names it for messages.
func (g *GPU) String() string {
	if g.info.Location != "" {
		return fmt.Sprintf("%s (%s)", g.info.Location, g.info.BDF)
	}
	return fmt.Sprintf("GPU %s", g.info.BDF)
}

// Alloc allocates memory of the GPU. Its content is whatever was there before.
func (g *GPU) Alloc(size int64) (*memory.Block, error) {
	if size <= 0 {
		return nil, pkgerr.Errorf("cuda", "%s: allocation of %d bytes: the size must be above 0", g, size)
	}
	u, err := g.use()
	if err != nil {
		return nil, err
	}
	address, err := u.ctx.Alloc(size)
	if err != nil {
		return nil, err
	}
	b, err := g.block(u, address, size, true)
	return (*memory.Block)(b), err
}

// Foreign wraps GPU memory that somebody else allocated and keeps: a tensor. The
// address is one that CUDA knows as memory of this GPU (not managed memory), and the
// range lies inside its allocation. The block does not free it.
//
// Kernels and copies that write the memory must have finished before a transfer reads it, and vice
// versa: the engine waits for no streams but its own.
func (g *GPU) Foreign(address uintptr, size int64) (*memory.Block, error) {
	u, err := g.use()
	if err != nil {
		return nil, err
	}
	if err := g.check(uint64(address), size); err != nil {
		return nil, pkgerr.Errorf("cuda", "%s: foreign range of %d bytes at %#x: %w", g, size, address, err)
	}
	b, err := g.block(u, uint64(address), size, false)
	return (*memory.Block)(b), err
}

// Allocation is the allocation of GPU memory that an address lies in; false where CUDA knows
// none. With Foreign it makes the driver a memory.Devices, which finds out by an address
// whether it is a GPU's.
func (d *Driver) Allocation(address uintptr) (memory.Range, bool) {
	p, ok := d.lib.Find(uint64(address))
	if !ok || p.Type != driver.MemoryDevice && !p.Managed {
		return memory.Range{}, false
	}
	return memory.Range{Address: uintptr(p.Start), Bytes: p.Bytes}, true
}

// Foreign is GPU.Foreign of the GPU that the memory belongs to.
func (d *Driver) Foreign(r memory.Range) (*memory.Block, error) {
	p, err := d.lib.Pointer(uint64(r.Address))
	if err != nil {
		return nil, pkgerr.Errorf("cuda", "foreign range of %d bytes at %#x: CUDA does not know it: %w", r.Bytes, r.Address, err)
	}
	for _, g := range d.gpus {
		if g.info.Ordinal == p.Ordinal {
			return g.Foreign(r.Address, r.Bytes)
		}
	}
	return nil, pkgerr.Errorf("cuda", "foreign range of %d bytes at %#x: CUDA device %d is not one of those that were opened", r.Bytes, r.Address, p.Ordinal)
}

// Pointer is where the memory of a block is, for kernels and other users of CUDA;
// false where it is not GPU memory of this package.
func Pointer(b *memory.Block) (address uintptr, ok bool) {
	a, ok := (*mem.Block)(b).Device().(*allocation)
	if !ok {
		return 0, false
	}
	return uintptr(a.address), true
}

// FlushRDMAWrites makes what RDMA hardware has written to the GPU's memory visible to kernels that
// start afterwards. It does nothing if the driver says that they see it anyway, or cannot be
// asked.
func (g *GPU) FlushRDMAWrites() error {
	u, err := g.use()
	if err != nil || !u.ctx.CanFlush() {
		return err
	}
	return u.ctx.FlushWrites()
}
