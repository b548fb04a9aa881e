// Package fixturetest discovers the machines that tests are about: fixtures, and machines that
// are written down in a test. Only tests import it.
package fixturetest

import (
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
)

// discovered are the fixtures that tests of the package have asked for, by name.
var discovered sync.Map

// Topology is a fixture by its name, as the test's own copy. It is discovered once for all tests
// of a package: to expand the files of a large machine takes a tenth of a second. "empty" is a
// host of which nothing is known.
func Topology(tb testing.TB, name string) *topo.Topology {
	tb.Helper()
	if name == "empty" {
		t := &topo.Topology{Origin: "capture"}
		t.Derive()
		return t
	}
	top, known := discovered.Load(name)
	if !known {
		tree, err := fixtures.Open(name)
		if err != nil {
			tb.Fatal(err)
		}
		if top, err = discover.Discover(tb.Context(), discover.Options{FS: tree, Origin: "fixture:" + name}); err != nil {
			tb.Fatal(err)
		}
		discovered.Store(name, top)
	}
	own := *top.(*topo.Topology)
	detach(reflect.ValueOf(&own).Elem())
	return &own
}

// detach gives v copies of all that it shares with others through its exported fields.
func detach(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			own := reflect.New(v.Type().Elem())
			own.Elem().Set(v.Elem())
			detach(own.Elem())
			v.Set(own)
		}
	case reflect.Slice:
		if !v.IsNil() {
			own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(own, v)
			v.Set(own)
			if k := v.Type().Elem().Kind(); k == reflect.Int || k == reflect.String {
				return // nothing below
			}
			for i := range v.Len() {
				detach(v.Index(i))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			own := reflect.MakeMapWithSize(v.Type(), v.Len())
			for key, shared := range v.Seq2() {
				value := reflect.New(v.Type().Elem()).Elem()
				value.Set(shared)
				detach(value)
				own.SetMapIndex(key, value)
			}
			v.Set(own)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				detach(field)
			}
		}
	}
}

// Spec is a machine that is written down in the test.
func Spec(tb testing.TB, text string) *topo.Topology {
	tb.Helper()
	tree, err := fixtures.OpenFile([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	top, err := discover.Discover(tb.Context(), discover.Options{FS: tree, Origin: "spec"})
	if err != nil {
		tb.Fatal(err)
	}
	return top
}

// Variant is a fixture with changes, which are lines of the language of machines.
func Variant(tb testing.TB, base string, changes ...string) *topo.Topology {
	tb.Helper()
	return Spec(tb, "machine variant \"a variant\"\nbase "+base+"\n"+strings.Join(changes, "\n")+"\n")
}
