package fleet_test

import (
	"slices"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

func BenchmarkSummarize(b *testing.B) {
	t := fixturetest.Topology(b, "dgx-h100")
	data, err := t.Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if _, err := topo.Decode(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("summarize", func(b *testing.B) {
		for b.Loop() {
			if _, err := fleet.Summarize("n1", t); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A host is in the NVLink domain that its GPUs name, if they agree.
func TestNVLinkDomain(t *testing.T) {
	const cluster = "0b0d27a8-3a0f-4a5d-9c5e-1f2e3d4c5b6a"
	for _, tt := range []struct {
		name string
		gpus []*topo.NVLinkFabric
		want string
	}{
		{"all", []*topo.NVLinkFabric{{ClusterUUID: cluster, Clique: 7}, {ClusterUUID: cluster, Clique: 7}}, cluster + ".7"},
		{"one of two tells", []*topo.NVLinkFabric{nil, {ClusterUUID: cluster}}, cluster + ".0"},
		{"two cliques", []*topo.NVLinkFabric{{ClusterUUID: cluster, Clique: 1}, {ClusterUUID: cluster, Clique: 2}}, ""},
		{"none", []*topo.NVLinkFabric{nil, nil}, ""},
	} {
		doc := *fixturetest.Topology(t, "a10-2nic")
		doc.GPUs = slices.Clone(doc.GPUs)
		for i, f := range tt.gpus {
			doc.GPUs[i].NVLinkFabric = f
		}
		h, err := fleet.Summarize("n1", &doc)
		if err != nil {
			t.Fatal(err)
		}
		if h.NVLinkDomain != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, h.NVLinkDomain, tt.want)
		}
	}
}

// Of three NVLink domains the one with fewer hosts lacks some; where no document tells, or no
// majority, there is no answer.
func TestDomainIncomplete(t *testing.T) {
	for _, tt := range []struct {
		domains  string // of each host, a letter; - for none, ! for one that was not reached
		want     string
		subjects []string
	}{
		{"AAABBBCC", "NVLink domain C.1 has 2 hosts, its sisters 3", []string{"C.1"}},
		{"AAABBBCCC", "", nil},
		{"AAABB", "?", nil},
		{"AAA", "", nil},
		{"----", "?", nil},
		{"AABB-", "?", nil},
		{"AAABBBCC-", "?", nil}, // it may be the third of C
		{"AAABBBCC!", "?", nil}, // or the one that was not reached
		{"AAABBBC!", "NVLink domain C.1 has 1 host, its sisters 3", []string{"C.1"}}, // one more would not do
	} {
		list := hosts(t, many(len(tt.domains), "gb200-tray")...)
		for i, d := range tt.domains {
			switch d {
			case '-':
			case '!':
				list[i] = fleet.Host{Host: list[i].Host, Status: fleet.NotReached}
			default:
				list[i].NVLinkDomain = string(d) + ".1"
			}
		}
		f := build(t, list, nil)
		got, subjects := "", []string(nil)
		for _, x := range f.Findings {
			if x.Code == fleet.CodeDomainIncomplete {
				got, subjects = x.Text, x.Subjects
			}
		}
		for _, x := range f.Unknown {
			if x.Code == fleet.CodeDomainIncomplete {
				got = "?"
			}
		}
		if got != tt.want || !slices.Equal(subjects, tt.subjects) {
			t.Errorf("%s: %q of %q, want %q of %q", tt.domains, got, subjects, tt.want, tt.subjects)
		}
	}
}
