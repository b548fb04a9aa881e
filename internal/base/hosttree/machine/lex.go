package machine

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Limits of a spec: far above any machine, small enough that a hostile text
// costs little.
const (
	maxText      = 4 << 20
	maxLines     = 20_000
	maxNesting   = 32
	maxErrors    = 10
	maxCPU       = 8192
	maxNUMA      = 256
	maxFunctions = 4096
	maxGIDs      = 1024
	maxGPUs      = 256
	maxLinks     = 256  // NVLinks or xGMI links of one GPU
	maxPairs     = 4096 // statements on pairs of GPUs
	maxPatches   = 256
	maxWide      = 32   // patches with "*", each of which looks at many files
	maxVirtual   = 1024 // interfaces without PCI function
)

// stmt is one line of a spec and what stands below it.
type stmt struct {
	line   int
	indent int
	word   string
	rest   []token
	kids   []*stmt
}

type token struct {
	text   string
	quoted bool
}

// report collects errors, each with its line, so that a person sees several
// at once.
type report struct {
	errs []error
	more int
}

func (r *report) add(line int, format string, args ...any) {
	if len(r.errs) >= maxErrors {
		r.more++
		return
	}
	r.errs = append(r.errs, fmt.Errorf("machine: line %d: %s", line, fmt.Sprintf(format, args...)))
}

func (r *report) err() error {
	if r.more > 0 {
		return errors.Join(append(r.errs, fmt.Errorf("machine: and %d more errors", r.more))...)
	}
	return errors.Join(r.errs...)
}

// scan splits a text into statements and hangs each below the nearest line
// above it with less indentation.
func scan(text []byte, rep *report) []*stmt {
	if len(text) > maxText {
		rep.add(1, "a text of %d bytes: at most %d are read", len(text), maxText)
		return nil
	}
	var top []*stmt
	var open []*stmt // from the outermost to the statement that the last line was
	line := 0
	for raw := range strings.Lines(string(text)) {
		if line++; line > maxLines {
			rep.add(line, "more than %d lines", maxLines)
			return top
		}
		s := scanLine(strings.TrimRight(raw, "\r\n"), line, rep)
		if s == nil {
			continue
		}
		for len(open) > 0 && open[len(open)-1].indent >= s.indent {
			open = open[:len(open)-1]
		}
		switch {
		case len(open) == maxNesting:
			rep.add(line, "more than %d levels of indentation", maxNesting)
			return top
		case len(open) == 0 && s.indent > 0:
			rep.add(line, "%s is indented, but there is no statement above it", s.word)
		case len(open) == 0:
			top = append(top, s)
		default:
			above := open[len(open)-1]
			if len(above.kids) > 0 && above.kids[0].indent != s.indent {
				rep.add(line, "indented by %d spaces, but the lines beside it by %d", s.indent, above.kids[0].indent)
			}
			above.kids = append(above.kids, s)
		}
		open = append(open, s)
	}
	return top
}

func scanLine(raw string, line int, rep *report) *stmt {
	text := strings.TrimLeft(raw, " ")
	indent := len(raw) - len(text)
	if strings.HasPrefix(text, "\t") {
		rep.add(line, "indent with spaces, not with tabs")
		return nil
	}
	var tokens []token
	for {
		text = strings.TrimLeft(text, " \t")
		if text == "" || text[0] == '#' {
			break
		}
		if text[0] != '"' {
			end := strings.IndexAny(text, " \t")
			if end < 0 {
				end = len(text)
			}
			tokens = append(tokens, token{text: text[:end]})
			text = text[end:]
			continue
		}
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			rep.add(line, "a quoted word is not closed or contains an unknown escape: %.40s", text)
			return nil
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			rep.add(line, "quoted word %.40s: %v", quoted, err)
			return nil
		}
		tokens = append(tokens, token{value, true})
		text = text[len(quoted):]
	}
	if len(tokens) == 0 {
		return nil
	}
	if tokens[0].quoted {
		rep.add(line, "a line begins with a statement, not with a quoted word")
		return nil
	}
	return &stmt{line: line, indent: indent, word: tokens[0].text, rest: tokens[1:]}
}
