package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/transport/rdma"
	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// transportNames are the names of transports, in the order in which engines prefer them.
var transportNames = []string{"shm", "rdma", "tcp"}

// RDMA are the flags of RDMA's settings; those that are not given are RDMA's own
// to choose.
type RDMA struct {
	devices                             []string
	gid, class, level, timeout, retries int
}

// unsetRDMA stands for a setting that is not given.
const unsetRDMA = -1

// defaultRDMA leaves all settings to RDMA.
func defaultRDMA() RDMA {
	return RDMA{gid: unsetRDMA, class: unsetRDMA, level: unsetRDMA, timeout: unsetRDMA, retries: unsetRDMA}
}

// rdmaSetting is a flag with a number.
type rdmaSetting struct {
	flag     string
	value    *int
	low, top int
	usage    string
}

func (r *RDMA) settings() []rdmaSetting {
	return []rdmaSetting{
		{"rdma-gid-index", &r.gid, 0, 1<<16 - 1, "GID index `N` of the ports (default: chosen for each peer)"},
		{"rdma-traffic-class", &r.class, 0, 255, "traffic class `N` of RDMA packets, 0 to 255; the upper six bits are the DSCP (default 0)"},
		{"rdma-service-level", &r.level, 0, 15, "InfiniBand service level or VLAN priority `N`, 0 to 15 (default 0)"},
		{"rdma-timeout", &r.timeout, 1, 31, "retransmit after 4.096 µs * 2^`N` without an answer, 1 to 31 (default 17: half a second)"},
		{"rdma-retries", &r.retries, 1, 6, "close a connection after `N` retransmissions, 1 to 6 (default 6)"},
	}
}

// Add registers the flags.
func (r *RDMA) Add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&r.devices, "rdma-device", nil, "use only RDMA device `NAME`, such as mlx5_0; repeatable")
	for _, s := range r.settings() {
		intFlag(cmd, s.value, s.flag, unsetRDMA, s.low, s.top, s.usage)
		fl.Lookup(s.flag).DefValue = "0" // which is not printed: the text says it
	}
}

// Check refuses settings of a transport that is not used.
func (r *RDMA) Check(cmd *cobra.Command) error {
	flags := "rdma-device"
	for _, s := range r.settings() {
		flags += " " + s.flag
	}
	return checkTogether(cmd, flagRule{flags, needs, "transport=rdma transport=auto", ""})
}

// Args are the flags again, for a child.
func (r *RDMA) Args() []string {
	var out []string
	for _, d := range r.devices {
		out = append(out, "--rdma-device", d)
	}
	for _, s := range r.settings() {
		if *s.value != unsetRDMA {
			out = append(out, fmt.Sprintf("--%s=%d", s.flag, *s.value))
		}
	}
	return out
}

func (r *RDMA) options() rdma.Options {
	o := rdma.Options{Devices: r.devices}
	if r.gid != unsetRDMA {
		o.GIDIndex = &r.gid
	}
	for _, x := range []struct {
		to    *uint8
		value int
	}{{&o.TrafficClass, r.class}, {&o.ServiceLevel, r.level}, {&o.Timeout, r.timeout}, {&o.RetryCount, r.retries}} {
		if x.value != unsetRDMA {
			*x.to = uint8(x.value)
		}
	}
	return o
}

// transport makes RDMA for an engine. Where the host has none the engine goes on
// without, unless RDMA was asked for by name.
func (r *RDMA) transport(must bool) engine.TransportFactory {
	f := rdma.Factory(r.options())
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

// Transports are the flags that say what memory moves over: --transport and the settings of each.
type Transports struct {
	Names      []string // "auto" is all that this host has
	Protection string   // of data over TCP; "" leaves it to the engine
	RDMA
}

// Add registers the flags.
func (t *Transports) Add(cmd *cobra.Command, usage string) {
	wordListFlag(cmd, &t.Names, "transport", []string{bench.Auto}, usage, transportChoices)
	wordFlag(cmd, &t.Protection, "protect", "", "`LEVEL` of protection that data over TCP has at least: "+either(engine.Protections)+" (default: headers with a token, open without)", engine.Protections)
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
