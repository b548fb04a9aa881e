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
