//go:build vmlab && linux

package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/test/vmlab"
	"github.com/topoctl/topoctl/test/vmlab/guest"
)

func open(t *testing.T) (*guest.Lab, context.Context) {
	t.Helper()
	return guest.ForTest(t, 90*time.Second)
}

// topoctl runs the program as a user would. Codes 0 (fine), 1 (the answer is bad) and 3
// (partial) come with an answer.
func topoctl(ctx context.Context, t *testing.T, args ...string) (out []byte, code int) {
	t.Helper()
	out, errs, code := program(ctx, t, args...)
	if !slices.Contains([]int{0, 1, 3}, code) {
		t.Fatalf("topoctl %s: exit code %d\n%s", strings.Join(args, " "), code, errs)
	}
	return out, code
}

// program is topoctl with whatever code it ends.
func program(ctx context.Context, t *testing.T, args ...string) (out, errs []byte, code int) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "topoctl", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("topoctl %s: %v", strings.Join(args, " "), err)
	}
	return out, stderr.Bytes(), cmd.ProcessState.ExitCode()
}

func discover(ctx context.Context, t *testing.T, args ...string) *topo.Topology {
	t.Helper()
	out, _ := topoctl(ctx, t, append([]string{"discover"}, args...)...)
	host, err := topo.Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// Everything that was stated is found, and nothing else.
func TestDiscover(t *testing.T) {
	l, ctx := open(t)
	m := l.Hardware()
	capture := filepath.Join(l.Out(), "lab-"+m.Layout+".capture")
	host := discover(ctx, t, "--capture", capture)
	if host.Origin != "live" || !host.Complete {
		t.Errorf("origin %q, complete %v", host.Origin, host.Complete)
	}
	diff(t, "NUMA nodes", numaNodes(host), statedNodes(m))
	diff(t, "host bridges", hostBridges(host), statedBridges(m))
	diff(t, "PCI functions", functions(host), statedFunctions(m))
	diff(t, "switches", switches(host), statedSwitches(m))
	diff(t, "RDMA devices", rdmaDevices(host), statedRDMA(m, l.Host()))
	diff(t, "interfaces", netdevs(host), statedNetdevs(m, l.Host()))
	if stated, found := statedGPUs(m), gpus(host); len(stated)+len(found) > 0 { // rails has none
		diff(t, "GPUs", found, stated)
		// The capture says the same of the same machine.
		replayed := discover(ctx, t, "--from", capture)
		diff(t, "classes of the capture", classes(replayed), classes(host))
	}
}

// The matrix has the classes that follow from what was stated.
func TestMatrix(t *testing.T) {
	l, ctx := open(t)
	diff(t, "matrix", matrixOf(ctx, t), statedClasses(l.Hardware()))
}

// matrixOf is what topoctl matrix has of every pair, by the functions' addresses.
func matrixOf(ctx context.Context, t *testing.T, args ...string) []string {
	t.Helper()
	out, _ := topoctl(ctx, t, append([]string{"matrix", "-o", "json"}, args...)...)
	var matrix struct {
		Rows, Cols []struct{ Name, BDF string }
		Class      [][]*string
	}
	if err := json.Unmarshal(out, &matrix); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, row := range matrix.Class {
		for j, class := range row {
			got = append(got, fmt.Sprintf("%s %s: %s", matrix.Rows[i].BDF, matrix.Cols[j].BDF, word(class)))
		}
	}
	slices.Sort(got)
	return got
}

func word(class *string) string {
	if class == nil {
		return "?"
	}
	return *class
}

// What is broken is seen as what it is: a link taken down, a cable pulled, an address
// taken away, a NIC removed.
func TestFaults(t *testing.T) {
	l, ctx := open(t)
	m := l.Hardware()
	for _, err := range []error{l.LinkDown(ctx, 0), l.RemoveAddress(ctx, 1), l.CarrierLost(ctx, 2), l.RemoveDevice(ctx, 3)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	host := discover(ctx, t)
	want := statedRDMA(m, l.Host())
	want = slices.DeleteFunc(want, func(s string) bool { return strings.HasPrefix(s, "rxe3 ") })
	for i, s := range want {
		rail := int(s[3] - '0')
		if rail == 0 || rail == 2 {
			s = strings.ReplaceAll(s, "ACTIVE", "DOWN")
		}
		if rail == 1 {
			s = strings.ReplaceAll(s, gid(l.Host(), rail), "")
		}
		want[i] = strings.TrimSpace(s)
	}
	diff(t, "RDMA devices", rdmaDevices(host), want)
	wantNet := statedNetdevs(m, l.Host())
	wantNet = slices.DeleteFunc(wantNet, func(s string) bool { return strings.HasPrefix(s, "rail3 ") })
	for i, s := range wantNet {
		switch s[:5] {
		case "rail0":
			s = strings.ReplaceAll(s, "up true carrier true", "up false carrier unknown")
		case "rail1":
			s = strings.ReplaceAll(s, " "+vmlab.Address(l.Host(), 1)+"/24", "")
		case "rail2":
			s = strings.ReplaceAll(s, "up true carrier true", "up true carrier false")
		}
		wantNet[i] = s
	}
	diff(t, "interfaces", netdevs(host), wantNet)
	diff(t, "findings", findings(ctx, t), statedFindings(m, true))
	if err := l.MendAll(ctx); err != nil {
		t.Fatal(err)
	}
	host = discover(ctx, t)
	diff(t, "RDMA devices that were mended", rdmaDevices(host), statedRDMA(m, l.Host()))
	diff(t, "interfaces that were mended", netdevs(host), statedNetdevs(m, l.Host()))
	diff(t, "PCI functions after all", functions(host), statedFunctions(m))
}

// The doctor finds what was stated to be odd, by name, and nothing else.
func TestDoctor(t *testing.T) {
	l, ctx := open(t)
	diff(t, "findings", findings(ctx, t), statedFindings(l.Hardware(), false))
}

func findings(ctx context.Context, t *testing.T, args ...string) []string {
	t.Helper()
	out, _ := topoctl(ctx, t, append([]string{"doctor", "-o", "json"}, args...)...)
	var report struct {
		Checks []struct {
			Findings []struct {
				Code     string
				Subjects []string
			}
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, c := range report.Checks {
		for _, f := range c.Findings {
			list = append(list, fmt.Sprintf("%s %v", f.Code, f.Subjects))
		}
	}
	return list
}
