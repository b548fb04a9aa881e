// Package rdma gives an engine RDMA verbs, over InfiniBand and RoCE: one-sided READs and
// WRITEs that devices carry out. It needs Linux, cgo and libibverbs, which is loaded at run time;
// on a host without it, an engine uses its other transports.
//
//	engine.Options{Transports: []engine.TransportFactory{
//		engine.SHM(), rdma.Factory(rdma.Options{}), engine.TCP()}}
//
// docs/wire.md specifies the protocol under "RDMA", and docs/status.md lists the hardware that it
// was tried on.
package rdma

import (
	"fmt"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/rdma"
	"github.com/topoctl/topoctl/pathsel"
)

// ErrBudget is that all queue pairs that the options allow are in use.
var ErrBudget = rdma.ErrBudget

// Options configure RDMA. Zero fields take the defaults, which suit RoCE v2
// and InfiniBand as they are mostly set up.
type Options struct {
	// Devices are the names of those that are used ("mlx5_0"); none: all.
	Devices []string
	// GIDIndex is the entry of every port's GID table that is used, counted from 0 as the
	// device does; nil: chosen for each peer. PKeyIndex is the same for partition keys.
	GIDIndex, PKeyIndex *int
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
}

// Factory makes RDMA for an engine: one of engine.Options.Transports. If the host has no RDMA, the
// engine works without it, and its Unavailable says why (engine.ErrUnavailable).
func Factory(o Options) engine.TransportFactory {
	return &transport.Factory{Name: string(pathsel.RDMA), Make: func(env transport.Env) (transport.Transport, error) {
		if env.Protection >= transport.Payload {
			return nil, fmt.Errorf("RDMA is %w with protection %q: the network cards move the bytes, and neither authenticate nor encrypt them",
				transport.ErrUnavailable, env.Protection)
		}
		t, err := rdma.New(rdma.Options(o), nil, env.Changed)
		if err != nil {
			return nil, err
		}
		return t, nil
	}}
}
