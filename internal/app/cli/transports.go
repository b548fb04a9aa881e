package cli

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
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// The names of transports, in the order in which engines prefer them.
var transportNames = []string{"shm", "rdma", "tcp"}

// rdmaFlags are the flags of RDMA's settings; those that are not given are RDMA's own
// to choose.
type rdmaFlags struct {
	devices                              []string
	gid, class, level, timeout, attempts int
}

// unset stands for a setting that is not given.
const unset = -1

func (r *rdmaFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&r.devices, "rdma-device", nil, "use only RDMA device `NAME`, such as mlx5_0; repeatable")
	fl.IntVar(&r.gid, "rdma-gid-index", unset, "use entry `N` of the ports' GID tables (default: chosen for each peer)")
	fl.IntVar(&r.class, "rdma-traffic-class", unset, "mark RDMA packets with traffic class `N`, 0 to 255; its upper six bits are the DSCP (default 0)")
	fl.IntVar(&r.level, "rdma-service-level", unset, "InfiniBand service level or VLAN priority `N`, 0 to 15 (default 0)")
	fl.IntVar(&r.timeout, "rdma-timeout", unset, "send again after 4.096 µs * 2^`N` without an answer, 1 to 31 (default 17: half a second)")
	fl.IntVar(&r.attempts, "rdma-retries", unset, "give a connection up after it has sent `N` times again, 1 to 6 (default 6)")
	for _, name := range []string{"rdma-gid-index", "rdma-traffic-class", "rdma-service-level", "rdma-timeout", "rdma-retries"} {
		fl.Lookup(name).DefValue = "0" // which is not printed: the text says it
	}
	offer(cmd, map[string]completer{"rdma-device": words(), "rdma-gid-index": words(), "rdma-traffic-class": words(),
		"rdma-service-level": words(), "rdma-timeout": words(), "rdma-retries": words()})
}

// check refuses what is out of range, and settings of a transport that is not used.
func (r *rdmaFlags) check(cmd *cobra.Command, used bool) error {
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
		{"rdma-gid-index", r.gid, 0, 1<<16 - 1}, {"rdma-traffic-class", r.class, 0, 255}, {"rdma-service-level", r.level, 0, 15},
		{"rdma-timeout", r.timeout, 1, 31}, {"rdma-retries", r.attempts, 1, 6},
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

// args are the flags again, for a child.
func (r *rdmaFlags) args() []string {
	var out []string
	for _, d := range r.devices {
		out = append(out, "--rdma-device", d)
	}
	for _, x := range []struct {
		flag  string
		value int
	}{{"gid-index", r.gid}, {"traffic-class", r.class}, {"service-level", r.level}, {"timeout", r.timeout}, {"retries", r.attempts}} {
		if x.value != unset {
			out = append(out, fmt.Sprintf("--rdma-%s=%d", x.flag, x.value))
		}
	}
	return out
}

func (r *rdmaFlags) options() rdma.Options {
	o := rdma.Options{Devices: r.devices}
	if r.gid != unset {
		o.GIDIndex = rdma.At(r.gid)
	}
	for _, x := range []struct {
		to    *uint8
		value int
	}{{&o.TrafficClass, r.class}, {&o.ServiceLevel, r.level}, {&o.Timeout, r.timeout}, {&o.RetryCount, r.attempts}} {
		if x.value != unset {
			*x.to = uint8(x.value)
		}
	}
	return o
}

// transport makes RDMA for an engine. Where the host has none the engine goes on
// without, unless RDMA was asked for by name.
func (r *rdmaFlags) transport(must bool) engine.TransportFactory {
	return func(env transport.Env) (transport.Transport, error) {
		t, err := rdma.Factory(r.options())(env)
		if err != nil && must {
			// Not wrapped: an engine goes on without what is unavailable.
			return nil, withHint(errors.New("--transport rdma on this host: "+strings.TrimPrefix(err.Error(), "rdma: ")), "%s", withoutRDMA(env.Topology))
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

// transports are those that the names stand for, in the order of preference.
func (r *rdmaFlags) transports(names []string) []engine.TransportFactory {
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

// offers says whether an agent has a transport among those that it offers.
func (o *agentOptions) offers(name string) bool {
	return slices.Contains(o.transports, name) || slices.Contains(o.transports, bench.Auto)
}

// usesRDMA says whether one of the names may be RDMA.
func usesRDMA(names []string) bool {
	return slices.Contains(names, bench.Auto) || slices.Contains(names, "rdma")
}

// checkWords refuses words of a list that are unknown or come twice.
func checkWords(flag string, given, known []string) error {
	for i, v := range given {
		switch {
		case !slices.Contains(known, v):
			return fmt.Errorf("--%s %q: want %s", flag, v, either(known))
		case slices.Contains(given[:i], v):
			return fmt.Errorf("--%s %s is given twice", flag, v)
		}
	}
	if len(given) == 0 {
		return fmt.Errorf("--%s is empty", flag)
	}
	return nil
}
