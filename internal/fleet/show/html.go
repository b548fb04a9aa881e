package show

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's parts
	"encoding/base64"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string

	pageTemplate = template.Must(template.New("page").Parse(pageHTML))
)

// page is what the template shows. Everything in it but CSS and SVG is text, which the template escapes.
type page struct {
	CSP      string
	CSS      template.CSS
	SVG      template.HTML
	Answer   string
	Subtitle string
	Chips    []chip
	Findings []finding
	Notes    []fleet.Finding
	Unknown  []fleet.Unknown
	Tables   []table
}

// finding is a finding with what it is about.
type finding struct {
	fleet.Finding
	About string
}

type chip struct{ N, What string }

type table struct {
	Title string
	Head  []string
	Rows  [][]string
	More  string
}

// mostPageRows is how many rows of a table a page has.
const mostPageRows = 2000

// HTML is the fleet as one page that needs no network and no scripts: the answer, findings, the map,
// classes, facts and hosts.
func HTML(f *fleet.Fleet) ([]byte, error) {
	p := &page{CSS: template.CSS(pageCSS), SVG: template.HTML(draw(f, false)), Answer: f.Headline(), Unknown: f.Unknown} //nolint:gosec // our own, escaped by draw
	p.CSP = "default-src 'none'; style-src " + hashed(pageCSS) + " " + hashed(sheet) + "; base-uri 'none'; form-action 'none'"
	p.Subtitle = text.Plural(len(f.Hosts), "host")
	if f.CapturedAt != nil {
		p.Subtitle += ", collected " + f.CapturedAt.UTC().Format(time.RFC3339)
	}
	counts := map[doctor.Severity]int{}
	for _, x := range f.Findings {
		counts[x.Severity]++
		if x.Severity == doctor.Info {
			p.Notes = append(p.Notes, x)
		} else {
			p.Findings = append(p.Findings, finding{x, about(&x)})
		}
	}
	p.Chips = []chip{{strconv.Itoa(len(f.Hosts)), text.Noun(len(f.Hosts), "host")}, {strconv.Itoa(len(f.Classes)), text.Noun(len(f.Classes), "class")},
		{strconv.Itoa(counts[doctor.Error]), text.Noun(counts[doctor.Error], "error")}, {strconv.Itoa(counts[doctor.Warning]), text.Noun(counts[doctor.Warning], "warning")},
		{strconv.Itoa(counts[doctor.Info]), text.Noun(counts[doctor.Info], "note")}, {strconv.Itoa(len(f.Missing())), "not reached"}}
	p.add("Classes", ClassRows(f))
	p.add("Facts", FactRows(f))
	p.add("Hosts", HostRows(f))
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return nil, pkgerr.Errorf("fleet", "write the page: %w", err)
	}
	return harmless(out.String()), nil
}

// harmless is a page in which no character is obeyed: the template escapes what HTML gives a meaning, and
// names may have others.
func harmless(page string) []byte {
	lines := strings.Split(page, "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	return []byte(strings.Join(lines, "\n"))
}

func (p *page) add(title string, rows [][]string) {
	t := table{Title: title, Head: rows[0], Rows: rows[1:]}
	if n := len(t.Rows) - mostPageRows; n > 0 {
		t.Rows, t.More = t.Rows[:mostPageRows], strconv.Itoa(n)+" more rows are in the document (-o json)."
	}
	p.Tables = append(p.Tables, t)
}

// hashed is a source of a content security policy.
func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
