//go:build vmlab && linux && cgo

package rdma

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/test/vmlab"
)

// benchReport is what of bench's JSON the tests look at.
type benchReport struct {
	Schema  string
	Results []struct {
		Op, Transport string
		Bytes         int64
		Error         *string
		Fallbacks     int64
		Lanes         []struct {
			Lane, Transport, Connection string
			Bytes                       int64
		}
		Verified *struct {
			Bytes           int64
			MismatchedBytes int64 `json:"mismatched_bytes"`
		}
	}
}

// The commands of a user: an agent on machine 2, bench on machine 1.
func TestCommands(t *testing.T) {
	if *over != "rdma" {
		t.Skip("-over is not rdma, which this is about")
	}
	if _, err := exec.LookPath("topoctl"); err != nil {
		t.Skip("topoctl is not on the path: run the lab with -program ./cmd/topoctl")
	}
	mended(t)
	const secret = "a-token-of-the-lab\n"
	address := net.JoinHostPort(lab.Addr(2, vmlab.ManagementRail), "7411")
	mustAsk(t, "Begin", Run{Name: "agent", In: secret, Args: []string{
		"topoctl", "agent", "--listen", ":7411", "--token-file", "-", "--size", "4MiB"}}, &Nothing{})
	t.Cleanup(func() {
		var ended Ended
		if err := ask("Finish", Stopping{Name: "agent", Interrupt: true}, &ended); err != nil {
			t.Error(err)
		}
		if ended.Code != 0 && ended.Code != 130 || t.Failed() {
			t.Errorf("the agent ended with %d:\n%s%s", ended.Code, ended.Out, ended.Errors)
		}
	})
	eventually(t, "the agent listens", func() bool {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
	bench := func(t *testing.T, transport string, args ...string) Ended {
		t.Helper()
		args = append([]string{"topoctl", "bench", "--peer", address, "--token-file", "-", "--transport", transport,
			"--size", "64KiB", "--memory", "4MiB", "--duration", "300ms", "--in-flight", "1", "--batch", "4"}, args...)
		c, err := Run{Args: args, In: secret}.start()
		if err != nil {
			t.Fatal(err)
		}
		c.in.Close()
		ended, err := c.wait(within)
		if err != nil {
			t.Fatalf("%v\n%+v", err, ended)
		}
		return ended
	}
	if *long {
		t.Run("rdma", func(t *testing.T) { checkBench(t, bench(t, "rdma", "--check", "--json"), "rdma", "rdma") })
	}
	t.Run("auto", func(t *testing.T) { checkBench(t, bench(t, "auto", "--check", "--json"), "auto", "rdma") })
	t.Run("auto without RDMA", func(t *testing.T) {
		all := func(do string) {
			for rail := range 4 {
				for host := 1; host <= 2; host++ {
					if err := (Action{Do: do, Rail: rail}).on(bounded(t), host); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		all("no RoCE")
		defer all("RoCE")
		checkBench(t, bench(t, "auto", "--check", "--json"), "auto", "tcp")
		ended := bench(t, "auto", "--verbose")
		t.Logf("bench --transport auto while RDMA's packets are dropped:\n%s%s", ended.Out, ended.Errors)
		if !strings.Contains(ended.Out, ": tcp, ") {
			t.Error("the table does not say that the lanes are TCP's")
		}
	})
}

// checkBench looks at bench's JSON: everything was moved by the lanes of a transport.
func checkBench(t *testing.T, ended Ended, asked, used string) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s\n%s%s", fmt.Sprintf(format, args...), ended.Out, ended.Errors)
	}
	if ended.Code != 0 {
		fail("exit code %d", ended.Code)
	}
	var r benchReport
	if err := json.Unmarshal([]byte(ended.Out), &r); err != nil {
		fail("no JSON: %v", err)
		return
	}
	if !strings.HasPrefix(r.Schema, "topoctl.bench/") || len(r.Results) != 2 {
		fail("schema %q and %d results: want topoctl.bench and 2", r.Schema, len(r.Results))
	}
	for _, x := range r.Results {
		switch {
		case x.Error != nil:
			fail("%s: %s", x.Op, *x.Error)
		case x.Transport != asked || x.Bytes == 0 || len(x.Lanes) == 0:
			fail("%s over %q: %d bytes over %d lanes", x.Op, x.Transport, x.Bytes, len(x.Lanes))
		case x.Verified == nil || x.Verified.Bytes == 0 || x.Verified.MismatchedBytes != 0:
			fail("%s: verified %+v", x.Op, x.Verified)
		}
		for _, l := range x.Lanes {
			if l.Transport != used || l.Lane == "" || l.Connection == "" {
				fail("%s: lane %q of %q: want one of %q", x.Op, l.Lane, l.Transport, used)
			}
		}
	}
}
