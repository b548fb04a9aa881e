package diff

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

// value is one attribute of one node. Two values are equal if their keys are.
type value struct {
	known bool
	key   string
	text  string // for people
	data  any    // for programs
	// rank orders values that can be better or worse; a higher one is better.
	rank *int64
}

// word is a text whose absence is unknown.
func word(s string) value { return value{known: s != "", key: s, text: s, data: s} }

// absent says that there is no such thing.
const absent = "none"

func none() value { return value{known: true, text: absent} }

func number(n int64) value {
	text := strconv.FormatInt(n, 10)
	return value{known: true, key: text, text: text, data: n}
}

// ranked is a number that is better when higher.
func ranked(n int, text string) value {
	r := int64(n)
	return value{known: true, key: strconv.Itoa(n), text: text, data: n, rank: &r}
}

func boolean(b bool) value {
	text := "no"
	if b {
		text = "yes"
	}
	return value{known: true, key: text, text: text, data: b}
}

// list is several words, in no order that matters. keys say which they are.
func list(words, keys []string) value {
	keys = slices.Sorted(slices.Values(keys))
	if len(words) == 0 {
		return value{known: true, text: absent, data: []string{}}
	}
	return value{known: true, key: strings.Join(keys, "\n"), text: strings.Join(words, ", "), data: slices.Clone(words)}
}

// decoded is the value of an attribute of a document.
func decoded(x any) value {
	switch x := x.(type) {
	case string:
		return word(x)
	case bool:
		return boolean(x)
	case json.Number:
		n, _ := x.Int64()
		return number(n)
	case []any:
		return joined(x, ", ")
	}
	return value{}
}

func joined(list []any, separator string) value {
	words := make([]string, len(list))
	for i, x := range list {
		words[i] = fmt.Sprint(x)
	}
	return word(strings.Join(words, separator))
}

// The forms of attributes: what becomes of a value as the document has it.

// rate is a network rate; higher is better.
func rate(_ *side, v value) value {
	n, _ := v.data.(int64)
	v.text, v.rank = units.Rate(n, units.Gbit), &n
	return v
}

// memory is an amount of memory.
func memory(_ *side, v value) value {
	n, _ := v.data.(int64)
	v.text = units.Bytes(n)
	return v
}

// states ranks the states of something by how near they are to carrying data. Others
// are neither better nor worse.
func states(ranks map[string]int64) func(*side, value) value {
	return func(_ *side, v value) value {
		if r, ok := ranks[v.text]; ok {
			v.rank = &r
		}
		return v
	}
}

var (
	portStates   = states(map[string]int64{"DOWN": 0, "INIT": 1, "ARMED": 2, "ACTIVE": 3})
	netdevStates = states(map[string]int64{"down": 0, "lowerlayerdown": 0, "dormant": 1, "up": 2})
)

func lowerCase(_ *side, v value) value { return word(strings.ToLower(v.text)) }

// orUnknown takes "unknown" for what it says.
func orUnknown(_ *side, v value) value { return word(strings.TrimPrefix(v.text, "unknown")) }

// nodeID is a node by its ID, functionID a PCI function, and netdevName an interface by its
// name: a renamed or renumbered one is the same.
func nodeID(s *side, v value) value {
	v.key = string(s.rename(topo.ID(v.text)))
	return v
}

func functionID(s *side, v value) value {
	id := topo.ID(v.text)
	v = word(id.Name())
	v.key = string(s.rename(id))
	return v
}

func netdevName(s *side, v value) value {
	v.key = string(s.rename(topo.NetdevID(v.text)))
	return v
}

// The readers of attributes that are not one key of the document.

// name is what people call a node.
func name(n *node) value { return word(n.name) }

// interfaces are the names of interfaces.
func interfaces(attr string) func(*node) value {
	return func(n *node) value {
		names := n.words(attr)
		if len(names) == 0 && (n.side.imported || n.kind == topo.KindRDMA && n.attribute("pci") == nil && n.attribute("software") == nil) {
			return value{} // they are found by the function
		}
		keys := make([]string, len(names))
		for i, name := range names {
			keys[i] = string(n.side.rename(topo.NetdevID(name)))
		}
		return list(names, keys)
	}
}

func distances(n *node) value {
	list, _ := n.attribute("distances").([]any)
	return joined(list, " ")
}

func allowedCPUs(n *node) value {
	if n.attribute("allowed_cpus") == nil && n.attribute("cpus") != nil {
		return value{known: true, text: "all"}
	}
	return decoded(n.attribute("allowed_cpus"))
}

func memlock(n *node) value {
	h, _ := n.value.(*topo.Host)
	if h.Software == nil || h.Software.Memlock == nil {
		return value{}
	}
	limit := func(p *int64) string {
		if p == nil {
			return "unlimited"
		}
		return units.Bytes(*p)
	}
	m := h.Software.Memlock
	return word(limit(m.SoftBytes) + " (hard " + limit(m.HardBytes) + ")")
}

// acs is what a port redirects. Ports without the capability and ports whose configuration
// space was not read far enough look alike, but for the length that the host's shortest
// reading had.
func acs(n *node) value {
	const acsBegins = 256 // an extended capability
	d, read := n.pci(), n.side.t.Host.ConfigBytes
	switch {
	case d.ACS == nil && read != nil && *read > acsBegins:
		return none()
	case d.ACS == nil:
		return value{}
	}
	var on []string
	for _, b := range []struct {
		name string
		set  bool
	}{{"request redirect", d.ACS.RequestRedirect}, {"completion redirect", d.ACS.CompletionRedir}, {"upstream forwarding", d.ACS.UpstreamForward}} {
		if b.set {
			on = append(on, b.name)
		}
	}
	text := "no redirect"
	if len(on) > 0 {
		text = strings.Join(on, ", ")
	}
	return value{known: true, key: string(d.ACS.Control) + text, text: fmt.Sprintf("%s (%s)", text, d.ACS.Control), data: string(d.ACS.Control)}
}

// mig is a GPU's partitioning: the profiles of its instances. Their UUIDs are made up
// when they are set up.
func mig(n *node) value {
	g, _ := n.value.(*topo.GPU)
	if g.MIG == nil {
		return value{}
	}
	if !g.MIG.Enabled {
		return word("off")
	}
	var profiles, keys []string
	for _, m := range g.MIG.Instances {
		size := ""
		if m.MemoryBytes != nil {
			size = units.Bytes(*m.MemoryBytes)
		}
		profiles, keys = append(profiles, m.Profile), append(keys, m.Profile+" "+size)
	}
	slices.Sort(profiles)
	v := list(profiles, keys)
	v.key, v.text = "on "+v.key, "on: "+v.text
	return v
}

// gidIndex is the index that RoCE v2 to other networks needs.
func gidIndex(n *node) value {
	p, _ := n.value.(*topo.Port)
	if p.LinkLayer != "Ethernet" || p.GIDTable == nil {
		return value{}
	}
	usable := pathsel.RoCEGIDs(p)
	if len(usable) == 0 {
		return none()
	}
	return number(int64(usable[0].Index))
}

func gids(n *node) value {
	p, _ := n.value.(*topo.Port)
	if p.GIDTable == nil {
		return value{}
	}
	var words []string
	for _, g := range p.GIDs {
		words = append(words, strings.TrimSpace(strconv.Itoa(g.Index)+" "+g.GID+" "+g.Type))
	}
	return list(words, words)
}

func addresses(n *node) value {
	d, _ := n.value.(*topo.Netdev)
	if len(d.Addresses) == 0 && !n.side.asksNetlink() {
		return value{}
	}
	// Link-local addresses are made from the MAC address.
	own := slices.DeleteFunc(slices.Clone(d.Addresses), func(a string) bool { return strings.HasPrefix(a, "fe80:") })
	return list(own, own)
}

func routes(n *node) value {
	d, _ := n.value.(*topo.Netdev)
	if len(d.Routes) == 0 && !n.side.asksNetlink() {
		return value{}
	}
	var words []string
	for _, r := range d.Routes {
		w := r.Dst
		if r.Gateway != "" {
			w += " via " + r.Gateway
		}
		if r.Metric != 0 {
			w += fmt.Sprintf(" metric %d", r.Metric)
		}
		words = append(words, w)
	}
	return list(words, words)
}

func namespaces(n *node) value {
	words := n.words("namespaces")
	for i := range words {
		words[i] = strings.TrimPrefix(words[i], n.name)
	}
	return list(words, words)
}
