//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// softDevices are like Soft-RoCE's.
func softDevices() []verbsfake.Device {
	list := ethernetDevices()
	for i := range list {
		list[i].Limits.VendorID = verbs.SoftRoCE
	}
	return list
}

// A READ that Soft-RoCE completes though nothing of it has landed is not over, whatever is
// behind it. Other devices are believed: that shows that this one lied.
func TestReadThatOnlySeemsDone(t *testing.T) {
	for _, x := range []struct {
		name    string
		devices []verbsfake.Device
		behind  transport.Op // 0: nothing
		lost    bool
	}{
		{"alone", softDevices(), 0, true},
		{"before a WRITE", softDevices(), transport.Write, true},
		{"before a READ", softDevices(), transport.Read, true},
		{"hardware", ethernetDevices(), 0, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, verbsfake.Options{Devices: x.devices}, Options{QueuePairs: 1, KeepAlive: time.Hour})
			here, there := w.a.region(1<<16, memory.None), w.b.region(1<<16, both)
			remote := w.b.remote(there)
			e := w.dial()
			good, bad := requestOf(transport.Read, span(here, 1<<12, remote, 1<<12, 100)), requestOf(transport.Read, span(here, 0, remote, 0, 100))
			requests := []*transport.Request{bad}
			if x.behind != 0 {
				requests = append(requests, requestOf(x.behind, span(here, 1<<13, remote, 1<<13, 100)))
			}
			if err := e.Do(good); err != nil || !bytes.Equal(here.Bytes(1<<12, 100), there.Bytes(1<<12, 100)) {
				t.Errorf("a good READ: %v", err)
			}
			w.f.Stall("a0", true)
			w.f.Inject("a0", 1, verbs.WCSuccess, 0)
			e.Post(requests...)
			w.f.Stall("a0", false)
			if !x.lost {
				if c := e.Ended(bad); c.Err != nil || bytes.Equal(here.Bytes(0, 100), there.Bytes(0, 100)) {
					t.Errorf("it ended with %+v, and what is there was read: nothing is shown here", c)
				}
				return
			}
			for _, r := range requests {
				if c := e.Ended(r); !errors.Is(c.Err, transport.ErrClosed) || c.MayLand != (r.Op == transport.Write) {
					t.Errorf("%v ended with %+v", r.Op, c)
				}
			}
			says(t, e.WaitLost(), "a0/1", "flushed")
		})
	}
}

// A READ behind which something is refused has been done; what is refused is not its fault.
func TestReadBeforeARefusal(t *testing.T) {
	w := newWorld(t, verbsfake.Options{Devices: softDevices()}, Options{QueuePairs: 1, KeepAlive: time.Hour})
	here, there := w.a.region(1<<16, memory.None), w.b.region(1<<16, both)
	remote := w.b.remote(there)
	e := w.dial()
	w.f.Stall("a0", true)
	w.f.Inject("a0", 2, verbs.WCRemoteAccess, 0)
	read, refused := requestOf(transport.Read, span(here, 0, remote, 0, 100)), requestOf(transport.Write, span(here, 200, remote, 200, 100))
	e.Post(read, refused)
	w.f.Stall("a0", false)
	if c := e.Ended(read); c.Err != nil || !bytes.Equal(here.Bytes(0, 100), there.Bytes(0, 100)) {
		t.Errorf("the READ ended with %+v", c)
	}
	if c := e.Ended(refused); !errors.Is(c.Err, transport.ErrRefused) {
		t.Errorf("what was refused ended with %+v", c)
	}
	w.works(e)
}
