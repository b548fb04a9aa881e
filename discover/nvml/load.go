//go:build linux && cgo && !nonvml

package nvml

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/topoctl/topoctl/discover/replies"
)

// Source asks NVML. It is safe for concurrent use. The zero value is the system's NVML.
type Source struct {
	path string
	kept kept // what Load keeps until Close
}

// soname is the library that comes with the driver.
const soname = "libnvidia-ml.so.1"

// one guards go-nvml, which keeps state in package variables. It is a channel, so
// that a caller can stop waiting for a driver that hangs.
var one = make(chan struct{}, 1)

// lock locks go-nvml, or gives up when ctx ends.
func lock(ctx context.Context) error {
	select {
	case one <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nvml: another call does not return: %w", ctx.Err())
	}
}

func unlock() { <-one }

// GPUs loads NVML, asks it about every GPU and unloads it. A GPU or a call that
// fails becomes a warning in the report. ctx is checked between GPUs, since a
// call in the driver cannot be interrupted.
func (s *Source) GPUs(ctx context.Context) (*replies.GPUReport, error) {
	if err := lock(ctx); err != nil {
		return nil, err
	}
	defer unlock()
	lib, err := start(cmp.Or(s.path, soname))
	if err != nil {
		return nil, err
	}
	defer func() { _ = lib.Shutdown() }()
	return (&asker{lib: lib, has: map[string]bool{}}).report(ctx)
}

// start loads a library and starts it.
func start(path string) (gonvml.Interface, error) {
	if err := usable(path); err != nil {
		return nil, err
	}
	lib := gonvml.New(gonvml.WithLibraryPath(path))
	switch ret := lib.Init(); ret {
	case gonvml.SUCCESS:
		return lib, nil
	case gonvml.ERROR_DRIVER_NOT_LOADED:
		return nil, absentError("the kernel driver is not loaded")
	case gonvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, absentError(path + " is not installed")
	default:
		return nil, fmt.Errorf("nvml: starting %s: %s", path, (&asker{lib: lib}).text(ret))
	}
}

// usable checks that the library exists and has the functions that go-nvml always
// calls: calling a missing one would end the process. It keeps the handle open,
// because go-nvml closes its own while the functions stay bound.
func usable(path string) error {
	so := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
	if err := so.Open(); err != nil {
		if strings.Contains(err.Error(), "No such file") {
			return absentError(path + " is not installed")
		}
		return fmt.Errorf("nvml: %w", err)
	}
	for _, symbol := range []string{"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"} {
		if err := so.Lookup(symbol); err != nil {
			return fmt.Errorf("nvml: %s has no %s: not an NVML that this program knows", path, symbol)
		}
	}
	return nil
}
