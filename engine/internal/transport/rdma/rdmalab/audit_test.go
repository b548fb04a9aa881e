//go:build vmlab && linux && cgo

package rdma

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/audit"
	"github.com/topoctl/topoctl/test/vmlab"
)

// A load by perftest's ib_write_bw on one device of four, which the plan gives equal parts: audit names
// the device, the process and the idle ones. Soft-RoCE counts packets and no bytes, and audit says so.
func TestAudit(t *testing.T) {
	if *over != "rdma" {
		t.Skip("-over is not rdma, which this is about")
	}
	for _, program := range []string{"topoctl", "ib_write_bw"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not on the path: run the lab with -program ./cmd/topoctl", program)
		}
	}
	mended(t)
	const busy = 1
	load := []string{"ib_write_bw", "-d", vmlab.RDMADev(busy), "-x", strconv.Itoa(ipv4GID), "-s", strconv.Itoa(messageBytes), "-t", strconv.Itoa(messageDepth),
		"-n", "400", "-u", "18", "-F"}
	mustAsk(t, "Begin", Run{Name: "audited", Args: load}, &Nothing{})
	args := append([]string{"topoctl", "audit", "--interval", "100ms", "-o", "json", "--out-file", "/tmp/audit.json", "--"}, load...)
	var r audit.Report
	var said Ended
	for try := 0; ; try++ { // the far one takes a moment until it listens
		pause(time.Duration(300+100*try) * time.Millisecond)
		r = runAudit(t, append(args, lab.Addr(2, vmlab.ManagementRail)), &said)
		if r.Command != nil && r.Command.ExitCode == 0 || try == 20 {
			break
		}
	}
	failed := r.Command == nil || r.Command.ExitCode != 0
	mustAsk(t, "Finish", Stopping{Name: "audited", Interrupt: failed}, &Ended{})
	if failed {
		t.Fatalf("the load: %+v\n%s%s", r.Command, said.Out, said.Errors)
	}
	if said.Code != 1 || r.Answer != audit.Missed || r.Unit != audit.Packets || !strings.Contains(r.Text, vmlab.RDMADev(busy)+" carried") {
		t.Errorf("exit code %d, %s, shares of %s: %s", said.Code, r.Answer, r.Unit, r.Text)
	}
	if !strings.Contains(strings.Join(r.Notes, "\n"), "counts packets and no bytes") {
		t.Errorf("notes: %q", r.Notes)
	}
	planned := 0
	for _, p := range r.Ports {
		if *p.PlannedShare == 0 {
			continue
		}
		planned++
		if p.Name != vmlab.RDMADev(busy) {
			if p.Verdict != audit.Idle || len(p.Users) > 0 {
				t.Errorf("%s: %s, %+v", p.Name, p.Verdict, p.Users)
			}
			continue
		}
		if p.Verdict != audit.Above || len(p.Users) != 1 || p.Users[0].Name != "ib_write_bw" || p.Users[0].QueuePairs == 0 {
			t.Errorf("%s: %s, %+v", p.Name, p.Verdict, p.Users)
		}
	}
	if planned < 2 {
		t.Errorf("%d ports are planned", planned)
	}
	t.Log(r.Text)
}

// runAudit runs an audit on this machine and reads its report.
func runAudit(t *testing.T, args []string, said *Ended) (r audit.Report) {
	t.Helper()
	c, err := Run{Args: args}.start()
	if err != nil {
		t.Fatal(err)
	}
	c.in.Close()
	if *said, err = c.wait(within); err != nil {
		t.Fatalf("%v\n%+v", err, *said)
	}
	data, err := os.ReadFile("/tmp/audit.json")
	if err != nil {
		return r
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatalf("no report: %v\n%s%s", err, said.Out, said.Errors)
	}
	return r
}
