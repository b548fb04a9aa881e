package probelab

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/topoctl/topoctl/probe"
)

// alone says whether the lab has the machine to itself, as .ci/run has it.
var alone = os.Getenv("TOPOCTL_LANES") == "alone"

// within bounds what must happen. It is for liveness only.
const within = 60 * time.Second

// toolTime bounds a run of topoctl, also where the machine is busy.
const toolTime = 3 * time.Minute

// tool is a run of topoctl on the switches.
type tool struct {
	cmd         *exec.Cmd
	out, errors bytes.Buffer
	code        int
	took        time.Duration
	began       time.Time
	limit       *time.Timer
}

// start starts topoctl.
func start(t *testing.T, args ...string) *tool {
	t.Helper()
	x := &tool{cmd: command(roleTool, 0, args...), began: time.Now()}
	x.cmd.Stdout, x.cmd.Stderr = &x.out, &x.errors
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x.limit = time.AfterFunc(toolTime, func() { _ = x.cmd.Process.Kill() })
	return x
}

// wait waits for the end.
func (x *tool) wait(t *testing.T) *tool {
	t.Helper()
	_ = x.cmd.Wait() // the code says what came of it
	x.limit.Stop()
	x.code, x.took = x.cmd.ProcessState.ExitCode(), time.Since(x.began)
	return x
}

// probing are the arguments that measure all hosts of a lab.
func (l *lab) probing(more ...string) []string {
	args := []string{"probe", "fabric", "--token-file", l.token}
	for _, h := range l.hosts {
		args = append(args, "--host", h.name()+"="+l.addressOf(h.number, 0).String())
	}
	return append(args, more...)
}

// short are the arguments of a measurement that takes little time.
func short(more ...string) []string {
	return append([]string{"--bw", "--size", "16KiB", "--warmup", "100ms", "--duration", "280ms", "--min-samples", "4", "--max-samples", "8", "--ci", "10%"}, more...)
}

// readReport reads a report, or the events of a run.
func readReport(t *testing.T, name string) *probe.Report {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := probe.ReadEvents(file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
