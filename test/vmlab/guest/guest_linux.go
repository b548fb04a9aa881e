// Package guest is for tests that run inside a lab machine: which machine this is, how
// to meet the other one, and how to break and mend what joins them.
//
// A test opens the lab, and closes it when it is done; closing mends what was broken
// through it. One process at a time can have the lab open.
package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/topoctl/topoctl/test/vmlab"
)

// ErrNoLab is given outside of lab machines.
var ErrNoLab = errors.New("guest: this is no machine of the VM lab (run it with go run ./test/vmlab/cmd/vmlab PACKAGE)")

// Lab is this machine's connection to the lab. Methods can be called from several
// goroutines; faults of one rail are for one goroutine at a time.
type Lab struct {
	host  int
	suite string
	job   *vmlab.Job
	line  *vmlab.Client

	mu     sync.Mutex
	broken map[int]faults
}

// Open connects to the lab.
func Open() (*Lab, error) {
	host, err := strconv.Atoi(os.Getenv(vmlab.EnvHost))
	if err != nil {
		return nil, ErrNoLab
	}
	j, err := vmlab.LoadJob()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLab, err)
	}
	if host < 1 || host > len(j.Machines) {
		return nil, fmt.Errorf("guest: machine %d of %d", host, len(j.Machines))
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), 5*time.Second, errors.New("the port to the lab did not open in 5 s"))
	defer cancel()
	line, err := vmlab.Open(ctx, "suite")
	if err != nil {
		return nil, err
	}
	return &Lab{host: host, suite: os.Getenv(vmlab.EnvSuite), job: j, line: vmlab.NewClient(line), broken: map[int]faults{}}, nil
}

// Close mends all rails that were broken through this Lab and disconnects.
func (l *Lab) Close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 60*time.Second, errors.New("not mended in 60 s"))
	defer cancel()
	return errors.Join(l.MendAll(ctx), l.line.Close())
}

// Host is 1 or 2.
func (l *Lab) Host() int { return l.host }

// Peer is the number of the other machine, 0 if there is none.
func (l *Lab) Peer() int {
	if len(l.job.Machines) < 2 {
		return 0
	}
	return 3 - l.host
}

// Hardware is what this machine was stated to have.
func (l *Lab) Hardware() *vmlab.Machine { return l.job.Machines[l.host-1] }

// Out is a folder; what is in it at the end of the suite is kept by the lab.
func (l *Lab) Out() string { return os.Getenv(vmlab.EnvOut) }

// Addr is the IPv4 address of a machine on a rail. Take hardware.ManagementRail for what
// must survive the faults of rails.
func (l *Lab) Addr(host, rail int) string { return vmlab.Address(host, rail) }

// Barrier waits for the other machine at a name. It fails if that machine ends the
// suite instead.
func (l *Lab) Barrier(ctx context.Context, name string) error {
	_, err := l.Exchange(ctx, name, "")
	return err
}

// Exchange is a barrier at which each machine is given what the other brought. Alone, a
// machine gets its own.
func (l *Lab) Exchange(ctx context.Context, name, mine string) (theirs string, err error) {
	r, err := l.line.Call(ctx, vmlab.Request{Op: vmlab.OpMeet, Suite: l.suite, Name: name, Value: mine})
	if err != nil {
		return "", err
	}
	return r.Value, nil
}

// QMP runs a command in the monitor of this machine's emulator.
func (l *Lab) QMP(ctx context.Context, command string, arguments any) (json.RawMessage, error) {
	var raw json.RawMessage
	if arguments != nil {
		var err error
		if raw, err = json.Marshal(arguments); err != nil {
			return nil, err
		}
	}
	r, err := l.line.Call(ctx, vmlab.Request{Op: vmlab.OpQMP, Command: command, Arguments: raw})
	return r.Result, err
}
