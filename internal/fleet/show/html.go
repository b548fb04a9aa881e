package show

import (
	"fmt"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// HTML is the fleet as one page that needs no network and no scripts: the answer, findings, the map,
// classes, facts and hosts.
func HTML(f *fleet.Fleet) ([]byte, error) {
	p := &report.Page{Title: "Fleet", Answer: f.Headline(), Subtitle: text.Plural(len(f.Hosts), "host")}
	if f.CapturedAt != nil {
		p.Subtitle += ", collected " + f.CapturedAt.UTC().Format(time.RFC3339)
	}
	counts := map[doctor.Severity]int{}
	findings, notes := report.Section{Title: "Findings"}, report.Section{Title: "Notes"}
	for i := range f.Findings {
		x := &f.Findings[i]
		counts[x.Severity]++
		if x.Severity == doctor.Info {
			notes.Lines = append(notes.Lines, string(x.Code)+": "+x.Text)
			continue
		}
		title := fmt.Sprintf("%s  %s  %s", x.Severity, x.Code, text.List(about(x), mostHosts))
		card := report.Section{Title: strings.TrimSpace(title), Kind: string(x.Severity), Lines: []string{x.Text}}
		if len(x.Evidence) > 0 {
			card.Parts = append(card.Parts, report.Section{Title: "Evidence", Folded: true, Lines: x.Evidence})
		}
		if x.Fix != "" {
			card.Parts = append(card.Parts, report.Section{Lines: []string{"Fix: " + x.Fix}})
		}
		findings.Parts = append(findings.Parts, card)
	}
	unknown := report.Section{Title: "Could not be checked"}
	for _, u := range f.Unknown {
		line := string(u.Code) + ": " + u.Text
		if u.How != "" {
			line += " (" + u.How + ")"
		}
		unknown.Lines = append(unknown.Lines, line)
	}
	chip := func(n int, one string) { p.Chips = append(p.Chips, report.Chip{N: n, What: text.Noun(n, one)}) }
	chip(len(f.Hosts), "host")
	chip(len(f.Classes), "class")
	chip(counts[doctor.Error], "error")
	chip(counts[doctor.Warning], "warning")
	chip(counts[doctor.Info], "note")
	p.Chips = append(p.Chips, report.Chip{N: len(f.Missing()), What: "not reached"})
	p.Sections = []report.Section{findings, {Title: "Map", Drawing: heatMap(f, true)}, {Title: "Classes", Table: classes(f).Cut()},
		{Title: "Facts", Table: Facts(f).Cut()}, {Title: "Hosts", Table: hosts(f).Cut()}, notes, unknown}
	return p.HTML()
}
