package memory

import (
	"errors"
	"io"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// DeviceMemory is memory that only a device can touch, a GPU's: the processor
// cannot, and hardware only where it can be exported. Its methods may be used by
// many goroutines.
type DeviceMemory interface {
	// Device names whose memory it is, for messages: "GPU 0000:1b:00.0".
	Device() string
	// Location is where it is as the topology counts ("gpu:0"), "" not known.
	Location() string
	// Address is what the device's own users call the first byte.
	Address() uintptr
	// Copy copies pieces to the host's memory or from it, and calls done once, from
	// a goroutine of the device's, when all bytes are in place or nothing of the copy
	// can touch host memory any more. done must be quick, and Copy is too. The pieces
	// are the caller's again when Copy returns. Host memory is Pinned's.
	Copy(pieces []DevicePiece, toHost bool, done func(error))
	// Pinned is host memory near the device. All memory of a device has the same.
	Pinned() *Pinned
	// DMABuf exports the memory: its first byte is at offset in the buffer. The caller
	// closes the descriptor. What cannot be exported is an error that wraps
	// ErrNoExport.
	DMABuf() (fd int, offset int64, err error)
	// Free gives the memory back, unless it is somebody else's.
	Free() error
}

// DevicePiece is one copy: bytes of device memory from Offset on, and as many of the
// host's.
type DevicePiece struct {
	Offset int64
	Host   []byte
}

// Why device memory cannot be used.
var (
	// ErrNotHost: processors cannot touch it.
	ErrNotHost = errors.New("device memory, which processors cannot touch")
	// ErrNoExport: hardware cannot be given it.
	ErrNoExport = errors.New("the memory cannot be exported")
	// ErrDevice: the device failed. Trying again does not help.
	ErrDevice = errors.New("the device failed")
)

// OnDevice makes a block of device memory. It belongs to the block from then on.
func OnDevice(m DeviceMemory, size int64) (*Block, error) {
	if m == nil || size <= 0 {
		return nil, pkgerr.Errorf("memory", "device memory of %d bytes: the size must be above 0", size)
	}
	return &Block{size: size, device: m, fd: -1, info: Info{Backing: Private, PageBytes: basePage()}}, nil
}

// Device is the memory of a block that is on a device, nil for the host's.
func (b *Block) Device() DeviceMemory { return b.device }

// Location is where the block is known to be, "" not known.
func (b *Block) Location() string {
	if b.device == nil {
		return ""
	}
	return b.device.Location()
}

// ReadAt copies from the block, like io.ReaderAt. Of device memory it copies through
// staging buffers and waits: it is for setting up and looking, not for moving much.
func (b *Block) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, pkgerr.Errorf("memory", "read at %d: %w", off, ErrRange)
	}
	if off >= b.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), b.size-off))
	if b.device == nil {
		copy(p[:n], b.bytes[off:])
	} else if moved, err := b.stage(p[:n], off, true); err != nil {
		return moved, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt copies into the block, like io.WriterAt; it works like ReadAt. What does
// not fit is an error.
func (b *Block) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > b.size {
		return 0, pkgerr.Errorf("memory", "write at %d: %w (%d bytes)", off, ErrRange, b.size)
	}
	n := int(min(int64(len(p)), b.size-off))
	if b.device == nil {
		copy(b.bytes[off:], p[:n])
	} else if moved, err := b.stage(p[:n], off, false); err != nil {
		return moved, err
	}
	if n < len(p) {
		return n, pkgerr.Errorf("memory", "write of %d bytes at %d: %w (%d bytes)", len(p), off, ErrRange, b.size)
	}
	return n, nil
}

// stage copies between device memory and p, which may be Go's, through one buffer.
func (b *Block) stage(p []byte, off int64, read bool) (moved int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	pool, err := PoolOf(b.device, ForRequests)
	if err != nil {
		return 0, err
	}
	buffer := pool.Await(nil)
	defer buffer.Release()
	done := make(chan error, 1)
	for moved < len(p) {
		host := buffer.Bytes(min(int64(len(p)-moved), PieceBytes))
		if !read {
			copy(host, p[moved:])
		}
		b.device.Copy([]DevicePiece{{off + int64(moved), host}}, read, func(err error) { done <- err })
		if err := <-done; err != nil {
			return moved, err
		}
		if read {
			copy(p[moved:], host)
		}
		moved += len(host)
	}
	return moved, nil
}
