package collect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/observe"
	"github.com/topoctl/topoctl/internal/ssh"
)

// Target is a host that is asked: its name, and an agent's URL or the address that ssh connects to.
type Target struct{ Name, Address string }

// Agents are the hosts of agents that serve HTTP (topoctl agent --http). client is nil but for tests.
func Agents(targets []Target, client *http.Client) []Source {
	c := observe.AgentClient(client)
	out := make([]Source, len(targets))
	for i, t := range targets {
		out[i] = Source{Name: t.Name, From: "agent " + t.Address, Read: func(ctx context.Context) ([]byte, error) {
			return observe.GetPage(ctx, c, t.Address+"/v1/topology")
		}}
	}
	return out
}

// Engines are the hosts of engines that a registry lists. e opens them by name, and they say over their
// sessions what they know of their hosts.
func Engines(e *engine.Engine, records []registry.Record) []Source {
	out := make([]Source, len(records))
	for i := range records {
		name := records[i].Name
		out[i] = Source{Name: name, From: "engine " + name, Read: func(ctx context.Context) ([]byte, error) { return described(ctx, e, name) }}
	}
	return out
}

// errUndescribed is of an engine that does not say what host it is on.
var errUndescribed = errors.New("the engine does not describe its host, or not to these credentials (agent --grants: topology)")

func described(ctx context.Context, e *engine.Engine, name string) ([]byte, error) {
	p, err := e.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer p.Close() //nolint:errcheck // nothing was moved
	t := p.Topology()
	if t == nil {
		return nil, errUndescribed
	}
	return t.Encode()
}

// Launch runs "topoctl discover" on hosts by ssh.
type Launch struct {
	SSH ssh.Program
	// Command runs topoctl there; default topoctl.
	Command []string
}

// Exit codes: of topoctl for a document that lacks something, of a shell that finds no such program, and of ssh for
// what it failed at itself.
const (
	partialExit  = 3
	notFoundExit = 127
	sshExit      = 255
)

// Hosts are the hosts that the command is run on.
func (l Launch) Hosts(targets []Target) []Source {
	out := make([]Source, len(targets))
	for i, t := range targets {
		out[i] = Source{Name: t.Name, From: "ssh " + t.Address, Read: func(ctx context.Context) ([]byte, error) { return l.discover(ctx, t.Address) }}
	}
	return out
}

// discover gives the document that topoctl prints on a host. When ctx ends, ssh is killed, and the
// program there with its connection.
func (l Launch) discover(ctx context.Context, host string) ([]byte, error) {
	if err := ssh.CheckHost(host); err != nil {
		return nil, err
	}
	words := l.Command
	if len(words) == 0 {
		words = []string{"topoctl"}
	}
	cmd, said := l.SSH.Command(host, append(append([]string{}, words...), "discover", "--quiet")), &ssh.Tail{}
	cmd.Stderr = said
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("ssh: %w", err)
	}
	end := func() { // others may have the other end of the pipe
		ssh.Kill(cmd)
		_ = out.Close()
	}
	stop := context.AfterFunc(ctx, end)
	data, readErr := readAll(out)
	if readErr != nil {
		end()
	}
	err = cmd.Wait()
	stop()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w%s", context.Cause(ctx), said.Suffix())
	case readErr != nil:
		return nil, fmt.Errorf("its document: %w", readErr)
	case errors.As(err, &exit) && exit.ExitCode() == partialExit && len(data) > 0:
		return data, nil
	case exit != nil && exit.ExitCode() == sshExit && said.Suffix() != "":
		return nil, errors.New("ssh: " + strings.TrimPrefix(strings.TrimPrefix(said.Suffix(), ": "), "ssh: "))
	case exit != nil && exit.ExitCode() == notFoundExit:
		return nil, fmt.Errorf("%w%s (--launch-command says where topoctl is)", err, said.Suffix())
	case exit != nil:
		return nil, fmt.Errorf("%w%s", err, said.Suffix())
	case err != nil:
		return nil, fmt.Errorf("ssh: %w%s", err, said.Suffix())
	case len(data) == 0:
		return nil, fmt.Errorf("ssh: the command printed nothing%s", said.Suffix())
	}
	return data, nil
}
