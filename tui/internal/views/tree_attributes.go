package views

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// treeSelection is what is known of a node, as JSON.
type treeSelection struct {
	ID       topo.ID           `json:"id"`
	Node     any               `json:"node"` // as the topology's document has it
	Link     *counters.Link    `json:"pcie_link"`
	GPU      *counters.GPU     `json:"gpu"`
	Ports    []portSelection   `json:"ports"`
	Findings []*doctor.Finding `json:"findings"`
}

// portSelection is a port with its counters and what they came to at the last look.
type portSelection struct {
	counters.Port
	Sent     *topo.Rate        `json:"sent_bytes_per_sec"`
	Received *topo.Rate        `json:"received_bytes_per_sec"`
	Moving   map[string]uint64 `json:"errors_of_last_minute,omitempty"`
}

// Selection is the node under the cursor with what it does now.
func (v *TreeView) Selection(env *ui.Env) any {
	n := v.node(env)
	if n == nil {
		return nil
	}
	t, id := v.tree, n.line.ID
	s := treeSelection{ID: id, Node: t.document(n), Ports: []portSelection{}, Findings: []*doctor.Finding{}}
	if s.Node == nil {
		return nil
	}
	if link, ok := env.State.Links[n.line.PCI]; ok {
		s.Link = &link
	}
	if g := env.State.GPUs[id]; g != nil {
		s.GPU = &g.GPU
	}
	for _, id := range t.related(n) {
		if p := env.State.Ports[id]; p != nil {
			s.Ports = append(s.Ports, portSelection{p.Port, p.SentBytesPerSec, p.ReceivedBytesPerSec, p.RecentErrors})
		}
	}
	s.Findings = append(s.Findings, t.h.Findings(t.found(n)...)...)
	return s
}

// factsOf are the sources of a node's attributes: nodes of all kinds have them in one field.
func factsOf(n any) topo.Facts {
	v := reflect.Indirect(reflect.ValueOf(n))
	if v.Kind() != reflect.Struct {
		return nil
	}
	facts, _ := v.FieldByName("Facts").Interface().(topo.Facts)
	return facts
}

// attribute is one of a node, as its document has it.
type attribute struct{ name, text string }

// attributesOf lists what the document of a node has, in its order.
func attributesOf(n any) []attribute {
	data, err := json.Marshal(n)
	if err != nil {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil {
		return nil
	}
	var out []attribute
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return out
		}
		var raw json.RawMessage
		if dec.Decode(&raw) != nil {
			return out
		}
		if key, ok := name.(string); ok && key != "facts" {
			out = append(out, attribute{key, valueText(key, raw)})
		}
	}
	return out
}

// valueText is a value for people: sizes with units, lists of objects by their number.
func valueText(name string, raw json.RawMessage) string {
	var number int64
	isNumber := json.Unmarshal(raw, &number) == nil
	var text string
	var words []string
	var objects []map[string]json.RawMessage
	switch {
	case string(raw) == "null":
		return ui.Unknown
	case isNumber && strings.HasSuffix(name, "bytes_per_sec"):
		return units.Rate(number, units.Gbyte)
	case isNumber && strings.HasSuffix(name, "memory_bytes"):
		return units.Bytes(number)
	case json.Unmarshal(raw, &text) == nil:
		return text
	case json.Unmarshal(raw, &words) == nil:
		return strings.Join(words, ", ")
	case json.Unmarshal(raw, &objects) == nil:
		return strconv.Itoa(len(objects)) + " entries"
	}
	return strings.NewReplacer(`"`, "", "{", "", "}", "", ",", ", ").Replace(string(raw))
}
