package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/transport/rdma"
	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// transportNames are the names of transports, in the order in which engines prefer them.
var transportNames = []string{"shm", "rdma", "tcp"}

// RDMA are the flags of RDMA's settings; those that are not given are RDMA's own to choose.
type RDMA struct {
	rdma.Options
	flags *pflag.FlagSet
}

const rdmaFlags = "rdma-device rdma-gid-index rdma-traffic-class rdma-service-level rdma-timeout rdma-retries"

// Add registers the flags.
func (r *RDMA) Add(cmd *cobra.Command) {
	r.flags = cmd.Flags()
	r.flags.StringSliceVar(&r.Devices, "rdma-device", nil, "use only RDMA device `NAME`, such as mlx5_0; repeatable")
	Var(cmd, &r.GIDIndex, "rdma-gid-index", "", "GID index `N` of the ports (default: chosen for each peer)", func(s string) (*int, error) {
		n, err := upTo(0, 1<<16-1)(s)
		return &n, err
	})
	for _, x := range []struct {
		to        *uint8
		name      string
		low, most int
		usage     string
	}{
		{&r.TrafficClass, "rdma-traffic-class", 0, 255, "traffic class `N` of RDMA packets, 0 to 255; the upper six bits are the DSCP (default 0)"},
		{&r.ServiceLevel, "rdma-service-level", 0, 15, "InfiniBand service level or VLAN priority `N`, 0 to 15 (default 0)"},
		{&r.Timeout, "rdma-timeout", 1, 31, "retransmit after 4.096 µs * 2^`N` without an answer, 1 to 31 (default 17: half a second)"},
		{&r.RetryCount, "rdma-retries", 1, 6, "close a connection after `N` retransmissions, 1 to 6 (default 6)"},
	} {
		Var(cmd, x.to, x.name, "", x.usage, func(s string) (uint8, error) {
			n, err := upTo(x.low, x.most)(s)
			return uint8(n), err //nolint:gosec // it has bounds
		})
	}
}

// upTo reads a whole number between bounds.
func upTo(low, most int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > most {
			return 0, fmt.Errorf("%s: want %d to %d", s, low, most)
		}
		return n, nil
	}
}

// Check refuses settings of a transport that is not used.
func (r *RDMA) Check(cmd *cobra.Command) error {
	return checkTogether(cmd, flagRule{rdmaFlags, needs, "transport=rdma transport=auto", ""})
}

// Args are the flags again, for a child.
func (r *RDMA) Args() []string {
	var out []string
	for name := range strings.FieldsSeq(rdmaFlags) {
		if fl := r.flags.Lookup(name); fl.Changed {
			for _, v := range flagValues(fl) {
				out = append(out, "--"+name+"="+v)
			}
		}
	}
	return out
}

// transport makes RDMA for an engine. Where the host has none the engine goes on
// without, unless RDMA was asked for by name.
func (r *RDMA) transport(must bool) engine.TransportFactory {
	f := rdma.Factory(r.Options)
	if !must {
		return f
	}
	return engine.Require(f, func(err error, t *topo.Topology) error {
		return withHint(errors.New("--transport rdma on this host: "+pkgerr.Message(err)), "%s", withoutRDMA(t))
	})
}

// withoutRDMA is the next step where RDMA cannot be had. The doctor has nothing to say of
// devices that are not there.
func withoutRDMA(t *topo.Topology) string {
	if t != nil && len(t.RDMADevices) == 0 {
		return "this host has no RDMA device; use --transport tcp or auto, or create a software device with \"rdma link add rxe0 type rxe netdev INTERFACE\""
	}
	return "run \"topoctl doctor\" to see what is missing, or use --transport auto to continue without RDMA"
}

// Factories are those of the transports that the names stand for, in the order of preference.
func (r *RDMA) Factories(names ...string) []engine.TransportFactory {
	var out []engine.TransportFactory
	for _, name := range transportNames {
		switch auto := slices.Contains(names, bench.Auto); {
		case !auto && !slices.Contains(names, name):
		case name == "shm":
			out = append(out, engine.SHM())
		case name == "rdma":
			out = append(out, r.transport(slices.Contains(names, name)))
		default:
			out = append(out, engine.TCP())
		}
	}
	return out
}

// transportChoices are what --transport takes.
var transportChoices = []string{bench.Auto, "rdma", "tcp", "shm"}

// protections are what --protect takes.
var protections = []engine.Protection{engine.ProtectOpen, engine.ProtectHeaders, engine.ProtectPayload, engine.ProtectSealed}

// Transports are the flags that say what memory moves over: --transport and the settings of each.
type Transports struct {
	Names      []string          // "auto" is all that this host has
	Protection engine.Protection // of data over TCP; "" leaves it to the engine
	RDMA
}

// Add registers the flags.
func (t *Transports) Add(cmd *cobra.Command, usage string) {
	wordListFlag(cmd, &t.Names, "transport", []string{bench.Auto}, usage, transportChoices)
	wordFlag(cmd, &t.Protection, "protect", "", "`LEVEL` of protection that data over TCP has at least: "+either(wordsOf(protections))+" (default: headers with a token, open without)", protections)
	t.RDMA.Add(cmd)
}

// Check refuses settings of transports that are not used, and RDMA by name with a protection that it does not have.
func (t *Transports) Check(cmd *cobra.Command) error {
	return cmp.Or(t.RDMA.Check(cmd), checkTogether(cmd, flagRule{"protect=payload protect=sealed", excludes, "transport=rdma",
		"network cards neither authenticate nor encrypt what they move; use --transport tcp, or --protect headers"}))
}

// Offers says whether a transport is among those of the flags.
func (t *Transports) Offers(name string) bool {
	return slices.Contains(t.Names, bench.Auto) || slices.Contains(t.Names, name)
}
