package discover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// The vendor and the driver that NVML speaks for, as topo.GPU has them.
const (
	vendorNVIDIA = "nvidia"
	driverNVIDIA = "nvidia"
)

// conflict records that two sources disagree about an attribute of a node.
func conflict(t *topo.Topology, node topo.ID, attribute string, kept topo.Source, keptValue any, other topo.Source, otherValue any) {
	t.Warnings = append(t.Warnings, topo.Warning{
		Code: topo.CodeConflict, Subject: node, Source: other,
		Detail: fmt.Sprintf("%s: %s says %v, %s says %v; kept %s's", attribute, kept, keptValue, other, otherValue, kept),
	})
}

// source says where an attribute came from, for a conflict's sentence.
func source(f topo.Facts, attribute string) topo.Source {
	if x, ok := f.Get(attribute); ok {
		return x.Source
	}
	return topo.SourceSysfs
}

// merger fills the attributes of one node from one source.
type merger struct {
	t     *topo.Topology
	id    topo.ID
	facts *topo.Facts
	from  topo.Source
}

// fill sets a text that is not known yet; where another is known and kept, it
// is a conflict. An empty value says nothing.
func (m merger) fill(attribute string, field *string, value, where string) {
	switch {
	case value == "" || *field == value:
	case *field == "":
		*field = value
		m.facts.Set(attribute, m.from, where)
	default:
		conflict(m.t, m.id, attribute, source(*m.facts, attribute), *field, m.from, value)
	}
}

// override sets a text over one that is known, for attributes that this source
// knows best; a different one that was known is a conflict.
func (m merger) override(attribute string, field *string, value, where string) {
	if value == "" {
		return
	}
	if *field != "" && *field != value {
		conflict(m.t, m.id, attribute, m.from, value, source(*m.facts, attribute), *field)
	}
	*field = value
	m.facts.Set(attribute, m.from, where)
}

// fillNumber is fill for a number; nil says nothing.
func fillNumber[T int | int64](m merger, attribute string, field **T, value *T, where string) {
	switch {
	case value == nil:
	case *field == nil:
		v := *value
		*field = &v
		m.facts.Set(attribute, m.from, where)
	case **field != *value:
		conflict(m.t, m.id, attribute, source(*m.facts, attribute), **field, m.from, *value)
	}
}

// overrideNumber is override for a number.
func overrideNumber[T int | int64](m merger, attribute string, field **T, value *T, where string) {
	if value == nil {
		return
	}
	if *field != nil && **field != *value {
		conflict(m.t, m.id, attribute, m.from, *value, source(*m.facts, attribute), **field)
	}
	v := *value
	*field = &v
	m.facts.Set(attribute, m.from, where)
}

// fillList is fill for a list of names, whose order says nothing.
func (m merger) fillList(attribute string, field *[]string, value []string) {
	value = slices.Sorted(slices.Values(value))
	switch {
	case len(value) == 0:
	case len(*field) == 0:
		*field = value
		m.facts.Set(attribute, m.from, "")
	case !slices.Equal(slices.Sorted(slices.Values(*field)), value):
		conflict(m.t, m.id, attribute, source(*m.facts, attribute), strings.Join(*field, " "), m.from, strings.Join(value, " "))
	}
}
