package transfer

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/app/agent"
	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/cli/peers"
	"github.com/topoctl/topoctl/internal/base/units"
)

func (o *agentOptions) print(i agent.Info) error {
	r := AgentReady{Schema: SchemaAgent, Name: i.Name, Epoch: i.Epoch, PID: os.Getpid(), Addresses: i.Addresses,
		Advertised: i.Advertised, HTTP: usable(i), Regions: i.Regions, Unavailable: i.Unavailable, Client: o.client(i)}
	if o.probes {
		r.Probes = &o.limits
	}
	if o.format == command.FormatJSON {
		line, err := command.JSONLine(r)
		if err != nil {
			return err
		}
		return command.Write(o.Streams.Out, line)
	}
	return command.Write(o.Streams.Out, []byte(command.Finish(r.text())))
}

// usable are addresses to ask HTTP at: one that stands for all addresses of the host
// is none.
func usable(i agent.Info) []string { return reachable(i.HTTP, hostOf(i.Advertised)) }

// reachable puts a host in the place of addresses that stand for all of them.
func reachable(list []string, host string) []string {
	out := []string{}
	for _, h := range list {
		at, err := netip.ParseAddrPort(h)
		if err == nil && at.Addr().IsUnspecified() {
			h = net.JoinHostPort(host, strconv.Itoa(int(at.Port())))
		}
		out = append(out, h)
	}
	return out
}

// hostOf is the host that peers are told first.
func hostOf(list []engine.Advertised) string {
	for _, a := range list {
		if host, _, err := net.SplitHostPort(a.Address); err == nil && a.Transport == "tcp" {
			return host
		}
	}
	return "localhost"
}

// client is the command that uses the agent from where it is advertised.
func (o *agentOptions) client(i agent.Info) *string {
	if !slices.ContainsFunc(i.Regions, func(r engine.RegionStats) bool { return r.Name == benchRegion }) {
		return nil
	}
	at := ""
	for _, a := range i.Advertised {
		if a.Transport == "tcp" {
			at = a.Address
			break
		}
	}
	if at == "" && len(i.Addresses) > 0 {
		at = i.Addresses[0]
	}
	line := "topoctl bench --peer " + at
	switch o.tokenFile {
	case "":
	case "-":
		line += " --token-file FILE"
	default:
		line += " --token-file " + o.tokenFile
	}
	return &line
}

func (r *AgentReady) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "agent %s serves at %s\n", r.Name, strings.Join(r.Addresses, ", "))
	for _, g := range r.Regions {
		may := map[[2]bool]string{{true, true}: "peers read and write", {true, false}: "peers read", {false, true}: "peers write"}[[2]bool{g.Read, g.Write}]
		at := ""
		if g.Location != "" {
			at = " at " + g.Location
		}
		fmt.Fprintf(&b, "  region %-10s %s%s, %s\n", g.Name, units.Bytes(g.Bytes), at, may)
		for _, n := range g.Notes {
			fmt.Fprintf(&b, "    %s\n", n)
		}
	}
	for _, a := range r.Advertised {
		line := "  " + a.Transport + " at " + a.Address
		switch {
		case a.Transport == "rdma": // its address is for machines
			line = "  rdma at " + a.Port.Name()
			if a.BytesPerSec > 0 {
				line += ", " + units.Rate(int64(a.BytesPerSec), units.Auto)
			}
		case a.Port != "":
			line += " (" + a.Port.Name() + ")"
		}
		if a.Reason != "" {
			line += ": " + a.Reason
		}
		b.WriteString(line + "\n")
	}
	for _, h := range r.HTTP {
		fmt.Fprintf(&b, "  http://%s/metrics, /v1/topology, /v1/engine, /healthz\n", h)
	}
	b.WriteString(probesText(r.Probes))
	if r.Client != nil {
		where := "at the other end"
		if !slices.ContainsFunc(r.Addresses, func(a string) bool { return !peers.LoopbackOnly(a) }) {
			where = "on this host, in another terminal"
		}
		fmt.Fprintf(&b, "Run %s:\n  %s\n", where, *r.Client)
	}
	return b.String()
}
