// Package cuda is the CUDA driver API (libcuda.so.1), loaded at run time: what is
// needed to copy between the memory of a GPU and the host's, and to hand GPU memory
// to RDMA hardware. Nothing of CUDA is needed to build it. It needs Linux and cgo;
// without, Load says so.
//
// The functions and numbers that it relies on are those of NVIDIA's public
// documentation of the driver API. Each call with a context
// makes it current on its thread and puts back what was current before, so that the
// caller's goroutine may be on any thread, also on one that other code uses CUDA on.
package cuda

import (
	"errors"
	"fmt"
)

// ErrUnavailable says that there is no libcuda, no driver, no GPU, or this program was built
// without cgo. The error that wraps it says which.
var ErrUnavailable = errors.New("CUDA is not available")

// Result is a CUresult.
type Result int32

// The results that are told apart.
const (
	OutOfMemory    Result = 2
	NoDevice       Result = 100
	SystemNotReady Result = 802
	NotSupported   Result = 801
	// PeerAlreadyEnabled: another user of CUDA in this process has enabled it.
	PeerAlreadyEnabled Result = 704
)

// Error is a call of the driver API that failed.
type Error struct {
	Call  string // "cuMemAlloc"
	What  string // what was asked for: "1048576 bytes"
	Where string // the device: "CUDA device 0 (0000:1b:00.0)"
	Code  Result
	Name  string // "CUDA_ERROR_OUT_OF_MEMORY", "" where the driver does not know it
	Text  string // the driver's words
}

func (e *Error) Error() string {
	s := "cuda: "
	if e.Where != "" {
		s += e.Where + ": "
	}
	s += e.Call
	if e.What != "" {
		s += " (" + e.What + ")"
	}
	name := e.Name
	if name == "" {
		name = "unknown error"
	}
	s += fmt.Sprintf(": %s (%d)", name, e.Code)
	if e.Text != "" {
		s += ": " + e.Text
	}
	if a := e.Advice(); a != "" {
		s += "; " + a
	}
	return s
}

// Is makes errors.Is(err, cuda.OutOfMemory) work.
func (e *Error) Is(target error) bool {
	r, ok := target.(Result)
	return ok && r == e.Code
}

// Error is the number alone.
func (r Result) Error() string { return fmt.Sprintf("CUDA error %d", int32(r)) }

// Advice is what can be done about it, "" where that is not known.
func (e *Error) Advice() string {
	switch e.Code {
	case OutOfMemory:
		if e.Call == "cuMemHostRegister" {
			return "the process may not pin so much: raise RLIMIT_MEMLOCK (ulimit -l) or stage through less"
		}
		return "the GPU has not so much memory free: nvidia-smi shows who uses it"
	case NoDevice:
		return "no GPU is visible: look at nvidia-smi and CUDA_VISIBLE_DEVICES"
	case 3, 4:
		return "the driver is shut down: the process is ending, or CUDA was used after a fork"
	case 46, 101:
		return "the GPU is in use exclusively or does not exist: nvidia-smi -q -d COMPUTE"
	case 214, 220, 221:
		return "the hardware reports errors: look at dmesg for Xid, drain the host and reset the GPU"
	case 700, 702, 709, 710, 714, 715, 716, 717, 718, 719:
		return "a kernel of this process has broken its CUDA context: every later call fails until the process is started again"
	case NotSupported:
		return "driver and GPU do not offer this: it needs a data-centre GPU with the open kernel modules, for dma-buf CUDA 11.7"
	case SystemNotReady, 803, 804:
		return "driver and library do not fit or nvidia-fabricmanager does not run: look at nvidia-smi"
	case 999:
		return "look at dmesg for Xid"
	}
	return ""
}

// DeviceInfo is a GPU as the driver shows it to this process.
type DeviceInfo struct {
	Ordinal    int    // as CUDA counts, among the visible ones
	Name       string // "NVIDIA H200"
	PCIBusID   string // "0000:1b:00.0"
	UUID       string // "GPU-…", "" where the driver does not tell
	TotalBytes int64
	// DMABuf: memory can be exported as dma-buf. GPUDirect: RDMA hardware can reach
	// it.
	DMABuf, GPUDirect bool
	// FlushWrites is how GPUDirect RDMA writes are made visible: a mask of 1 (the
	// host calls FlushWrites) and 2 (stream operations).
	FlushWrites int
}

// Device attributes (CUdevice_attribute).
const (
	attributeGPUDirect   = 116
	attributeFlushWrites = 117
	attributeDMABuf      = 124
)

// Memory types (CUmemorytype).
const (
	MemoryHost   = 1
	MemoryDevice = 2
)

// Pointer is what the driver knows of an address.
type Pointer struct {
	Type    int // MemoryHost, MemoryDevice
	Ordinal int
	Managed bool   // it migrates between host and device
	Start   uint64 // of the allocation that it is in
	Bytes   int64  // of that
}

// Piece is one copy: device memory and host memory of equal length. The layout is
// that of tc_piece.
type Piece struct {
	Device uint64
	Host   uint64
	Bytes  uint64
}
