package plan

import (
	"cmp"
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// way is a part of a pair's path.
type way struct {
	links []*probe.Link
	known bool
	gap   bool // something between the wires is not known; the rates within hosts are still promised
	// unknownLink is a link whose rate is not known and may be the lowest, nil none.
	unknownLink *probe.Link
	// flow is what one flow has of links that count as one, where that is less than all of
	// them; 0 no such link.
	flow topo.Rate
}

// then is one way followed by another.
func (w way) then(o way) way {
	out := way{links: make([]*probe.Link, 0, len(w.links)+len(o.links)), known: w.known && o.known, gap: w.gap || o.gap, unknownLink: w.unknownLink, flow: w.flow}
	out.links = append(append(out.links, w.links...), o.links...)
	if out.unknownLink == nil {
		out.unknownLink = o.unknownLink
	}
	if w.flow == 0 || o.flow > 0 && o.flow < w.flow {
		out.flow = o.flow
	}
	return out
}

// bottleneck is what an expected rate depends on.
type bottleneck struct {
	limit, unknownLink *probe.Link
	known              bool
	flow               topo.Rate
}

// expect is the rate that a way promises: its smallest known rate for data. One that is sure is only a
// bound if another link has no known rate or a part of the way is not known.
func (b *builder) expect(w *way) probe.Expected {
	n := bottleneck{unknownLink: w.unknownLink, known: w.known, flow: w.flow}
	for _, l := range w.links {
		if r := l.Payload(); r != nil && (n.limit == nil || *r < *n.limit.Payload()) {
			n.limit = l
		}
	}
	e, ok := b.expected[n]
	if !ok {
		e = n.expected()
		b.expected[n] = e
	}
	return e
}

func (n bottleneck) expected() probe.Expected {
	if n.limit == nil {
		return probe.Expected{Basis: topo.BasisUnknown, Why: "no link on the path has a known rate"}
	}
	rate := *n.limit.Payload()
	e := probe.Expected{BytesPerSec: &rate, Basis: n.limit.Basis, Limit: n.limit.Key}
	doubt := ""
	switch {
	case rate == 0: // whatever the others carry
	case n.unknownLink != nil:
		doubt = fmt.Sprintf("and the rate of %s is not known", n.unknownLink.Name)
	case !n.known:
		doubt = "and a part of the path is not known"
	case n.flow > 0 && n.flow < rate:
		doubt = fmt.Sprintf("and of uplinks that share flows a single one may have %s", n.flow)
	}
	if doubt != "" {
		e.Basis = e.Basis.Bounded()
	}
	text := e.Basis.Text(rate.String())
	if raw := *n.limit.BytesPerSec; raw != rate {
		text = fmt.Sprintf("%s of data (%s with headers)", text, raw)
	}
	e.Why = fmt.Sprintf("%s: %s, %s", n.limit.Name, text, cmp.Or(doubt, string(n.limit.Basis)))
	return e
}

// oneStream is what one stream of TCP reliably carries, in bytes/s. The kernel's TCP on one core carries
// some 10 to 40 Gb/s, however fast the wire is.
const oneStream topo.Rate = 1_250_000_000

// overTCP doubts a rate that the processors at both ends may not reach: a healthy host
// must not fail for it.
func overTCP(e probe.Expected) probe.Expected {
	if e.BytesPerSec == nil || *e.BytesPerSec <= oneStream {
		return e
	}
	e.Basis = e.Basis.Bounded()
	e.Why += fmt.Sprintf("; one TCP stream reliably carries %s, more depends on the processors", units.Rate(int64(oneStream), units.Gbit))
	return e
}

// groupName names the pairs that should perform alike.
func groupName(p *probe.Pair, distance string) string {
	out := string(p.Kind) + " " + p.Transport
	if p.Variant != "" {
		out += " " + p.Variant
	}
	if p.Kind == probe.Port {
		out += " " + classText(p.From.Class) + "/" + classText(p.To.Class)
	} else {
		out += " " + classText(p.From.Class)
	}
	if distance != "" {
		out += " " + distance
	}
	if p.Expected.BytesPerSec == nil {
		return out + " rate unknown"
	}
	return out + " " + p.Expected.BytesPerSec.String()
}
