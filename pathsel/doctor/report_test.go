package doctor_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/importtest"
	"github.com/topoctl/topoctl/testkit/schematest"
)

// everyHost gives all fixtures and all published files of other tools.
func everyHost(t *testing.T) map[string]*topo.Topology {
	t.Helper()
	hosts := map[string]*topo.Topology{}
	for _, name := range fixtures.Names() {
		hosts[name] = fixturetest.Topology(t, name)
	}
	t.Run("imports", func(t *testing.T) {
		for name, top := range importtest.Hosts(t) {
			hosts[name] = top
		}
	})
	return hosts
}

// Whatever the host, a report keeps its promises.
func TestReportsAreSound(t *testing.T) {
	worst := map[doctor.Code]doctor.Severity{}
	for _, c := range doctor.Checks() {
		worst[c.Code] = c.Severity
	}
	for name, top := range everyHost(t) {
		r := run(t, top)
		if n := r.Summary.OK + r.Summary.Found + r.Summary.CouldNotCheck + r.Summary.NotApplicable; n != len(doctor.Codes()) || n != len(r.Checks) {
			t.Errorf("%s: %d checks counted, %d reported, %d known", name, n, len(r.Checks), len(doctor.Codes()))
		}
		known := nodes(top)
		for i, c := range r.Checks {
			if i > 0 && r.Checks[i-1].Code >= c.Code {
				t.Errorf("%s: %s stands after %s", name, c.Code, r.Checks[i-1].Code)
			}
			if c.Status == doctor.OK && len(c.Missing)+len(c.Findings) > 0 {
				t.Errorf("%s: %s is ok with findings or facts missing", name, c.Code)
			}
			if c.Status == doctor.NotApplicable && c.Note == "" {
				t.Errorf("%s: %s does not apply and does not say why", name, c.Code)
			}
			for _, f := range c.Findings {
				if f.Text == "" || f.Fix == "" || f.Code != c.Code {
					t.Errorf("%s: %s: a finding without text, fix or code: %+v", name, c.Code, f)
				}
				if !worst[c.Code].AtLeast(f.Severity) {
					t.Errorf("%s: %s: %s, the check promises %s at worst", name, c.Code, f.Severity, worst[c.Code])
				}
				if (f.Basis == topo.BasisTypical || f.Basis == topo.BasisBound) && f.Severity == doctor.Error {
					t.Errorf("%s: %s: an error that rests on a guess: %s", name, c.Code, f.Text)
				}
				for _, id := range f.Subjects {
					if !known[id] {
						t.Errorf("%s: %s is about %s, which the topology does not have", name, c.Code, id)
					}
				}
			}
			for _, m := range c.Missing {
				if m.Text == "" || m.How == "" {
					t.Errorf("%s: %s: what is missing, or how to get it, is not said: %+v", name, c.Code, m)
				}
				for _, id := range m.Subjects {
					if !known[id] {
						t.Errorf("%s: %s lacks facts of %s, which the topology does not have", name, c.Code, id)
					}
				}
			}
		}
	}
}

// nodes are the IDs that a finding can be about.
func nodes(t *topo.Topology) map[topo.ID]bool {
	out := map[topo.ID]bool{}
	for _, list := range []any{t.Packages, t.NUMANodes, t.HostBridges, t.PCIDevices, t.Switches, t.GPUs, t.NICs, t.RDMADevices, t.Ports, t.Netdevs, t.NVMes, t.NVSwitches} {
		v := reflect.ValueOf(list)
		for i := range v.Len() {
			out[v.Index(i).FieldByName("ID").Interface().(topo.ID)] = true
		}
	}
	return out
}

// The order of what comes in changes nothing.
func TestOrderChangesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"dgx-h100", "bonds", "sriov-pf-vf", "vm-flat", "dgx-h100-missing-files", "gb200-tray", "h20-4ib-1roce"} {
		top := fixturetest.Topology(t, name)
		want := encoded(t, run(t, top))
		for range 5 {
			v := reflect.ValueOf(top).Elem()
			for i := range v.NumField() {
				if f := v.Field(i); f.Kind() == reflect.Slice && v.Type().Field(i).Name != "Sources" {
					random.Shuffle(f.Len(), reflect.Swapper(f.Interface()))
				}
			}
			top.Derive()
			if diff := cmp.Diff(want, encoded(t, run(t, top))); diff != "" {
				t.Fatalf("%s: %s", name, diff)
			}
		}
	}
}

func encoded(tb testing.TB, r *doctor.Report) string {
	tb.Helper()
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

func TestRunRefuses(t *testing.T) {
	if _, err := doctor.Run(nil, doctor.Options{}); err == nil {
		t.Error("no topology is looked at")
	}
	if _, err := doctor.Run(&topo.Topology{}, doctor.Options{}); err == nil || !strings.Contains(err.Error(), "call Derive first") {
		t.Errorf("a topology that is not derived: %v", err)
	}
	if _, err := doctor.Run(fixturetest.Topology(t, "cpu-2eth"), doctor.Options{Codes: []doctor.Code{"port-dwn"}}); err == nil || err.Error() != `doctor: no check is called "port-dwn"` {
		t.Errorf("an unknown code: %v", err)
	}
}

// Named checks come in the order of codes, each once.
func TestRunSelected(t *testing.T) {
	r := run(t, fixturetest.Topology(t, "dgx-h100"), "port-down", "acs-redirect", "port-down")
	if len(r.Checks) != 2 || r.Checks[0].Code != "acs-redirect" || r.Checks[1].Code != "port-down" {
		t.Errorf("%+v", r.Checks)
	}
}

// An empty topology is a host of which nothing is known.
func TestEmptyTopology(t *testing.T) {
	top := &topo.Topology{Complete: true}
	top.Derive()
	r := run(t, top)
	for _, c := range r.Checks {
		if c.Status == doctor.Found || c.Status == doctor.OK && c.Code != "facts-unread" {
			t.Errorf("%s: %s of nothing", c.Code, c.Status)
		}
	}
}

// Rates are printed in the unit that is asked for.
func TestUnits(t *testing.T) {
	r, err := doctor.Run(fixturetest.Topology(t, "dgx-h100-gpu2-x8"), doctor.Options{Codes: []doctor.Code{"link-degraded"}, Units: string(units.Gibyte)})
	if err != nil || !strings.Contains(r.Findings()[0].Text, "29.3 GiB/s instead of 58.7 GiB/s") {
		t.Errorf("%v %+v", err, r)
	}
}

// Lines keep to the width, except for words that are longer.
func TestTextWidth(t *testing.T) {
	for _, name := range fixtures.Names() {
		r := fixture(t, name)
		for _, width := range []int{60, 80, 100, 120} {
			for line := range strings.Lines(r.Text(doctor.TextOptions{Width: width, All: true})) {
				line = strings.TrimSuffix(line, "\n")
				if words := strings.Fields(line); utf8.RuneCountInString(line) > width && len(words) > 1 && !strings.Contains(words[0], "seen") && utf8.RuneCountInString(words[len(words)-1]) < width/2 {
					t.Errorf("%s: %d columns: %s", name, width, line)
				}
				if strings.TrimRight(line, " ") != line {
					t.Errorf("%s: blanks at the end of %q", name, line)
				}
			}
		}
	}
}

// A host that is well takes five lines at most; what is folded is there when all is wanted.
func TestFolded(t *testing.T) {
	for _, name := range fixtures.Names() {
		r := fixture(t, name)
		folded, all := r.Text(doctor.TextOptions{Width: 80}), r.Text(doctor.TextOptions{Width: 80, All: true})
		if n := strings.Count(folded, "\n"); !r.Worst().AtLeast(doctor.Warning) && n > 5 {
			t.Errorf("%s: well in %d lines:\n%s", name, n, folded)
		}
		for _, f := range r.Findings() {
			head := f.Severity.Label() + "  " + string(f.Code)
			if strings.Contains(folded, head) != (f.Severity != doctor.Info) || !strings.Contains(all, head) {
				t.Errorf("%s: %s is at the wrong place:\n%s", name, head, folded)
			}
		}
		for _, c := range r.Checks {
			if !strings.Contains(all, string(c.Code)) {
				t.Errorf("%s: nothing is said of %s", name, c.Code)
			}
		}
	}
}

const schemaFile = "schema/doctor.v1.schema.json"

var generator = schematest.Generator{Types: map[reflect.Type]schematest.Object{
	reflect.TypeFor[doctor.Status]():   {"enum": []any{doctor.OK, doctor.Found, doctor.CouldNotCheck, doctor.NotApplicable}},
	reflect.TypeFor[doctor.Severity](): {"enum": []any{doctor.Error, doctor.Warning, doctor.Info}},
}}

// The published schema says what the types say, and reports keep to it.
func TestSchema(t *testing.T) {
	schematest.Compare(t, schemaFile, generator.Document(doctor.Schema, reflect.TypeFor[doctor.Report]()))
	schema := schematest.Open(t, schemaFile)
	for _, name := range fixtures.Names() {
		text := encoded(t, fixture(t, name))
		if err := schema.Validate([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		bad := strings.Replace(text, `"status": "ok"`, `"status": "fine"`, 1)
		if bad != text && schema.Validate([]byte(bad)) == nil {
			t.Errorf("%s: a status that does not exist is valid", name)
		}
	}
}

// docs/doctor.md describes every check in full, in the order of Checks, by what the code says of it, and its guide
// names no others.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	guide, entries, _ := strings.Cut(string(data), "\n### ")
	described := strings.Split(entries, "\n### ")
	if len(described) != len(doctor.Checks()) {
		t.Fatalf("%d entries, %d checks", len(described), len(doctor.Checks()))
	}
	for i, c := range doctor.Checks() {
		want := fmt.Sprintf("%s\n\nOk: %s. At worst: %s.\n\n", c.Code, c.Title, c.Severity)
		if !strings.HasPrefix(described[i], want) {
			t.Errorf("entry %d does not begin with:\n### %s", i+1, want)
		}
		for _, part := range []string{"- **Judged:** ", "- **Facts:** ", "- **Do:** "} {
			if _, text, _ := strings.Cut(described[i], part); len(text) < 20 || strings.HasPrefix(text, "\n") {
				t.Errorf("%s: want %q with what is to be said", c.Code, part)
			}
		}
	}
	for row := range strings.Lines(guide) {
		cells := strings.Split(row, "|")
		if len(cells) != 4 || strings.Contains(row, "---") || strings.Contains(row, "look at") {
			continue
		}
		for code := range strings.SplitSeq(cells[2], ",") {
			code, _, _ = strings.Cut(strings.TrimSpace(code), " ")
			if !slices.Contains(doctor.Codes(), doctor.Code(code)) {
				t.Errorf("the guide names %q, which is no check", code)
			}
		}
	}
}

// Codes are words with hyphens, each once.
func TestCodes(t *testing.T) {
	seen := map[doctor.Code]bool{}
	for _, c := range doctor.Checks() {
		if seen[c.Code] || strings.Trim(string(c.Code), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || c.Severity.Label() == "" {
			t.Errorf("%s: twice, no code, or of no severity", c.Code)
		}
		seen[c.Code] = true
	}
}

// Documents are hostile: nothing that Decode takes makes a check fall over.
func FuzzRun(f *testing.F) {
	for _, name := range []string{"lab-softrdma", "a10-2nic", "sriov-pf-vf", "vm-flat"} {
		data, err := fixturetest.Topology(f, name).Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		top, err := topo.Decode(data)
		if err != nil {
			return
		}
		r, err := doctor.Run(top, doctor.Options{Peer: top, GIDIndex: new(3)})
		if err != nil {
			return
		}
		if text := r.Text(doctor.TextOptions{Width: 80, All: true}); text == "" {
			t.Error("a report without text")
		}
	})
}

// A tree whose parents form a circle, as a hostile document could hold.
func TestCircularTree(t *testing.T) {
	top := fixturetest.Topology(t, "hgx-h100-8nic")
	for i := range top.PCIDevices {
		if d := &top.PCIDevices[i]; d.BDF.String() == "0000:15:01.0" {
			d.Parent = "pci:0000:17:00.0"
		}
	}
	top.Derive()
	run(t, top)
}

// BenchmarkRun is what all checks cost on a large host.
func BenchmarkRun(b *testing.B) {
	top := fixturetest.Topology(b, "dgx-h100")
	for b.Loop() {
		if _, err := doctor.Run(top, doctor.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
