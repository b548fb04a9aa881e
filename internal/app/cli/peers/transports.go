package peers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/transport/rdma"
	"github.com/topoctl/topoctl/internal/app/bench"
	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

// TransportNames are the names of transports, in the order in which engines prefer them.
var TransportNames = []string{"shm", "rdma", "tcp"}

// RDMA are the flags of RDMA's settings; those that are not given are RDMA's own
// to choose.
type RDMA struct {
	devices                              []string
	GID, Class, Level, Timeout, Attempts int
}

// Unset stands for a setting that is not given.
const Unset = -1

// Add registers the flags.
func (r *RDMA) Add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&r.devices, "rdma-device", nil, "use only RDMA device `NAME`, such as mlx5_0; repeatable")
	fl.IntVar(&r.GID, "rdma-gid-index", Unset, "use entry `N` of the ports' GID tables (default: chosen for each peer)")
	fl.IntVar(&r.Class, "rdma-traffic-class", Unset, "mark RDMA packets with traffic class `N`, 0 to 255; its upper six bits are the DSCP (default 0)")
	fl.IntVar(&r.Level, "rdma-service-level", Unset, "InfiniBand service level or VLAN priority `N`, 0 to 15 (default 0)")
	fl.IntVar(&r.Timeout, "rdma-timeout", Unset, "send again after 4.096 µs * 2^`N` without an answer, 1 to 31 (default 17: half a second)")
	fl.IntVar(&r.Attempts, "rdma-retries", Unset, "give a connection up after it has sent `N` times again, 1 to 6 (default 6)")
	for _, name := range []string{"rdma-gid-index", "rdma-traffic-class", "rdma-service-level", "rdma-timeout", "rdma-retries"} {
		fl.Lookup(name).DefValue = "0" // which is not printed: the text says it
	}
	command.Offer(cmd, map[string]command.Completer{"rdma-device": command.Words(), "rdma-gid-index": command.Words(), "rdma-traffic-class": command.Words(),
		"rdma-service-level": command.Words(), "rdma-timeout": command.Words(), "rdma-retries": command.Words()})
}

// Check refuses what is out of range, and settings of a transport that is not used.
func (r *RDMA) Check(cmd *cobra.Command, used bool) error {
	var given []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Name, "rdma-") {
			given = append(given, "--"+f.Name)
		}
	})
	if len(given) > 0 && !used {
		return fmt.Errorf("%s has no effect without RDMA: --transport rdma or auto", given[0])
	}
	for _, x := range []struct {
		flag            string
		value, low, top int
	}{
		{"rdma-gid-index", r.GID, 0, 1<<16 - 1}, {"rdma-traffic-class", r.Class, 0, 255}, {"rdma-service-level", r.Level, 0, 15},
		{"rdma-timeout", r.Timeout, 1, 31}, {"rdma-retries", r.Attempts, 1, 6},
	} {
		if cmd.Flags().Changed(x.flag) && (x.value < x.low || x.value > x.top) {
			return fmt.Errorf("--%s %d: want %d to %d", x.flag, x.value, x.low, x.top)
		}
	}
	if slices.Contains(r.devices, "") {
		return errors.New("--rdma-device is empty")
	}
	return nil
}

// Args are the flags again, for a child.
func (r *RDMA) Args() []string {
	var out []string
	for _, d := range r.devices {
		out = append(out, "--rdma-device", d)
	}
	for _, x := range []struct {
		flag  string
		value int
	}{{"gid-index", r.GID}, {"traffic-class", r.Class}, {"service-level", r.Level}, {"timeout", r.Timeout}, {"retries", r.Attempts}} {
		if x.value != Unset {
			out = append(out, fmt.Sprintf("--rdma-%s=%d", x.flag, x.value))
		}
	}
	return out
}

func (r *RDMA) options() rdma.Options {
	o := rdma.Options{Devices: r.devices}
	if r.GID != Unset {
		o.GIDIndex = &r.GID
	}
	for _, x := range []struct {
		to    *uint8
		value int
	}{{&o.TrafficClass, r.Class}, {&o.ServiceLevel, r.Level}, {&o.Timeout, r.Timeout}, {&o.RetryCount, r.Attempts}} {
		if x.value != Unset {
			*x.to = uint8(x.value)
		}
	}
	return o
}

// transport makes RDMA for an engine. Where the host has none the engine goes on
// without, unless RDMA was asked for by name.
func (r *RDMA) transport(must bool) engine.TransportFactory {
	return func(env transport.Env) (transport.Transport, error) {
		t, err := rdma.Factory(r.options())(env)
		if err != nil && must {
			// Not wrapped: an engine goes on without what is unavailable.
			return nil, command.WithHint(errors.New("--transport rdma on this host: "+pkgerr.Message(err)), "%s", withoutRDMA(env.Topology))
		}
		return t, err
	}
}

// withoutRDMA is the next step where RDMA cannot be had. The doctor has nothing to say of
// devices that are not there.
func withoutRDMA(t *topo.Topology) string {
	if t != nil && len(t.RDMADevices) == 0 {
		return "it has no RDMA device; --transport tcp or auto goes on without, and \"rdma link add rxe0 type rxe netdev NAME\" makes one in software of interface NAME"
	}
	return "\"topoctl doctor\" says what is missing; --transport auto goes on without RDMA"
}

// Transports are those that the names stand for, in the order of preference.
func (r *RDMA) Transports(names []string) []engine.TransportFactory {
	var out []engine.TransportFactory
	for _, name := range TransportNames {
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

// UsesRDMA says whether one of the names may be RDMA.
func UsesRDMA(names []string) bool {
	return slices.Contains(names, bench.Auto) || slices.Contains(names, "rdma")
}

// Transports are what --transport takes.
var Transports = []string{bench.Auto, "rdma", "tcp", "shm"}
