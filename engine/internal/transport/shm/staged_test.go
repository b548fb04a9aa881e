//go:build cgo && linux

package shm

import (
	"errors"
	"testing"

	"github.com/topoctl/topoctl/engine/internal/gputest"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/stage"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/internal/cuda/cudafake"
)

// device is a GPU of the fake libcuda, whose memory no processor can touch.
type device struct {
	*cuda.GPU
	driver *cuda.Driver
}

// gpu gives one with so many staging buffers.
func gpu(t testing.TB, o cudafake.Options, buffers int64) *device {
	t.Helper()
	d := gputest.Open(t, o, cuda.Options{StagingBytes: buffers * memory.PieceBytes})
	g, err := d.GPU("cuda:0")
	if err != nil {
		t.Fatal(err)
	}
	gputest.MakePools(t, d, "cuda:0")
	return &device{g, d}
}

// stagedEnd is an end whose requests are staged.
func stagedEnd(t testing.TB, dir string) transporttest.End {
	e := suiteEnd(t, dir)
	e.Transport = stage.Wrap(e.Transport, e.Regions)
	return e
}

// All rules hold for memory of a GPU on either side and on both. The pools are small.
func TestTransportOfDeviceMemory(t *testing.T) {
	first := suiteEnd(t, shortDir(t)) // see TestTransport
	if err := errors.Join(first.Transport.Close(), first.Regions.Close()); err != nil {
		t.Fatal(err)
	}
	gputest.Run(t, func(name string) transporttest.Harness {
		return transporttest.Harness{Uncounted: true, New: func(t testing.TB) *transporttest.Ends {
			dir := shortDir(t)
			e := &transporttest.Ends{
				Active:  stagedEnd(t, dir),
				Passive: suiteEnd(t, dir),
				Restart: func(t testing.TB) transporttest.End { return suiteEnd(t, dir) },
			}
			if name == "passive" && !gputest.OfMachine() {
				e.Stall = cudafake.Hold
			}
			return e
		}}
	})
}
