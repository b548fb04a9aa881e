package sources

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
)

// LLDPReport is what one host or switch says.
type LLDPReport struct {
	Local     *Chassis // nil: not in the text
	Neighbors []Neighbor
}

// Chassis is a host or a switch.
type Chassis struct {
	ID          string
	Name        string   // "" where it does not say
	Description string   // its system, in words
	Enabled     []string // capabilities that it uses: "Bridge", "Router", "Station"
}

// Neighbor is what is at the other end of an interface's cable.
type Neighbor struct {
	Interface string // of the host whose report it is
	Chassis   Chassis
	PortType  string // "ifname", "mac", "local"
	PortID    string
	PortDescr string
}

// Forwards says whether the chassis passes on what is not for it: a switch, and a host with a bridge.
func (c *Chassis) Forwards() bool {
	return slices.Contains(c.Enabled, "Bridge") || slices.Contains(c.Enabled, "Router")
}

// Port is what the neighbour calls its end of the cable: the name of an interface rather than a MAC.
func (n *Neighbor) Port() string {
	if n.PortType == "mac" && n.PortDescr != "" {
		return n.PortDescr
	}
	return cmp.Or(n.PortID, n.PortDescr)
}

// Bounds of a text.
const (
	maxLLDPBytes = 16 << 20
	maxNeighbors = 4096
	maxText      = 255
)

var limits = document.Limits{Bytes: maxLLDPBytes, Text: 1 << 16, Depth: 16, Elements: 1 << 18}

// ParseLLDP reads one or more documents of lldpcli, one after the other: what it says of a host's
// neighbours ("lldpcli -f json show neighbors details" and its json0 form) and of the host itself
// ("show chassis").
// Source: lldpd 1.0.16, src/client/json_writer.c and display.c; outputs of lldpd on veth pairs.
func ParseLLDP(data []byte) (*LLDPReport, error) {
	if len(data) > maxLLDPBytes {
		return nil, pkgerr.Errorf("lldp", "%d bytes: at most %d are read", len(data), maxLLDPBytes)
	}
	r, known := &LLDPReport{}, false
	in := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		err := in.Decode(&raw)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, pkgerr.Errorf("lldp", "%w", document.Locate(data, err))
		}
		if err := limits.Check(raw); err != nil {
			return nil, pkgerr.Errorf("lldp", "%w", err)
		}
		var doc map[string]any
		if err := json.Unmarshal(raw, &doc); err != nil {
			return nil, pkgerr.New("lldp", "not an object: want the text of lldpcli -f json show neighbors details")
		}
		if local, ok := doc["local-chassis"]; ok {
			known = true
			if c, ok := lldpChassis(lldpObject(lldpObject(local)["chassis"])); ok {
				if r.Local != nil && r.Local.ID != c.ID {
					return nil, pkgerr.Errorf("lldp", "texts of two hosts, %s and %s: give each a file", cmp.Or(r.Local.Name, r.Local.ID), cmp.Or(c.Name, c.ID))
				}
				r.Local = &c
			}
		}
		if list, ok := doc["lldp"]; ok {
			known = true
			r.interfaces(lldpObject(list)["interface"])
		}
	}
	if !known {
		return nil, pkgerr.New("lldp", "no key \"lldp\": want the text of lldpcli -f json show neighbors details")
	}
	if len(r.Neighbors) > maxNeighbors {
		return nil, pkgerr.Errorf("lldp", "%d neighbours: at most %d are read", len(r.Neighbors), maxNeighbors)
	}
	slices.SortStableFunc(r.Neighbors, func(a, b Neighbor) int {
		return cmp.Or(topo.NaturalCompare(a.Interface, b.Interface), strings.Compare(a.Chassis.ID, b.Chassis.ID), strings.Compare(a.PortID, b.PortID))
	})
	return r, nil
}

// interfaces reads the interfaces: of json an object with a key for each, or a list of such; of json0 a
// list of objects that have their name inside.
func (r *LLDPReport) interfaces(v any) {
	for _, item := range lldpList(v) {
		entry, _ := item.(map[string]any)
		if name := lldpWord(entry["name"]); name != "" && entry["chassis"] != nil {
			r.neighbor(name, entry)
			continue
		}
		for name, v := range entry {
			for _, one := range lldpList(v) {
				r.neighbor(name, lldpObject(one))
			}
		}
	}
}

func (r *LLDPReport) neighbor(name string, entry map[string]any) {
	n := Neighbor{Interface: text.Clip(name, maxText)}
	var ok bool
	if n.Chassis, ok = lldpChassis(lldpObject(entry["chassis"])); !ok {
		return
	}
	port := lldpObject(entry["port"])
	id := lldpObject(port["id"])
	n.PortType, n.PortID, n.PortDescr = lldpWord(id["type"]), lldpWord(id["value"]), lldpWord(port["descr"])
	r.Neighbors = append(r.Neighbors, n)
}

// lldpChassis reads a chassis: json puts it below its name where it has one.
func lldpChassis(entry map[string]any) (c Chassis, ok bool) {
	name := lldpWord(entry["name"])
	if id := lldpObject(entry["id"]); lldpWord(id["value"]) == "" {
		if len(entry) != 1 {
			return c, false
		}
		for key, v := range entry {
			name, entry = text.Clip(key, maxText), lldpObject(v)
		}
	}
	id := lldpObject(entry["id"])
	c = Chassis{ID: lldpWord(id["value"]), Name: name, Description: lldpWord(entry["descr"])}
	for _, v := range lldpList(entry["capability"]) {
		x := lldpObject(v)
		if on, _ := x["enabled"].(bool); on {
			c.Enabled = append(c.Enabled, lldpWord(x["type"]))
		}
	}
	return c, c.ID != ""
}

// lldpList is a value as a list: one that stands alone is a list of one.
func lldpList(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	}
	return []any{v}
}

// lldpObject is a value, or the first of a list, as an object.
func lldpObject(v any) map[string]any {
	if l := lldpList(v); len(l) > 0 {
		m, _ := l[0].(map[string]any)
		return m
	}
	return nil
}

// lldpWord is a value as text: by itself, the first of a list, or json0's object with a value.
func lldpWord(v any) string {
	l := lldpList(v)
	if len(l) == 0 {
		return ""
	}
	switch v := l[0].(type) {
	case string:
		return text.Clip(v, maxText)
	case map[string]any:
		s, _ := v["value"].(string)
		return text.Clip(s, maxText)
	}
	return ""
}
