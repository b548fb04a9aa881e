package main_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
)

const benchMachine = "dgx-h100"

// expanded writes a fixture to disk, as a capture directory.
func expanded(b *testing.B, name string) string {
	b.Helper()
	tree, err := fixtures.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	if err := os.CopyFS(dir, tree); err != nil {
		b.Fatal(err)
	}
	return dir
}

// cpuTime is the user and system time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkReadAndMerge is discovery with our own reader alone: reading the
// tree from disk, merging, deriving. cpu-ms/op is the figure that matters.
func BenchmarkReadAndMerge(b *testing.B) {
	dir := expanded(b, benchMachine)
	var devices int
	before := cpuTime(b)
	for b.Loop() {
		t, err := discover.Discover(context.Background(), discover.Options{Root: dir, Sources: []string{"sysfs"}})
		if err != nil {
			b.Fatal(err)
		}
		devices = len(t.PCIDevices)
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(devices), "pci-devices")
}

// BenchmarkEncode writes the same host's document.
func BenchmarkEncode(b *testing.B) {
	t := fixtureTopology(b, benchMachine)
	var size int
	for b.Loop() {
		data, err := t.Encode()
		if err != nil {
			b.Fatal(err)
		}
		size = len(data)
	}
	b.ReportMetric(float64(size), "bytes")
}

func BenchmarkDerive(b *testing.B) {
	t := fixtureTopology(b, benchMachine)
	for b.Loop() {
		t.Links = slices.DeleteFunc(t.Links, func(l topo.Link) bool { return l.Kind == topo.LinkPCIe || l.Kind == topo.LinkPort })
		t.Derive()
	}
}

func fixtureTopology(b *testing.B, name string) *topo.Topology {
	b.Helper()
	tree, err := fixtures.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	t, err := discover.Discover(context.Background(), discover.Options{FS: tree})
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// built compiles the command as a user would.
func built(b *testing.B) string {
	b.Helper()
	bin := filepath.Join(b.TempDir(), "topoctl")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -extldflags=-Wl,-z,lazy", "-o", bin, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// run executes a command and gives its CPU time (user and system).
func run(b *testing.B, name string, args ...string) time.Duration {
	b.Helper()
	cmd := exec.Command(name, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != 3 {
		b.Fatalf("%s %v: %v\n%s", name, args, err, errs.Bytes())
	}
	if out.Len() == 0 {
		b.Fatalf("%s %v printed nothing", name, args)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkCommandAgainstHwloc runs the whole command and hwloc's lstopo on
// the same expanded tree in turn, and compares the medians of their CPU time.
func BenchmarkCommandAgainstHwloc(b *testing.B) {
	lstopo, err := exec.LookPath("lstopo-no-graphics")
	if err != nil {
		b.Skip("lstopo-no-graphics is not installed (Debian package hwloc-nox)")
	}
	dir, bin := expanded(b, benchMachine), built(b)
	var ours, theirs []time.Duration
	for b.Loop() {
		for range 15 {
			ours = append(ours, run(b, bin, "discover", "--root", dir))
			theirs = append(theirs, run(b, lstopo, "--input", dir, "--of", "xml", "--whole-io"))
		}
	}
	b.ReportMetric(ms(median(ours)), "topoctl-cpu-ms")
	b.ReportMetric(ms(median(theirs)), "lstopo-cpu-ms")
	b.ReportMetric(float64(median(ours))/float64(median(theirs)), "topoctl/lstopo")
}

// BenchmarkVersion is what every call costs before it does anything.
func BenchmarkVersion(b *testing.B) {
	bin := built(b)
	var wall []time.Duration
	for b.Loop() {
		start := time.Now()
		run(b, bin, "version")
		wall = append(wall, time.Since(start))
	}
	b.ReportMetric(ms(median(wall)), "p50-ms")
}
