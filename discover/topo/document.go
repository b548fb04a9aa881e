package topo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Encode writes the topology as a topoctl.topology/v1 document: valid JSON with
// one node, link or matrix row on a line, so that two documents diff well. The
// provenance of nodes is kept in one table, "facts", that nodes refer to by
// index, because most nodes of a kind share theirs.
func (t *Topology) Encode() ([]byte, error) {
	w, facts := document.NewWriter(), factsTable{places: map[string]int{}}
	w.Field("schema", SchemaTopology)
	w.Field("tool", t.Tool)
	w.Field("rules", Rules)
	w.Field("captured_at", t.CapturedAt)
	w.Field("origin", t.Origin)
	w.Field("complete", t.Complete)
	w.Field("host", t.Host)
	w.List("nodes")
	for _, l := range t.lists() {
		for n := range l.nodes() {
			facts.item(w, n, n.common().Facts)
		}
	}
	w.End()
	w.List("links")
	for i := range t.Links {
		facts.item(w, &t.Links[i], t.Links[i].Facts)
	}
	w.End()
	if t.Asserted != nil {
		w.Field("asserted", t.Asserted)
	}
	if d := t.Derived; d != nil {
		w.Object("derived")
		w.Field("rules", d.Rules)
		w.Field("axis", d.Axis)
		document.WriteList(w, "relations", d.Relations)
		document.WriteList(w, "cells", d.Cells)
		document.WriteList(w, "limit_link", d.Limit)
		w.End()
	}
	w.Field("facts", facts.table)
	w.Field("sources", append([]SourceReport{}, t.Sources...)) // never null
	document.WriteList(w, "warnings", t.Warnings)
	data, err := w.Bytes()
	if err != nil {
		return nil, pkgerr.Errorf("topo", "encode: %w", err)
	}
	return data, nil
}

// MarshalJSON is Encode, so that encoding/json writes the document where a program has a topology in a value of its own.
func (t Topology) MarshalJSON() ([]byte, error) { return t.Encode() }

// UnmarshalJSON is Decode. A null is no topology.
func (t *Topology) UnmarshalJSON(data []byte) error {
	read, err := Decode(data)
	if err == nil {
		*t = *read
	}
	return err
}

// factsTable is the document's "facts": each set of facts once.
type factsTable struct {
	places map[string]int // by Facts.key
	table  []Facts
}

// item writes a node or link. Its last key says where its facts are in the table, to which they are added
// where it does not have them.
func (f *factsTable) item(w *document.Writer, object any, facts Facts) {
	if len(facts) == 0 {
		w.Item(object)
		return
	}
	key := facts.key()
	i, ok := f.places[key]
	if !ok {
		i = len(f.table)
		f.places[key] = i
		f.table = append(f.table, facts)
	}
	w.ItemWith(object, "facts", i)
}

// factsReference is that key.
type factsReference struct {
	Index *int `json:"facts,omitempty"`
}

// nodeList is the list of the nodes of one kind.
type nodeList interface {
	kind() Kind
	nodes() iter.Seq[noder] // pointers to them
	read(raw []byte) (*Node, error)
}

// noder gives the common part of a node of any kind.
type noder interface{ common() *Node }

func (n *Node) common() *Node { return n }

// lists are the lists of all kinds, in document order.
func (t *Topology) lists() []nodeList {
	return []nodeList{
		list[Package]{KindPackage, &t.Packages}, list[NUMANode]{KindNUMA, &t.NUMANodes}, list[HostBridge]{KindHostBridge, &t.HostBridges},
		list[PCIDevice]{KindPCI, &t.PCIDevices}, list[Switch]{KindSwitch, &t.Switches}, list[GPU]{KindGPU, &t.GPUs}, list[NIC]{KindNIC, &t.NICs},
		list[RDMADevice]{KindRDMA, &t.RDMADevices}, list[Port]{KindPort, &t.Ports}, list[Netdev]{KindNetdev, &t.Netdevs},
		list[NVMe]{KindNVMe, &t.NVMes}, list[NVSwitch]{KindNVSwitch, &t.NVSwitches},
	}
}

type list[T any] struct {
	of    Kind
	items *[]T
}

func (l list[T]) kind() Kind { return l.of }

func (l list[T]) nodes() iter.Seq[noder] {
	return func(yield func(noder) bool) {
		for i := range *l.items {
			if !yield(any(&(*l.items)[i]).(noder)) {
				return
			}
		}
	}
}

// read appends a node, whose facts are not set.
func (l list[T]) read(raw []byte) (*Node, error) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	*l.items = append(*l.items, v)
	n := any(&(*l.items)[len(*l.items)-1]).(noder).common()
	n.Kind = l.of // a document may have the key twice
	return n, nil
}

// Detect reports whether data, the beginning of a file, may be a topoctl.topology document: it
// begins like a JSON object.
func Detect(head []byte) bool {
	head = bytes.TrimLeft(head, " \t\r\n\ufeff")
	return len(head) > 0 && head[0] == '{'
}

// Decode reads a topoctl.topology/v1 document. Keys and node kinds that it does
// not know are left out; another major version is refused. What follows from
// the nodes is computed again, so an edited document is consistent.
func Decode(data []byte) (*Topology, error) {
	var doc struct {
		Schema     string            `json:"schema"`
		Tool       Tool              `json:"tool"`
		CapturedAt *time.Time        `json:"captured_at"`
		Origin     string            `json:"origin"`
		Complete   bool              `json:"complete"`
		Host       Host              `json:"host"`
		Nodes      []json.RawMessage `json:"nodes"`
		Links      []json.RawMessage `json:"links"`
		Asserted   *Asserted         `json:"asserted"`
		Facts      []Facts           `json:"facts"`
		Sources    []SourceReport    `json:"sources"`
		Warnings   []Warning         `json:"warnings"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		if name := schemaName(data); name != "" && checkSchema(name) != nil {
			return nil, checkSchema(name)
		}
		return nil, pkgerr.Errorf("topo", "%w", document.Locate(data, err))
	}
	if err := checkSchema(doc.Schema); err != nil {
		return nil, err
	}
	t := &Topology{Tool: doc.Tool, CapturedAt: doc.CapturedAt, Origin: doc.Origin, Complete: doc.Complete,
		Host: doc.Host, Asserted: doc.Asserted, Sources: doc.Sources, Warnings: doc.Warnings}
	lists := t.lists()
	for i, raw := range doc.Nodes {
		if err := decodeNode(lists, raw, doc.Facts); err != nil {
			return nil, pkgerr.Errorf("topo", "nodes[%d]: %w", i, err)
		}
	}
	for i, raw := range doc.Links {
		var l struct {
			Link
			factsReference
		}
		err := json.Unmarshal(raw, &l)
		if err == nil {
			l.Facts, err = l.in(doc.Facts)
		}
		if err != nil {
			return nil, pkgerr.Errorf("topo", "links[%d]: %w", i, err)
		}
		t.Links = append(t.Links, l.Link)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	t.Derive()
	return t, nil
}

// schemaName is what a document says it is, "" for one that does not say or
// that is broken.
func schemaName(data []byte) string {
	var s struct {
		Schema string `json:"schema"`
	}
	// A decoder stops after the first value: what follows it does not matter.
	_ = json.NewDecoder(bytes.NewReader(data)).Decode(&s)
	return s.Schema
}

// checkSchema accepts this major version only, and says what a reader can do.
func checkSchema(name string) error {
	switch {
	case name == SchemaTopology:
		return nil
	case name == "":
		return pkgerr.Errorf("topo", "no \"schema\" key: not a topoctl document (want %q)", SchemaTopology)
	case strings.HasPrefix(name, "topoctl.topology/"):
		return pkgerr.Errorf("topo", "schema %q is newer than this program reads (%q): use a newer topoctl", name, SchemaTopology)
	default:
		return pkgerr.Errorf("topo", "schema %q is not a topology (want %q)", name, SchemaTopology)
	}
}

// in finds the facts in the document's table.
func (f factsReference) in(table []Facts) (Facts, error) {
	switch {
	case f.Index == nil:
		return nil, nil
	case *f.Index < 0 || *f.Index >= len(table):
		return nil, fmt.Errorf("facts %d: the table has %d entries", *f.Index, len(table))
	}
	return table[*f.Index], nil
}

// decodeNode reads a node into the list of its kind. Switches and cards are derived; other kinds are a newer
// writer's.
func decodeNode(lists []nodeList, raw []byte, table []Facts) error {
	head, ok := headOf(raw)
	if !ok {
		if err := json.Unmarshal(raw, &head); err != nil {
			return err
		}
	}
	at := slices.IndexFunc(lists, func(l nodeList) bool { return l.kind() == head.Kind })
	if at < 0 || head.Kind == KindSwitch || head.Kind == KindNIC {
		return nil
	}
	n, err := lists[at].read(raw)
	if err != nil {
		return err
	}
	var f factsReference
	if len(head.Facts) > 0 {
		if err := json.Unmarshal(head.Facts, &f.Index); err != nil {
			return fmt.Errorf("facts: %w", err)
		}
	}
	n.Facts, err = f.in(table)
	return err
}

// nodeHead is what decides how a node is read.
type nodeHead struct {
	Kind  Kind            `json:"kind"`
	Facts json.RawMessage `json:"facts"` // of a kind that a newer writer has, it may be anything
}

// headOf is the head of a node as Encode writes it: the ID and the kind come first, the facts last. Other
// layouts are left to the decoder, which reads the node twice then; that is a third of what a document costs.
func headOf(raw []byte) (head nodeHead, ok bool) {
	const id, kind, facts = `{"id":"`, `","kind":"`, `,"facts":`
	rest, ok := bytes.CutPrefix(raw, []byte(id))
	end := bytes.IndexByte(rest, '"')
	if !ok || end < 0 || bytes.IndexByte(rest[:end], '\\') >= 0 {
		return head, false
	}
	if rest, ok = bytes.CutPrefix(rest[end:], []byte(kind)); !ok {
		return head, false
	}
	if end = bytes.IndexByte(rest, '"'); end < 0 || bytes.IndexByte(rest[:end], '\\') >= 0 {
		return head, false
	}
	head.Kind = Kind(rest[:end])
	digits := len(raw) - 1 // the closing bracket
	for digits > 0 && raw[digits-1] >= '0' && raw[digits-1] <= '9' {
		digits--
	}
	if bytes.HasSuffix(raw[:digits], []byte(facts)) {
		head.Facts = raw[digits : len(raw)-1]
		return head, true
	}
	return head, !bytes.Contains(raw, []byte(facts[1:]))
}

// maxAxis bounds the GPUs, NICs and NUMA nodes of a document: relations are
// computed for every pair of them. The largest hosts have about 200.
const maxAxis = 2048

// check refuses what no writer of ours makes and what would mislead a reader: nodes
// without ID, two nodes of one ID, negative rates, matrices that are not square, and
// documents whose relations would be too many to compute.
func (t *Topology) check() error {
	if n := len(t.GPUs) + len(t.nics()) + len(t.NUMANodes); n > maxAxis {
		return pkgerr.Errorf("topo", "%d GPUs, NICs and NUMA nodes: at most %d are read", n, maxAxis)
	}
	seen := map[ID]bool{}
	for _, l := range t.lists() {
		for n := range l.nodes() {
			switch id := n.common().ID; {
			case id == "":
				return pkgerr.Errorf("topo", "a node of kind %q has no id", l.kind())
			case seen[id]:
				return pkgerr.Errorf("topo", "two nodes are called %q", id)
			default:
				seen[id] = true
			}
		}
	}
	for i := range t.PCIDevices {
		if err := t.PCIDevices[i].Link.check(); err != nil {
			return pkgerr.Errorf("topo", "%s: %w", t.PCIDevices[i].ID, err)
		}
	}
	for i := range t.Links {
		if l := &t.Links[i]; l.BytesPerSec != nil && *l.BytesPerSec < 0 {
			return pkgerr.Errorf("topo", "link %q: bytes_per_sec %d: want 0 or more, or null", l.ID, *l.BytesPerSec)
		}
	}
	if a := t.Asserted; a != nil {
		if len(a.Class) != len(a.Axis) {
			return pkgerr.Errorf("topo", "asserted: %d rows for an axis of %d", len(a.Class), len(a.Axis))
		}
		for i, row := range a.Class {
			if len(row) != len(a.Axis) {
				return pkgerr.Errorf("topo", "asserted: row %d has %d cells for an axis of %d", i, len(row), len(a.Axis))
			}
		}
	}
	return nil
}

// check refuses what no link has.
func (l *PCILink) check() error {
	if l == nil {
		return nil
	}
	for _, x := range []struct {
		name string
		v    *int
		most int
	}{
		{"speed_mts", l.SpeedMTs, maxPCIeSpeedMTs}, {"max_speed_mts", l.MaxSpeedMTs, maxPCIeSpeedMTs},
		{"width", l.Width, maxPCIeWidth}, {"max_width", l.MaxWidth, maxPCIeWidth},
	} {
		if x.v != nil && (*x.v < 0 || *x.v > x.most) {
			return fmt.Errorf("%s %d: want 0 to %d, or null", x.name, *x.v, x.most)
		}
	}
	return nil
}
