package plan

import (
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/probe"
)

// selection selects pairs by patterns: "gpu:0>*", "n1>n2", "n1/mlx5_0>*", or one side alone, which may be
// either end. Any of them selects a pair; no patterns select all.
type selection struct {
	patterns []pattern
}

// pattern is two globs; to is "" where either end may be from.
type pattern struct {
	text     string
	from, to string
	used     *bool
}

const (
	maxPatterns = 256
	maxPattern  = 512
)

func parseSelection(texts []string) (selection, error) {
	var s selection
	if len(texts) > maxPatterns {
		return s, pkgerr.Errorf("plan", "%d selections: want at most %d", len(texts), maxPatterns)
	}
	for _, pair := range texts {
		from, to, both := strings.Cut(pair, ">")
		from, to = strings.TrimSpace(from), strings.TrimSpace(to)
		if len(pair) > maxPattern || from == "" || both && to == "" || strings.Contains(to, ">") {
			return s, &SelectionError{pair, "want FROM>TO, or one end alone, as in \"gpu:0>*\""}
		}
		s.patterns = append(s.patterns, pattern{pair, from, to, new(bool)})
	}
	return s, nil
}

// selects says whether a pattern means a pair.
func (p *pattern) selects(from, to *probe.End) bool {
	if p.to == "" {
		return matches(p.from, from) || matches(p.from, to)
	}
	return matches(p.from, from) && matches(p.to, to)
}

// pair says whether a pair is selected.
func (s selection) pair(from, to *probe.End) bool {
	found := len(s.patterns) == 0
	for i := range s.patterns {
		if p := &s.patterns[i]; p.selects(from, to) {
			*p.used, found = true, true
		}
	}
	return found
}

// between says whether any pair of these ends, in either direction, is selected.
func (s selection) between(here, there []portEnd) bool {
	if len(s.patterns) == 0 {
		return true
	}
	for i := range here {
		for j := range there {
			x, y := &here[i].end, &there[j].end
			if slices.ContainsFunc(s.patterns, func(p pattern) bool { return p.selects(x, y) || p.selects(y, x) }) {
				return true
			}
		}
	}
	return false
}

// namesEnd says whether any pattern means an end.
func (s selection) namesEnd(e *probe.End) bool {
	return len(s.patterns) == 0 || slices.ContainsFunc(s.patterns, func(p pattern) bool { return matches(p.from, e) || p.to != "" && matches(p.to, e) })
}

// checkUsed refuses patterns that selected nothing.
func (s selection) checkUsed() error {
	for _, p := range s.patterns {
		if !*p.used {
			return &SelectionError{p.text, "no pair has such ends: want names as in \"cpu:0>gpu:1\", \"n1>n2\" or \"n1/mlx5_0>*\""}
		}
	}
	return nil
}

// matches says whether a glob means an end: its name, its host, or both.
func matches(glob string, e *probe.End) bool {
	return matchGlob(glob, e.Name) || matchGlob(glob, e.Host) || matchGlob(glob, e.Host+"/"+e.Name)
}

// matchGlob matches a glob whose * and ? stand for slashes too: ports have names such as mlx5_0/2.
func matchGlob(glob, s string) bool {
	flat := func(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
	return text.Matches(flat(glob), flat(s))
}
