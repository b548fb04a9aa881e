//go:build vmlab && linux

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/test/vmlab"
	"github.com/topoctl/topoctl/test/vmlab/guest"
)

// rails are those of the lab's usual machines.
const rails = 4

// open opens the lab, and waits for the other machine on the way in and out: what one
// breaks the other must not see.
func open(t *testing.T) (*guest.Lab, context.Context) {
	t.Helper()
	return guest.ForTest(t, 90*time.Second)
}

// how a doctor is run.
type how struct {
	env     []string
	user    bool   // as a user without capabilities
	memlock *int64 // bytes, soft and hard
	cgroup  int    // a descriptor of the cgroup to run in, 0 is our own
	args    []string
}

// examine runs topoctl doctor as a person would, and gives its report.
func examine(t *testing.T, ctx context.Context, h how) *doctor.Report {
	t.Helper()
	cmd := exec.CommandContext(ctx, "topoctl", append([]string{"doctor", "-o", "json", "--fail-on", "never"}, h.args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, h.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if h.user {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	if h.cgroup != 0 {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, h.cgroup
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := withMemlock(t, h.memlock, cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if code, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || code.ExitCode() != 3) {
		t.Fatalf("topoctl doctor: %v: %s", err, &errs)
	}
	r := &doctor.Report{}
	if err := json.Unmarshal(out.Bytes(), r); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	return r
}

// withMemlock starts something with a limit on locked memory, which children inherit.
func withMemlock(t *testing.T, limit *int64, start func() error) error {
	t.Helper()
	if limit == nil {
		return start()
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: uint64(*limit), Max: uint64(*limit)}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
			t.Error(err)
		}
	}()
	return start()
}

// check is one check of a report.
func check(t *testing.T, r *doctor.Report, code doctor.Code) doctor.CheckResult {
	t.Helper()
	i := slices.IndexFunc(r.Checks, func(c doctor.CheckResult) bool { return c.Code == code })
	if i < 0 {
		t.Fatalf("no check %s", code)
	}
	return r.Checks[i]
}

// finds wants a finding with a text about some devices.
func finds(t *testing.T, r *doctor.Report, code doctor.Code, severity doctor.Severity, text string, subjects ...topo.ID) {
	t.Helper()
	c := check(t, r, code)
	for _, f := range c.Findings {
		t.Logf("%s %s %v: %s\n  seen %s\n  fix %s", f.Severity.Label(), f.Code, f.Subjects, f.Text, strings.Join(f.Evidence, "; "), f.Fix)
	}
	if !slices.ContainsFunc(c.Findings, func(f doctor.Finding) bool {
		return f.Severity == severity && strings.Contains(f.Text, text) && slices.Equal(f.Subjects, subjects)
	}) {
		t.Errorf("%s: no %s about %v says %q: %s %+v %+v", code, severity, subjects, text, c.Status, c.Findings, c.Missing)
	}
}

// faults are the checks of what this suite breaks.
var faults = []doctor.Code{"gid-index-wrong", "gid-missing", "gid-none-routable", "gid-index-differs", "port-down", "no-usable-port", "mtu-mismatch", "mtu-active",
	"mtu-peer", "memlock", "registration-refused", "uverbs-inaccessible"}

// only wants findings of some checks and of no other fault.
func only(t *testing.T, r *doctor.Report, codes ...doctor.Code) {
	t.Helper()
	for _, code := range faults {
		c := check(t, r, code)
		for _, f := range c.Findings {
			if f.Severity != doctor.Info && !slices.Contains(codes, code) {
				t.Errorf("%s too: %s", code, f.Text)
			}
		}
		if len(c.Findings) == 0 && slices.Contains(codes, code) {
			t.Errorf("%s: %s, want a finding: %+v", code, c.Status, c.Missing)
		}
	}
}

func port(rail int) topo.ID { return topo.PortID(vmlab.RDMADev(rail), 1) }

func ports() (out []topo.ID) {
	for rail := range rails {
		out = append(out, port(rail))
	}
	return out
}

// A machine that is well: each check was made, and none finds a fault.
func TestWell(t *testing.T) {
	_, ctx := open(t)
	r := examine(t, ctx, how{})
	only(t, r)
	for _, code := range []doctor.Code{"gid-missing", "gid-none-routable", "gid-index-differs", "port-down", "mtu-mismatch", "mtu-active", "registration-refused", "uverbs-inaccessible"} {
		if c := check(t, r, code); c.Status != doctor.OK {
			t.Errorf("%s: %s: %s %+v", code, c.Status, c.Note, c.Missing)
		}
	}
	if c := check(t, r, "gid-index-wrong"); c.Status != doctor.NotApplicable {
		t.Errorf("gid-index-wrong: %s: %s %+v", c.Status, c.Note, c.Missing)
	}
	if c := check(t, examine(t, ctx, how{env: []string{"NCCL_IB_GID_INDEX=1"}}), "gid-index-wrong"); c.Status != doctor.OK {
		t.Errorf("a good index: %s %+v %+v", c.Status, c.Findings, c.Missing)
	}
}

func TestWrongGID(t *testing.T) {
	l, ctx := open(t)
	r := examine(t, ctx, how{env: []string{"NCCL_IB_GID_INDEX=7"}})
	only(t, r, "gid-index-wrong")
	finds(t, r, "gid-index-wrong", doctor.Error, "NCCL_IB_GID_INDEX=7, but the port has no GID of that index", ports()...)
	r = examine(t, ctx, how{args: []string{"--gid-index", "0"}})
	only(t, r, "gid-index-wrong")
	finds(t, r, "gid-index-wrong", doctor.Warning, "--gid-index 0, but that GID is a link-local address", ports()...)
	if err := l.RemoveAddress(ctx, 0); err != nil {
		t.Fatal(err)
	}
	r = examine(t, ctx, how{env: []string{"UCX_IB_GID_INDEX=1"}})
	only(t, r, "gid-index-wrong", "gid-none-routable")
	finds(t, r, "gid-index-wrong", doctor.Error, "UCX_IB_GID_INDEX=1, but the port has no GID of that index", port(0))
	finds(t, r, "gid-none-routable", doctor.Warning, "interface rail0 has no such address: it was taken away, or never given", port(0))
}

func TestPortDown(t *testing.T) {
	l, ctx := open(t)
	if err := l.LinkDown(ctx, 1); err != nil {
		t.Fatal(err)
	}
	r := examine(t, ctx, how{})
	only(t, r, "port-down")
	finds(t, r, "port-down", doctor.Warning, "its interface is switched off", port(1))
	if err := l.Mend(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := l.CarrierLost(ctx, 2); err != nil {
		t.Fatal(err)
	}
	r = examine(t, ctx, how{})
	only(t, r, "port-down")
	finds(t, r, "port-down", doctor.Warning, "its interface has no carrier", port(2))
}

// An MTU that one rail alone has is seen on the machine itself, one that the machines do
// not share when they are compared.
func TestMTU(t *testing.T) {
	l, ctx := open(t)
	if l.Host() == 1 {
		if err := l.SetMTU(ctx, 3, 1500); err != nil {
			t.Fatal(err)
		}
	}
	mine, err := exec.CommandContext(ctx, "topoctl", "discover", "-q").Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Exchange(ctx, "topology", string(mine))
	if err != nil {
		t.Fatal(err)
	}
	peer := filepath.Join(t.TempDir(), "peer.json")
	if err := os.WriteFile(peer, []byte(theirs), 0o644); err != nil {
		t.Fatal(err)
	}
	r := examine(t, ctx, how{args: []string{"--peer", peer}})
	if l.Host() == 1 {
		only(t, r, "mtu-mismatch", "mtu-peer")
		finds(t, r, "mtu-mismatch", doctor.Warning, "data ports have different MTUs: 1500 on rxe3; 4200 on rxe0, rxe1 and rxe2", port(3), port(0), port(1), port(2))
		finds(t, r, "mtu-peer", doctor.Warning, "RDMA must use packets of 1024 bytes", port(3))
	} else {
		only(t, r, "mtu-peer")
		finds(t, r, "mtu-peer", doctor.Warning, "RDMA must use packets of 1024 bytes", port(3))
	}
}

// letUsersIn opens the device files to users, as rdma-core's udev rules do.
func letUsersIn(t *testing.T, mode os.FileMode) {
	t.Helper()
	files, err := filepath.Glob("/dev/infiniband/uverbs*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(name, info.Mode().Perm()) })
	}
}

func devices() (out []topo.ID) {
	for rail := range rails {
		out = append(out, topo.RDMAID(vmlab.RDMADev(rail)))
	}
	return out
}

func TestMemlock(t *testing.T) {
	_, ctx := open(t)
	letUsersIn(t, 0o666)
	limit := int64(64 << 10)
	r := examine(t, ctx, how{user: true, memlock: &limit})
	only(t, r, "memlock", "registration-refused")
	finds(t, r, "memlock", doctor.Error, "may lock only 64 KiB")
	finds(t, r, "registration-refused", doctor.Error, "refuses to register 16 MiB with ENOMEM: the limit on locked memory, 64 KiB", devices()...)
	limit = 0
	r = examine(t, ctx, how{user: true, memlock: &limit})
	only(t, r, "memlock", "registration-refused")
	finds(t, r, "registration-refused", doctor.Error, "this process may not lock any memory", devices()...)
	limit = 1 << 40
	only(t, examine(t, ctx, how{user: true, memlock: &limit}))
	limit = 64 << 10
	r = examine(t, ctx, how{memlock: &limit}) // root: the limit does not hold
	only(t, r)
	finds(t, r, "memlock", doctor.Info, "does not apply to the process that ran topoctl (CAP_IPC_LOCK)")
	if c := check(t, r, "registration-refused"); c.Status != doctor.OK {
		t.Errorf("root: %+v", c)
	}
}

func TestShutOut(t *testing.T) {
	_, ctx := open(t)
	letUsersIn(t, 0o600)
	limit := int64(1 << 40)
	r := examine(t, ctx, how{user: true, memlock: &limit})
	only(t, r, "uverbs-inaccessible")
	finds(t, r, "uverbs-inaccessible", doctor.Error, "may not open the uverbs file", devices()...)
	if c := check(t, r, "registration-refused"); c.Status != doctor.CouldNotCheck {
		t.Errorf("registration-refused: %s %+v", c.Status, c.Findings)
	}
}

// The rdma cgroup lets a process have two objects: a protection domain goes, the memory
// region after it does not.
func TestRefused(t *testing.T) {
	_, ctx := open(t)
	root := t.TempDir()
	if err := unix.Mount("cgroup", root, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(root, "few")
	t.Cleanup(func() {
		_ = os.Remove(group)
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(root, "cgroup.subtree_control"), "+rdma")
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(group, "rdma.max"), fmt.Sprintf("%s hca_handle=max hca_object=1", vmlab.RDMADev(2)))
	dir, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	r := examine(t, ctx, how{cgroup: int(dir.Fd())})
	only(t, r, "registration-refused")
	finds(t, r, "registration-refused", doctor.Error, "with EAGAIN: the rdma cgroup allows no more objects", topo.RDMAID(vmlab.RDMADev(2)))
}
