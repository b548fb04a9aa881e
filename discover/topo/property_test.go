package topo_test

import (
	"bytes"
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
)

// drawMachine makes a host at random: NUMA nodes, host bridges (some without
// NUMA node), trees of ports up to five deep, GPUs and NICs anywhere.
func drawMachine(t *rapid.T) string {
	var b strings.Builder
	numas := rapid.IntRange(1, 4).Draw(t, "numas")
	for n := range numas {
		fmt.Fprintf(&b, "numa %d pkg%d\n", n, n/2)
	}
	gpus, nics := 0, 0
	for h := range rapid.IntRange(1, 4).Draw(t, "bridges") {
		numa := rapid.IntRange(-1, numas-1).Draw(t, "numa")
		where := ""
		if numa >= 0 {
			where = fmt.Sprintf(" numa%d", numa)
		}
		hb := fmt.Sprintf("%04x:00", h)
		fmt.Fprintf(&b, "hb %s%s\n", hb, where)
		parents := []string{hb}
		for i := range rapid.IntRange(1, 12).Draw(t, "functions") {
			at := fmt.Sprintf("%04x:%02x:00.0", h, i+1)
			parent := rapid.SampledFrom(parents).Draw(t, "parent")
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0, 1:
				fmt.Fprintf(&b, "port %s < %s%s gen5x16\n", at, parent, where)
				parents = append(parents, at)
			case 2:
				fmt.Fprintf(&b, "gpu %s < %s%s gen4x16\n", at, parent, where)
				gpus++
			default:
				fmt.Fprintf(&b, "nic %s < %s mlx5_%d%s gen5x8 rate=25000000000\n", at, parent, nics, where)
				nics++
			}
		}
	}
	if gpus > 1 && rapid.Bool().Draw(t, "nvlink") {
		fmt.Fprintf(&b, "nvlink 0 1 %d\n", rapid.IntRange(1, 18).Draw(t, "count"))
	}
	return b.String()
}

func TestRelationsAreSymmetric(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		topology := build(t, drawMachine(rt))
		g := topo.NewGraph(topology, nil)
		d := topology.Derived
		for i, a := range d.Axis {
			for j, b := range d.Axis {
				x, y := g.Relate(a, b), g.Relate(b, a)
				if x.Class != y.Class || x.NCCL != y.NCCL || !reflect.DeepEqual(x.Hops, y.Hops) || rate(x) != rate(y) {
					rt.Fatalf("%s to %s: %+v, back: %+v", a, b, x, y)
				}
				if at := d.At(i, j); x.Class != at.Class || x.NCCL != at.NCCL || rate(x) != rateOf(at.BytesPerSec) {
					rt.Fatalf("%s to %s: %+v, the matrix has %+v", a, b, x, at)
				}
				if (x.Class.Kind == topo.ClassSelf) != (a == b) {
					rt.Fatalf("%s to %s: class %s", a, b, x.Class)
				}
			}
		}
	})
}

func rate(r topo.Relation) topo.Rate { return rateOf(r.BytesPerSec) }

func rateOf(r *topo.Rate) topo.Rate {
	if r == nil {
		return -1
	}
	return *r
}

// The host-level classes obey the triangle rule: what is far from one of two
// near devices is far from the other. It does not hold for PIX and PXB.
func TestFarClassesObeyTheTriangle(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		topology := build(t, drawMachine(rt))
		topology.Links = nil // without NVLink
		topology.Derive()
		d := topology.Derived
		n := len(topology.GPUs) + len(topology.RDMADevices)
		for a := range n {
			for b := range n {
				for c := range n {
					ab, bc, ac := d.At(a, b).Class, d.At(b, c).Class, d.At(a, c).Class
					if !ab.Known() || !bc.Known() || !ac.Known() || ac.Kind < topo.ClassPHB {
						continue
					}
					if ac.Compare(ab) > 0 && ac.Compare(bc) > 0 {
						rt.Fatalf("%s-%s %s, %s-%s %s, but %s-%s %s", d.Axis[a], d.Axis[b], ab, d.Axis[b], d.Axis[c], bc, d.Axis[a], d.Axis[c], ac)
					}
				}
			}
		}
	})
}

// The order in which sources find things changes nothing.
func TestDeriveIgnoresInputOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := drawMachine(rt)
		want := encode(t, build(t, text))
		other := build(t, text)
		seed := rapid.Int64().Draw(rt, "seed")
		r := rand.New(rand.NewSource(seed))
		r.Shuffle(len(other.PCIDevices), func(i, j int) {
			other.PCIDevices[i], other.PCIDevices[j] = other.PCIDevices[j], other.PCIDevices[i]
		})
		r.Shuffle(len(other.HostBridges), func(i, j int) {
			other.HostBridges[i], other.HostBridges[j] = other.HostBridges[j], other.HostBridges[i]
		})
		r.Shuffle(len(other.RDMADevices), func(i, j int) {
			other.RDMADevices[i], other.RDMADevices[j] = other.RDMADevices[j], other.RDMADevices[i]
		})
		r.Shuffle(len(other.Links), func(i, j int) { other.Links[i], other.Links[j] = other.Links[j], other.Links[i] })
		other.Derive()
		if got := encode(t, other); !bytes.Equal(got, want) {
			rt.Fatalf("another order gives another document:\n%s\nwant:\n%s", got, want)
		}
	})
}

func encode(tb testing.TB, t *topo.Topology) []byte {
	tb.Helper()
	data, err := t.Encode()
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestDocumentRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := encode(t, build(t, drawMachine(rt)))
		again, err := topo.Decode(want)
		if err != nil {
			rt.Fatal(err)
		}
		if got := encode(t, again); !bytes.Equal(got, want) {
			rt.Fatalf("the document changed:\n%s\nwant:\n%s", got, want)
		}
	})
}

// The fingerprint is the shape of the host: it ignores where the buses are
// numbered and how fast a link runs now, and sees what a link could do.
func TestFingerprint(t *testing.T) {
	base := build(t, twoSockets).Host.Fingerprint
	same := map[string]string{
		"names":      strings.ReplaceAll(twoSockets, "mlx5_", "rocep"),
		"buses":      strings.ReplaceAll(twoSockets, "31:00.0", "35:00.0"),
		"link state": strings.ReplaceAll(twoSockets, "mlx5_3 numa0 gen4x16", "mlx5_3 numa0 gen1x16/gen4x16"),
		"port state": strings.ReplaceAll(twoSockets, "mlx5_3 numa0 gen4x16 rate=50000000000", "mlx5_3 numa0 gen4x16 down"),
	}
	for what, text := range same {
		if got := build(t, text).Host.Fingerprint; got != base {
			t.Errorf("%s changed the fingerprint", what)
		}
	}
	other := map[string]string{
		"a GPU less":   strings.ReplaceAll(twoSockets, "gpu 17:00.0", "dev 17:00.0"),
		"maximum link": strings.ReplaceAll(twoSockets, "mlx5_3 numa0 gen4x16", "mlx5_3 numa0 gen4x8"),
		"another node": strings.ReplaceAll(twoSockets, "hb 0000:30 numa1", "hb 0000:30 numa0"),
		"NVLinks":      twoSockets + "nvlink 0 1 4\n",
	}
	for what, text := range other {
		if got := build(t, text).Host.Fingerprint; got == base {
			t.Errorf("%s left the fingerprint as it was", what)
		}
	}
}
