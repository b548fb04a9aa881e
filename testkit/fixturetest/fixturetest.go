// Package fixturetest discovers the machines that tests are about: fixtures, and machines that
// are written down in a test. Only tests import it.
package fixturetest

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
)

// Tests expand machines and throw them away: with Go's own setting a fifth of their processor
// time goes into collecting what they leave. A GOGC in the environment stands.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// Topology is a fixture by its name, as the test's own copy. "empty" is a host of which nothing is known.
func Topology(tb testing.TB, name string) *topo.Topology {
	tb.Helper()
	if name == "empty" {
		t := &topo.Topology{Origin: "capture"}
		t.Derive()
		return t
	}
	t, err := fixtures.Topology(name)
	if err != nil {
		tb.Fatal(err)
	}
	return t
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

// Variant is a fixture with patches, each of which is written as in a description of a machine.
func Variant(tb testing.TB, base string, patches ...string) *topo.Topology {
	tb.Helper()
	text := "machine: variant\ndescription: a variant\nbase: " + base + "\n"
	if len(patches) > 0 {
		text += "patches:\n- " + strings.Join(patches, "\n- ") + "\n"
	}
	return Spec(tb, text)
}

// Shared is the folder of published files, which lies beside the repository and is no part of it.
const Shared = "../shared/data"

// Published are the published files below Shared that match a pattern, by their names without
// folder and ending, unpacked. The test is skipped where they are not there.
func Published(tb testing.TB, pattern string) map[string][]byte {
	tb.Helper()
	out := PublishedIfThere(tb, pattern)
	if len(out) == 0 {
		tb.Skipf("%s/%s is not there: published files cannot be read", Shared, pattern)
	}
	return out
}

// PublishedIfThere are Published, or none where the files are not there.
func PublishedIfThere(tb testing.TB, pattern string) map[string][]byte {
	tb.Helper()
	root := "." // of the module: tests run in the folder of their package
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root = filepath.Join("..", root); len(root) > 100 {
			tb.Fatal("there is no go.mod above the test")
		}
	}
	paths, err := filepath.Glob(filepath.Join(root, Shared, pattern))
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string][]byte{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		name, packed := strings.CutSuffix(filepath.Base(path), ".gz")
		if packed {
			z, err := gzip.NewReader(bytes.NewReader(data))
			if err == nil {
				data, err = io.ReadAll(z)
			}
			if err != nil {
				tb.Fatalf("%s: %v", path, err)
			}
		}
		out[strings.TrimSuffix(name, filepath.Ext(name))] = data
	}
	return out
}

// ReadBack fails the test unless the document of a topology can be read again.
func ReadBack(tb testing.TB, top *topo.Topology) {
	tb.Helper()
	doc, err := top.Encode()
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := topo.Decode(doc); err != nil {
		tb.Fatal(err)
	}
}
