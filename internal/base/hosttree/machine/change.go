package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// change applies "change BDF KEY VALUE..." statements: it gives the statements
// without them, and with the options that they replace or add. Nothing of top
// itself is altered, because a base serves many variants.
func change(top, changes []*stmt, rep *report) []*stmt {
	for _, c := range changes {
		if len(c.rest) < 2 || len(c.kids) > 0 {
			rep.add(c.line, "change wants BDF and options, nothing below it")
			continue
		}
		bdf, err := topo.ParseBDF(c.rest[0].text)
		if err != nil {
			rep.add(c.line, "change: %q is no address as 0000:1b:00.0", c.rest[0].text)
			continue
		}
		found := false
		for i, root := range top {
			if root.word != "root" || len(root.rest) == 0 {
				continue
			}
			domain, _, _ := strings.Cut(root.rest[0].text, ":")
			if with := changeBelow(root, domain, bdf, c, rep); with != nil {
				if !found {
					top = slices.Clone(top)
				}
				top[i], found = with, true
			}
		}
		if !found {
			rep.add(c.line, "change: there is no function %s", bdf)
		}
	}
	return top
}

// changeBelow gives a copy of s with the function below it changed, nil where
// the function is not there.
func changeBelow(s *stmt, domain string, bdf topo.BDF, c *stmt, rep *report) *stmt {
	for i, kid := range s.kids {
		with := changeBelow(kid, domain, bdf, c, rep)
		if with == nil && kid.isFunction(domain, bdf) {
			with = kid.with(c, rep)
		}
		if with != nil {
			copied := *s
			copied.kids = slices.Clone(s.kids)
			copied.kids[i] = with
			return &copied
		}
	}
	return nil
}

func (s *stmt) isFunction(domain string, bdf topo.BDF) bool {
	if len(s.rest) == 0 {
		return false
	}
	address := s.rest[0].text
	if strings.Count(address, ":") == 1 {
		address = domain + ":" + address
	}
	b, err := topo.ParseBDF(address)
	return err == nil && b == bdf
}

// with is the statement with the options of a change, and the change's line.
func (s *stmt) with(c *stmt, rep *report) *stmt {
	v := vocabs[s.word]
	copied := *s
	copied.line, copied.rest = c.line, slices.Clone(s.rest)
	options := c.rest[1:]
	for len(options) > 0 {
		key := options[0].text
		length := 2
		if slices.Contains(v.flags, key) {
			length = 1
		}
		if options[0].quoted || !v.option(key) {
			rep.add(c.line, "change: %s: unknown word %q%s", s.word, key, v.choices())
			return &copied
		}
		if len(options) < length {
			rep.add(c.line, "change: %s: %s wants a value", s.word, key)
			return &copied
		}
		copied.rest = append(v.without(copied.rest, key), options[:length]...)
		options = options[length:]
	}
	return &copied
}

// without takes an option out of a function's words.
func (v vocab) without(words []token, key string) []token {
	at := 1 // behind the address
	if at < len(words) && !v.option(words[at].text) {
		at++ // and the part
	}
	for at < len(words) {
		length := 2
		if slices.Contains(v.flags, words[at].text) {
			length = 1
		}
		if length = min(length, len(words)-at); words[at].text == key {
			words = slices.Delete(words, at, at+length)
		} else {
			at += length
		}
	}
	return words
}

// On gives the variant as a whole machine: base with the variant's changes, and
// with its patches after base's own. Invented identifiers stay those of base.
func (s *Spec) On(base *Spec) (*Spec, error) {
	if base.base != "" {
		return nil, fmt.Errorf("machine: %s: its base %s is itself a variant that is not resolved", s.name, base.name)
	}
	whole := *base
	if len(s.changes) > 0 {
		var rep report
		top := change(base.top, s.changes, &rep)
		p := newParser()
		p.rep = rep
		if len(rep.errs) == 0 {
			p.run(top)
		}
		if err := p.rep.err(); err != nil {
			return nil, fmt.Errorf("%s on %s: %w", s.name, base.name, err)
		}
		whole = *p.spec
		whole.seed, whole.host.name = base.seed, base.host.name
	}
	whole.name, whole.description = s.name, s.description
	whole.sources = slices.Concat(s.sources, base.sources)
	whole.patches = slices.Concat(base.patches, s.patches)
	return &whole, nil
}
