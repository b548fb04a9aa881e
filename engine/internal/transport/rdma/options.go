package rdma

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Limits of requests; a connection has less where a device has less.
const (
	maxDepth   = 1024     // work requests of one queue pair
	maxSpans   = 64       // of one request
	maxBytes   = 64 << 20 // of one request
	maxSGE     = 8        // local pieces of one work request
	maxWork    = 1 << 30  // bytes of one work request
	maxEntries = 1 << 15  // of a device's completion queue
)

// Options are those of the public package engine/transport/rdma, which says what they
// mean: its factory converts them.
type Options struct {
	Devices                    []string
	GIDIndex, PKeyIndex        *int
	TrafficClass, ServiceLevel uint8
	Timeout                    uint8
	RetryCount                 uint8
	RNRRetry                   uint8
	QueuePairs, MaxQueuePairs  int
	Depth                      int
	Reads                      int
	MTU                        int
	Inline                     int
	KeepAlive, Watch           time.Duration
	ArriveTime                 time.Duration
	FlushTime                  time.Duration
}

// withDefaults fills and checks.
func (o Options) withDefaults() (Options, error) {
	def(&o.Timeout, 17)
	def(&o.RetryCount, 6)
	def(&o.RNRRetry, 6)
	def(&o.QueuePairs, 2)
	def(&o.MaxQueuePairs, 1024)
	def(&o.Depth, 128)
	def(&o.Reads, 16)
	def(&o.MTU, 4096)
	def(&o.KeepAlive, time.Second)
	def(&o.Watch, time.Second)
	def(&o.ArriveTime, 30*time.Second)
	def(&o.FlushTime, 250*time.Millisecond)
	var errs []error
	within := func(what string, value, low, high int, why string) {
		if value < low || value > high {
			errs = append(errs, fmt.Errorf("%s %d: want %d to %d%s", what, value, low, high, why))
		}
	}
	within("timeout exponent", int(o.Timeout), 1, 31, ": 0 would wait for ever")
	within("retry count", int(o.RetryCount), 1, 6, ": 7 is for ever on some devices")
	within("RNR retry count", int(o.RNRRetry), 1, 6, ": 7 is for ever")
	within("service level", int(o.ServiceLevel), 0, 15, "")
	within("queue pairs of a lane", o.QueuePairs, 1, maxLanePairs, "")
	within("queue pairs of all lanes", o.MaxQueuePairs, o.QueuePairs, 1<<20, "")
	within("depth", o.Depth, 2, maxDepth, "")
	within("READs at a time", o.Reads, 1, 255, "")
	within("inline bytes", o.Inline, 0, 1024, "")
	if o.GIDIndex != nil {
		within("GID index", *o.GIDIndex, 0, 1<<16-1, "")
	}
	if o.PKeyIndex != nil {
		within("partition key index", *o.PKeyIndex, 0, 1<<16-1, "")
	}
	if !validMTU(o.MTU) {
		errs = append(errs, fmt.Errorf("MTU %d: want 256, 512, 1024, 2048 or 4096", o.MTU))
	}
	for _, t := range []struct {
		what  string
		value time.Duration
	}{{"keep-alive time", o.KeepAlive}, {"watch time", o.Watch}, {"arrive time", o.ArriveTime}, {"flush time", o.FlushTime}} {
		if t.value < 0 {
			errs = append(errs, fmt.Errorf("%s %v: want it above 0", t.what, t.value))
		}
	}
	for _, d := range o.Devices {
		if !validDevice(d) {
			errs = append(errs, fmt.Errorf("device %.70q is not a device name", d))
		}
	}
	if len(errs) > 0 {
		return o, pkgerr.Errorf("rdma", "options: %w", errors.Join(errs...))
	}
	o.Devices = slices.Clone(o.Devices)
	return o, nil
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// wants says whether the options let a device be used.
func (o *Options) wants(device string) bool {
	return len(o.Devices) == 0 || slices.Contains(o.Devices, device)
}
