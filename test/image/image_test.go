// Package image runs the container image that .ci/release makes as Kubernetes would: another user, no
// capability, no way to more of them, a root file system that cannot be written. TOPOCTL_IMAGE names the
// archive (.ci/long image sets it).
package image

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
)

// document is JSON that is changed in places.
type document = map[string]any

// bundle is the image, unpacked by umoci; each container that runs has a copy of the configuration.
type bundle struct {
	dir    string
	config []byte
}

func unpack(t *testing.T) bundle {
	t.Helper()
	archive := os.Getenv("TOPOCTL_IMAGE")
	if archive == "" {
		t.Skip("TOPOCTL_IMAGE names no image: .ci/long image makes one and runs this")
	}
	if os.Geteuid() != 0 {
		t.Skip("not root: runc makes namespaces and another user")
	}
	dir := t.TempDir()
	must(t, "mkdir", dir+"/layout")
	must(t, "tar", "-xf", archive, "-C", dir+"/layout")
	tag := strings.TrimSpace(must(t, "umoci", "list", "--layout", dir+"/layout"))
	must(t, "umoci", "unpack", "--image", dir+"/layout:"+tag, dir+"/bundle")
	if err := os.Chmod(dir+"/bundle", 0o755); err != nil { // the other user goes through it
		t.Fatal(err)
	}
	config, err := os.ReadFile(dir + "/bundle/config.json")
	if err != nil {
		t.Fatal(err)
	}
	return bundle{dir + "/bundle", config}
}

func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return string(out)
}

// container is a command that runs in the image, on the host's network as the DaemonSet does. mounts are
// directories and files of this machine by where they are seen, read-only. Its process's number will be
// in the file pid.
func (b bundle) container(t *testing.T, mounts map[string]string, args ...string) (cmd *exec.Cmd, pid string) {
	t.Helper()
	var c document
	if err := json.Unmarshal(b.config, &c); err != nil {
		t.Fatal(err)
	}
	c["root"] = document{"path": b.dir + "/rootfs", "readonly": true}
	process := c["process"].(document)
	process["terminal"], process["noNewPrivileges"], process["capabilities"] = false, true, document{}
	entry := process["args"].([]any)
	for _, a := range args {
		entry = append(entry, a)
	}
	process["args"] = entry
	linux := c["linux"].(document)
	delete(linux, "resources")
	linux["namespaces"] = slices.DeleteFunc(linux["namespaces"].([]any), func(n any) bool { return n.(document)["type"] == "network" })
	list := append(c["mounts"].([]any), document{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": []string{"mode=1777"}})
	for at, dir := range mounts {
		list = append(list, document{"destination": at, "type": "bind", "source": dir, "options": []string{"bind", "ro"}})
	}
	c["mounts"] = list
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	if err := os.WriteFile(own+"/config.json", text, 0o600); err != nil {
		t.Fatal(err)
	}
	name := "topoctl-" + filepath.Base(filepath.Dir(own)) + filepath.Base(own)
	return exec.Command("runc", "--root", own+"/runc", "run", "--pid-file", own+"/pid", "--bundle", own, name), own + "/pid"
}

// run gives what a command prints and its exit code.
func run(t *testing.T, cmd *exec.Cmd) (out, said string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), code
}

// tree is a machine of fixtures, as a directory.
func tree(t *testing.T, machine string) string {
	t.Helper()
	files, err := fixtures.Open(machine)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestImage(t *testing.T) {
	b := unpack(t)
	well, degraded := tree(t, "a10-2nic"), tree(t, "dgx-h100-port-down")

	t.Run("doctor", func(t *testing.T) {
		for _, c := range []struct {
			host, first string
			code        int
		}{
			{well, "No problem found on ", 0},
			{degraded, "mlx5_6: port is DOWN (Polling), nothing answers at the other end.", 1},
		} {
			cmd, _ := b.container(t, map[string]string{"/host": c.host}, "doctor", "--root", "/host", "--fail-on", "error")
			out, said, code := run(t, cmd)
			if code != c.code || !strings.HasPrefix(out, c.first) {
				t.Errorf("exit code %d: %s%s", code, out, said)
			}
		}
	})

	// The files of a host whose root directory is mounted at /host are read there.
	t.Run("host root", func(t *testing.T) {
		cmd, _ := b.container(t, map[string]string{"/host": degraded}, "discover", "--host-root", "/host", "-q")
		out, said, code := run(t, cmd)
		host, err := topo.Decode([]byte(out))
		if err != nil || code != 0 && code != 3 {
			t.Fatalf("exit code %d, %v: %s", code, err, said)
		}
		if len(host.GPUs) != 8 || host.Origin != "live" {
			t.Errorf("%d GPUs, origin %s", len(host.GPUs), host.Origin)
		}
	})

	t.Run("agent", func(t *testing.T) { agent(t, b) })

	// What is opened at run time finds all that it needs itself.
	t.Run("libraries", func(t *testing.T) {
		for _, library := range []string{"libibverbs.so.1", "libibverbs/libmlx5-rdmav34.so", "libibverbs/libefa-rdmav34.so", "libibverbs/librxe-rdmav34.so"} {
			cmd := exec.Command("chroot", b.dir+"/rootfs", "/lib64/ld-linux-x86-64.so.2", "--list", "/usr/lib/x86_64-linux-gnu/"+library)
			if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "not found") {
				t.Errorf("%s: %v: %s", library, err, out)
			}
		}
	})
}

// agent serves as the user of the image, with a Secret's file, and a peer outside moves bytes.
func agent(t *testing.T, b bundle) {
	token := filepath.Join(t.TempDir(), "token")
	err := errors.Join(os.WriteFile(token, []byte("0123456789abcdef0123456789abcdef\n"), 0o440), os.Chown(token, 0, 65532))
	if err != nil {
		t.Fatal(err)
	}
	cmd, pid := b.container(t, map[string]string{"/etc/topoctl/token": token},
		"agent", "--listen", "127.0.0.1:0", "--token-file", "/etc/topoctl/token", "--http", "127.0.0.1:0", "--size", "32MiB", "--until-eof", "-o", "json")
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the agent ended: %v: %s", err, said.String())
		}
	}()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var ready struct {
		Addresses, HTTP []string
	}
	if err != nil || json.Unmarshal(line, &ready) != nil {
		t.Fatalf("not ready: %v: %s%s", err, line, said.String())
	}
	if strings.Contains(said.String(), "warning") {
		t.Errorf("it warns: %s", said.String())
	}
	for page, want := range map[string]string{"/healthz": "ok\n", "/metrics": "\ntopoctl_engine_batches_total 0\n", "/metrics/host": "\ntopoctl_complete "} {
		answer, err := http.Get("http://" + ready.HTTP[0] + page)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v: %.200s", page, answer.Status, err, text)
		}
	}
	number, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/" + string(number) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nUid:\t65532\t65532\t65532\t65532\n", "\nGid:\t65532\t", "\nCapEff:\t0000000000000000\n", "\nCapBnd:\t0000000000000000\n", "\nNoNewPrivs:\t1\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("the agent's status has no %q:\n%s", want, status)
		}
	}
	bench := exec.Command("go", "run", "../../cmd/topoctl", "bench", "-q", "--peer", ready.Addresses[0], "--token-file", token, "--size", "64KiB", "--duration", "50ms", "--check", "-o", "json")
	if out, said, code := run(t, bench); code != 0 {
		t.Errorf("bench: exit code %d: %s%s", code, out, said)
	}
}
