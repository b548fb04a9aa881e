package measure

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/hostlist"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

// Targets are the addresses that an agent may be made to connect to. nil: those of the networks that
// this host's interfaces are in, loopback aside, where programs are that trust this host alone.
type Targets []target

// All addresses, and those that only this host reaches.
var (
	AnyTargets      = Targets{{net: netip.MustParsePrefix("0.0.0.0/0")}, {net: netip.MustParsePrefix("::/0")}}
	LoopbackTargets = Targets{{net: netip.MustParsePrefix("127.0.0.0/8")}, {net: netip.MustParsePrefix("::1/128")}}
)

// target is a network, or a host by its name, and a port; 0 is any.
type target struct {
	net  netip.Prefix
	name string
	port uint16
}

// ParseTargets reads targets: 10.0.0.0/8, an address or the name of a host, the last two with or
// without :PORT.
func ParseTargets(list []string) (Targets, error) {
	out := Targets{}
	for _, text := range list {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, target{net: p.Masked()})
			continue
		}
		full, err := hostlist.WithPort(text, defaultPort)
		if err != nil {
			return nil, fmt.Errorf("%q: want a network such as 10.0.0.0/8, or HOST or HOST:PORT", text)
		}
		x := target{}
		host, port, err := net.SplitHostPort(full)
		if err != nil {
			return nil, err
		}
		if _, _, err := net.SplitHostPort(text); err == nil {
			if _, err := fmt.Sscan(port, &x.port); err != nil {
				return nil, err
			}
		}
		if a, err := netip.ParseAddr(host); err == nil {
			a = a.Unmap().WithZone("")
			x.net = netip.PrefixFrom(a, a.BitLen())
		} else {
			x.name = strings.ToLower(host)
		}
		out = append(out, x)
	}
	return out, nil
}

// ownNetworks are what this host's interfaces are in.
func ownNetworks() (Targets, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, pkgerr.Errorf("probe", "this host's networks: %w", err)
	}
	var out Targets
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
			out = append(out, target{net: netip.PrefixFrom(p.Addr().Unmap(), p.Bits()).Masked()})
		}
	}
	return out, nil
}

// allows says whether an address (host:port) is one of the targets; the error says why it is not. A name
// never is: names are looked up only where they are targets themselves.
func (t Targets) allows(ctx context.Context, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%s: this agent connects to addresses only, not to names", address)
	}
	if t == nil {
		if t, err = ownNetworks(); err != nil {
			return err
		}
	}
	a := at.Addr().Unmap().WithZone("")
	for _, x := range t {
		if x.port != 0 && x.port != at.Port() {
			continue
		}
		if x.net.Contains(a) {
			return nil
		}
		if x.name == "" {
			continue
		}
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", x.name)
		for _, f := range found {
			if err == nil && f.Unmap().WithZone("") == a {
				return nil
			}
		}
	}
	return fmt.Errorf("%s is not among the targets that this agent may connect to (--probe-targets)", address)
}

// What controllers may have an agent dial: a round of all of the pairs that agents usually have, again and
// again, but no network searched.
const (
	dialBurst     = 512
	dialPerSecond = 32
)

func newPacer() *lane.Pacer {
	return &lane.Pacer{Now: lane.Monotonic(), PerSec: dialPerSecond, Burst: (dialBurst - 1) * time.Second / dialPerSecond}
}
