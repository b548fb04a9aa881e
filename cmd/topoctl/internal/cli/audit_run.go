package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/audit"
	"github.com/topoctl/topoctl/internal/audit/owners"
)

// leastConnection is how much a TCP connection must have moved to be told.
const leastConnection = 64 << 10

// observe reads counters and owners for a while, or while a command runs.
func (o *auditOptions) observe(ctx context.Context, a *audit.Audit) (*audit.Command, error) {
	s, err := discover.NewSampler(discover.Options{HostRoot: o.Globals.HostRoot, Now: o.Now()})
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // files of /sys that were only read
	w := auditWatch{a: a, sampler: s, of: a.Topology(), began: time.Now()}
	// Ctrl-C ends a command, and the report is what it was run for.
	reading := context.WithoutCancel(ctx)
	if err := w.look(reading); err != nil {
		return nil, err
	}
	until := ctx
	var child *watchedCommand
	if len(o.command) > 0 {
		if child, err = startWatched(o.command, o.child); err != nil {
			return nil, err
		}
		defer child.release()
		until = child.ended
	} else {
		limited, stop := context.WithTimeout(ctx, o.duration)
		defer stop()
		until = limited
	}
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	for until.Err() == nil {
		select {
		case <-tick.C:
			if err := w.look(reading); err != nil && until.Err() == nil {
				a.Note(err.Error())
			}
		case <-until.Done():
		}
	}
	if err := w.look(reading); err != nil {
		a.Note(err.Error())
	}
	if child == nil {
		return nil, nil //nolint:nilnil // there is no command
	}
	return child.result()
}

// auditWatch hands readings of this host to an audit.
type auditWatch struct {
	a       *audit.Audit
	sampler *discover.Sampler
	of      *topo.Topology
	began   time.Time
	owners  owners.Reader
}

func (w *auditWatch) look(ctx context.Context) error {
	sample, err := w.sampler.Sample(ctx, w.of, time.Since(w.began))
	if err != nil {
		return err
	}
	w.a.Sample(sample)
	held, err := w.owners.Read(ctx, leastConnection)
	if err != nil {
		return err
	}
	w.a.Owners(held)
	return nil
}

// watchedCommand is a command that runs with this process's streams and gets its signals.
type watchedCommand struct {
	cmd     *exec.Cmd
	ended   context.Context
	err     error // of Wait, once it has ended
	signals chan os.Signal
	done    sync.WaitGroup
}

// leftOpen is how long a command's children may keep its streams open after it has ended, where they
// are no files.
const leftOpen = 2 * time.Second

func startWatched(args []string, s Streams) (*watchedCommand, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = s.In, s.Out, s.Err, leftOpen
	if !s.InTTY {
		cmd.SysProcAttr = ownGroup()
	}
	ended, end := context.WithCancel(context.Background())
	w := &watchedCommand{cmd: cmd, ended: ended, signals: make(chan os.Signal, 8)}
	signal.Notify(w.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := cmd.Start(); err != nil {
		signal.Stop(w.signals)
		end()
		return nil, fmt.Errorf("run %s: %w", args[0], Cause(errors.Join(err)))
	}
	w.done.Go(func() {
		w.err = cmd.Wait()
		end()
	})
	w.done.Go(func() {
		for {
			select {
			case sig := <-w.signals:
				// A terminal's Ctrl-C goes to all of its foreground group by itself.
				if sig != os.Interrupt || !s.InTTY {
					_ = cmd.Process.Signal(sig) // it may have ended
				}
			case <-ended.Done():
				return
			}
		}
	})
	return w, nil
}

// release waits for the goroutines.
func (w *watchedCommand) release() {
	w.done.Wait()
	signal.Stop(w.signals)
}

// result is how the command ended.
func (w *watchedCommand) result() (*audit.Command, error) {
	w.done.Wait()
	c := &audit.Command{Args: w.cmd.Args}
	var exit *exec.ExitError
	switch {
	case w.err == nil, errors.Is(w.err, exec.ErrWaitDelay):
	case !errors.As(w.err, &exit):
		return nil, fmt.Errorf("run %s: %w", w.cmd.Args[0], w.err)
	}
	if status, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		c.Signal = status.Signal().String()
		c.ExitCode = 128 + int(status.Signal())
	} else {
		c.ExitCode = w.cmd.ProcessState.ExitCode()
	}
	return c, nil
}
