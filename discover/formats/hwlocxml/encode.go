package hwlocxml

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/topoctl/topoctl/discover/topo"
)

// Encode writes a derived topology as XML of hwloc 2.0, which lstopo and other
// programs of hwloc 2 and 3 read. Objects carry their nodes as "topoctl." infos,
// so that Decode gives the same classes.
//
// hwloc wants CPUs and NUMA nodes: where the topology knows none, invented ones
// are written and marked.
func Encode(w io.Writer, t *topo.Topology) error {
	e := &encoder{t: t, gp: 1}
	e.buf.WriteString("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n")
	e.object(1, layOut(t))
	e.distances()
	e.buf.WriteString("</topology>\n")
	if e.err != nil {
		return fmt.Errorf("hwlocxml: %w", e.err)
	}
	if _, err := w.Write(e.buf.Bytes()); err != nil {
		return fmt.Errorf("hwlocxml: write: %w", err)
	}
	return nil
}

type encoder struct {
	t   *topo.Topology
	buf bytes.Buffer
	gp  int // the next gp_index
	err error
}

// attr is one attribute, or one info.
type attr struct{ name, value string }

// object is one hwloc object to be written.
type object struct {
	attrs    []attr
	infos    []attr
	children []*object
}

func (e *encoder) tag(depth int, name, end string, attrs []attr) {
	for range depth {
		e.buf.WriteString("  ")
	}
	e.buf.WriteString("<" + name)
	for _, a := range attrs {
		e.buf.WriteString(" " + a.name + `="` + escape(a.value) + `"`)
	}
	e.buf.WriteString(end + ">\n")
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "\n", "&#10;", "\t", "&#9;", "\r", "&#13;")

// escape writes an attribute's value with the few entities that hwloc's own
// small parser knows (encoding/xml would write &#34;). What XML cannot hold
// becomes a question mark.
func escape(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' && r != '\r' || r == utf8.RuneError || r == 0xfffe || r == 0xffff {
			return '?'
		}
		return r
	}, s)
	return escaper.Replace(s)
}

func (e *encoder) object(depth int, o *object) {
	attrs := slices.Concat(o.attrs, []attr{{"gp_index", strconv.Itoa(e.gp)}})
	e.gp++
	if len(o.infos)+len(o.children) == 0 {
		e.tag(depth, "object", "/", attrs)
		return
	}
	e.tag(depth, "object", "", attrs)
	for _, i := range o.infos {
		e.tag(depth+1, "info", "/", []attr{{"name", i.name}, {"value", i.value}})
	}
	for _, c := range o.children {
		e.object(depth+1, c)
	}
	e.tag(depth, "/object", "", nil)
}

// keep adds the info that holds a node of ours.
func (o *object) keep(name string, node any) {
	text, err := json.Marshal(node)
	if err != nil {
		return // plain data always encodes
	}
	o.infos = append(o.infos, attr{name, string(text)})
}

// say adds an info in hwloc's own words, if there is something to say.
func (o *object) say(name, value string) {
	if value != "" {
		o.infos = append(o.infos, attr{name, value})
	}
}

// distances writes the SLIT values between NUMA nodes where all have them.
func (e *encoder) distances() {
	nodes := e.t.NUMANodes
	var indexes, values string
	for i := range nodes {
		if len(nodes[i].Distances) != len(nodes) {
			return
		}
		indexes += strconv.Itoa(nodes[i].Index) + " "
		for _, v := range nodes[i].Distances {
			values += strconv.Itoa(v) + " "
		}
	}
	if len(nodes) < 2 {
		return
	}
	e.tag(1, "distances2", "", []attr{{"type", "NUMANode"}, {"nbobjs", strconv.Itoa(len(nodes))}, {"kind", "5"}, {"name", "NUMALatency"}, {"indexing", "os"}})
	fmt.Fprintf(&e.buf, "    <indexes length=\"%d\">%s</indexes>\n", len(indexes), indexes)
	fmt.Fprintf(&e.buf, "    <u64values length=\"%d\">%s</u64values>\n", len(values), values)
	e.tag(1, "/distances2", "", nil)
}
