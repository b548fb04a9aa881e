package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/test/vmlab"
)

func TestParse(t *testing.T) {
	f, err := parse([]string{"-machines", "numa2,numa4", "-race", "-limit", "1m", "-kernel", "r/p", "-file", "a", "-file", "b", "-program", "./c",
		"./x", "./y", "--", "-test.v", "--", "-test.run=Z"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	boots, err := f.boots()
	if err != nil || len(boots) != 1 {
		t.Fatalf("%d boots, %v", len(boots), err)
	}
	o := boots[0]
	if !f.race || f.limit != time.Minute || f.kernel != "r/p" || o.Machines[1].Layout != "numa4" || len(o.Suites) != 2 {
		t.Errorf("%+v, %+v", f, o)
	}
	s := o.Suites[1]
	if s.Package != "./y" || !slices.Equal(s.Args, []string{"-test.v", "--", "-test.run=Z"}) || !slices.Equal(s.Files, []string{"a", "b"}) || s.Programs[0] != "./c" {
		t.Errorf("%+v", s)
	}
}

// Without arguments all suites run, on hardware that adds up.
func TestPlan(t *testing.T) {
	boots, err := (&flags{}).boots()
	if err != nil || len(boots) == 0 {
		t.Fatalf("%d boots, %v", len(boots), err)
	}
	for _, o := range boots {
		if len(o.Suites) == 0 {
			t.Errorf("%+v has no suite", o)
		}
		for _, m := range o.Machines {
			if err := m.Check(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Where the lab cannot be had, that is said and no failure; what is wrong is one.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		out  string
		errs string
	}{
		{nil, 0, "SKIP: the lab cannot be had here: no program qemu-system-x86_64", ""},
		{[]string{"./x"}, 0, "SKIP: ", ""},
		{[]string{"-h"}, 0, "", "-machines"},
		{[]string{"-machines", "none", "./x"}, 2, "", `unknown layout "none"`},
		{[]string{"-nonsense"}, 2, "", "not defined"},
		{[]string{"--", "-test.v"}, 2, "", "name one"},
	} {
		t.Setenv("PATH", t.TempDir())
		t.Setenv("TOPOCTL_VMLAB_CACHE", t.TempDir())
		var out, errs bytes.Buffer
		code := run(t.Context(), c.args, &out, &errs)
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.errs) {
			t.Errorf("%q: %d\n%s\n%s", c.args, code, out.String(), errs.String())
		}
	}
}

func TestReport(t *testing.T) {
	var out bytes.Buffer
	boots, err := (&flags{layout: "rails,numa2", packages: []string{"./x"}}).boots()
	if err != nil {
		t.Fatal(err)
	}
	report(&out, &boots[0], &vmlab.Result{Kernel: "6.1", Accelerator: "tcg", Boots: 2, BootSeconds: []float64{5, 6}, Seconds: 30,
		Suites: []vmlab.SuiteResult{{Suite: "x-0", Host: 1, Seconds: 3}, {Suite: "x-0", Host: 2, Code: 1, Seconds: 4}}})
	want := `vmlab: rails and numa2, kernel 6.1, tcg, boots 2, ready after [5.0 6.0] s, 30.0 s in all
vmlab: suite x-0 on machine 1: ok, 3.0 s
vmlab: suite x-0 on machine 2: FAILED with exit code 1, 4.0 s
`
	if out.String() != want {
		t.Errorf("%s, want\n%s", out.String(), want)
	}
}
