package measure

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/ssh"
)

// Launch starts an agent on each host through the system's ssh, and stops it again. The token is passed
// through standard input, which stays open: an agent ends when standard input does, so it ends with this
// process.
type Launch struct {
	// Command starts the agent on the hosts: a program, and what comes before the arguments
	// that Launch adds; default topoctl. It is quoted for the shell there.
	Command []string
	// Args are further arguments of the agent.
	Args []string
}

// schemaAgent is the name and major version of an agent's ready line.
const schemaAgent = "topoctl.agent/v1"

const (
	readyMost = 4 << 20 // bytes of the ready line
	stopTime  = 5 * time.Second
)

// launchedAgent is an agent that was started.
type launchedAgent struct {
	address string // where it is
	epoch   uint64

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	errors *ssh.Tail
	ended  chan struct{} // closed when ssh has ended and all that it wrote was read
	once   sync.Once
	failed error
}

// command starts an agent on a host.
func (l *Launch) command(port string) []string {
	remote := slices.Clone(l.Command)
	if len(remote) == 0 {
		remote = []string{"topoctl"}
	}
	remote = append(remote, "agent", "--listen", net.JoinHostPort("", port), "--until-eof", "--size", "0", "-o", "json", "--token-file", "-",
		"--serve-probes", "--probe-targets", "0.0.0.0/0,::/0") // the token is for this run alone
	return append(remote, l.Args...)
}

// start starts the agent of a host and waits until it can be reached. ctx bounds that.
func (l *Launch) start(ctx context.Context, address string, credentials func() *trust.Credentials) (*launchedAgent, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	if err := ssh.CheckHost(host); err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	if credentials == nil || credentials().Shown() == nil {
		return nil, errors.New("launch: agents that other hosts can reach need a token")
	}
	token := credentials().Shown()
	x := &launchedAgent{errors: &ssh.Tail{}, ended: make(chan struct{})}
	x.cmd = ssh.Program{}.Command(host, l.command(port))
	x.cmd.Stderr = x.errors
	x.cmd.WaitDelay = stopTime
	x.stdout, err = x.cmd.StdoutPipe()
	if err == nil {
		x.stdin, err = x.cmd.StdinPipe()
	}
	if err == nil {
		err = x.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	ready := make(chan []byte, 1)
	go x.read(ready)
	if _, err = x.stdin.Write([]byte(strings.TrimSpace(token.Name+" "+string(token.Secret)) + "\n")); err == nil {
		err = x.wait(ctx, host, ready)
	} else if waited := x.wait(ctx, host, ready); waited != nil {
		err = waited // it says more than a broken pipe
	}
	if err != nil {
		_ = x.stop() // the reason is err
		return nil, fmt.Errorf("launch: %w", err)
	}
	return x, nil
}

// read takes the first line, drops what follows, and waits for the end of ssh.
func (x *launchedAgent) read(ready chan<- []byte) {
	defer close(x.ended)
	r := bufio.NewReader(io.LimitReader(x.stdout, readyMost))
	line, err := r.ReadBytes('\n')
	if err != nil {
		line = nil
	}
	ready <- line
	_, _ = io.Copy(io.Discard, x.stdout)
	x.failed = x.cmd.Wait()
}

// wait waits for the ready line.
func (x *launchedAgent) wait(ctx context.Context, host string, ready <-chan []byte) error {
	var line []byte
	select {
	case line = <-ready:
	case <-ctx.Done():
		return fmt.Errorf("%w%s", context.Cause(ctx), x.errors.Suffix())
	}
	switch {
	case line != nil:
	case x.stop() != nil:
		return fmt.Errorf("the agent did not say that it is ready%s", x.errors.Suffix())
	default:
		return fmt.Errorf("the agent did not start: %w%s", cmp.Or(x.failed, io.ErrUnexpectedEOF), x.errors.Suffix())
	}
	var said struct {
		Schema    string   `json:"schema"`
		Epoch     uint64   `json:"epoch,string"`
		Addresses []string `json:"addresses"`
	}
	if err := json.Unmarshal(line, &said); err != nil || said.Schema != schemaAgent || len(said.Addresses) == 0 {
		return fmt.Errorf("its ready line is not %s: %s%s", schemaAgent, clip(string(line), 200), x.errors.Suffix())
	}
	at, err := netip.ParseAddrPort(said.Addresses[0])
	if err != nil {
		return fmt.Errorf("it listens at %.40q, which is not an address", said.Addresses[0])
	}
	x.address, x.epoch = net.JoinHostPort(host, strconv.Itoa(int(at.Port()))), said.Epoch
	return nil
}

// stop ends the agent by closing its standard input, and kills ssh if that does not help.
func (x *launchedAgent) stop() error {
	var err error
	x.once.Do(func() {
		_ = x.stdin.Close()
		kill := time.AfterFunc(stopTime, func() {
			_ = x.cmd.Process.Kill()
			_ = x.stdout.Close() // children of ssh may still have the other end
		})
		<-x.ended
		if !kill.Stop() {
			err = fmt.Errorf("launch: the agent did not end within %v: ssh was killed, look for it on the host%s", stopTime, x.errors.Suffix())
		}
	})
	return err
}
