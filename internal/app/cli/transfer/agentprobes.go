package transfer

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/cli/peers"
	"github.com/topoctl/topoctl/internal/app/probe/fabric"
	"github.com/topoctl/topoctl/internal/base/units"
)

// What controllers may do with an agent unless its flags say otherwise.
const (
	probeMemory = 1 << 30
	probeTime   = 10 * time.Minute
)

// addProbes adds the flags of what an agent lets controllers measure.
func (o *agentOptions) addProbes(cmd *cobra.Command) {
	fl, typed := cmd.Flags(), &o.typed
	fl.BoolVar(&o.probes, "serve-probes", true, "let \"topoctl probe fabric\" measure between this host and others")
	fl.StringVar(&typed.probeMemory, "probe-memory", command.SizeText(probeMemory), "a probe may use `SIZE` of memory at a time")
	fl.StringVar(&typed.probeRate, "probe-rate", "", "a probe may move `RATE` from here, such as 10Gb/s (default: no limit)")
	fl.DurationVar(&o.limits.Duration, "probe-time", probeTime, "a probe may take `TIME` for each pair")
	command.Offer(cmd, map[string]command.Completer{"probe-memory": command.Words("256MiB", "1GiB"), "probe-rate": command.Words("10Gb/s"), "probe-time": command.Words()})
}

func (o *agentOptions) parseProbes(cmd *cobra.Command) (err error) {
	if !o.probes {
		if err := command.NoEffect(cmd, "with --serve-probes=false", "probe-memory", "probe-rate", "probe-time"); err != nil {
			return err
		}
	}
	if err := command.NotEmpty(cmd, "probe-rate"); err != nil {
		return err
	}
	typed := &o.typed
	if o.limits.MemoryBytes, err = command.ParseBytes(typed.probeMemory); err != nil {
		return fmt.Errorf("--probe-memory %w", err)
	}
	if typed.probeRate != "" {
		if o.limits.BytesPerSec, err = command.ParseRate(typed.probeRate); err != nil {
			return fmt.Errorf("--probe-rate %w", err)
		}
	}
	if o.limits.Duration <= 0 {
		return fmt.Errorf("--probe-time %s: want more than 0", o.limits.Duration)
	}
	return nil
}

// prober says what controllers may do, nil nothing.
func (o *agentOptions) prober() *fabric.ServerOptions {
	if !o.probes {
		return nil
	}
	s := &fabric.ServerOptions{Limits: o.limits, Transports: map[string]engine.TransportFactory{}}
	for _, name := range peers.TransportNames {
		if list := o.transports.Factories(name); len(list) == 1 && o.transports.Offers(name) {
			s.Transports[name] = list[0]
		}
	}
	if o.Globals.HostRoot != "" {
		s.Sysfs = filepath.Join(o.Globals.HostRoot, "sys")
	}
	return s
}

// probesText says in an agent's first words what controllers may do.
func probesText(l *fabric.Limits) string {
	if l == nil {
		return "  no probes\n"
	}
	text := fmt.Sprintf("  probes with %s of memory, %s for a pair at most", units.Bytes(l.MemoryBytes), l.Duration)
	if l.BytesPerSec > 0 {
		text += ", " + units.Rate(l.BytesPerSec, units.Auto)
	}
	return text + "\n"
}
