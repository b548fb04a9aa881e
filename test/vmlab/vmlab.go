// Package vmlab runs Go tests in machines of its own: one or two virtual machines with
// stated hardware, a stock Debian kernel, Soft-RoCE on every NIC, and faults on request.
package vmlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// ErrBoot is given when a machine ended, twice, before its first suite began.
var ErrBoot = errors.New("a machine did not boot")

// Options of Run.
type Options struct {
	Machines []*Machine // one or two
	Suites   []Suite
	Race     bool // build the tests with the race detector
	// Limit is how long the machines may run, boot and all suites together.
	Limit time.Duration
	// KernelPackage is another kernel than that of this Debian release: the name of its
	// package, or release/package.
	KernelPackage string
	// Cache is the folder of the image, "" for the user's.
	Cache string
	// Out is a folder in which what suites leave is kept, by suite and machine; "" keeps nothing.
	Out string
	// Output gets what the tests print, each line with its machine in front.
	Output io.Writer
	// Log gets what the lab does.
	Log func(format string, args ...any)
}

// Suite is a package of tests, run in all machines at the same time.
type Suite struct {
	Package string   // import path, or path from the working directory
	Args    []string // of the test program, as -test.run=X
	// Programs are main packages that are built and put on the path in the machines.
	Programs []string
	// Files are put on the path in the machines: files of this machine.
	Files []string
}

// SuiteResult is how one suite ended in one machine.
type SuiteResult struct {
	Suite   string
	Host    int
	Code    int // exit code of the test program
	Seconds float64
}

// Result of a run.
type Result struct {
	Kernel      string
	Accelerator string    // kvm or tcg
	Boots       int       // 2 if a machine died before its first suite
	BootSeconds []float64 // until its first suite, by the clock of each machine
	Suites      []SuiteResult
	Seconds     float64 // of the run, without building
}

// Code is the first exit code that is not zero, by suite and then by machine.
func (r *Result) Code() int {
	for _, s := range r.Suites {
		if s.Code != 0 {
			return s.Code
		}
	}
	return 0
}

const defaultLimit = 4 * time.Minute

// DefaultCache is where the image is kept.
func DefaultCache() (string, error) {
	if dir := os.Getenv("TOPOCTL_VMLAB_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("vmlab: no folder for the image (set TOPOCTL_VMLAB_CACHE): %w", err)
	}
	return filepath.Join(dir, "topoctl-vmlab"), nil
}

// Run builds what is needed, boots the machines and runs the suites. A suite that fails
// is a result and no error. A lab that cannot be had is ErrUnavailable.
func Run(ctx context.Context, o Options) (*Result, error) {
	if len(o.Machines) < 1 || len(o.Machines) > 2 || len(o.Suites) == 0 {
		return nil, fmt.Errorf("vmlab: %d machines and %d suites: want one or two machines, and a suite", len(o.Machines), len(o.Suites))
	}
	for _, m := range o.Machines {
		if err := m.Check(); err != nil {
			return nil, err
		}
	}
	if o.Cache == "" {
		var err error
		if o.Cache, err = DefaultCache(); err != nil {
			return nil, err
		}
	}
	if o.Limit == 0 {
		o.Limit = defaultLimit
	}
	img, err := getImage(ctx, imageOptions{Cache: o.Cache, KernelPackage: o.KernelPackage, Log: o.Log})
	if err != nil {
		return nil, err
	}
	// Names of unix sockets are short: not below the cache.
	dir, err := os.MkdirTemp("", "vmlab-")
	if err != nil {
		return nil, fmt.Errorf("vmlab: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays is in the folder for such things
	initrd, suites, err := bundle(ctx, &o, img, dir)
	if err != nil {
		return nil, err
	}
	return bootTwice(ctx, &o, img, initrd, suites, dir)
}

// bootTwice gives a machine that died before it had anything to do a second chance; it
// says nothing about the tests. The second time KVM is not trusted any more.
func bootTwice(ctx context.Context, o *Options, img *Image, initrd string, suites []string, dir string) (*Result, error) {
	kvm := usableKVM()
	var first error
	for try := 1; try <= 2; try++ {
		r := &lab{o: o, suites: suites, kvm: kvm, result: &Result{Kernel: img.Release, Boots: try, Accelerator: "tcg"}}
		if kvm {
			r.result.Accelerator = "kvm"
		}
		at := filepath.Join(dir, fmt.Sprint("boot", try))
		if err := os.Mkdir(at, 0o700); err != nil {
			return nil, fmt.Errorf("vmlab: %w", err)
		}
		err := r.boot(ctx, img, initrd, at)
		if err == nil || !errors.Is(err, ErrBoot) || ctx.Err() != nil {
			return r.result, err
		}
		o.Log("%v", err)
		if first == nil {
			first = err
		}
		kvm = false
	}
	return nil, first
}

// usableKVM is true where a processor's own virtualisation is behind /dev/kvm. There are
// others (pvm), which open but hang a stock kernel.
func usableKVM() bool {
	for _, module := range []string{"kvm_intel", "kvm_amd"} {
		if _, err := os.Stat("/sys/module/" + module); err != nil {
			continue
		}
		if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
			f.Close()
			return true
		}
	}
	return false
}
