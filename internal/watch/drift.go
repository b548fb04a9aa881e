package watch

import (
	"cmp"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/compare"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/diff"
)

// driftItems lists how the host differs, each device for itself.
func (w *Watch) driftItems(r *diff.Report, beginning bool) []item {
	moved := w.linkDifferences(r, beginning)
	var out []item
	still := map[string]bool{}
	for i := range r.Differences {
		d := &r.Differences[i]
		group := string(d.Kind) + "\x00" + d.Attribute + "\x00" + d.Old + "\x00" + d.New
		for k := range d.Nodes {
			n := &d.Nodes[k]
			key := d.Attribute + "\x00" + nodeKey(n)
			switch {
			case isLink(d, n):
				if !w.initial[key] {
					continue
				}
				still[key] = true
			case compare.Of(d.Attribute).Link == compare.WithLink && (moved[n.Old] || moved[n.New]):
				continue
			case d.Attribute == "presence" && (isVeth(w.last, n.New) || isVeth(w.baseline(), n.Old)):
				continue // with a container
			}
			e := drifted(d)
			out = append(out, item{key: key, subject: nodeID(n), group: group, event: e, gone: e.Text})
		}
	}
	w.initial = still
	for i := range r.Policy {
		out = append(out, choices(&r.Policy[i], moved)...)
	}
	return out
}

// isLink says whether a difference is of those that link events report while the watch goes on: as drift they are
// reported only where they were there at the first look. Direct links of GPUs have no events.
func isLink(d *diff.Difference, n *diff.Node) bool {
	return n.Kind != diff.KindLink && compare.Of(d.Attribute).Link == compare.OfLink
}

// linkDifferences finds the nodes of differences that link events report, and of the first
// look notes which were there.
func (w *Watch) linkDifferences(r *diff.Report, beginning bool) (moved map[string]bool) {
	moved = map[string]bool{}
	for i := range r.Differences {
		d := &r.Differences[i]
		for k := range d.Nodes {
			n := &d.Nodes[k]
			key := d.Attribute + "\x00" + nodeKey(n)
			switch {
			case !isLink(d, n):
			case beginning:
				w.initial[key] = true
			case !w.initial[key]:
				moved[n.Old], moved[n.New] = true, true
			}
		}
	}
	delete(moved, "")
	return moved
}

func nodeKey(n *diff.Node) string { return n.Old + "\x00" + n.New + "\x00" + n.Name }

// nodeID is what an event calls a node: as it is now.
func nodeID(n *diff.Node) topo.ID {
	id := cmp.Or(n.New, n.Old)
	switch n.Kind {
	case diff.KindHost:
		return ""
	case diff.KindLocation:
		return pathsel.Location(id).Node()
	}
	return topo.ID(id)
}

// isVeth says whether an interface is one of those that come and go with containers.
func isVeth(t *topo.Topology, id string) bool {
	return slices.ContainsFunc(t.Netdevs, func(n topo.Netdev) bool { return string(n.ID) == id && n.LinkKind == "veth" })
}

func drifted(d *diff.Difference) Event {
	e := Event{Severity: info, Code: d.Attribute, Text: strings.TrimSpace(string(d.Kind) + ": " + d.Text())}
	if d.Kind == diff.Removed || d.Kind == diff.Degraded {
		e.Severity = warning
	}
	if d.Effect != "" {
		e.Detail = append(e.Detail, d.Effect)
	}
	return e
}

// choices are the choices of ports that change, but for those that follow from what link
// events report.
func choices(c *diff.Choice, moved map[string]bool) []item {
	follows := func(port string) bool {
		rdma, _, _ := strings.Cut(strings.TrimPrefix(port, "port:"), "/")
		return moved[port] || moved[string(topo.RDMAID(rdma))]
	}
	if slices.ContainsFunc(c.Old, follows) || slices.ContainsFunc(c.New, follows) ||
		slices.ContainsFunc(c.Locations, func(n diff.Node) bool { return moved[n.Old] || moved[n.New] }) {
		return nil
	}
	e := Event{Severity: info, Code: string(diff.Policy) + "-" + c.Choice, Text: c.Text()}
	for _, text := range []string{c.Effect, c.Reason} {
		if text != "" {
			e.Detail = append(e.Detail, text)
		}
	}
	group := e.Code + "\x00" + e.Text
	if len(c.Locations) == 0 {
		return []item{{key: e.Code, group: group, event: e, gone: e.Text}}
	}
	var out []item
	for i := range c.Locations {
		n := &c.Locations[i]
		out = append(out, item{key: e.Code + "\x00" + nodeKey(n), subject: nodeID(n), group: group, event: e, gone: e.Text})
	}
	return out
}

// notCompared gives, of a difference that is there no more, why it can no longer be determined, ""
// where it can.
func notCompared(r *diff.Report) func(*item) string {
	missing := map[string]string{}
	for i := range r.NotCompared {
		o := &r.NotCompared[i]
		for k := range o.Nodes {
			missing[o.Attribute+"\x00"+nodeKey(&o.Nodes[k])] = o.Reason
		}
	}
	return func(x *item) string { return missing[x.key] }
}
