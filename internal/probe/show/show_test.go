package show_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"

	"github.com/topoctl/topoctl/internal/probe/show"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/golden"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// names are the reports in the testdata of package probe.
var names = []string{"dgx-pair", "bad-cable", "local-cpu", "all-waived", "interrupted"}

func load(t testing.TB, name string) *probe.Report {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "probe", "testdata", name+".probe.json"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := probe.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func table(t testing.TB, r *probe.Report, o show.Options) []byte {
	t.Helper()
	return []byte(show.Table(r, o))
}

func fields(t testing.TB, r *probe.Report) []byte {
	t.Helper()
	return []byte(show.TSV(r, show.Options{}))
}

func page(t testing.TB, r *probe.Report) []byte {
	t.Helper()
	data, err := show.HTML(r, show.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestGoldens(t *testing.T) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			r := load(t, name)
			golden.Check(t, "testdata/"+name+".txt", table(t, r, show.Options{Look: report.Look{Width: 100}}))
			golden.Check(t, "testdata/"+name+".svg", show.SVG(r, show.Options{}))
			switch name {
			case "dgx-pair": // bad-cable is like it
			case "bad-cable":
				golden.Check(t, "testdata/"+name+".html", withoutCommonParts(t, page(t, r), false))
			default:
				golden.Check(t, "testdata/"+name+".html", withoutCommonParts(t, page(t, few(r)), true))
			}
		})
	}
	r := load(t, "bad-cable")
	golden.Check(t, "testdata/"+"bad-cable.wide.txt", table(t, r, show.Options{Look: report.Look{ASCII: true, Color: true}, Wide: true, Units: "gbyte"}))
	golden.Check(t, "testdata/local-cpu.tsv", fields(t, load(t, "local-cpu")))
	golden.Check(t, "testdata/local-cpu.all.txt", table(t, load(t, "local-cpu"), show.Options{Look: report.Look{Width: 100}, All: true}))
}

// Tables fit a terminal of 80 columns. With Wide they have all columns.
func TestTableFits(t *testing.T) {
	r := load(t, "bad-cable")
	for _, line := range strings.Split(string(table(t, r, show.Options{Look: report.Look{Width: 80}})), "\n") {
		if strings.HasPrefix(line, "  ") && text.Width(line) > 80 {
			t.Errorf("%q", line)
		}
	}
	if !strings.Contains(string(table(t, r, show.Options{Look: report.Look{Width: 80}, Wide: true})), "n bw/lat") {
		t.Error("wide: no number of samples")
	}
}

// few is a report with the first pair of each verdict of each kind and variant.
func few(r *probe.Report) *probe.Report {
	own := *r
	own.Results = nil
	for _, alike := range group.By(r.Results, func(x probe.Result) [3]string { return [3]string{string(x.Kind), x.Variant, string(x.Verdict)} }) {
		own.Results = append(own.Results, alike[0])
	}
	return &own
}

// withoutCommonParts requires that a page holds exactly page.css and page.js, and gives the page with a
// marker for each. heatMaps does the same with the heat maps: the image by itself has a golden file.
func withoutCommonParts(t *testing.T, page []byte, heatMaps bool) string {
	t.Helper()
	doc := string(page)
	replace := func(open, body, end, marker string) {
		if n := strings.Count(doc, open+body+end); n != 1 {
			t.Fatalf("%s is %d times in the page", marker, n)
		}
		doc = strings.Replace(doc, open+body+end, open+marker+end, 1)
	}
	for tag, file := range map[string]string{"style": "page.css", "script": "page.js"} {
		body, err := os.ReadFile(filepath.Join("..", "..", "report", file))
		if err != nil {
			t.Fatal(err)
		}
		replace("<"+tag+">", string(body), "</"+tag+">", file)
	}
	if heatMaps {
		_, after, _ := strings.Cut(doc, "<svg xmlns=")
		body, _, _ := strings.Cut(after, "</svg>")
		wellFormed(t, []byte("<svg xmlns="+body+"</svg>"))
		replace("<svg xmlns=", body, "</svg>", "heat maps")
	}
	return doc
}

// wellFormed requires that data is XML and gives the texts in it.
func wellFormed(t *testing.T, data []byte) string {
	t.Helper()
	var text strings.Builder
	dec := xml.NewDecoder(bytes.NewReader(data))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatalf("no XML: %v", err)
		}
		if c, ok := token.(xml.CharData); ok {
			text.Write(c)
		}
	}
}

// network are things that a page could be fetched by or run.
var network = regexp.MustCompile(`(?i)(src|href|action)\s*=\s*["']?(https?:|//|data:|javascript:)|@import|url\((?:"|')?(https?:|//|data:)|<(iframe|object|embed|link|img)\b|\son[a-z]+\s*=`)

// Images are XML, pages have one script of ours, and nothing is fetched.
func TestNothingOutside(t *testing.T) {
	for _, name := range names {
		r := load(t, name)
		svg := show.SVG(r, show.Options{})
		wellFormed(t, svg)
		doc := page(t, r)
		for what, data := range map[string][]byte{"SVG": svg, "page": doc} {
			if m := network.Find(data); m != nil {
				t.Errorf("%s of %s: %q", what, name, m)
			}
		}
		if n := bytes.Count(doc, []byte("<script")); n != 1 {
			t.Errorf("%s: %d scripts", name, n)
		}
		for i := range r.Results {
			if id := r.Results[i].ID; !bytes.Contains(doc, []byte(strings.ReplaceAll(id, ">", "&gt;"))) {
				t.Errorf("%s: the page lacks %q", name, id)
			}
		}
	}
}

// The policy of a page lets its own style and script through, and no other.
func TestContentSecurityPolicy(t *testing.T) {
	data := html.UnescapeString(string(page(t, load(t, "bad-cable"))))
	for _, tag := range []string{"style", "script"} {
		for i, part := range strings.Split(data, "<"+tag+">")[1:] {
			body, _, _ := strings.Cut(part, "</"+tag+">")
			sum := sha256.Sum256([]byte(body))
			if want := base64.StdEncoding.EncodeToString(sum[:]); !strings.Contains(data, "sha256-"+want) {
				t.Errorf("%s %d: its hash is not in the policy: browsers would leave it out", tag, i)
			}
		}
	}
	if strings.Contains(data, "unsafe-") || strings.Contains(data, ` style="`) {
		t.Error("styles that the policy forbids, or a policy that forbids nothing")
	}
}

// hostile gives a report names and texts as a bad peer would.
func hostile(r *probe.Report) {
	const evil = "</text></title></style></script><script>alert(1)</script>\" onload='x' \x1b[31m\u202e\n&amp;"
	for i := range r.Hosts {
		r.Hosts[i].Name, r.Hosts[i].Address, r.Hosts[i].Error = fmt.Sprintf("%s%d", evil, i), evil, evil
	}
	for i := range r.Links {
		r.Links[i].Name, r.Links[i].Direction = evil, evil
	}
	for i := range r.Results {
		x := &r.Results[i]
		x.ID, x.From.Host, x.From.Name, x.To.Name = evil+x.ID, evil, evil+x.From.Name, evil+x.To.Name
		x.Expected.Why, x.Transport, x.Variant, x.Group = evil, evil, evil, evil
		x.Reasons = []probe.Reason{{Code: evil, Text: evil}}
		x.Binding.CPUs, x.Notes, x.Error = evil, []string{evil}, evil
		if len(x.Path) > 0 {
			x.Measurement.Links = []probe.LinkState{{Link: x.Path[0], State: evil, Counters: map[string]int64{evil: 1}}}
		}
		for k := range x.Bandwidth {
			x.Bandwidth[k].Stopped = evil
		}
		x.Retests = []probe.Retest{{How: evil, Pair: evil, Error: evil}}
	}
	r.Blame = []probe.Blame{{Suspects: []probe.Suspect{{Kind: "link", Name: evil}}, Evidence: []string{evil}, Next: evil}}
	r.Notes, r.Mode, r.Tool.Name, r.Plan.Schedule = []string{evil}, evil, evil, evil
}

// What a host calls itself is text, wherever it is shown.
func TestHostile(t *testing.T) {
	for _, name := range names {
		r := load(t, name)
		hostile(r)
		wellFormed(t, show.SVG(r, show.Options{}))
		doc := page(t, r)
		for what, data := range map[string][]byte{"SVG": show.SVG(r, show.Options{}), "page": doc,
			"table": table(t, r, show.Options{}), "wide": table(t, r, show.Options{Wide: true}), "fields": fields(t, r)} {
			for _, bad := range []string{"\x1b", "\u202e", "<script>alert", "</script><script"} {
				if (what == "SVG" || what == "page" || bad[0] != '<') && bytes.Contains(data, []byte(bad)) {
					t.Errorf("%s of %s has %q", what, name, bad)
				}
			}
		}
		if n := bytes.Count(doc, []byte("<script")); n != 1 {
			t.Errorf("%s: %d scripts", name, n)
		}
		for line := range strings.Lines(string(fields(t, r))) {
			if n := strings.Count(line, "\t"); n != 10 {
				t.Errorf("%s: %d fields in a line: %.80q", name, n+1, line)
			}
		}
		if text := string(table(t, r, show.Options{Look: report.Look{ASCII: true}})); strings.IndexFunc(text, func(c rune) bool { return c > 0x7e || c < ' ' && c != '\n' }) >= 0 {
			t.Errorf("%s: a table in ASCII is none", name)
		}
	}
}

// fabric is a report of so many hosts with so many ports, the third host bad: of all
// pairs, or with every n-th partner only.
func fabric(hosts, ports, nth int) *probe.Report {
	r := &probe.Report{Schema: probe.Schema, Mode: "fabric", Complete: true, Rules: probe.DefaultRules()}
	var ends []probe.End
	for h := range hosts {
		name := fmt.Sprintf("node%03d", h+1)
		r.Hosts = append(r.Hosts, probe.Host{Name: name})
		for p := range ports {
			ends = append(ends, probe.End{Host: name, Name: fmt.Sprintf("mlx5_%d", p)})
		}
	}
	for i := range ends {
		for k := range ends {
			if i == k || (i+k)%nth != 0 {
				continue
			}
			v, e, mean := probe.Pass, 0.98, int64(49e9)
			if i/ports == 2 || k/ports == 2 {
				v, e, mean = probe.Fail, 0.24, int64(12e9)
			}
			rate := topo.Rate(50e9)
			x := probe.Result{Verdict: v, Efficiency: &e, Round: 1}
			x.Kind, x.Transport, x.From, x.To = probe.Port, probe.RDMA, ends[i], ends[k]
			x.ID = probe.PairID(x.Kind, x.From, x.To, x.Transport, "")
			x.Expected = probe.Expected{BytesPerSec: &rate, Basis: topo.BasisRead}
			x.Bandwidth = []probe.Bandwidth{{SizeBytes: 1 << 20, SamplesBytesPerSec: []int64{mean}, MeanBytesPerSec: mean}}
			r.Results = append(r.Results, x)
		}
	}
	return r
}

// Images stay small enough to look at, from two ends to five hundred.
func TestSizes(t *testing.T) {
	for _, tt := range []struct{ hosts, ports, nth, most int }{{2, 1, 1, 10e3}, {8, 1, 1, 40e3}, {4, 8, 1, 500e3}, {8, 8, 1, 1200e3}, {16, 8, 1, 1200e3}, {64, 8, 13, 2e6}, {65, 8, 64, 10e3}} {
		if tt.hosts == 16 && !longtest.On() { // it is between those before and behind it
			continue
		}
		r := fabric(tt.hosts, tt.ports, tt.nth)
		data := show.SVG(r, show.Options{})
		text := wellFormed(t, data)
		if len(data) > tt.most {
			t.Errorf("%d x %d: %d bytes, want at most %d", tt.hosts, tt.ports, len(data), tt.most)
		}
		if !strings.Contains(text, "node001") == (tt.hosts <= 64) || strings.Contains(text, "are not drawn") != (tt.hosts > 64) {
			t.Errorf("%d x %d: no names, or not all are drawn", tt.hosts, tt.ports)
		}
		if golden.Updating() {
			_ = os.WriteFile(filepath.Join(os.TempDir(), fmt.Sprintf("probe-%dx%d.svg", tt.hosts, tt.ports)), data, 0o644)
		}
	}
	r := fabric(20, 8, 1)
	if doc := page(t, r); len(doc) > 8e6 || bytes.Count(doc, []byte("<tr data-mark")) != 2000 || bytes.Count(doc, []byte("<details>")) != 400 {
		t.Errorf("a page of %d bytes, %d rows, %d details", len(doc), bytes.Count(doc, []byte("<tr data-mark")), bytes.Count(doc, []byte("<details>")))
	}
	text := string(table(t, r, show.Options{}))
	if n := strings.Count(text, "\n"); n > 80 || !strings.Contains(text, "2476 more pairs FAIL, 96 Gb/s") || !strings.Contains(text, "pairs PASS, 392 Gb/s, 98.0 % of what was expected") {
		t.Errorf("%d lines:\n%.600s", n, text)
	}
}

func TestChanges(t *testing.T) {
	a, b := load(t, "bad-cable"), load(t, "bad-cable")
	for i := range b.Results { // the cable was repaired
		x := &b.Results[i]
		if x.Verdict == probe.Fail {
			x.Verdict, x.Bandwidth[1].MeanBytesPerSec, x.Reasons = probe.Pass, 49_000_000_000, nil
		}
	}
	b.Hosts[0].Fingerprint = "sha256:1"
	b.Results = b.Results[1:]
	golden.Check(t, "testdata/changes.txt", show.Changes(show.Reports(a, b), show.Options{}))
	if got := show.Changes(show.Reports(a, a), show.Options{}); got != "No differences\n" {
		t.Errorf("%q", got)
	}
}
