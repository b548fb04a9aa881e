package serve

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/internal/sim"
)

// spans says where instances are: "p:0-7 q:0-3".
func spans(hosts []sim.HostSpec, x Instance) string {
	var out []string
	for i := 0; i < len(x); {
		k := i
		for k < len(x) && x[k].Host == x[i].Host {
			k++
		}
		name := func(r Rank) string { return strings.TrimPrefix(string(r.Location), "gpu:") }
		out = append(out, fmt.Sprintf("%s:%s-%s", hosts[x[i].Host].Name, name(x[i]), name(x[k-1])))
		i = k
	}
	return strings.Join(out, " ")
}

func TestPlace(t *testing.T) {
	eight, two := kind(t, "hgx-h100-8nic"), kind(t, "a10-2nic")
	hosts := []sim.HostSpec{{Name: "a", Kind: eight}, {Name: "b", Kind: eight}, {Name: "c", Kind: two}}
	for _, tt := range []struct {
		name   string
		on     []int
		tp, pp []int
		want   string // of instances; the last may be an error
	}{
		{"in order on one host", []int{0, 1}, []int{4, 2, 2}, nil, "a:0-3; a:4-5; a:6-7"},
		{"not split: the next host", []int{0, 1}, []int{2, 4, 4, 2}, nil, "a:0-1; a:2-5; b:0-3; a:6-7"},
		{"not split: no room", []int{0, 1}, []int{6, 6, 4}, nil, "a:0-5; b:0-5; no host has room for TP4: a has 2 of 8 GPUs free, b has 2 of 8 GPUs free"},
		{"larger than a host", []int{0, 1}, []int{16}, nil, "a:0-7 b:0-7"},
		{"larger than a host, in the order given", []int{1, 0}, []int{12, 4}, nil, "b:0-7 a:0-3; a:4-7"},
		{"what is left of a host, then the next", []int{0, 1}, []int{2, 12}, nil, "a:0-1; a:2-7 b:0-5"},
		{"a smaller host is passed by", []int{2, 0}, []int{4}, nil, "a:0-3"},
		{"a smaller host is taken in", []int{2, 0}, []int{10}, nil, "c:0-1 a:0-7"},
		{"too few at all", []int{0, 2}, []int{16}, nil, "there is no room for TP16: a has 8 of 8 GPUs free, c has 2 of 2 GPUs free"},
		{"stages on hosts of their own", []int{0, 1}, []int{4, 4, 4}, []int{2, 2, 2}, "a:0-3 b:0-3; a:4-7 b:4-7; there is no room for TP4 PP2: a has 0 of 8 GPUs free, b has 0 of 8 GPUs free"},
		{"more stages than hosts", []int{0, 1}, []int{1}, []int{3}, "there is no room for TP1 PP3: a has 8 of 8 GPUs free, b has 8 of 8 GPUs free"},
	} {
		places := NewPlaces(hosts)
		var got []string
		for i, tp := range tt.tp {
			pp := 0
			if tt.pp != nil {
				pp = tt.pp[i]
			}
			x, err := places.Place(tt.on, tp, pp)
			if err != nil {
				got = append(got, err.Error())
				continue
			}
			got = append(got, spans(hosts, x))
		}
		if text := strings.Join(got, "; "); text != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, text, tt.want)
		}
	}
	many := make([]sim.HostSpec, 7)
	on := make([]int, len(many))
	for i := range many {
		many[i], on[i] = sim.HostSpec{Name: fmt.Sprintf("n%d", i), Kind: two}, i
	}
	if _, err := NewPlaces(many).Place(on, 15, 1); err == nil || !strings.HasSuffix(err.Error(), "n3 has 2 of 2 GPUs free, and 3 more") {
		t.Errorf("seven hosts: %v", err)
	}
}

// Whatever is asked for: no GPU is handed out twice, what fits on a host is on one, and a refusal takes
// nothing.
func TestPlaceProperties(t *testing.T) {
	hosts := []sim.HostSpec{{Name: "a", Kind: kind(t, "hgx-h100-8nic")}, {Name: "b", Kind: kind(t, "a10-2nic")}, {Name: "c", Kind: kind(t, "hgx-h100-8nic")}}
	rapid.Check(t, func(t *rapid.T) {
		places, seen, free := NewPlaces(hosts), map[Rank]bool{}, 18
		for range rapid.IntRange(1, 12).Draw(t, "instances") {
			tp := rapid.IntRange(1, 20).Draw(t, "tp")
			x, err := places.Place([]int{0, 1, 2}, tp, 1)
			if err != nil {
				if tp > 8 && tp <= free || tp == 1 && free > 0 {
					t.Fatalf("TP%d was refused with %d GPUs free: %v", tp, free, err)
				}
				continue
			}
			if free -= tp; len(x) != tp || free < 0 {
				t.Fatalf("TP%d has %d ranks", tp, len(x))
			}
			for _, r := range x {
				if seen[r] || tp <= 8 && r.Host != x[0].Host {
					t.Fatalf("TP%d is on %v: twice, or split", tp, x)
				}
				seen[r] = true
			}
		}
	})
}
