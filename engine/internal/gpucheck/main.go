//go:build cgo && linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// part is one thing that is shown, in a process of its own: what it breaks is its own.
type part struct {
	name  string
	shows string
	limit time.Duration
	// run does the part in the child. nil: suite is a test binary beside this program and the
	// pattern of its tests.
	run   func(ctx context.Context, c *check) error
	suite [2]string
}

// parts are in the order of what is lost least where time runs out. Their limits add up to
// less than ten minutes.
var parts = []part{
	{name: "discovery", shows: "what NVML tells is what nvidia-smi and /proc tell", limit: 60 * time.Second, run: discovery},
	{name: "memory", shows: "allocation, memory of others, export", limit: 40 * time.Second, run: deviceMemory},
	{name: "transfers", shows: "GPU memory moves whole between engines", limit: 50 * time.Second, run: transfers},
	{name: "staging", shows: "copies through pinned memory beside a C loop", limit: 60 * time.Second, run: staging},
	{name: "probe", shows: "topoctl probe local beside a C loop", limit: 110 * time.Second, run: probeLocal},
	{name: "broken", shows: "a context that a kernel breaks costs what is on it", limit: 40 * time.Second, run: brokenContext},
	{name: "load", shows: "the dashboard's GPU columns under load", limit: 30 * time.Second, run: load},
	{name: "visible", shows: "CUDA_VISIBLE_DEVICES", limit: 20 * time.Second, run: visible},
	{name: "tensors", shows: "memory of cupy and torch", limit: 50 * time.Second, run: tensors},
	{name: "tcp", shows: "the transport suite with GPU memory over TCP", limit: 60 * time.Second, suite: [2]string{"tcp.test", "^TestConformanceOfDeviceMemory$"}},
	{name: "shm", shows: "the transport suite with GPU memory over shared memory", limit: 60 * time.Second, suite: [2]string{"shm.test", "^TestTransportOfDeviceMemory$"}},
}

// The outcomes of a part.
const (
	passed    = "passed"
	failed    = "failed"
	unchecked = "could not check"
)

// report is the document of a run.
type report struct {
	Schema     string    `json:"schema"`
	StartedAt  time.Time `json:"started_at"`
	DurationNS int64     `json:"duration_ns"`
	Kernel     string    `json:"kernel"`
	Driver     string    `json:"driver"` // /proc/driver/nvidia/version, "" where it is not there
	Parts      []result  `json:"parts"`
}

type result struct {
	Name       string   `json:"name"`
	Shows      string   `json:"shows"`
	Outcome    string   `json:"outcome"`
	Reason     string   `json:"reason,omitempty"`
	DurationNS int64    `json:"duration_ns"`
	Figures    []figure `json:"figures,omitempty"`
	// Unchecked are the steps that could not be checked in a part that has passed.
	Unchecked []string `json:"unchecked,omitempty"`
}

// figure is something measured. Goal is the least that is wanted, 0 where nothing is.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Goal  float64 `json:"goal,omitempty"`
}

const schema = "topoctl.gpucheck/v1"

func main() {
	out := flag.String("out", ".", "write the report to `DIR`")
	only := flag.String("only", "", "run only the parts with these `NAMES`, separated by commas")
	child := flag.String("part", "", "run the part with this `NAME` in this process (for gpucheck itself)")
	flag.Parse()
	if *child != "" {
		os.Exit(runChild(*child, *out))
	}
	r, err := runAll(*out, *only)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "gpucheck:", err)
		os.Exit(2)
	case r.count(failed) > 0:
		os.Exit(1)
	case r.count(passed) == 0:
		os.Exit(3)
	}
}

func find(name string) *part {
	for i := range parts {
		if parts[i].name == name {
			return &parts[i]
		}
	}
	return nil
}

// count says how many parts have an outcome.
func (r *report) count(outcome string) (n int) {
	for _, x := range r.Parts {
		if x.Outcome == outcome {
			n++
		}
	}
	return n
}

// runAll runs the parts one after the other.
func runAll(out, only string) (r *report, err error) {
	var names []string
	if only != "" {
		names = strings.Split(only, ",")
		for _, name := range names {
			if find(name) == nil {
				return nil, fmt.Errorf("-only: no part %q", name)
			}
		}
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(out, "log.txt"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	log := io.MultiWriter(os.Stdout, file)
	start := time.Now()
	r = &report{Schema: schema, StartedAt: start.UTC(), Kernel: firstLine("/proc/sys/kernel/osrelease"), Driver: firstLine("/proc/driver/nvidia/version")}
	fmt.Fprintf(log, "kernel %s, %s\n", r.Kernel, r.Driver)
	for _, p := range parts {
		if names != nil && !slices.Contains(names, p.name) {
			continue
		}
		fmt.Fprintf(log, "\n== %s: %s\n", p.name, p.shows)
		x := p.start(out, log)
		fmt.Fprintf(log, "== %s: %s, %.1f s %s\n", p.name, x.Outcome, float64(x.DurationNS)/1e9, x.Reason)
		r.Parts = append(r.Parts, x)
	}
	r.DurationNS = int64(time.Since(start))
	fmt.Fprintf(log, "\n%-10s %-16s %s\n", "PART", "OUTCOME", "REASON")
	for _, x := range r.Parts {
		fmt.Fprintf(log, "%-10s %-16s %s\n", x.Name, x.Outcome, x.Reason)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return r, err
	}
	return r, os.WriteFile(filepath.Join(out, "report.json"), append(data, '\n'), 0o644)
}

func firstLine(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

// start runs the part in a child, which may crash or hang.
func (p *part) start(out string, log io.Writer) result {
	x := result{Name: p.name, Shows: p.shows}
	ctx, cancel := context.WithTimeout(context.Background(), p.limit)
	defer cancel()
	notes := filepath.Join(out, "."+p.name)
	defer func() { _ = os.Remove(notes) }()
	cmd := exec.CommandContext(ctx, beside("gpucheck"), "-part", p.name, "-out", out)
	if p.run == nil {
		cmd = exec.CommandContext(ctx, beside(p.suite[0]), "-test.v", "-test.run", p.suite[1], "-test.timeout", p.limit.String())
	}
	cmd.Env = append(os.Environ(), envNotes+"="+notes, "TOPOCTL_GPU=machine")
	// What it starts goes with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var text bytes.Buffer
	cmd.Stdout = io.MultiWriter(log, &text)
	cmd.Stderr = cmd.Stdout
	begin := time.Now()
	err := cmd.Run()
	x.DurationNS = int64(time.Since(begin))
	n := readNotes(notes)
	x.Figures, x.Unchecked = n.figures, n.unchecked
	switch {
	case ctx.Err() != nil:
		x.Outcome, x.Reason = failed, fmt.Sprintf("not over after %v", p.limit)
	case cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == exitUnchecked:
		x.Outcome, x.Reason = unchecked, lastLine(text.String())
	case err != nil:
		x.Outcome, x.Reason = failed, fmt.Sprintf("%v: %s", err, lastLine(text.String()))
	case p.run == nil && strings.Contains(text.String(), "\n--- SKIP"):
		x.Outcome, x.Reason = unchecked, "its tests were skipped"
	case p.run == nil && !strings.Contains(text.String(), "--- PASS"):
		x.Outcome, x.Reason = failed, "no test ran"
	default:
		x.Outcome = passed
	}
	return x
}

func lastLine(text string) string {
	text = strings.TrimRight(text, "\n")
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// exitUnchecked is how a child ends whose part could not be checked.
const exitUnchecked = 4

func runChild(name, out string) int {
	p := find(name)
	if p == nil || p.run == nil {
		fmt.Fprintf(os.Stderr, "gpucheck: no part %q\n", name)
		return 2
	}
	c := newCheck(out)
	err := p.run(context.Background(), c)
	if err := c.close(); err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	var cannot *uncheckedError
	switch {
	case errors.As(err, &cannot):
		fmt.Fprintln(os.Stdout, cannot)
		return exitUnchecked
	case err != nil:
		fmt.Fprintln(os.Stdout, err)
		return 1
	case len(c.wrong) > 0:
		fmt.Fprintln(os.Stdout, strings.Join(c.wrong, "; "))
		return 1
	}
	return 0
}
