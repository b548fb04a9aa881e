package plan

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

// uplinks are the ways between leaves. If two leaves have several spines in common, switches choose one
// for each flow, so all uplinks of a leaf count as one link.
type uplinks struct {
	spines map[string][]string          // of each leaf, sorted
	up     map[[2]string][2]*probe.Link // leaf and spine: up and down
	all    map[string][2]*probe.Link    // of a leaf together
	each   map[[2]string]*topo.Rate     // what a single link of a leaf and spine carries
	ways   map[[2]string]way            // between leaves
}

// uplinks registers the links between leaves.
func (b *builder) uplinks(f *pathsel.Fabric, overlay topo.Overlay) (uplinks, error) {
	u := uplinks{spines: map[string][]string{}, up: map[[2]string][2]*probe.Link{}, all: map[string][2]*probe.Link{}, each: map[[2]string]*topo.Rate{}, ways: map[[2]string]way{}}
	if f == nil {
		return u, nil
	}
	if err := pathsel.CheckUplinks(f.Uplinks); err != nil {
		return u, &FabricFileError{err}
	}
	sums := map[string]*topo.Rate{}
	for i := range f.Uplinks {
		l := &f.Uplinks[i]
		at := [2]string{l.Leaf, l.Spine}
		id := topo.LinkID("leaf:" + l.Leaf + "/spine:" + l.Spine)
		u.spines[l.Leaf] = append(u.spines[l.Leaf], l.Spine)
		u.each[at] = l.BytesPerSec
		var rate *topo.Rate
		if l.BytesPerSec != nil {
			sum := *l.BytesPerSec * topo.Rate(l.Links())
			rate = &sum
		}
		on := []string{b.device("leaf:"+l.Leaf, "leaf", l.Leaf), b.device("spine:"+l.Spine, "spine", l.Spine)}
		var err error
		if u.up[at], err = b.fabricLink(id, "uplink "+l.Leaf+" - "+l.Spine, on, rate, overlay); err != nil {
			return u, err
		}
		sums[l.Leaf] = addRates(sums[l.Leaf], rate, len(u.spines[l.Leaf]) == 1)
	}
	for leaf, spines := range u.spines {
		id := topo.LinkID("leaf:" + leaf + "/spines")
		slices.SortFunc(spines, topo.NaturalCompare)
		on := []string{b.device("leaf:"+leaf, "leaf", leaf)}
		var err error
		if u.all[leaf], err = b.fabricLink(id, "uplinks of "+leaf, on, sums[leaf], overlay); err != nil {
			return u, err
		}
	}
	return u, nil
}

// addRates is a sum with one more rate: not known if either is not.
func addRates(sum, rate *topo.Rate, first bool) *topo.Rate {
	switch {
	case first:
		return rate
	case sum == nil || rate == nil:
		return nil
	}
	both := *sum + *rate
	return &both
}

// fabricLink registers both directions of a link between switches.
func (b *builder) fabricLink(id topo.LinkID, name string, on []string, rate *topo.Rate, overlay topo.Overlay) (out [2]*probe.Link, err error) {
	basis := topo.BasisRead
	if measured, ok := overlay[id]; ok {
		rate, basis = &measured, topo.BasisMeasured
	} else if rate == nil {
		basis = topo.BasisUnknown
	}
	for i, direction := range []string{"up", "down"} {
		l := &probe.Link{Key: probe.Key("", id, direction), Link: id, Kind: probe.LinkUplink, Direction: direction, Name: name, On: on, BytesPerSec: rate, Basis: basis}
		if b.links[l.Key] != nil { // "a", "b/spine:c" and "a/spine:b", "c"
			return out, pkgerr.Errorf("plan", "%s: other switches give %q too: call them otherwise", name, id)
		}
		b.links[l.Key], out[i] = l, l
	}
	return out, nil
}

// noteMissingUplinks notes the leaves of measured ports that the fabric file lists no uplinks of.
func (f *fabric) noteMissingUplinks() {
	if len(f.links.spines) == 0 {
		return
	}
	noted := map[string]bool{}
	for _, h := range f.hosts {
		for i := range h.ends {
			leaf := h.ends[i].leaf
			if leaf == "" || noted[leaf] || len(f.links.spines[leaf]) > 0 {
				continue
			}
			noted[leaf] = true
			f.b.out.Notes = append(f.b.out.Notes, fmt.Sprintf("the fabric file has no uplinks of leaf %s: its path to other leaves is not known", leaf))
		}
	}
}

// between is the way from one leaf to another, and the part of a group's name that tells it from others.
// Links that no file describes are left out.
func (u *uplinks) between(from, to string) (way, string) {
	switch {
	case from == "" || to == "":
		return way{known: true, gap: true}, ""
	case from == to:
		return way{known: true}, "same leaf"
	case len(u.spines[from]) == 0 || len(u.spines[to]) == 0:
		return way{known: true, gap: true}, "other leaf"
	}
	at := [2]string{from, to}
	w, ok := u.ways[at]
	if !ok {
		w = u.pathBetween(from, to)
		u.ways[at] = w
	}
	return w, "other leaf"
}

func (u *uplinks) pathBetween(from, to string) way {
	var common []string
	for _, s := range u.spines[from] {
		if slices.Contains(u.spines[to], s) {
			common = append(common, s)
		}
	}
	w := way{known: true, gap: len(common) == 0}
	for _, s := range common {
		for _, leaf := range []string{from, to} {
			if r := u.each[[2]string{leaf, s}]; r != nil && (w.flow == 0 || *r < w.flow) {
				w.flow = *r
			}
		}
	}
	switch len(common) {
	case 0:
	case 1:
		w.links = []*probe.Link{u.up[[2]string{from, common[0]}][0], u.up[[2]string{to, common[0]}][1]}
	default:
		w.links = []*probe.Link{u.all[from][0], u.all[to][1]}
	}
	for _, l := range w.links {
		if l.BytesPerSec == nil {
			w.unknownLink = l
		}
	}
	return w
}
