package fleet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/testkit/golden"
)

// The first line is the answer, for fleets made of fixtures.
func TestHeadlines(t *testing.T) {
	var out strings.Builder
	for _, c := range []struct {
		about string
		list  func() []fleet.Host
	}{
		{"16 equal hosts", func() []fleet.Host { return hosts(t, many(16, "dgx-h100")...) }},
		{"an old firmware", func() []fleet.Host {
			list := hosts(t, many(16, "dgx-h100")...)
			port(t, &list[6], "mlx5_3").Firmware = "28.36.1010"
			return list
		}},
		{"an old firmware of all NICs", func() []fleet.Host {
			list := hosts(t, many(16, "dgx-h100")...)
			for i := range list[6].Ports {
				if list[6].Ports[i].Firmware != "" {
					list[6].Ports[i].Firmware = "28.36.1010"
				}
			}
			return list
		}},
		{"two hosts disagree", func() []fleet.Host {
			list := hosts(t, many(2, "dgx-h100")...)
			list[1].Kernel = "6.8.0-1"
			return list
		}},
		{"half of four", func() []fleet.Host {
			list := hosts(t, many(4, "dgx-h100")...)
			list[1].Kernel, list[3].Kernel = "6.8.0-1", "6.8.0-1"
			return list
		}},
		{"a port that is down", func() []fleet.Host {
			return hosts(t, "dgx-h100", "dgx-h100", "dgx-h100", "dgx-h100-port-down")
		}},
		{"a GPU at x8", func() []fleet.Host { return hosts(t, "dgx-h100", "dgx-h100", "dgx-h100-gpu2-x8", "dgx-h100") }},
		{"a NIC at Gen1", func() []fleet.Host { return hosts(t, "dgx-h100", "dgx-h100-nic-gen1", "dgx-h100", "dgx-h100") }},
		{"NUMA nodes unknown", func() []fleet.Host { return hosts(t, "dgx-h100", "dgx-h100-numa-unknown", "dgx-h100", "dgx-h100") }},
		{"hosts of many kinds", func() []fleet.Host { return hosts(t, "dgx-h100", "gb200-tray", "cpu-2eth", "mi300x-8nic") }},
		{"one host", func() []fleet.Host { return hosts(t, "dgx-h100") }},
		{"one not reached", func() []fleet.Host {
			list := hosts(t, many(4, "dgx-h100")...)
			return append(list, fleet.Host{Host: "n9", Status: fleet.NotReached, Reason: "connection refused", Source: "agent n9"})
		}},
		{"none reached", func() []fleet.Host {
			return []fleet.Host{{Host: "n1", Status: fleet.NotReached}, {Host: "n2", Status: fleet.NotReached}}
		}},
		{"one host twice", func() []fleet.Host {
			list := hosts(t, many(4, "dgx-h100")...)
			list[3] = list[0]
			list[3].Host = "n1-again"
			return list
		}},
	} {
		f := build(t, c.list(), nil)
		out.WriteString(c.about + ": " + f.Headline() + "\n")
		for _, x := range f.Findings {
			out.WriteString("  " + string(x.Severity) + " " + x.Source + " " + string(x.Code) + " " + strings.Join(x.Hosts, ",") + ": " + x.Text + "\n")
		}
	}
	golden.Check(t, "testdata/headlines.golden", out.String())
}

// A fact that a host's document does not tell is unknown, and an outlier nowhere.
func TestUnknownIsNotDifferent(t *testing.T) {
	list := hosts(t, many(5, "dgx-h100")...)
	for i := range list[2].Ports {
		list[2].Ports[i].Firmware = ""
	}
	list[2].Kernel, list[2].Modules = "", nil
	f := build(t, list, nil)
	if slices.ContainsFunc(f.Findings, func(x fleet.Finding) bool { return x.Code == fleet.CodeHostOdd || x.Code == fleet.CodeHostsDisagree }) {
		t.Errorf("%+v", f.Findings)
	}
	i := slices.IndexFunc(f.Facts, func(x fleet.Fact) bool { return x.Key == "kernel" })
	if k := f.Facts[i]; k.Of != 4 || k.Hosts != 4 || len(k.Others) > 0 || !slices.Equal(k.Unknown, []string{"n3"}) {
		t.Errorf("%+v", k)
	}
}

// A management port that is down is no more than a warning.
func TestMinorPorts(t *testing.T) {
	for name, want := range map[string]string{"eno1": "warning", "mlx5_0": "error"} {
		list := hosts(t, many(4, "dgx-h100")...)
		for i := range list[1].Ports {
			if p := &list[1].Ports[i]; p.ShortName() == name {
				p.State = "DOWN"
			}
		}
		if got := found(build(t, list, nil), fleet.CodeHostOdd); len(got) != 1 || string(got[0].Severity) != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What is compared against a golden host is told without a majority, and amounts of memory may differ a little.
func TestAgainst(t *testing.T) {
	list := hosts(t, many(2, "dgx-h100")...)
	list[1].Kernel = "6.8"
	nearly := *list[1].MemoryBytes - 5<<30
	list[1].MemoryBytes = &nearly
	port(t, &list[1], "mlx5_4").Firmware = "1.0"
	f := build(t, append(list, host(t, "cpu-2eth", "c1", 7)), nil)
	f.Against(build(t, hosts(t, "dgx-h100"), nil), "golden.json")
	var got []string
	for _, x := range found(f, fleet.CodeNotGolden) {
		got = append(got, x.Hosts[0]+": "+x.Text)
	}
	slices.Sort(got)
	if want := []string{"n2: firmware of mlx5_4 is 1.0, 28.39.3004 in golden.json", "n2: kernel is 6.8, 5.15.0-1042-nvidia in golden.json"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !slices.ContainsFunc(f.Unknown, func(u fleet.Unknown) bool {
		return u.Code == fleet.CodeNotGolden && slices.Equal(u.Hosts, []string{"c1"})
	}) {
		t.Errorf("%+v", f.Unknown)
	}
}
