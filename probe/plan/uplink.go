package plan

import (
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

// uplinks are the links of each leaf to spines. If two leaves have several spines in common, switches choose one
// for each flow, so all uplinks of a leaf count as one link.
type uplinks map[string]*leafUplinks

type leafUplinks struct {
	spines map[string]spineLinks
	sum    *topo.Rate     // of all, nil not known
	all    [2]*probe.Link // together: up and down
}

type spineLinks struct {
	links [2]*probe.Link // together: up and down
	each  *topo.Rate     // what a single one carries
}

// uplinks registers the links between leaves.
func (b *builder) uplinks(f *pathsel.Fabric) (uplinks, error) {
	u := uplinks{}
	if f == nil {
		return u, nil
	}
	if err := pathsel.CheckUplinks(f.Uplinks); err != nil {
		return u, &FabricFileError{err}
	}
	for i := range f.Uplinks {
		l := &f.Uplinks[i]
		if u[l.Leaf] == nil {
			u[l.Leaf] = &leafUplinks{spines: map[string]spineLinks{}, sum: new(topo.Rate)}
		}
		var rate *topo.Rate
		if l.BytesPerSec != nil {
			rate = new(*l.BytesPerSec * topo.Rate(l.Links()))
		}
		on := []string{b.device("leaf:"+l.Leaf, "leaf", l.Leaf), b.device("spine:"+l.Spine, "spine", l.Spine)}
		links, err := b.fabricLink(topo.LinkID("leaf:"+l.Leaf+"/spine:"+l.Spine), "uplink "+l.Leaf+" - "+l.Spine, on, rate)
		if err != nil {
			return u, err
		}
		at := u[l.Leaf]
		at.spines[l.Spine] = spineLinks{links, l.BytesPerSec}
		if at.sum == nil || rate == nil {
			at.sum = nil
		} else {
			*at.sum += *rate
		}
	}
	for name, at := range u {
		var err error
		on := []string{b.device("leaf:"+name, "leaf", name)}
		if at.all, err = b.fabricLink(topo.LinkID("leaf:"+name+"/spines"), "uplinks of "+name, on, at.sum); err != nil {
			return u, err
		}
	}
	return u, nil
}

// fabricLink registers both directions of a link between switches.
func (b *builder) fabricLink(id topo.LinkID, name string, on []string, rate *topo.Rate) (out [2]*probe.Link, err error) {
	basis := topo.BasisRead
	if rate == nil {
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
	if len(f.links) == 0 {
		return
	}
	noted := map[string]bool{}
	for _, h := range f.hosts {
		for i := range h.ends {
			leaf := h.ends[i].leaf
			if leaf == "" || noted[leaf] || f.links[leaf] != nil {
				continue
			}
			noted[leaf] = true
			f.b.out.Notes = append(f.b.out.Notes, fmt.Sprintf("the fabric file has no uplinks of leaf %s: its path to other leaves is not known", leaf))
		}
	}
}

// between is the way from one leaf to another, and the part of a group's name that tells it from others.
// Links that no file describes are left out.
func (u uplinks) between(from, to string) (way, string) {
	a, b := u[from], u[to]
	switch {
	case from == "" || to == "":
		return way{known: true, gap: true}, ""
	case from == to:
		return way{known: true}, "same leaf"
	case a == nil || b == nil:
		return way{known: true, gap: true}, "other leaf"
	}
	w, common := way{known: true}, 0
	for spine, out := range a.spines {
		in, ok := b.spines[spine]
		if !ok {
			continue
		}
		common++
		w.links = []*probe.Link{out.links[0], in.links[1]}
		for _, r := range []*topo.Rate{out.each, in.each} {
			if r != nil && (w.flow == 0 || *r < w.flow) {
				w.flow = *r
			}
		}
	}
	if w.gap = common == 0; common > 1 {
		w.links = []*probe.Link{a.all[0], b.all[1]}
	}
	for _, l := range w.links {
		if l.BytesPerSec == nil {
			w.unknownLink = l
		}
	}
	return w, "other leaf"
}
