// Package texts reads what tools print about a host, as people paste it: with prompts, quotation
// marks, escapes of terminals and prose around it. Of two hosts in one text it takes neither, or
// one alone: every format looks for parts that contradict each other.
//
// A text that holds a host is a row of Formats. One that tells of a host's network alone is a row
// of networkTexts; it is laid over a host of another source.
package texts

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/topoctl/topoctl/discover/formats/internal/imported"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
)

// Format is a kind of text, or of file, that holds a host.
type Format struct {
	Name   string
	Detect func(head []byte) bool // head are the first bytes of a text
	Decode func(data []byte) (*topo.Topology, error)
}

// Formats are the texts that hold a host. The first that detects its own reads it.
var Formats = []Format{
	{"nvidia-smi topo -m", detectMatrix, decodeMatrix},
	{"amd-smi topology", detectAMD, decodeAMD},
	{"lspci -vv", detectLspci, decodeLspci},
}

// headSize is how much of a text Detect is given.
const headSize = 64 << 10

// Decode reads a text of one of the Formats; its relations are derived.
func Decode(data []byte) (*topo.Topology, error) {
	for _, f := range Formats {
		if f.Detect(data[:min(len(data), headSize)]) {
			return f.Decode(data)
		}
	}
	return nil, pkgerr.New("texts", "none of the texts that are known")
}

// isDocument says whether data is XML or a JSON object, which no tool's text is.
func isDocument(data []byte) bool {
	data = bytes.TrimSpace(data)
	return len(data) > 0 && (data[0] == '<' || data[0] == '{')
}

var (
	// Escape sequences, also as what shows or carries a text leaves them: "^[[4m", "\u001b[4m", "[4m".
	ansi   = regexp.MustCompile(`(?:[\x1b\x{241b}\x{fffd}]|\^\[|\\(?:x1b|u001b|033|e))\[[0-9;]*[A-Za-z]|\[[0-9;]+m`)
	quoted = regexp.MustCompile(`^[ \t]*(?:>[ \t]?)+`)
)

// lines are the text's lines without what editors, terminals, mail and Markdown put around them: a
// byte order mark, escapes, no-break spaces, line ends of Windows, and the marks of a quotation.
func lines(data []byte) []string {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.Map(func(r rune) rune { // no-break spaces of web pages, carriage returns
		if unicode.IsSpace(r) && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, ansi.ReplaceAll(data, nil))
	out := strings.Split(string(data), "\n")
	for i, l := range out {
		out[i] = strings.TrimRight(l[len(quoted.FindString(l)):], " ")
	}
	return out
}

// where is the place of a line, which counts from 1.
func where(line int) string { return fmt.Sprintf("line %d", line) }

// word is a value of a text within the length of a name.
func word(s string) string { return text.Clip(strings.TrimSpace(s), 64) }

// number reads a count, decimal, or hexadecimal after 0x; nil for a text that is no such number.
func number(s string) *int {
	digits, base := strings.TrimSpace(s), 10
	if hex, ok := strings.CutPrefix(digits, "0x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 31)
	if err != nil {
		return nil
	}
	return new(int(n))
}

// atMost is a number within a limit, nil for others.
func atMost(limit int, n *int) *int {
	if n == nil || *n > limit {
		return nil
	}
	return n
}

// orZero is a number, 0 where it is not known.
func orZero(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// problems are what could not be understood of a text.
type problems []topo.Warning

// maxProblems bounds what a text that is mostly something else can cause.
const maxProblems = 32

func (p *problems) add(code topo.Code, format string, args ...any) {
	if len(*p) < maxProblems {
		*p = append(*p, topo.Warning{Code: code, Detail: fmt.Sprintf(format, args...)})
	}
}

// begin is a host of a source, with the problems of its text.
func begin(source topo.Source, found problems, lacks ...string) imported.Host {
	h := imported.New(source, lacks...)
	for _, p := range found {
		h.Warn(p.Code, "", p.Detail, "")
	}
	return h
}

// finish is the host with all that follows from its nodes.
func finish(h imported.Host, detail string) (*topo.Topology, error) {
	if err := h.Finish(detail); err != nil {
		return nil, pkgerr.Errorf("texts", "%w", err)
	}
	return h.Topology, nil
}

// limits bound a document before it is decoded.
var limits = document.Limits{Bytes: 64 << 20, Text: 4096, Elements: 1 << 19, Depth: 16}

// readJSON reads a list of at most so many elements.
func readJSON[T any](data []byte, most int) (list []T, err error) {
	if err := limits.Check(data); err != nil {
		return nil, err
	}
	in := document.NewReader(data)
	if err = document.ReadList(in, &list, most, 0, nil); err == nil {
		err = in.End()
	}
	if err != nil {
		return nil, in.Locate(err)
	}
	return list, nil
}

// twoHosts ends the errors about parts of a text that contradict each other.
const twoHosts = "of two hosts or of one host at two times: give each a file"

// isOneOf says whether a word is one of a few.
func isOneOf(words ...string) func(string) bool {
	return func(w string) bool { return slices.Contains(words, w) }
}
