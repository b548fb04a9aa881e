package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/internal/fleet"
)

func missing(name, source, reason string) fleet.Host {
	return fleet.Host{Host: name, Status: fleet.NotReached, Source: source, Reason: reason}
}

// Every host that was not reached is told once, and hosts with one reason together, whatever hosts are called.
func TestUnreachedAll(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zH0-9.:-]{1,6}`), 1, 8, rapid.ID[string]).Draw(rt, "names")
		f := &fleet.Fleet{}
		reasons := map[string]int{}
		for _, n := range names {
			reason := rapid.SampledFrom([]string{"refused", "no route", "", "%s: refused"}).Draw(rt, "reason")
			reasons[reason]++
			if strings.Contains(reason, "%") {
				reason = fmt.Sprintf(reason, n)
			}
			f.Hosts = append(f.Hosts, missing(n, "ssh "+n, reason))
		}
		told := map[string]bool{}
		list := f.Unreached()
		for i, x := range list {
			if i > 0 && len(x.Hosts) > len(list[i-1].Hosts) || x.Reason == "" || len(x.Sources) != len(x.Hosts) {
				rt.Fatalf("%+v", list)
			}
			for _, h := range x.Hosts {
				if told[h] {
					rt.Fatalf("%q is told twice", h)
				}
				told[h] = true
			}
		}
		if len(told) != len(names) {
			rt.Fatalf("%d of %d hosts are told", len(told), len(names))
		}
	})
}
