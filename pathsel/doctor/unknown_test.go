package doctor_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// fact is an attribute of nodes that an input may not tell.
type fact struct {
	list  string // the field of topo.Topology with the nodes: "Ports"
	index []int  // the fields of a node that lead to it, through pointers
	key   string // as facts are named: "link.width"
}

func (f fact) String() string { return f.list + "." + f.key }

// facts are all attributes whose zero value means that nothing is known.
var facts = func() (list []fact) {
	var within func(list string, node reflect.Type, index []int, key string) []fact
	within = func(list string, node reflect.Type, index []int, prefix string) (out []fact) {
		for i := range node.NumField() {
			field := node.Field(i)
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			f := fact{list, append(slices.Clone(index), i), prefix + name}
			kind, of := field.Type.Kind(), field.Type
			if kind == reflect.Pointer {
				of = field.Type.Elem()
			}
			switch {
			case field.Anonymous || name == "facts" || of == reflect.TypeFor[topo.BDF](): // who it is
				continue
			case kind == reflect.Pointer, kind != reflect.Bool && options == "omitempty":
				out = append(out, f)
			}
			if of.Kind() == reflect.Struct && kind == reflect.Pointer {
				out = append(out, within(list, of, f.index, f.key+".")...)
			}
		}
		return out
	}
	top := reflect.TypeFor[topo.Topology]()
	for _, name := range []string{"Host", "Packages", "NUMANodes", "HostBridges", "PCIDevices", "GPUs", "RDMADevices", "Ports", "Netdevs", "NVMes", "NVSwitches"} {
		field, _ := top.FieldByName(name)
		node := field.Type
		if node.Kind() == reflect.Slice {
			node = node.Elem()
		}
		list = append(list, within(name, node, nil, "")...)
	}
	return list
}()

// nodes are the nodes of a topology that have an attribute.
func (f fact) nodes(t *topo.Topology) (nodes []reflect.Value) {
	list := reflect.ValueOf(t).Elem().FieldByName(f.list)
	if list.Kind() == reflect.Struct {
		nodes = append(nodes, list)
	} else {
		for i := range list.Len() {
			nodes = append(nodes, list.Index(i))
		}
	}
	return slices.DeleteFunc(nodes, func(n reflect.Value) bool { v := f.of(n); return !v.IsValid() || v.IsZero() })
}

// of is an attribute of a node, no value where what has it is not there.
func (f fact) of(node reflect.Value) reflect.Value {
	for _, i := range f.index {
		if node.Kind() == reflect.Pointer {
			if node.IsNil() {
				return reflect.Value{}
			}
			node = node.Elem()
		}
		node = node.Field(i)
	}
	return node
}

// forget makes an attribute of a node unknown.
func (f fact) forget(node reflect.Value) {
	f.of(node).SetZero()
	known := node.FieldByName("Facts").Addr().Interface().(*topo.Facts)
	*known = slices.DeleteFunc(*known, func(x topo.Fact) bool { return x.Name == f.key || strings.HasPrefix(x.Name, f.key+".") })
}

// without is a topology that does not tell an attribute of a node, or of any where node is -1.
func (f fact) without(t *topo.Topology, node int) *topo.Topology {
	for i, n := range f.nodes(t) {
		if node < 0 || node == i {
			f.forget(n)
		}
	}
	t.Derive()
	return t
}

// statements are attributes whose absence says something itself, to all checks or to one.
var statements = []string{
	"GPUs.pci", "RDMADevices.pci", "Netdevs.pci", "PCIDevices.class", // which device it is: without, it is another one
	"Ports.gids",                              // with gid_table_size: no entry of the table is used
	"GPUs.model no-gdr-path",                  // the name of its function tells it too
	"RDMADevices.transport",                   // the link layer of its ports tells it too
	"Host.software.memlock.soft_bytes",        // there is no limit
	"PCIDevices.link implausible-bridge-link", // what reports no link invents none
}

// statement says whether the absence of an attribute says something to a check.
func (f fact) statement(code doctor.Code) bool {
	return slices.Contains(statements, f.String()) || slices.Contains(statements, f.String()+" "+string(code))
}

// machines are those that these tests take facts from.
func machines() (names []string) { return slices.Concat(fixtures.Names(), fixtures.Captures()) }

// Without a fact, no error or warning turns into silence: the same check has it still, by other facts, or says that
// it could not check.
func TestFindingsAreNotForgotten(t *testing.T) {
	type removal struct {
		machine string
		found   []doctor.Finding
		fact    fact
		node    int
	}
	var removals []removal
	for _, name := range machines() {
		top := fixturetest.Topology(t, name)
		found := slices.DeleteFunc(run(t, top).Findings(), func(f doctor.Finding) bool { return f.Severity == doctor.Info })
		for _, f := range facts {
			if n := len(f.nodes(top)); n > 0 && len(found) > 0 {
				for i := -1; i < min(n, 3); i++ { // of all nodes, and of some alone
					removals = append(removals, removal{name, found, f, i})
				}
			}
		}
	}
	for _, r := range longtest.Sample(removals, 150) {
		var codes []doctor.Code
		for _, f := range r.found {
			codes = append(codes, f.Code)
		}
		after := run(t, r.fact.without(fixturetest.Topology(t, r.machine), r.node), codes...)
		for _, f := range r.found {
			if !r.fact.statement(f.Code) && !stays(&f, after) {
				t.Errorf("%s without %s (%d): %s of %v is neither found nor said to be unknown", r.machine, r.fact, r.node, f.Code, f.Subjects)
			}
		}
	}
}

// stays says whether a finding is there, or its check says that it lacks something of the same devices, or of
// whatever there is to judge.
func stays(f *doctor.Finding, after *doctor.Report) bool {
	c := after.Checks[slices.IndexFunc(after.Checks, func(c doctor.CheckResult) bool { return c.Code == f.Code })]
	about := func(list []topo.ID) bool {
		return len(list) == 0 || len(f.Subjects) == 0 || slices.ContainsFunc(list, func(id topo.ID) bool { return slices.Contains(f.Subjects, id) })
	}
	return c.Status == doctor.CouldNotCheck || slices.ContainsFunc(c.Findings, func(x doctor.Finding) bool { return about(x.Subjects) }) || slices.ContainsFunc(c.Missing, func(m doctor.Missing) bool { return about(m.Subjects) })
}

// What would be an error or a warning if it were otherwise is not ok while it is not known.
func TestUnknownIsNotOK(t *testing.T) {
	values := map[string][]reflect.Value{} // of each attribute, on machines with faults
	for _, code := range doctor.Codes() {
		r := rulings[code]
		list := []ruling{r}
		for _, name := range slices.Sorted(maps.Keys(r.more)) {
			list = append(list, r.more[name])
		}
		for _, m := range list {
			top := m.found(t)
			for _, f := range facts {
				for _, n := range f.nodes(top) {
					v, of := f.of(n), values[f.String()]
					if !slices.ContainsFunc(of, func(x reflect.Value) bool { return reflect.DeepEqual(x.Interface(), v.Interface()) }) {
						values[f.String()] = append(of, v)
					}
				}
			}
		}
	}
	for _, name := range []string{healthy, ethernet} { // on which nearly all checks are ok
		peer := fixturetest.Topology(t, name)
		with := func(t *testing.T, top *topo.Topology) doctor.Options {
			o := tries(nil)(t, top)
			o.Peer = peer
			return o
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ok := judged(t, with, fixturetest.Topology(t, name), nil, func(c *doctor.CheckResult) bool { return c.Status == doctor.OK })
			for _, f := range facts {
				const i = 0 // the first of the nodes that have it
				if len(f.nodes(fixturetest.Topology(t, name))) > i {
					otherwise := ok[:0:0]
					for _, v := range longtest.Sample(values[f.String()], 4) {
						top := fixturetest.Topology(t, name)
						f.of(f.nodes(top)[i]).Set(v)
						top.Derive()
						otherwise = append(otherwise, judged(t, with, top, ok, func(c *doctor.CheckResult) bool {
							return slices.ContainsFunc(c.Findings, func(x doctor.Finding) bool { return x.Severity != doctor.Info })
						})...)
					}
					if otherwise = slices.DeleteFunc(otherwise, f.statement); len(otherwise) == 0 {
						continue
					}
					still := judged(t, with, f.without(fixturetest.Topology(t, name), i), otherwise, func(c *doctor.CheckResult) bool { return c.Status == doctor.OK })
					for _, code := range still {
						t.Errorf("without %s (%d), of which it finds fault with other values, %s is ok", f, i, code)
					}
				}
			}
		})
	}
}

// judged are the checks, of some or all, whose result meets a condition.
func judged(t *testing.T, with func(*testing.T, *topo.Topology) doctor.Options, top *topo.Topology, of []doctor.Code, meets func(*doctor.CheckResult) bool) (codes []doctor.Code) {
	t.Helper()
	o := with(t, top)
	o.Codes = of
	r, err := doctor.Run(top, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Checks {
		if meets(&r.Checks[i]) {
			codes = append(codes, r.Checks[i].Code)
		}
	}
	return codes
}
