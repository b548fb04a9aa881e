// Command vmlab runs tests in the VM lab.
//
//	vmlab                                   all suites of the lab
//	vmlab -short                            the core, on one pair of machines
//	vmlab [flags] PACKAGE... [-- test flags]
//
// The packages' tests are built with the tag vmlab. The exit code is that of the first
// test program that failed; 0 with a line that begins with SKIP where the lab cannot be
// had; 2 where the lab is broken.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/test/vmlab"
)

type flags struct {
	layout   string
	race     bool
	short    bool
	limit    time.Duration
	kernel   string
	out      string
	files    list
	programs list
	packages []string
	args     []string
}

type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

func parse(args []string, errs io.Writer) (*flags, error) {
	f := &flags{}
	if i := slices.Index(args, "--"); i >= 0 {
		args, f.args = args[:i], args[i+1:]
	}
	set := flag.NewFlagSet("vmlab", flag.ContinueOnError)
	set.SetOutput(errs)
	set.StringVar(&f.layout, "machines", "rails,rails", "hardware of each machine, one or two of "+strings.Join(vmlab.LayoutNames(), ", "))
	set.BoolVar(&f.race, "race", false, "build the tests with the race detector")
	set.BoolVar(&f.short, "short", false, "the core of the suites, on one pair of machines")
	set.DurationVar(&f.limit, "limit", 0, "how long the machines may run (default 4m, or what their suites need)")
	set.StringVar(&f.kernel, "kernel", "", "Debian `package` of another kernel, or release/package: bookworm-backports/linux-image-amd64")
	set.StringVar(&f.out, "out", "", "`folder` for what tests leave in $VMLAB_OUT")
	set.Var(&f.files, "file", "`file` to put on the path in the machines (repeat)")
	set.Var(&f.programs, "program", "Go main `package` to build and put on the path in the machines (repeat)")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	f.packages = set.Args()
	return f, nil
}

// boots are the runs that the flags ask for.
func (f *flags) boots() ([]vmlab.Options, error) {
	if len(f.packages) == 0 {
		if len(f.args) > 0 {
			return nil, errors.New("test flags are for packages: name one")
		}
		return all(f.short), nil
	}
	o := vmlab.Options{}
	for name := range strings.SplitSeq(f.layout, ",") {
		m, err := vmlab.Layout(name)
		if err != nil {
			return nil, err
		}
		o.Machines = append(o.Machines, m)
	}
	for _, p := range f.packages {
		o.Suites = append(o.Suites, vmlab.Suite{Package: p, Args: f.args, Programs: f.programs, Files: f.files})
	}
	return []vmlab.Options{o}, nil
}

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	f, err := parse(args, errs)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	boots, err := f.boots()
	if err != nil {
		fmt.Fprintln(errs, "vmlab:", err)
		return 2
	}
	code := 0
	for _, o := range boots {
		o.Race, o.KernelPackage, o.Out, o.Output = f.race, f.kernel, f.out, out
		if f.limit > 0 {
			o.Limit = f.limit
		}
		o.Log = func(format string, args ...any) { fmt.Fprintf(errs, "vmlab: "+format+"\n", args...) }
		result, err := vmlab.Run(ctx, o)
		if result != nil {
			report(out, &o, result)
		}
		switch {
		case errors.Is(err, vmlab.ErrUnavailable):
			fmt.Fprintln(out, "SKIP:", err)
			return 0
		case err != nil:
			fmt.Fprintln(errs, err)
			return 2
		case code == 0:
			code = result.Code()
		}
	}
	return code
}

func report(out io.Writer, o *vmlab.Options, r *vmlab.Result) {
	var names []string
	for _, m := range o.Machines {
		names = append(names, m.Layout)
	}
	fmt.Fprintf(out, "vmlab: %s, kernel %s, %s, boots %d, ready after %.1f s, %.1f s in all\n",
		strings.Join(names, " and "), r.Kernel, r.Accelerator, r.Boots, r.BootSeconds, r.Seconds)
	for _, s := range r.Suites {
		word := "ok"
		if s.Code != 0 {
			word = fmt.Sprintf("FAILED with exit code %d", s.Code)
		}
		fmt.Fprintf(out, "vmlab: suite %s on machine %d: %s, %.1f s\n", s.Suite, s.Host, word, s.Seconds)
	}
}
