package probelab

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// host is a namespace and the agent in it.
type host struct {
	t      *testing.T
	number int
	there  *netlink.Handle
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errors bytes.Buffer
	killed bool
}

func (h *host) name() string { return fmt.Sprintf("n%d", h.number+1) }

// startHost starts a host's program. Its agent begins when the cables are there.
func (l *lab) startHost(number int, flags ...string) *host {
	l.t.Helper()
	h := &host{t: l.t, number: number}
	files := l.describe(h)
	args := append([]string{"agent", "--host-root", files, "--name", h.name(), "--listen", ":7411", "--token-file", l.token, "--size", "0", "--serve-probes", "--probe-memory", "8MiB", "--until-eof", "-o", "json"}, flags...)
	h.cmd = command(roleHost, syscall.CLONE_NEWNET, args...)
	h.cmd.Stderr = &h.errors
	var err error
	h.in, err = h.cmd.StdinPipe()
	l.must("pipe", err)
	out, err := h.cmd.StdoutPipe()
	l.must("pipe", err)
	h.out = bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		l.t.Skipf("no second network namespace can be made here: %v", err)
	}
	l.t.Cleanup(h.stop)
	return h
}

// describe writes the files that state a host's hardware: a NIC for each rail, of the rate
// that the lab gives it, below a root complex of its own: nobody knows what those carry, so
// that pairs would not share one.
func (l *lab) describe(h *host) string {
	l.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, `machine: lab-%[1]s
description: a host of the probe lab
host: {arch: x86_64, kernel: 6.8.0, vendor: Lab, product: Lab, name: %[1]s}
cpu: {vendor: GenuineIntel, family: 6, model: 85, name: Lab, threads: 1}
numa:
- {node: 0, package: 0, cpus: 0-1, mem: 8GiB, distance: [10]}
pci:
`, h.name())
	for r := range l.rails {
		if l.mbit == 0 { // nobody knows what it carries
			fmt.Fprintf(&b, "- root: 0000:%[1]x0\n  numa: 0\n  below: [{nic: %[1]x0:03.0, part: virtio-net, net: %[2]s, ip: %[3]s/24, mtu: %[4]d}]\n", r+1, portName(r), l.addressOf(h.number, r), mtu)
			continue
		}
		fmt.Fprintf(&b, "- root: 0000:%[1]x0\n  numa: 0\n  below:\n  - port: %[1]x0:01.0\n    part: intel-port-gen3\n    link: gen3x8\n    below: [{nic: %[1]x1:00.0, part: x710, net: %[2]s, gbps: 1, ip: %[3]s/24, mtu: %[4]d}]\n",
			r+1, portName(r), l.addressOf(h.number, r), mtu)
	}
	tree, err := fixtures.OpenFile([]byte(b.String()))
	l.must("machine", err)
	dir := filepath.Join(longtest.TempDir(l.t), h.name())
	l.must("files", os.CopyFS(dir, tree))
	for r := range l.rails {
		speed := "-1\n" // what the kernel says of a port whose rate it does not know
		if l.mbit > 0 {
			speed = fmt.Sprintln(l.mbit)
		}
		l.must("speed", os.WriteFile(filepath.Join(dir, "sys/class/net", portName(r), "speed"), []byte(speed), 0o600))
	}
	return dir
}

// startAgent lets the agent begin, and waits until it can be reached.
func (h *host) startAgent() {
	h.t.Helper()
	if _, err := h.in.Write([]byte("\n")); err != nil {
		h.t.Fatalf("%s: %v", h.name(), err)
	}
	line, err := h.out.ReadBytes('\n')
	var ready struct{ Schema string }
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil || !strings.HasPrefix(ready.Schema, "topoctl.agent/") {
		h.t.Fatalf("%s: %v: %q\n%s", h.name(), err, line, h.errors.String())
	}
}

// kill ends the agent's process at once.
func (h *host) kill() {
	h.killed = true
	_ = h.cmd.Process.Kill()
}

func (h *host) stop() {
	h.in.Close() // that ends it
	ended := time.AfterFunc(time.Minute, func() { _ = h.cmd.Process.Kill() })
	defer ended.Stop()
	if err := h.cmd.Wait(); err != nil && !h.killed {
		h.t.Errorf("the agent of %s: %v\n%s", h.name(), err, h.errors.String())
	}
}
