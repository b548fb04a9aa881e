package rdma

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/topoctl/topoctl/internal/base/verbs"
)

// Options configure the transport. Zero fields take the defaults, which suit RoCE v2
// and InfiniBand as they are mostly set up.
type Options struct {
	// Lib is libibverbs; nil loads it.
	Lib *verbs.Lib
	// Devices are the names of those that are used ("mlx5_0"); none: all.
	Devices []string
	// GIDIndex is the entry of every port's GID table that is used, Auto by default:
	// chosen for each peer. PKeyIndex is the same for partition keys.
	GIDIndex, PKeyIndex Index
	// TrafficClass is that of the packets' GRH or IP header (its upper six bits are the
	// DSCP), ServiceLevel the InfiniBand or VLAN priority, 0 to 15.
	TrafficClass, ServiceLevel uint8
	// Timeout is how long a queue pair waits for an answer before it sends again, as
	// the exponent of 4.096 µs * 2^n, 1 to 31; default 17, some 0.54 s. Devices may wait
	// up to four times as long. It must be longer than what a queue on the way can hold.
	Timeout uint8
	// RetryCount is how often it sends again before the connection is lost, 1 to 6;
	// default 6. 7 is for ever on some devices, and not taken.
	RetryCount uint8
	// RNRRetry is the same for a receiver that is not ready, 1 to 6; default 6.
	// One-sided requests never meet one.
	RNRRetry uint8
	// QueuePairs are those of one lane; default 2, at most 16. MaxQueuePairs are those of all
	// lanes, of peers' too; default 1,024. One peer's session gets a quarter of them, at
	// least 16.
	QueuePairs, MaxQueuePairs int
	// Depth is how many work requests one queue pair holds, 2 to 1,024; default 128.
	// Less where the device has less.
	Depth int
	// Reads are the READs that a queue pair has open at a time, at most; default 16.
	Reads int
	// MTU caps the path MTU, in bytes; default 4096.
	MTU int
	// Inline is the largest WRITE that is copied into the work request, in bytes;
	// default 0, at most 1,024.
	Inline int
	// KeepAlive is how long a connection may be idle before it is tried out; default
	// 1 s. Watch is how often devices and ports are read again, since not everything
	// that happens to them has an event; default 1 s.
	KeepAlive, Watch time.Duration
	// ArriveTime is how long a connection that a peer asked for may take to be used
	// before it is forgotten; default 30 s.
	ArriveTime time.Duration
	// FlushTime is how long a connection that ends waits for the device to give back
	// what is posted before its queue pairs are destroyed; default 250 ms.
	FlushTime time.Duration
	// Changed is called when Offers, LocalPorts or keys of regions have changed. It
	// comes from a goroutine of the transport and may call it, but for Close.
	Changed func()
}

// Index is a place in a port's table, counted from 1, so that the zero value can
// stand for a choice by the transport.
type Index int

// Auto has the transport choose.
const Auto Index = 0

// At is the index that a device's tables call n, counted from 0.
func At(n int) Index { return Index(n + 1) }

// index is the place in the table, -1 for Auto.
func (i Index) index() int { return int(i) - 1 }

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
	within("GID index", o.GIDIndex.index(), -1, 1<<16-1, "")
	within("partition key index", o.PKeyIndex.index(), -1, 1<<16-1, "")
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
			errs = append(errs, fmt.Errorf("device %.70q is no name of a device", d))
		}
	}
	if len(errs) > 0 {
		return o, fmt.Errorf("rdma: options: %w", errors.Join(errs...))
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
