package watch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const schemaFile = "schema/watch.v1.schema.json"

var generator = schematest.Generator{Types: map[reflect.Type]schematest.Object{
	reflect.TypeFor[Kind](): {"enum": []any{Started, Finding, Cleared, Drift, DriftGone, LinkDown, LinkUp, LinkSpeed, Errors, ErrorsStop, SourceLost, SourceBack}},
}}

// The published schema says what the type says.
func TestSchemaMatchesTheType(t *testing.T) {
	s := generator.Document(Schema, reflect.TypeFor[Event]())
	s["properties"].(schematest.Object)["severity"] = schematest.Object{"enum": []any{severe, warning, info}}
	schematest.Compare(t, schemaFile, s)
}

// variants are what may become of a small host, from one look to the next.
func variants(tb testing.TB) []*topo.Topology {
	const name = "a10-2nic"
	return []*topo.Topology{
		fixturetest.Topology(tb, name),
		changed(tb, name, func(t *topo.Topology) { t.Ports[0].State, t.Ports[0].PhysState = "DOWN", "Polling" }),
		changed(tb, name, func(t *topo.Topology) { t.Ports[0].State, t.Ports[1].State = "DOWN", "INIT" }),
		changed(tb, name, func(t *topo.Topology) { half := *t.Ports[0].BytesPerSec / 2; t.Ports[0].BytesPerSec = &half }),
		changed(tb, name, func(t *topo.Topology) { t.Netdevs[0].State = "down"; t.Netdevs = t.Netdevs[:len(t.Netdevs)-1] }),
		changed(tb, name, func(t *topo.Topology) { t.Host.Kernel = "6.99"; t.Ports[0].State = "" }),
		changed(tb, name, func(t *topo.Topology) { narrow(t, t.GPUs[0].PCI, 4) }),
		changed(tb, name, func(t *topo.Topology) { t.RDMADevices, t.Ports = t.RDMADevices[:1], t.Ports[:1] }),
	}
}

// deed is one thing that a watch is told.
type deed struct {
	at       int64
	topology *topo.Topology
	counters *counters.Sample
	source   string
	status   string
}

func (d *deed) do(w *Watch) []Event {
	switch {
	case d.topology != nil:
		return w.Topology(d.at, d.topology)
	case d.counters != nil:
		return w.Counters(d.at, d.counters)
	case d.source != "":
		return w.Source(d.at, d.source, d.status, "")
	}
	return w.Tick(d.at)
}

// deeds are a random life of a host.
func deeds(rt *rapid.T, hosts []*topo.Topology) []deed {
	var out []deed
	at, now := int64(0), hosts[0]
	count := map[string]uint64{}
	for range rapid.IntRange(1, 24).Draw(rt, "deeds") {
		at += rapid.Int64Range(0, 40).Draw(rt, "seconds") * second
		d := deed{at: at}
		switch rapid.IntRange(0, 5).Draw(rt, "kind") {
		case 0, 1:
			now = hosts[rapid.IntRange(0, len(hosts)-1).Draw(rt, "host")]
			d.topology = now
		case 2, 3:
			d.counters = sample([]*topo.Topology{now, hosts[1], hosts[6]}[rapid.IntRange(0, 2).Draw(rt, "of")])
			for i := range d.counters.Ports {
				p := &d.counters.Ports[i]
				key := string(p.ID)
				count[key] += rapid.Uint64Range(0, 2).Draw(rt, "errors")
				p.Errors["symbol_error"] = count[key]
				if rapid.IntRange(0, 9).Draw(rt, "reset") == 0 {
					count[key] = 0
				}
			}
		case 4:
			d.source = rapid.SampledFrom([]string{"host", "agent x"}).Draw(rt, "source")
			d.status = rapid.SampledFrom([]string{"ok", "waiting", "failed", "ended"}).Draw(rt, "status")
		}
		out = append(out, d)
	}
	return out
}

// told checks that events say each thing once, and take back only what was said.
type told struct {
	rt      *rapid.T
	open    map[string]string // what was told and not taken back, with its severity
	links   map[topo.ID]bool  // told to be down
	lost    map[string]bool
	errors  map[topo.ID]map[string]uint64
	started bool
}

func (c *told) subjects(e *Event) []topo.ID {
	if len(e.Subjects) > 0 {
		if e.Subject != e.Subjects[0] {
			c.rt.Fatalf("%+v: the subject is not the first of all", e)
		}
		return e.Subjects
	}
	return []topo.ID{e.Subject}
}

func (c *told) take(e *Event, at int64) {
	if e.AtNS != at || e.Schema != Schema || e.Kind == "" || e.Severity == "" || e.Text == "" {
		c.rt.Fatalf("at %d: an event that lacks something: %+v", at, e)
	}
	if e.Kind != SourceLost && e.Kind != SourceBack && !c.started != (e.Kind == Started) {
		c.rt.Fatalf("%+v: started comes first, and once", e)
	}
	switch e.Kind {
	case Started:
		c.started = true
	case Finding, Drift:
		for _, id := range c.subjects(e) {
			key := c.key(e, id)
			if was, ok := c.open[key]; ok && rank(e.Severity) >= rank(was) {
				c.rt.Fatalf("told twice: %q\n%+v", key, e)
			}
			c.open[key] = e.Severity
		}
	case Cleared, DriftGone:
		for _, id := range c.subjects(e) {
			if _, ok := c.open[c.key(e, id)]; !ok {
				c.rt.Fatalf("taken back and never told: %+v", e)
			}
			delete(c.open, c.key(e, id))
		}
	case LinkDown, LinkUp:
		if c.links[e.Subject] == (e.Kind == LinkDown) {
			c.rt.Fatalf("a link that is so already: %+v", e)
		}
		c.links[e.Subject] = e.Kind == LinkDown
	case SourceLost, SourceBack:
		if c.lost[e.Source] == (e.Kind == SourceLost) {
			c.rt.Fatalf("a source that is so already: %+v", e)
		}
		c.lost[e.Source] = e.Kind == SourceLost
	case Errors:
		if c.errors[e.Subject] == nil {
			c.errors[e.Subject] = map[string]uint64{}
		}
		for name, n := range e.Counters {
			c.errors[e.Subject][name] += n
		}
	case ErrorsStop:
		if !maps.Equal(c.errors[e.Subject], e.Counters) {
			c.rt.Fatalf("%v were told, %v is the sum", c.errors[e.Subject], e.Counters)
		}
		delete(c.errors, e.Subject)
	}
}

// key is what a finding or a difference is known by.
func (c *told) key(e *Event, id topo.ID) string {
	family := map[Kind]string{Finding: "finding", Cleared: "finding", Drift: "drift", DriftGone: "drift"}[e.Kind]
	text := e.Text
	if family == "finding" {
		text = masked((&doctor.Finding{Text: text}).Brief())
	}
	return fmt.Sprintf("%s %s %s %s", family, e.Code, id, text)
}

// Whatever happens to a host, each change is told once, what is taken back was told, the
// same news give the same events, and all are valid.
func TestEachChangeOnce(t *testing.T) {
	hosts := variants(t)
	schema := schematest.Open(t, schemaFile)
	rapid.Check(t, func(rt *rapid.T) {
		o := Options{Infos: rapid.Bool().Draw(rt, "infos")}
		if rapid.Bool().Draw(rt, "baseline") {
			o.Baseline, o.BaselineName = hosts[1], "b"
		}
		life := deeds(rt, hosts)
		w := New(o)
		c := told{rt: rt, open: map[string]string{}, links: map[topo.ID]bool{}, lost: map[string]bool{}, errors: map[topo.ID]map[string]uint64{}}
		var all []Event
		for i := range life {
			list := life[i].do(w)
			for k := range list {
				c.take(&list[k], life[i].at)
			}
			if life[i].status == "ended" {
				delete(c.lost, life[i].source)
			}
			all = append(all, list...)
		}
		if rapid.IntRange(0, 3).Draw(rt, "again") == 0 {
			repeats(rt, New(o), life, all)
		}
		for i := range all {
			line, err := json.Marshal(&all[i])
			if err != nil {
				rt.Fatal(err)
			}
			if err := schema.Validate(line); err != nil {
				rt.Fatalf("%v\n%s", err, line)
			}
		}
	})
}

func repeats(rt *rapid.T, w *Watch, life []deed, told []Event) {
	var again []Event
	for i := range life {
		again = append(again, life[i].do(w)...)
	}
	x, err := json.Marshal(told)
	y, err2 := json.Marshal(again)
	if err != nil || err2 != nil || !bytes.Equal(x, y) {
		rt.Fatalf("the same news give other events:\n%s\n%s", x, y)
	}
}

// What is told in the end is what is so: after ten quiet minutes nothing is held back.
func TestNothingIsHeldBackForever(t *testing.T) {
	hosts := variants(t)
	rapid.Check(t, func(rt *rapid.T) {
		w := New(Options{})
		open := map[string]bool{}
		take := func(list []Event) {
			for i := range list {
				e := &list[i]
				for _, id := range append([]topo.ID{e.Subject}, e.Subjects...) {
					key := e.Code + " " + string(id)
					switch e.Kind {
					case Finding:
						open[key] = true
					case Cleared:
						delete(open, key)
					}
				}
			}
		}
		at := int64(0)
		for range rapid.IntRange(1, 20).Draw(rt, "looks") {
			at += second
			take(w.Topology(at, hosts[rapid.IntRange(0, 2).Draw(rt, "host")]))
		}
		take(w.Tick(at + calm))
		so := map[string]bool{}
		for _, f := range w.Doctor().Findings() {
			for _, id := range f.Subjects {
				if f.Severity != "info" {
					so[string(f.Code)+" "+string(id)] = true
				}
			}
		}
		if !maps.Equal(open, so) {
			rt.Fatalf("told %v, and %v is so", slices.Sorted(maps.Keys(open)), slices.Sorted(maps.Keys(so)))
		}
	})
}
