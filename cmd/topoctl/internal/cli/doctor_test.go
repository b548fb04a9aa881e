package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

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
		globals Globals
		codes   []doctor.Code
		host    *topo.Topology
		want    int
	}{
		"this host":          {Globals{}, nil, host, 1},
		"a wish":             {Globals{}, []doctor.Code{"port-down", "registration-refused"}, host, 1},
		"in a container":     {Globals{HostRoot: "/host"}, nil, host, 1},
		"other checks":       {Globals{}, []doctor.Code{"port-down"}, host, 0},
		"no device":          {Globals{}, nil, &topo.Topology{}, 0},
		"a file":             {Globals{From: "host.json"}, nil, host, 0},
		"a fixture":          {Globals{Fixture: "lab-softrdma"}, nil, host, 0},
		"a captured machine": {Globals{Root: "/tmp"}, nil, host, 0},
	} {
		var n triedTimes
		c.globals.Timeout = time.Minute
		var r *replies.VerbsReport
		if asksDevices(c.codes) {
			r = tryDevices(t.Context(), &Host{Globals: c.globals}, &n, c.host)
		}
		if int(n) != c.want || (r != nil) != (c.want > 0) {
			t.Errorf("%s: tried %d times, %+v", name, n, r)
		}
	}
	in := &Host{Globals: Globals{Timeout: time.Minute}}
	if r := tryDevices(t.Context(), in, nil, host); r == nil || r.Unavailable == "" {
		t.Errorf("without the library: %+v", r)
	}
}

// A monitoring system reads one line, then details, and bars only before the
// counts.
func TestNagios(t *testing.T) {
	for name, r := range doctorReports(t) {
		code := doctorCode(r)
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
	if doctorCode(r) != nagiosOK {
		t.Error("a check that gives info only is not worth an alarm")
	}
	if text := nagiosText(r); !strings.Contains(text, "???? x: a/b\n") {
		t.Errorf("got %q", text)
	}
	if r.Checks[0].Worst = doctor.Warning; doctorCode(r) != nagiosUnknown {
		t.Error("a check that could not be made is OK")
	}
}
