package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/pathsel"
)

const (
	minToken     = 16
	maxConns     = 16 // of a lane
	defaultLimit = 30 * time.Second
)

// complete checks the options and fills in the defaults.
func (o *Options) complete() error {
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "engine"
		}
		o.Name = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if len(o.Listen) == 0 {
		o.Listen = []string{"127.0.0.1:0"}
	}
	for _, address := range o.Listen {
		if err := o.checkListen(address); err != nil {
			return err
		}
	}
	policy, err := pathsel.ParsePolicy(o.Policy)
	if err != nil {
		return err
	}
	o.Policy = string(policy)
	switch {
	case len(o.Token) > 0 && len(o.Token) < minToken:
		return fmt.Errorf("token of %d bytes: want at least %d", len(o.Token), minToken)
	case o.Ports.LocalSize < 0 || o.Ports.LocalRank < 0 || o.Ports.LocalRank >= max(o.Ports.LocalSize, 1):
		return fmt.Errorf("local rank %d of %d: want a rank below the size, or 0 of 0", o.Ports.LocalRank, o.Ports.LocalSize)
	case o.ConnsPerLane < 0 || o.ConnsPerLane > maxConns:
		return fmt.Errorf("%d connections per lane: want 1 to %d", o.ConnsPerLane, maxConns)
	case o.Check > CheckNever:
		return fmt.Errorf("check %d: want CheckAuto, CheckAlways or CheckNever", o.Check)
	}
	o.defaults()
	return nil
}

func (o *Options) defaults() {
	if o.Transports == nil {
		o.Transports = []TransportFactory{SHM(), TCP()}
	}
	if o.Registry == nil {
		o.Registry = registry.P2P()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.ConnsPerLane = max(o.ConnsPerLane, 1)
	if o.DefaultTimeout <= 0 {
		o.DefaultTimeout = defaultLimit
	}
	if o.GiveUp <= 0 {
		o.GiveUp = 10 * time.Second
	}
	for _, l := range []struct {
		limit *int
		def   int
	}{
		{&o.Limits.Regions, 1 << 15}, {&o.Limits.Peers, 1 << 14}, {&o.Limits.Notifications, 1 << 10}, {&o.Limits.BatchOps, 1 << 20},
		{&o.Limits.Calls, 1 << 8},
	} {
		if *l.limit <= 0 {
			*l.limit = l.def
		}
	}
}

// checkListen refuses to serve other hosts without a token.
func (o *Options) checkListen(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen %q: want host:port, for all addresses :port", address)
	}
	if len(o.Token) > 0 || host == "localhost" {
		return nil
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsLoopback() {
		return nil
	}
	return errors.New("listen " + address + ": peers on other hosts could read and write without a token: give one, or listen at 127.0.0.1")
}
