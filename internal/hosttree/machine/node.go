package machine

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/topoctl/topoctl/internal/text"
)

// Limits of a description: far above any machine, small enough that a hostile text
// costs little.
const (
	maxText      = 1 << 20
	maxNesting   = 64 // lists and mappings in each other: two for each bridge
	maxErrors    = 10
	maxCPU       = 8192
	maxFunctions = 4096
	maxList      = 4096 // entries of one list
	maxGPUs      = 256
	maxLinks     = 256 // NVLinks or xGMI links of one GPU
	maxPatches   = 256
	maxWide      = 32 // patches with "*", each of which looks at many files
)

// report collects errors, each with its place, so that a person sees several
// at once.
type report struct {
	errs []error
	more int
}

func (r *report) add(at *yaml.Node, format string, args ...any) {
	if len(r.errs) >= maxErrors {
		r.more++
		return
	}
	r.errs = append(r.errs, fmt.Errorf("machine: line %d, column %d: %s", at.Line, at.Column, fmt.Sprintf(format, args...)))
}

func (r *report) err() error {
	if r.more > 0 {
		return errors.Join(append(r.errs, fmt.Errorf("machine: and %d more errors", r.more))...)
	}
	return errors.Join(r.errs...)
}

// load reads the one document of a text. It is nil, after reporting, where the text is no
// YAML, or has what a machine does not need and a hostile text could misuse.
func (r *report) load(text []byte) *yaml.Node {
	if len(text) > maxText {
		r.errs = append(r.errs, fmt.Errorf("machine: a text of %d bytes: at most %d are read", len(text), maxText))
		return nil
	}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		r.errs = append(r.errs, fmt.Errorf("machine: %s", strings.TrimPrefix(err.Error(), "yaml: ")))
		return nil
	}
	if len(doc.Content) == 0 {
		doc.Content = []*yaml.Node{{Kind: yaml.MappingNode, Line: 1, Column: 1}}
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		r.errs = append(r.errs, errors.New("machine: one text holds one machine: nothing may follow \"---\""))
		return nil
	}
	r.plain(doc.Content[0], 1)
	if len(r.errs) > 0 {
		return nil
	}
	return doc.Content[0]
}

// plain refuses anchors, aliases, tags and deep nesting.
func (r *report) plain(n *yaml.Node, depth int) {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.add(n, "anchors and aliases are not read: write it out")
	case n.Style&yaml.TaggedStyle != 0:
		r.add(n, "tags are not read: leave %q out", clip(n.Tag))
	case depth > maxNesting:
		r.add(n, "nested more than %d deep", maxNesting)
	default:
		for _, kid := range n.Content {
			r.plain(kid, depth+1)
		}
	}
}

// pair is a key of a mapping with its value.
type pair struct{ key, value *yaml.Node }

// pairs are those of a mapping. It is nil, after reporting, if n is no mapping or has a key twice.
func (r *report) pairs(n *yaml.Node, what string) []pair {
	what = cmp.Or(what, "top level")
	if n.Kind != yaml.MappingNode {
		r.add(n, "%s: want keys with values, such as {key: value}", what)
		return nil
	}
	out := []pair{}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode:
			r.add(key, "%s: a key must be a word", what)
			return nil
		case seen[key.Value]:
			r.add(key, "%s: %q is given twice", what, clip(key.Value))
			return nil
		}
		seen[key.Value] = true
		out = append(out, pair{key, n.Content[i+1]})
	}
	return out
}

// nearest ends a sentence about a word that is not known: with what was most likely meant, or
// all there is.
func nearest(word string, known []string) string {
	slices.Sort(known) // where two are as near, always the same
	if near := text.Closest(word, known); near != "" {
		return "; the nearest is " + near
	}
	return "; allowed: " + strings.Join(known, ", ")
}
