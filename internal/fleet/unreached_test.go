package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/internal/fleet"
)

func missing(name, source, reason string) fleet.Host {
	return fleet.Host{Host: name, Status: fleet.NotReached, Source: source, Reason: reason}
}

// Reasons that differ only in the names and addresses of hosts are one reason.
func TestUnreached(t *testing.T) {
	f, err := fleet.Build([]fleet.Host{
		missing("n1", "ssh n1.cluster", "ssh: exit status 255: ssh: connect to host n1.cluster port 22: Connection refused"),
		missing("n2", "ssh 10.0.0.2", "ssh: exit status 255: ssh: connect to host 10.0.0.2 port 22: Connection refused"),
		missing("n3", "ssh alias", "ssh: exit status 255: ssh: connect to host 10.0.0.3 port 22: Connection refused"),
		missing("n4", "ssh n4", "ssh: exit status 255: ssh: connect to host n1 port 22: Connection refused"), // not its own name
		missing("n5", "agent http://n5:9411", "no answer within 30s"),
		missing("n6", "agent http://n6:9411", ""),
		missing("n7", "agent http://[fd00::7]:9411", "proxy at [fd00::7]:9411 refuses"),
		missing("n8", "agent http://n8:9411", "proxy at n8:9411 refuses"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range f.Unreached() {
		got = append(got, strings.Join(x.Hosts, " ")+": "+x.Reason)
	}
	want := []string{
		"n1 n2 n3: ssh: exit status 255: ssh: connect to host HOST port 22: Connection refused",
		"n7 n8: proxy at HOST refuses",
		"n4: ssh: exit status 255: ssh: connect to host n1 port 22: Connection refused",
		"n5: no answer within 30s",
		"n6: no reason is known",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if s := f.Headline(); s != "None of 8 hosts was reached: ssh: exit status 255: ssh: connect to host HOST port 22: Connection r... (3 hosts), and 4 other reasons." {
		t.Error(s)
	}
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
