package plan

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

// Pairs are what can be measured, and the links that its bytes cross.
type Pairs struct {
	Mode  string       // "local" or "fabric"
	Hosts []probe.Host // by name
	// Pairs are in the order of kinds, hosts and ends, those that are waived included.
	Pairs []probe.Pair
	// Links and Devices are those that pairs cross, by key.
	Links   []probe.Link
	Devices []probe.Device
	// Rejected is what there is no pair of, and why.
	Rejected []Rejection
	Notes    []string
}

// Rejection is the reason why some pairs do not exist.
type Rejection struct {
	Kind probe.Kind
	// From and To are hosts, or "host/port" where a port takes no part at all; To is ""
	// if the reason concerns one end alone.
	From, To string
	// Example is the first of the pairs, "mlx5_0>mlx5_1"; "" if there are no two ends.
	Example string
	Pairs   int // how many pairs it would be; 0 of a part that is not there
	Reason  pathsel.Reason
}

// Ends names what the rejection is of: "n1", "n1/mlx5_0", "n1>n2".
func (r *Rejection) Ends() string {
	if r.To == "" {
		return r.From
	}
	return r.From + ">" + r.To
}

// Name is Ends with the example.
func (r *Rejection) Name() string { return strings.TrimSpace(r.Ends() + " " + r.Example) }

// RejectedByReason are the rejections, those of one kind and code together.
func (p *Pairs) RejectedByReason() [][]Rejection {
	type reason struct {
		kind probe.Kind
		code pathsel.Code
	}
	return group.By(p.Rejected, func(r Rejection) reason { return reason{r.Kind, r.Reason.Code} })
}

// Select are the pairs with these IDs, to lay out and measure no others. An error says that some of them are not there.
func (p *Pairs) Select(ids []string) (*Pairs, error) {
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	out := p.only(func(x *probe.Pair) bool { return wanted[x.ID] })
	if len(out.Pairs) < len(wanted) || len(out.Pairs) == 0 {
		return nil, pkgerr.Errorf("plan", "%d of %s still exist: list them again", len(out.Pairs), text.Plural(len(wanted), "pair"))
	}
	if len(out.Pairs) < len(p.Pairs) { // what there are no pairs of is no news of these
		out.Rejected = nil
	}
	return out, nil
}

// only are the pairs that keep says.
func (p *Pairs) only(keep func(*probe.Pair) bool) *Pairs {
	out := *p
	out.Pairs = slices.DeleteFunc(slices.Clone(p.Pairs), func(x probe.Pair) bool { return !keep(&x) })
	return &out
}

// Why there is no pair, beside pathsel's codes.
const (
	CodeNone      pathsel.Code = "none"         // the host has no such thing
	CodeRailGap   pathsel.Code = "rail-unknown" // rails are asked for, and that of a port is not known
	CodeOwnMemory pathsel.Code = "gpu-memory"   // a NUMA node that is a GPU's memory
	CodeSameName  pathsel.Code = "same-name"    // two ports of one name
)

// maxPairs bounds a plan: each pair has about 1 KiB.
const maxPairs = 1 << 20

// checkCount refuses more pairs than a plan can have.
func checkCount(host string, kind probe.Kind, pairs int) error {
	if pairs > maxPairs {
		return pkgerr.Errorf("plan", "host %q: %d %s pairs: want at most %d", host, pairs, kind, maxPairs)
	}
	return nil
}

// builder collects pairs and what they cross.
type builder struct {
	out      *Pairs
	sel      selection
	variant  string // of pairs of ports, and of GPUs with direct copies
	links    map[probe.LinkKey]*probe.Link
	devices  map[string]probe.Device
	expected map[bottleneck]probe.Expected
}

func newBuilder(mode string, patterns []string, bothWays bool) (*builder, error) {
	sel, err := parseSelection(patterns)
	if err != nil {
		return nil, err
	}
	b := &builder{out: &Pairs{Mode: mode}, sel: sel, links: map[probe.LinkKey]*probe.Link{}, devices: map[string]probe.Device{},
		expected: map[bottleneck]probe.Expected{}}
	if bothWays {
		b.variant = probe.VariantBothWays
	}
	return b, nil
}

// add takes a pair if it is selected. distance is what sets pairs apart beside their
// classes, "" nothing.
func (b *builder) add(p probe.Pair, w way, distance string) {
	if !b.sel.pair(&p.From, &p.To) {
		return
	}
	p.ID = probe.PairID(p.Kind, p.From, p.To, p.Transport, p.Variant)
	p.Path = make([]probe.LinkKey, len(w.links))
	for i, l := range w.links {
		p.Path[i] = l.Key
	}
	p.PathKnown = w.known && !w.gap
	if p.Expected.Basis == "" {
		p.Expected = b.expect(&w)
	}
	if p.Transport == probe.TCP {
		p.Expected = overTCP(p.Expected)
	}
	if r := p.Expected.BytesPerSec; r != nil && *r == 0 && p.Waived == "" {
		p.Waived = b.links[p.Expected.Limit].Name + " carries nothing"
	}
	p.Group = groupName(&p, distance)
	b.out.Pairs = append(b.out.Pairs, p)
}

func (b *builder) reject(r Rejection) { b.out.Rejected = append(b.out.Rejected, r) }

// finish sorts the links and devices that pairs cross and drops the others.
func (b *builder) finish() (*Pairs, error) {
	out := b.out
	if err := b.sel.checkUsed(); err != nil {
		return nil, err
	}
	crossed, on := map[probe.LinkKey]bool{}, map[string]bool{}
	for i := range out.Pairs {
		for _, k := range out.Pairs[i].Path {
			crossed[k] = true
		}
	}
	out.Links, out.Devices = make([]probe.Link, 0, len(crossed)), []probe.Device{}
	for k := range crossed {
		l := b.links[k]
		out.Links = append(out.Links, *l)
		for _, d := range l.On {
			on[d] = true
		}
	}
	for k := range on {
		out.Devices = append(out.Devices, b.devices[k])
	}
	slices.SortFunc(out.Links, func(x, y probe.Link) int { return topo.NaturalCompare(string(x.Key), string(y.Key)) })
	slices.SortFunc(out.Devices, func(x, y probe.Device) int { return topo.NaturalCompare(x.Key, y.Key) })
	return out, nil
}

// Link finds the directed link that a name means: a key, "n1 smp:0/1", "smp:0/1" or
// what Link.Name says. Without a direction it is the one that more pairs cross. It is for Options.Contend; an error says
// which links there are.
func (p *Pairs) Link(name string) (probe.LinkKey, error) {
	users := map[probe.LinkKey]int{}
	for i := range p.Pairs {
		if p.Pairs[i].Waived == "" {
			for _, k := range p.Pairs[i].Path {
				users[k]++
			}
		}
	}
	best, ends := -1, map[string]bool{}
	for i := range p.Links {
		l := &p.Links[i]
		full := strings.TrimSpace(l.Host + " " + string(l.Link))
		if string(l.Key) == name || full+" "+l.Direction == name {
			return l.Key, nil
		}
		if full != name && string(l.Link) != name && l.Name != name {
			continue
		}
		ends[full] = true
		if best < 0 || users[l.Key] > users[p.Links[best].Key] {
			best = i
		}
	}
	switch {
	case best < 0:
		return "", pkgerr.Errorf("plan", "link %q: no pair crosses such a link: want one such as %s", name, p.examples())
	case len(ends) > 1:
		return "", pkgerr.Errorf("plan", "link %q exists on %d hosts: add the host, as in %q", name, len(ends), p.Links[best].Host+" "+string(p.Links[best].Link))
	}
	return p.Links[best].Key, nil
}

// examples names some links.
func (p *Pairs) examples() string {
	const most = 3
	var names []string
	for i := range p.Links {
		if name := fmt.Sprintf("%q", strings.TrimSpace(p.Links[i].Host+" "+string(p.Links[i].Link))); !slices.Contains(names, name) && len(names) < most {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none: there are no links"
	}
	return strings.Join(names, ", ")
}

// maxName bounds names of hosts and of what they have.
const maxName = 255

// showable says whether a name can stand in keys and IDs.
func showable(name string) bool {
	for _, c := range name {
		if !unicode.IsPrint(c) || c == ' ' || c == '>' || c == unicode.ReplacementChar {
			return false
		}
	}
	return len(name) <= maxName
}

// checkHostName refuses names that keys and IDs cannot hold.
func checkHostName(name string) error {
	switch {
	case name == "":
		return pkgerr.New("plan", "a host has no name: give it one")
	case len(name) > maxName:
		return pkgerr.Errorf("plan", "host %.32q...: a name of %d bytes: want at most %d", name, len(name), maxName)
	case !showable(name) || strings.Contains(name, "/"):
		return pkgerr.Errorf("plan", "host %q: want a name of printable characters without space, / and >", name)
	}
	return nil
}

// classText is a class in words, "?" unknown.
func classText(c topo.Class) string {
	if !c.Known() {
		return "?"
	}
	return c.String()
}
