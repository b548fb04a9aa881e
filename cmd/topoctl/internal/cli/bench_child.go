package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/topoctl/topoctl/engine/trust"
)

// childTime is how long a child may take to be ready, and to end.
const childTime = 20 * time.Second

// childAgent is an agent of this program's own on this host.
type childAgent struct {
	PID         int
	Address     string
	Credentials func() *trust.Credentials
	Stop        func() error // the agent also ends with this process
}

// startAgent starts one that the host flags and the settings of RDMA hold for, too; args say what
// it serves.
func startAgent(ctx context.Context, in *Host, rdma *RDMA, args ...string) (*childAgent, error) {
	token := []byte(rand.Text())
	a := &childAgent{Credentials: trust.Secret(token)}
	args = append([]string{"agent", "--listen", "127.0.0.1:0", "--token-file", "-", "--until-eof", "-o", "json", "-q", "--timeout", in.Globals.Timeout.String()}, args...)
	if in.Globals.HostRoot != "" {
		args = append(args, "--host-root", in.Globals.HostRoot)
	}
	var ready agentReady
	var err error
	if a.PID, a.Stop, err = startChild(ctx, append(args, rdma.Args()...), append(token, '\n'), &ready); err != nil {
		return nil, fmt.Errorf("start an agent: %w", err)
	}
	if len(ready.Addresses) == 0 {
		return nil, errors.Join(errors.New("start an agent: it has no address"), a.Stop())
	}
	a.Address = ready.Addresses[0]
	return a, nil
}

// startChild runs this program again: it gets a line, answers with a line of JSON, and
// ends when its standard input does, which is when this process is gone at the
// latest.
func startChild(ctx context.Context, args []string, line []byte, answer any) (pid int, stop func() error, err error) {
	self, err := os.Executable()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return 0, nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.SysProcAttr = ownGroup() // Ctrl-C is for this process, which ends the child when it is done
	var errs strings.Builder
	cmd.Stderr = &limited{w: &errs, left: 64 << 10}
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	kill := func() { cmd.Process.Kill() } //nolint:errcheck // it has ended
	limit := time.AfterFunc(childTime, kill)
	interrupted := context.AfterFunc(ctx, kill)
	_, err = in.Write(line)
	if err == nil {
		var first []byte
		if first, err = bufio.NewReader(out).ReadBytes('\n'); err == nil {
			err = json.Unmarshal(first, answer)
		}
	}
	limit.Stop()
	interrupted()
	stop = func() error {
		if ctx.Err() != nil { // an orderly end gives its memory back first, which takes a while
			kill()
			cmd.Wait() //nolint:errcheck // it was killed
			return nil
		}
		in.Close() //nolint:errcheck // this is what ends it
		t := time.AfterFunc(childTime, kill)
		defer t.Stop()
		return cmd.Wait()
	}
	if err != nil {
		ended := stop()
		if ctx.Err() != nil {
			return 0, nil, ctx.Err()
		}
		if said := strings.TrimSpace(errs.String()); said != "" {
			return 0, nil, errors.New(strings.TrimPrefix(said, "topoctl: "+args[0]+": "))
		}
		return 0, nil, errors.Join(err, ended)
	}
	return cmd.Process.Pid, stop, nil
}

// limited keeps the beginning of what is written.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	keep := p[:min(len(p), l.left)]
	l.left -= len(keep)
	if _, err := l.w.Write(keep); err != nil {
		return 0, err
	}
	return len(p), nil
}
