package cli

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/base/replies"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

func TestParseDoctor(t *testing.T) {
	got, err := parse(t, newFake().Streams, newDoctorCmd, "port-down", "vm-flat", "--fail-on", "error", "--all", "--color", "always")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.codes) != 2 || got.codes[1] != "vm-flat" || got.failOn != "error" || !got.all || !got.color || got.format != formatTable {
		t.Errorf("got %+v", got)
	}
	if got, err := parse(t, newFake().Streams, newDoctorCmd); err != nil || got.failOn != "warning" || got.codes != nil || got.all {
		t.Errorf("defaults: %+v, %v", got, err)
	}
}

// reports runs all checks on every fixture.
func reports(t *testing.T) map[string]*doctor.Report {
	t.Helper()
	out := map[string]*doctor.Report{}
	for _, name := range fixtures.Names() {
		tree, err := fixtures.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		host, err := discover.Discover(context.Background(), discover.Options{FS: tree})
		if err != nil {
			t.Fatal(err)
		}
		if out[name], err = doctor.Run(host, doctor.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

var (
	adviceCommand = regexp.MustCompile(`topoctl (discover|topo|matrix|path|export|doctor|diff|version)\b((?: [a-z0-9:-]+| --[a-z-]+| [A-Z]+)*)`)
	adviceFlag    = regexp.MustCompile(`--([a-z-]+)`)
)

// The commands that findings advise exist, with their flags.
func TestDoctorAdvisesCommandsThatExist(t *testing.T) {
	root := newRootCmd(&factory{streams: newFake().Streams, now: time.Now})
	seen := 0
	check := func(where, advice string) {
		for _, m := range adviceCommand.FindAllStringSubmatch(advice, -1) {
			seen++
			cmd, _, err := root.Find([]string{m[1]})
			if err != nil || cmd.Name() != m[1] {
				t.Errorf("%s: no command %q: %s", where, m[1], advice)
				continue
			}
			for _, flag := range adviceFlag.FindAllStringSubmatch(m[2], -1) {
				if cmd.Flag(flag[1]) == nil {
					t.Errorf("%s: topoctl %s has no --%s: %s", where, m[1], flag[1], advice)
				}
			}
		}
	}
	for name, r := range reports(t) {
		for _, c := range r.Checks {
			for _, f := range c.Findings {
				check(name+" "+string(c.Code), f.Fix)
			}
			for _, m := range c.Missing {
				check(name+" "+string(c.Code), m.How)
			}
		}
	}
	for _, c := range doctor.Checks() {
		check(string(c.Code), c.Fix)
	}
	if seen < 50 {
		t.Errorf("%d commands in all advice", seen)
	}
}

// triedTimes counts how often devices are tried.
type triedTimes int

func (n *triedTimes) Try(ctx context.Context) *replies.VerbsReport {
	if _, limited := ctx.Deadline(); limited {
		*n++
	}
	return &replies.VerbsReport{}
}

// Devices are tried where the host is this machine, has any, and a check wants to
// know: never on account of a file.
func TestDoctorTries(t *testing.T) {
	host := &topo.Topology{RDMADevices: []topo.RDMADevice{{Name: "rxe0"}}}
	for name, c := range map[string]struct {
		globals globals
		codes   []doctor.Code
		host    *topo.Topology
		want    int
	}{
		"this host":          {globals{}, nil, host, 1},
		"a wish":             {globals{}, []doctor.Code{"port-down", "registration-refused"}, host, 1},
		"in a container":     {globals{hostRoot: "/host"}, nil, host, 1},
		"other checks":       {globals{}, []doctor.Code{"port-down"}, host, 0},
		"no device":          {globals{}, nil, &topo.Topology{}, 0},
		"a file":             {globals{from: "host.json"}, nil, host, 0},
		"a fixture":          {globals{fixture: "lab-softrdma"}, nil, host, 0},
		"a captured machine": {globals{root: "/tmp"}, nil, host, 0},
	} {
		var n triedTimes
		c.globals.timeout = time.Minute
		o := &doctorOptions{input: &input{globals: c.globals}, codes: c.codes, rdma: &n}
		if r := o.try(t.Context(), c.host); int(n) != c.want || (r != nil) != (c.want > 0) {
			t.Errorf("%s: tried %d times, %+v", name, n, r)
		}
	}
	o := &doctorOptions{input: &input{globals: globals{timeout: time.Minute}}}
	if r := o.try(t.Context(), host); r == nil || r.Unavailable == "" {
		t.Errorf("without the library: %+v", r)
	}
}

// A monitoring system reads one line, then details, and bars only before the
// counts.
func TestNagios(t *testing.T) {
	for name, r := range reports(t) {
		code := nagiosCode(r)
		switch worst := r.Worst(); {
		case worst == doctor.Error && code != nagiosCritical, worst == doctor.Warning && code != nagiosWarning, worst.AtLeast(doctor.Warning) && code == nagiosOK:
			t.Errorf("%s: code %d for %s", name, code, worst)
		}
		lines := strings.Split(strings.TrimSuffix(nagiosText(r), "\n"), "\n")
		if !strings.HasPrefix(lines[0], "TOPOCTL "+nagiosWords[code]+" - ") || strings.Count(lines[0], "|") != 1 {
			t.Errorf("%s: first line %q", name, lines[0])
		}
		if strings.Contains(strings.Join(lines[1:], ""), "|") {
			t.Errorf("%s: a bar in the details", name)
		}
	}
	r := &doctor.Report{Checks: []doctor.CheckResult{{Code: "x", Worst: doctor.Info, Missing: []doctor.Missing{{Text: "a|b"}}}}}
	if nagiosCode(r) != nagiosOK {
		t.Error("a check that gives info only is not worth an alarm")
	}
	if text := nagiosText(r); !strings.Contains(text, "???? x: a/b\n") {
		t.Errorf("got %q", text)
	}
	if r.Checks[0].Worst = doctor.Warning; nagiosCode(r) != nagiosUnknown {
		t.Error("a check that could not be made is OK")
	}
}

// What a host calls itself cannot speak to the terminal.
func TestDoctorPrintsNoControlCharacters(t *testing.T) {
	host := &topo.Topology{Complete: true, RDMADevices: []topo.RDMADevice{{Node: topo.Node{ID: "rdma:x\x1b[2J"}, Name: "x\x1b[2J", Software: true}}}
	host.Derive()
	r, err := doctor.Run(host, doctor.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{formatTable, formatNagios} {
		f := newFake()
		o := &doctorOptions{input: &input{streams: f.Streams}, format: format}
		if err := o.print(r); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(f.out.String(), "\x1b") || !strings.Contains(f.out.String(), "software-rdma") {
			t.Errorf("%s: %q", format, f.out.String())
		}
	}
}
