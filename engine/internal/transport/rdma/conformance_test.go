//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// quick are options for tests: nothing that has to be noticed takes long.
func quick(o Options) Options {
	def(&o.KeepAlive, 5*time.Millisecond)
	def(&o.Watch, 20*time.Millisecond)
	def(&o.FlushTime, 50*time.Millisecond)
	return o
}

// suiteEnd makes an end that the suite closes.
func suiteEnd(t testing.TB, f *verbsfake.Fabric, device string, o Options) transporttest.End {
	t.Helper()
	r, err := New(quick(o), f.Lib(device), nil)
	if err != nil {
		t.Fatal(err)
	}
	offers := r.Offers()
	if len(offers) != 1 {
		t.Fatalf("%s offers %v", device, offers)
	}
	return transporttest.End{Transport: r, Regions: memory.NewTable(64), Endpoint: offers[0]}
}

// newFabric makes one that must have nothing left at the end.
func newFabric(t testing.TB, o verbsfake.Options) *verbsfake.Fabric {
	f := verbsfake.New(o)
	t.Cleanup(func() {
		if left := f.Objects(""); left != (verbsfake.Objects{}) {
			t.Errorf("verbs objects are left: %+v", left)
		}
		f.Close()
	})
	return f
}

func harness(f verbsfake.Options, o Options) transporttest.Harness {
	h := transporttest.Harness{Uncounted: true}
	h.New = func(t testing.TB) *transporttest.Ends {
		f := newFabric(t, f)
		return &transporttest.Ends{
			Active:  suiteEnd(t, f, "a0", o),
			Passive: suiteEnd(t, f, "b0", o),
			Restart: func(t testing.TB) transporttest.End { return suiteEnd(t, f, "b0", o) },
			Stall:   func(on bool) { f.Stall("a0", on) },
			Hold: func(transport.Conn) func() {
				f.Hold("a0", true)
				return func() {
					f.Hold("a0", false)
					f.Release("a0")
				}
			},
		}
	}
	return h
}

func ethernetDevices() []verbsfake.Device {
	return []verbsfake.Device{verbsfake.RoCE("a0", 0xa0, "10.0.0.1"), verbsfake.RoCE("b0", 0xb0, "10.0.0.2")}
}

// warm uses the runtime's poller, which keeps two descriptors from its first use on.
func warm(t *testing.T) {
	f := newFabric(t, verbsfake.Options{Devices: ethernetDevices()})
	if err := suiteEnd(t, f, "a0", Options{}).Transport.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTransport(t *testing.T) {
	warm(t)
	transporttest.Run(t, harness(verbsfake.Options{Devices: ethernetDevices(), KeepCompletions: true, RetryAfter: 2 * time.Millisecond}, Options{KeepAlive: 2 * time.Millisecond}))
}

// Devices of other kinds: InfiniBand, and one with the smallest limits that work.
func TestTransportOnOtherDevices(t *testing.T) {
	warm(t)
	small := ethernetDevices()
	for i := range small {
		small[i].Limits = verbs.DeviceLimits{MaxQPWR: 5, MaxSGE: 1, MaxCQE: 64, MaxQPReadAtomic: 1, MaxInitReadDepth: 2}
		small[i].Ports[0].MaxMsgBytes = 4096
		small[i].Ports[0].MTU = 256
	}
	for name, devices := range map[string][]verbsfake.Device{
		"InfiniBand": {verbsfake.InfiniBand("a0", 1, 7), verbsfake.InfiniBand("b0", 2, 9)},
		"small":      small,
		"Soft-RoCE":  softDevices(),
	} {
		t.Run(name, func(t *testing.T) {
			h := harness(verbsfake.Options{Devices: devices, RetryAfter: 2 * time.Millisecond}, Options{KeepAlive: 2 * time.Millisecond})
			h.RegionBytes, h.Requests, h.Cycles = 1<<19, 500, 20
			transporttest.Run(t, h)
		})
	}
}
