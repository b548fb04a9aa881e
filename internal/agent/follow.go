package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
)

// topologySetter is an engine.
type topologySetter interface {
	SetTopology(ctx context.Context, t *topo.Topology) error
}

// every calls do at intervals until ctx ends or it is stopped.
func every(ctx context.Context, interval time.Duration, do func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				do(ctx)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// follow polls the host's ports until ctx ends or it is stopped, and gives the engine a new
// topology when they have changed.
func follow(ctx context.Context, o *Options, e topologySetter) (stop func()) {
	if o.Rediscover == nil || o.PortState == nil || o.PollInterval <= 0 {
		return func() {}
	}
	f := follower{applied: o.InitialPortState, last: o.InitialPortState}
	return every(ctx, o.PollInterval, func(ctx context.Context) {
		if !f.changed(o.PortState()) {
			return
		}
		t, err := o.Rediscover(ctx)
		if err == nil {
			err = e.SetTopology(ctx, t)
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			f.applied = "" // try again at the next poll
			o.Engine.Logger.Warn("network ports have changed, and discovering the host again failed", "error", err)
		default:
			o.Engine.Logger.Info("network ports have changed: the topology was discovered again")
		}
	})
}

// follower has the state that was applied last, and the state of the last poll.
type follower struct{ applied, last string }

// changed says whether the state differs from the one that was applied and is the same as at
// the last poll: ports come up step by step.
func (f *follower) changed(now string) bool {
	settled := now == f.last
	f.last = now
	if !settled || now == f.applied {
		return false
	}
	f.applied = now
	return true
}

// PortState returns a function that describes the network interfaces with their addresses
// and the RDMA ports with their states and GIDs, which costs little. root is the directory
// above the host's /sys, "" for /.
func PortState(root string) func() string {
	sys := filepath.Join("/", root, "sys/class/infiniband")
	return func() string {
		var b strings.Builder
		list, err := net.Interfaces()
		if err != nil {
			fmt.Fprintln(&b, err)
		}
		for _, i := range list {
			fmt.Fprintln(&b, i.Name, i.HardwareAddr, i.MTU, i.Flags)
			addrs, err := i.Addrs()
			if err != nil {
				continue // it went away meanwhile
			}
			for _, a := range addrs {
				fmt.Fprintln(&b, " ", a)
			}
		}
		writeRDMAPorts(&b, sys)
		return b.String()
	}
}

// How many GIDs are read of each RDMA port: tables are long and nearly empty, so reading
// stops at a run of empty entries.
const (
	maxGIDs      = 64
	maxEmptyGIDs = 8
)

// Files: Documentation/ABI/stable/sysfs-class-infiniband.
func writeRDMAPorts(b *strings.Builder, sys string) {
	ports, err := filepath.Glob(filepath.Join(sys, "*", "ports", "*"))
	if err != nil {
		return
	}
	slices.Sort(ports)
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(data))
	}
	for _, port := range ports {
		fmt.Fprintln(b, port, read(port+"/state"), read(port+"/rate"), read(port+"/lid"))
		empty := 0
		for n := 0; n < maxGIDs && empty < maxEmptyGIDs; n++ {
			gid := read(fmt.Sprint(port, "/gids/", n))
			if strings.Trim(gid, "0:") == "" {
				empty++
				continue
			}
			empty = 0
			fmt.Fprintln(b, " ", n, gid)
		}
	}
}
