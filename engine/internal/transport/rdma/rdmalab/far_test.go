//go:build vmlab && linux && cgo

package rdma

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/test/vmlab"
	"github.com/topoctl/topoctl/test/vmlab/guest"
)

// Nothing is what calls without arguments or answers have.
type Nothing struct{}

// Far is what machine 2 does when it is asked to.
type Far struct {
	lab *guest.Lab
	bye chan struct{}

	mu       sync.Mutex
	engine   *engine.Engine
	region   *engine.Region
	before   Held
	commands map[string]*command
	raw      map[int]*rawEnd
	lastRaw  int
}

// serve answers machine 1 until it says goodbye or is gone.
func serve(l *guest.Lab) error {
	ln, err := net.Listen("tcp", net.JoinHostPort(l.Addr(2, vmlab.ManagementRail), "0"))
	if err != nil {
		return err
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if _, err := l.Exchange(ctx, "far", ln.Addr().String()); err != nil {
		return err
	}
	c, err := ln.Accept()
	if err != nil {
		return err
	}
	f := &Far{lab: l, bye: make(chan struct{}), commands: map[string]*command{}, raw: map[int]*rawEnd{}}
	s := rpc.NewServer()
	if err := s.Register(f); err != nil {
		return err
	}
	s.ServeConn(c) // until machine 1 closes it
	select {
	case <-f.bye:
		return nil
	default:
		return errors.New("machine 1 ended without a goodbye")
	}
}

func dial(l *guest.Lab) (*rpc.Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	at, err := l.Exchange(ctx, "far", "")
	if err != nil {
		return nil, err
	}
	return rpc.Dial("tcp", at)
}

// Bye ends the far end.
func (f *Far) Bye(Nothing, *Nothing) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.bye)
	if f.engine != nil {
		return errors.New("an engine was left running")
	}
	return nil
}

// Start makes an engine with one region, and says where it is.
func (f *Far) Start(s Spec, at *string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.engine != nil {
		return errors.New("there is an engine")
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var err error
	if f.before, err = countHeld(ctx); err != nil {
		return err
	}
	e, r, err := s.engine(ctx, f.lab, 2)
	if err != nil {
		return err
	}
	f.engine, f.region = e, r
	_, port, err := net.SplitHostPort(e.Addrs()[0].String())
	*at = port
	return err
}

// Stop closes the engine and tells what it left behind.
func (f *Far) Stop(_ Nothing, left *string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.engine == nil {
		return nil
	}
	err := f.engine.Close()
	f.engine, f.region = nil, nil
	if err != nil {
		return err
	}
	*left = f.before.left()
	return nil
}

// Stats are those of the engine.
func (f *Far) Stats(_ Nothing, s *engine.Stats) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.engine == nil {
		return errors.New("there is no engine")
	}
	*s = f.engine.Stats()
	return nil
}

// Piece is a range of the region.
type Piece struct {
	Offset, Bytes int64
	Data          []byte // in place of Bytes, to fill it
}

func (f *Far) bytes(p Piece) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.region == nil {
		return nil, errors.New("there is no region")
	}
	all := f.region.Bytes()
	if p.Offset < 0 || p.Bytes < 0 || p.Offset > int64(len(all)) || p.Bytes > int64(len(all))-p.Offset {
		return nil, fmt.Errorf("%d bytes at %d: not in the region", p.Bytes, p.Offset)
	}
	return all[p.Offset:][:p.Bytes], nil
}

// Fill writes to the region, as its application does.
func (f *Far) Fill(p Piece, _ *Nothing) error {
	p.Bytes = int64(len(p.Data))
	to, err := f.bytes(p)
	copy(to, p.Data)
	return err
}

// Sum is the SHA-256 of a range.
func (f *Far) Sum(p Piece, sum *[sha256.Size]byte) error {
	from, err := f.bytes(p)
	*sum = sha256.Sum256(from)
	return err
}

// Read gives the bytes of a range.
func (f *Far) Read(p Piece, data *[]byte) error {
	from, err := f.bytes(p)
	*data = bytes.Clone(from)
	return err
}

// Break breaks or mends something of machine 2.
func (f *Far) Break(a Action, _ *Nothing) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return a.do(ctx, f.lab)
}

// Mend mends all that was broken on machine 2.
func (f *Far) Mend(Nothing, *Nothing) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return f.lab.MendAll(ctx)
}

// Held counts what machine 2 holds.
func (f *Far) Held(_ Nothing, h *Held) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	*h, err = countHeld(ctx)
	return err
}

// Left says what machine 2 holds more than it did.
func (f *Far) Left(before Held, left *string) error {
	*left = before.left()
	return nil
}

// Frames are the bytes that the cable of a rail has handed to machine 2.
func (f *Far) Frames(rail int, n *int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	c, err := f.lab.WireCount(ctx, rail)
	*n = c.Bytes
	return err
}

// Run is a command with arguments.
type Run struct {
	Name string // to find it by, where it is started
	Args []string
	In   string // standard input, which stays open
}

// Ended is how it went.
type Ended struct {
	Out, Errors string
	Code        int
}

type command struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  bytes.Buffer
	errs bytes.Buffer
}

func (r Run) start() (*command, error) {
	c := &command{cmd: exec.Command(r.Args[0], r.Args[1:]...)}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.errs
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	_, err = io.WriteString(c.in, r.In)
	return c, err
}

// wait kills what does not end in time.
func (c *command) wait(limit time.Duration) (Ended, error) {
	timer := time.AfterFunc(limit, func() { _ = c.cmd.Process.Kill() }) // it may have ended
	err := c.cmd.Wait()
	if !timer.Stop() {
		err = fmt.Errorf("%v: not over after %v", c.cmd.Args, limit)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return Ended{c.out.String(), c.errs.String(), c.cmd.ProcessState.ExitCode()}, err
}

// Begin starts a command.
func (f *Far) Begin(r Run, _ *Nothing) error {
	c, err := r.start()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commands[r.Name] = c
	return nil
}

// Stopping says how a command is to be ended.
type Stopping struct {
	Name      string
	Interrupt bool
}

// Finish waits for a command, which may be told to end.
func (f *Far) Finish(s Stopping, ended *Ended) (err error) {
	f.mu.Lock()
	c := f.commands[s.Name]
	delete(f.commands, s.Name)
	f.mu.Unlock()
	if c == nil {
		return fmt.Errorf("no command %q", s.Name)
	}
	if s.Interrupt {
		_ = c.cmd.Process.Signal(os.Interrupt) // it may have ended
	}
	*ended, err = c.wait(within)
	return err
}
