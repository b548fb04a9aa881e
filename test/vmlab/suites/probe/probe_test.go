//go:build vmlab && linux

package probe

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/test/vmlab"
	"github.com/topoctl/topoctl/test/vmlab/guest"
)

const (
	rails   = 4
	mbit    = 2 // that each rail says it has: all pairs together are far below what the guests carry
	slow    = 2 // the rail that has a quarter of it
	slowBy  = 4
	within  = 150 * time.Second
	headers = 1.1 // what a rail really has, of what it says: RoCE's and Ethernet's headers
	tries   = 2   // how often what is measured may fall short: hosts are noisy
)

// A rail is four times slower than both machines say: its cable is blamed, over RDMA, and
// no pair of another rail fails. That a pair FAILs is not asked for: the speeds of the
// emulated PCIe links are invented, so that what is expected of it is assumed.
func TestSlowRail(t *testing.T) {
	l, ctx := open(t)
	for rail := range rails {
		says(t, vmlab.RailNetDev(rail), mbit)
		rate := headers * mbit * 1e6
		if rail == slow {
			rate /= slowBy
		}
		if err := l.Shape(ctx, rail, int64(rate)); err != nil {
			t.Fatal(err)
		}
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("the-token-of-the-VM-lab\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent(t, l, token)
	if err := l.Barrier(ctx, "agents"); err != nil {
		t.Fatal(err)
	}
	if l.Host() == 1 {
		for try := 1; ; try++ {
			wrong := measure(t, ctx, l, token)
			if len(wrong) == 0 {
				break
			}
			t.Logf("try %d: %s", try, strings.Join(wrong, "; "))
			if try == tries {
				t.Error("the slow rail is not found, or another is blamed")
				break
			}
		}
	}
	if err := l.Barrier(ctx, "measured"); err != nil {
		t.Error(err)
	}
}

// measure probes all pairs and says what is wrong with the answer.
func measure(t *testing.T, ctx context.Context, l *guest.Lab, token string) (wrong []string) {
	t.Helper()
	report := filepath.Join(l.Out(), "report.json")
	code := topoctl(t, ctx, "probe", "fabric", "--token-file", token, "--transport", "rdma",
		"--host", "n1="+l.Addr(1, vmlab.ManagementRail), "--host", "n2="+l.Addr(2, vmlab.ManagementRail),
		"--bw", "--size", "8KiB", "--warmup", "300ms", "--duration", "1500ms", "--min-samples", "3", "--max-samples", "6", "--ci", "20%", "--report", report)
	if code != 1 {
		wrong = append(wrong, fmt.Sprintf("exit code %d, want 1", code))
	}
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	r, err := probe.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return append(wrong, check(r)...)
}

// open opens the lab.
func open(t *testing.T) (*guest.Lab, context.Context) {
	t.Helper()
	return guest.ForTest(t, within)
}

// agent runs topoctl agent until the test is over, and waits until it listens.
func agent(t *testing.T, l *guest.Lab, token string) {
	t.Helper()
	c := exec.Command("topoctl", "agent", "--listen", ":7411", "--token-file", token, "--size", "0", "--serve-probes", "--probe-memory", "4MiB", "--until-eof", "--quiet")
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // that ends it
		ended := time.AfterFunc(within, func() { _ = c.Process.Kill() })
		err := c.Wait()
		ended.Stop()
		if err != nil || t.Failed() {
			t.Errorf("the agent: %v\n%s", err, &said)
		}
	})
	address := net.JoinHostPort(l.Addr(l.Host(), vmlab.ManagementRail), "7411")
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the agent does not listen: %v", err)
		}
	}
}

// topoctl runs a command as a user would, and gives its exit code.
func topoctl(t *testing.T, ctx context.Context, args ...string) int {
	t.Helper()
	c := exec.CommandContext(ctx, "topoctl", args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	began := time.Now()
	err := c.Run()
	t.Logf("topoctl %s, %v: %v\n%s%s", strings.Join(args, " "), time.Since(began).Round(time.Millisecond), err, &out, &errs)
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode()
}

// check says what is wrong with a report, given what was done to the rails. Where the host is
// busy a pair that is well may be slow, and blamed as well: that is not wrong here.
func check(r *probe.Report) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if len(r.Results) != 2*rails {
		say("%d pairs, want %d", len(r.Results), 2*rails)
	}
	bad := vmlab.RDMADev(slow)
	for i := range r.Results {
		x := &r.Results[i]
		crosses := strings.HasPrefix(x.From.Name, bad) && strings.HasPrefix(x.To.Name, bad)
		if x.Transport != probe.RDMA || x.Verdict == probe.Error || !crosses && x.Verdict == probe.Fail || crosses && x.Verdict != probe.Fail && x.Verdict != probe.Warn {
			say("%s is %s: %v %s", x.ID, x.Verdict, x.Reasons, x.Error)
		}
	}
	k := slices.IndexFunc(r.Blame, func(b probe.Blame) bool { return slices.ContainsFunc(b.Suspects, isWire) })
	if k < 0 {
		say("the wire of %s is not among the suspects: %+v", vmlab.RailNetDev(slow), r.Blame)
		return wrong
	}
	for _, s := range r.Blame[k].Suspects {
		for rail := range rails {
			if rail != slow && (strings.Contains(s.Key, vmlab.RailNetDev(rail)) || strings.Contains(s.Key, vmlab.RDMADev(rail))) {
				say("%s is suspected as well", s.Name)
			}
		}
	}
	return wrong
}

// isWire says whether a suspect is the wire of the slow rail, in both directions.
func isWire(s probe.Suspect) bool {
	return s.Kind == "link" && strings.Contains(s.Key, "port:"+vmlab.RailNetDev(slow))
}
