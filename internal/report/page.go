package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's parts
	"encoding/base64"
	"fmt"
	"html/template"
	"regexp"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pageTemplate = template.Must(template.New("page").Parse(pageHTML))

	styleElement = regexp.MustCompile(`(?s)<style>(.*?)</style>`)
)

// Page is a report as a page that needs no network. It is whole without scripts: one is there only where a table has Pick.
type Page struct {
	Title, Answer, Subtitle string
	Chips                   []Chip
	Notices                 []string // what is missing
	Links                   []Link
	Sections                []Section
}

// Link is another page, by an address of our own.
type Link struct{ To, What string }

// Chip is a figure with what is counted; Mark says what its colour is by.
type Chip struct {
	N          int
	What, Mark string
}

// MostRows is how many rows of a table a page should have: beyond it browsers are slow.
const MostRows = 2000

// Cut leaves out the rows that are too many for a page, and says so.
func (t *Table) Cut() *Table {
	if n := len(t.Rows) - MostRows; n > 0 {
		t.Rows, t.After = t.Rows[:MostRows], []string{fmt.Sprintf("%d more rows are in the document (-o json).", n)}
	}
	return t
}

// HTML writes the page, without sections that have nothing but a title.
func (p *Page) HTML() ([]byte, error) {
	p.Sections = slices.DeleteFunc(slices.Clone(p.Sections), func(s Section) bool {
		return s.Table == nil && s.Drawing == nil && len(s.Lines)+len(s.Parts) == 0
	})
	js := ""
	if picks(p.Sections) {
		js = pageJS
	}
	csp := "default-src 'none'; style-src " + hashed(pageCSS) + " " + hashed(sheet)
	for i := range p.Sections { // drawings of package picture have a style sheet of their own
		if m := styleElement.FindSubmatch(p.Sections[i].Drawing); m != nil && string(m[1]) != sheet {
			csp += " " + hashed(string(m[1]))
		}
	}
	if js != "" {
		csp += "; script-src " + hashed(js)
	}
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, struct {
		*Page
		CSP string
		CSS template.CSS
		JS  template.JS
	}{p, csp + "; base-uri 'none'; form-action 'none'", template.CSS(pageCSS), template.JS(js)}) //nolint:gosec // our own
	if err != nil {
		return nil, pkgerr.Errorf("report", "write the page: %w", err)
	}
	// The template escapes what HTML gives a meaning; foreign text may have characters that other things obey.
	lines := strings.Split(out.String(), "\n")
	for i := range lines {
		lines[i] = text.Printable(lines[i])
	}
	return []byte(strings.Join(lines, "\n")), nil
}

// SVG is the drawing as the template needs it: drawings of this package and of package picture are escaped.
func (s *Section) SVG() template.HTML { return template.HTML(s.Drawing) } //nolint:gosec // see Drawing

// Right says whether a column is aligned at the right.
func (t *Table) Right(i int) bool {
	return len(t.Columns) > 0 && t.Columns[min(i, len(t.Columns)-1)].Right
}

func picks(sections []Section) bool {
	for i := range sections {
		if s := &sections[i]; s.Table != nil && s.Table.Pick || picks(s.Parts) {
			return true
		}
	}
	return false
}

// hashed is a source of a content security policy.
func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
