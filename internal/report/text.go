package report

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
)

// Text is a text for people in the making.
type Text struct {
	Look
	answer int // the width of the answer
	b      strings.Builder
}

// narrowest is the least width that lines are broken at: a narrower terminal breaks them itself.
const narrowest = 60

// NewText begins a text. Where nothing limits its width, as in a pipe, lines are broken at a customary width, 0 none;
// the answer is whole there.
func NewText(l Look, customary int) *Text {
	t := &Text{Look: l}
	if l.Width > 0 {
		t.Width = max(l.Width, narrowest)
	}
	if t.answer = t.Width; t.Width == 0 {
		t.Width = customary
	}
	return t
}

// String is the text so far, harmless and with its colours.
func (t *Text) String() string { return Finish(t.b.String()) }

// Add adds what another method of Look has made.
func (t *Text) Add(lines string) { t.b.WriteString(lines) }

// Answer is the first line.
func (t *Text) Answer(sentence, code string) {
	width := t.Width
	t.Width = t.answer
	t.Say("", strings.Join(strings.Fields(sentence), " "), code)
	t.Width = width
}

// Say adds a sentence after lead.
func (t *Text) Say(lead, sentence, code string) { t.Add(t.Wrap(lead, sentence, code)) }

// Gap adds an empty line, unless there is one, or nothing before it.
func (t *Text) Gap() {
	if s := t.b.String(); s != "" && !strings.HasSuffix(s, "\n\n") {
		t.b.WriteByte('\n')
	}
}

// Finding is something that is wrong, or good to know.
type Finding struct {
	Label    string // how bad it is in a word: "FAIL", "WARN", "INFO"
	Code     string
	About    []string // devices or hosts
	Text     string
	Evidence []string
	Fix      string
}

var labelColors = map[string]string{"FAIL": Bad, "WARN": Caution, "INFO": Note}

// indent is before what stands below a label or a row.
const indent = "      "

// mostSeen is how many pieces of evidence of one finding are listed.
const mostSeen = 3

// Finding adds a finding: how bad it is and what it is about in the first line.
func (t *Text) Finding(f *Finding) {
	line := f.Label + "  " + f.Code
	for i, name := range f.About {
		sep, room := "  ", t.Width
		if i > 0 {
			sep = ", "
		}
		if i < len(f.About)-1 {
			room -= len(" and 999 more")
		}
		if i > 0 && t.Width > 0 && text.Width(line+sep+name) > room {
			line += fmt.Sprintf(" and %d more", len(f.About)-i)
			break
		}
		line += sep + name
	}
	t.Add(t.Paint(f.Label, labelColors[f.Label]) + line[len(f.Label):] + "\n")
	t.Say(indent, f.Text, "")
	lead := indent + "seen  "
	for i, e := range f.Evidence {
		if i == mostSeen && len(f.Evidence) > mostSeen+1 {
			t.Say(lead, fmt.Sprintf("and %d more", len(f.Evidence)-i), "")
			break
		}
		t.Say(lead, e, "")
		lead = indent + indent
	}
	if f.Fix != "" {
		t.Say(indent+"fix   ", f.Fix, "")
	}
}

// Unchecked is something that could not be checked, and what would help.
type Unchecked struct{ Code, Text, How string }

// NotChecked stands before what could not be checked.
const NotChecked = "????"

// Unchecked lists what could not be checked, by what would help.
func (t *Text) Unchecked(list []Unchecked) {
	for _, same := range group.By(list, func(u Unchecked) string { return u.How }) {
		what := "could not be checked"
		if how := same[0].How; how != "" {
			what += "; " + how
		}
		t.Table(&Table{Indent: indent, Rows: []Row{{Cells: []string{what + ":"}, Label: NotChecked, Color: Traffic}}})
		entries := &Table{Indent: indent}
		for _, u := range same {
			entries.Add(u.Code, u.Text)
		}
		t.Table(entries)
	}
}

// Table adds a table.
func (t *Text) Table(table *Table) { t.Add(t.Look.Table(table)) }

// Section is a part of a report. Each field may be empty.
type Section struct {
	Title string
	Table *Table
	Lines []string // sentences
	// What only a page shows:
	Kind    string    // what its colour is by: "error", "congestion"
	Parts   []Section // parts of its own
	Drawing []byte    // an SVG of this package or of package picture
	Folded  bool      // it is opened by a click
	ID      string    // what rows link to
}

// Section adds a section.
func (t *Text) Section(s *Section) {
	t.Gap()
	if s.Title != "" {
		t.Say("", s.Title, Strong)
	}
	if s.Table != nil {
		t.Table(s.Table)
	}
	for _, line := range s.Lines {
		t.Say("", line, "")
	}
}
