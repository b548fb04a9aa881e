package serving

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/sim"
	"github.com/topoctl/topoctl/pathsel"
)

// fabricOf makes the simulator's fabric of a fabric file. Usable ports are cabled to their
// leaves. Where the file names none, a rail is a switch of its own if rails are separate,
// else one switch joins all.
func fabricOf(file *pathsel.Fabric, hosts []sim.HostSpec) (*sim.Fabric, []string, error) {
	f := &sim.Fabric{RailOnly: file.RailOnly}
	var cables []sim.Cable
	var leaves []string // of each cable
	var notes []string
	named := false
	for i, h := range hosts {
		cabled, err := file.Cabling(h.Name, h.Kind.Host())
		if err != nil {
			return nil, nil, err
		}
		for k, p := range h.Kind.Host().Ports() {
			c := cabled[k]
			if !p.Usable || c.Leaf == "" && c.Rail == nil {
				continue
			}
			rail, leaf := -1, c.Leaf
			if c.Rail != nil {
				rail = *c.Rail
			}
			named = named || leaf != ""
			if leaf == "" && file.RailOnly {
				leaf = fmt.Sprintf("rail %d", rail)
			}
			cables, leaves = append(cables, sim.Cable{Host: i, Port: p.ID, Rail: rail}), append(leaves, leaf)
		}
	}
	if len(cables) == 0 {
		return nil, nil, errors.New("fabric: it says of no usable port of these hosts which leaf or rail it is on")
	}
	number := map[string]int{}
	for _, name := range slices.Sorted(slices.Values(leaves)) {
		if _, ok := number[name]; !ok && !(named && name == "") {
			number[name] = len(number)
		}
	}
	for i, c := range cables {
		leaf, ok := number[leaves[i]]
		if !ok {
			notes = append(notes, fmt.Sprintf("the fabric file says no leaf of %s/%s, but of others: it is cabled nowhere here", hosts[c.Host].Name, portName(hosts[c.Host], c.Port)))
			continue
		}
		c.Leaf = leaf
		f.Cables = append(f.Cables, c)
	}
	f.Leaves = len(number)
	return f, append(notes, joinLeaves(f, file, number)...), nil
}

// joinLeaves takes the uplinks of leaves that have ports over. A leaf and a spine that the file does not
// join are not joined, unless it joins none at all.
func joinLeaves(f *sim.Fabric, file *pathsel.Fabric, number map[string]int) (notes []string) {
	if f.Leaves < 2 || f.RailOnly {
		return nil
	}
	type pair struct{ leaf, spine string }
	joined := map[pair]*pathsel.FabricUplink{}
	spines := map[string]bool{}
	var first *pathsel.FabricUplink
	unknown := 0
	for i := range file.Uplinks {
		u := &file.Uplinks[i]
		if _, here := number[u.Leaf]; !here {
			continue
		}
		first = cmp.Or(first, u)
		joined[pair{u.Leaf, u.Spine}], spines[u.Spine] = u, true
		if u.BytesPerSec == nil {
			unknown++
		}
	}
	if first == nil {
		f.Spines = 1
		return []string{"the fabric file has no uplinks of these leaves: nothing limits what goes between leaves here"}
	}
	f.Spines, f.Uplinks, f.UplinkBytesPerSec = len(spines), first.Links(), rateOr(first.BytesPerSec)
	for _, name := range slices.Sorted(maps.Keys(number)) {
		for spine, other := range slices.Sorted(maps.Keys(spines)) {
			x := sim.Uplink{Leaf: number[name], Spine: spine}
			if u := joined[pair{name, other}]; u != nil {
				x.Links, x.BytesPerSec = u.Links(), rateOr(u.BytesPerSec)
			}
			if x.Links != f.Uplinks || x.BytesPerSec != f.UplinkBytesPerSec {
				f.Unequal = append(f.Unequal, x)
			}
		}
	}
	switch {
	case unknown == len(joined):
		notes = append(notes, "the fabric file has no rates of uplinks: nothing limits what goes between leaves here")
	case unknown > 0:
		notes = append(notes, fmt.Sprintf("uplinks of these leaves without a rate in the fabric file (%d): they limit nothing here", unknown))
	}
	return notes
}

// rateOr is a rate, 0 where it is not known, as the simulator takes it.
func rateOr(r *topo.Rate) topo.Rate {
	if r == nil {
		return 0
	}
	return *r
}
