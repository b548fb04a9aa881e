//go:build !vmlab

package discovery

import (
	"slices"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/remap"
	"github.com/topoctl/topoctl/test/vmlab"
)

// The lab's captured machines get a host's switches by libvirt's description. Their MAC addresses are
// stand-ins, which pair nothing; in the lab they do.
func TestRemapCaptures(t *testing.T) {
	eachCapture(t, func(t *testing.T, m *vmlab.Machine, guest *topo.Topology) {
		h := hypervisorOf(m)
		standIns := map[int]string{}
		for i := range guest.Netdevs {
			for _, nic := range m.NICs() {
				if n := &guest.Netdevs[i]; n.Name == vmlab.RailNetDev(nic.Rail) {
					standIns[nic.Rail] = n.MAC
				}
			}
		}
		if len(standIns) != len(m.NICs()) || standIns[0] == "" {
			t.Fatalf("addresses %v", standIns)
		}
		host, err := topo.Decode(h.topology(t, func(rail int) string { return standIns[rail] }))
		if err != nil {
			t.Fatal(err)
		}
		passed, err := remap.Parse(h.domain(t))
		if err != nil {
			t.Fatal(err)
		}
		pairs, _, err := remap.Pairs(host, guest, remap.Options{Libvirt: passed})
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, p := range pairs {
			if !slices.Equal(p.By, []remap.By{remap.ByLibvirt}) {
				t.Errorf("%s is paired by %v", p.Guest, p.By)
			}
			got = append(got, p.Guest.String()+" "+p.Host.String())
		}
		for _, p := range h.passed {
			want = append(want, p.guest.BDF+" "+p.host.BDF)
		}
		diff(t, "pairs", got, want)
		out, _, err := remap.Build(host, guest, pairs)
		if err != nil {
			t.Fatal(err)
		}
		diff(t, "matrix", matrix(out), h.matrix())
	})
}
