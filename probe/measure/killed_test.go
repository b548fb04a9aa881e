//go:build unix

package measure_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/measure"
	"github.com/topoctl/topoctl/testkit/childtest"
)

const secret = "0123456789abcdef"

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// child starts an agent of its own process.
func child(t *testing.T, listen string) (p *childtest.Process, address string) {
	t.Helper()
	p = childtest.Start(t, "FABRIC_TEST_AGENT=1", "agent", "--listen", listen)
	fmt.Fprintln(p.In, secret)
	var ready struct{ Addresses []string }
	if err := json.Unmarshal([]byte(p.Line(t)), &ready); err != nil {
		t.Fatal(err)
	}
	return p, ready.Addresses[0]
}

// An agent that dies, or hangs, in mid-round costs its own pairs, of which what was measured is
// kept; the others go on, and the next rounds of that host fail at once.
func TestKilledInMidRound(t *testing.T) {
	for name, kill := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "hangs": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			victim, address := child(t, "127.0.0.1:0")
			_, second := child(t, "127.0.0.1:0")
			_, third := child(t, "127.0.0.1:0")
			f, err := measure.Hosts(limited(t), measure.HostsOptions{Credentials: trust.Secret([]byte(secret)),
				Hosts: []probe.Host{{Name: "n0", Address: address}, {Name: "n1", Address: second}, {Name: "n2", Address: third}}}.GivesUpAfter(2*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			spec := probe.Spec{Warmup: time.Millisecond, SampleTime: 5 * time.Millisecond, MinSamples: 60, MaxSamples: 60, SizesBytes: []int64{64 << 10}, PairTime: 30 * time.Second}
			pairs := []probe.Pair{measure.PairOf("n0", "n1"), measure.PairOf("n1", "n2"), measure.PairOf("n2", "n0")}
			told := 0
			out := f.Round(limited(t), pairs, spec, func(i int, _ probe.Sample) {
				if i == 0 {
					if told++; told == 3 {
						_ = victim.Process.Signal(kill)
					}
				}
			})
			if out[0].Err == nil || !strings.Contains(out[0].Err.Error(), "n0: ") || len(out[0].Bandwidth) != 1 || len(out[0].Bandwidth[0].SamplesBytesPerSec) < 3 ||
				out[0].Bandwidth[0].Stopped != probe.StoppedError || out[0].Bandwidth[0].Bytes <= 0 {
				t.Errorf("its own pair: %v, %+v", out[0].Err, out[0].Bandwidth)
			}
			if out[1].Err != nil || len(out[1].Bandwidth) != 1 || len(out[1].Bandwidth[0].SamplesBytesPerSec) != 60 {
				t.Errorf("a pair of the others: %v", out[1].Err)
			}
			if out[2].Err == nil || !strings.Contains(out[2].Err.Error(), "n0: ") { // n2 is well
				t.Errorf("a pair that writes to it: %v", out[2].Err)
			}
			began := time.Now()
			out = f.Round(limited(t), pairs, spec, nil)
			if out[0].Err == nil || out[2].Err == nil || out[1].Err != nil {
				t.Errorf("the next round: %v, %v, %v", out[0].Err, out[2].Err, out[1].Err)
			}
			// A call can fail before its peer counts as lost.
			for ctx := limited(t); f.Hosts()[0].Error == ""; time.Sleep(time.Millisecond) {
				if ctx.Err() != nil {
					t.Fatal("the host has no error")
				}
			}
			out = f.Round(limited(t), pairs[:1], spec, nil)
			if out[0].Err == nil || len(out[0].Bandwidth) > 0 {
				t.Errorf("the round after that: %+v", out[0])
			}
			t.Log(time.Since(began), out[0].Err)
		})
	}
}

// An agent that was restarted meanwhile is another one.
func TestRestartedAgent(t *testing.T) {
	address := childtest.Address(t)
	first, _ := child(t, address)
	_, other := child(t, "127.0.0.1:0")
	f, err := measure.Hosts(limited(t), measure.HostsOptions{Credentials: trust.Secret([]byte(secret)), Hosts: []probe.Host{{Name: "n0", Address: address}, {Name: "n1", Address: other}}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first.Kill()
	child(t, address)
	spec := probe.Spec{SampleTime: 5 * time.Millisecond, MaxSamples: 3, SizesBytes: []int64{4096}, PairTime: 10 * time.Second}
	for range 2 {
		out := f.Round(limited(t), []probe.Pair{measure.PairOf("n1", "n0")}, spec, nil)
		if out[0].Err == nil || !strings.Contains(out[0].Err.Error(), "n0: ") {
			t.Errorf("%v", out[0].Err)
		}
	}
	// It was dialled again while its host refused connections, or later.
	if h := f.Hosts()[0]; !strings.Contains(h.Error, "connection refused") && !strings.Contains(h.Error, "restarted") {
		t.Errorf("host error %q", h.Error)
	}
}

// fakeSSH puts a program called ssh in front of PATH that writes its arguments to a file
// and does as the script says; it gives the file.
func fakeSSH(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// topoctl there is this test's binary.
	write := func(name, text string) {
		if err := os.WriteFile(dir+"/"+name, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("ssh", fmt.Sprintf("printf '%%s\\n' \"$@\" >>'%s/args'\n%s\n", dir, script))
	write("topoctl", fmt.Sprintf("printf '%%s\\n' \"$@\" >>'%s/remote'\nFABRIC_TEST_AGENT=1 exec '%s' \"$@\"\n", dir, self))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

// remoteShell runs the command that ssh was given, as sshd has it run by a shell.
const remoteShell = `for last in "$@"; do :; done; exec sh -c "$last"`

// Agents are started by ssh, measure, and are gone in the end. The token is on no command
// line, and no argument can be more than one word of the shell there.
func TestLaunch(t *testing.T) {
	dir := fakeSSH(t, "echo welcome to the host >&2\n"+remoteShell)
	evil := "a'b; touch " + dir + "/owned; $(touch " + dir + "/owned)"
	o := measure.HostsOptions{Credentials: trust.Secret([]byte(secret)), Launch: &measure.Launch{Args: []string{"--name", evil}},
		Hosts: []probe.Host{{Name: "n0", Address: childtest.Address(t)}, {Name: "n1", Address: childtest.Address(t)}}}
	f, err := measure.Hosts(limited(t), o)
	if err != nil {
		t.Fatal(err)
	}
	spec := probe.Spec{SampleTime: 5 * time.Millisecond, MaxSamples: 3, SizesBytes: []int64{4096}, PairTime: time.Minute}
	out := f.Round(limited(t), []probe.Pair{measure.PairOf("n1", "n0")}, spec, nil)
	if out[0].Err != nil {
		t.Error(out[0].Err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	local, err := os.ReadFile(dir + "/args")
	if err != nil {
		t.Fatal(err)
	}
	remote, err := os.ReadFile(dir + "/remote")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(local)+string(remote), secret) {
		t.Error("the token is on a command line")
	}
	for _, want := range []string{"BatchMode=yes", "ConnectTimeout=10", "--\n127.0.0.1\n'topoctl' 'agent' "} {
		if !strings.Contains(string(local), want) {
			t.Errorf("ssh %s\nwant %q", local, want)
		}
	}
	if !strings.Contains(string(remote), "\n--until-eof\n") || !strings.Contains(string(remote), "\n"+evil+"\n") {
		t.Errorf("agent %s", remote)
	}
	if _, err := os.Stat(dir + "/owned"); err == nil {
		t.Error("an argument was run by the shell")
	}
	for _, h := range o.Hosts { // the agents are gone
		if _, err := measure.Hosts(limited(t), measure.HostsOptions{Credentials: trust.Secret([]byte(secret)), Hosts: []probe.Host{h}, DialTime: time.Second}); err == nil {
			t.Errorf("%s is still there", h.Name)
		}
	}
}

// What goes wrong in starting is told with the words of ssh or the agent.
func TestLaunchFails(t *testing.T) {
	for script, want := range map[string]string{
		"echo 'Permission denied (publickey).' >&2; exit 255":                                "the agent did not start: exit status 255: Permission denied (publickey).",
		"read token; echo 'not json'; cat >/dev/null":                                        "is not topoctl.agent/v1: not json",
		"read token; printf '\\033[2J\\n'; cat >/dev/null":                                   "is not topoctl.agent/v1: \\x1b[2J",
		`echo '{"schema":"topoctl.agent/v1","epoch":"1","addresses":["x"]}'; cat >/dev/null`: `it listens at "x"`,
		"cat >/dev/null": "no answer within 1s",
		"exec 1>&-; cat >/dev/null; echo bye >&2": "the agent did not start",
	} {
		fakeSSH(t, script)
		wait := time.Minute
		if strings.HasPrefix(want, "no answer") { // it alone is waited out
			wait = time.Second
		}
		_, err := measure.Hosts(limited(t), measure.HostsOptions{Credentials: trust.Secret([]byte(secret)), Launch: &measure.Launch{}, DialTime: wait, Hosts: []probe.Host{{Name: "n0", Address: "127.0.0.1:7411"}}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "n0: ") || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	// Another agent answers at the address.
	_, address := child(t, "127.0.0.1:0")
	fakeSSH(t, fmt.Sprintf(`echo '{"schema":"topoctl.agent/v1","epoch":"1","addresses":["%s"]}'; cat >/dev/null`, address))
	_, err := measure.Hosts(limited(t), measure.HostsOptions{Credentials: trust.Secret([]byte(secret)), Launch: &measure.Launch{}, Hosts: []probe.Host{{Name: "n0", Address: address}}})
	if err == nil || !strings.Contains(err.Error(), "is not the one that was started") {
		t.Errorf("another agent: %v", err)
	}
	for _, h := range []string{"-oProxyCommand=x:1", "a b:1", "1.2.3.4"} {
		_, err := measure.Hosts(limited(t), measure.HostsOptions{Credentials: trust.Secret([]byte(secret)), Launch: &measure.Launch{}, Hosts: []probe.Host{{Name: "n0", Address: h}}})
		if err == nil || !strings.Contains(err.Error(), "launch:") {
			t.Errorf("%q: %v", h, err)
		}
	}
	if _, err := measure.Hosts(limited(t), measure.HostsOptions{Launch: &measure.Launch{}, Hosts: []probe.Host{{Name: "n0", Address: "h:1"}}}); err == nil || !strings.Contains(err.Error(), "need a token") {
		t.Errorf("no token: %v", err)
	}
}
