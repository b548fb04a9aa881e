package registryproc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"time"

	wire "github.com/topoctl/topoctl/internal/base/engine/registrywire"
	"github.com/topoctl/topoctl/internal/base/text"
)

const (
	startTime = 15 * time.Second // that a program may take to be ready
	closeTime = 10 * time.Second // that it may take to give everything up, and then to end
	// maxUnanswered is how many signs of life may be without an answer, half a minute, before it is killed.
	maxUnanswered = 60
	maxQueue      = 256  // lines to the program that it has not read
	maxLogLine    = 4096 // bytes
)

// errChildGone: the program has ended; what was asked may be asked of the next one.
var errChildGone = errors.New("the registry's program has ended")

// child is one run of a program.
type child struct {
	cmd   *exec.Cmd
	lines chan []byte   // to it
	gone  chan struct{} // closed when it has ended
	said  string        // its first line's name and version

	mu         sync.Mutex
	next       uint64
	calls      map[uint64]func(*wire.Answer) // by ID; called by the reader
	unanswered int
	over       bool
}

// start runs the program and opens the registry's URL in it. Its goroutines end with it.
func start(ctx context.Context, program, url string, log *slog.Logger, running *sync.WaitGroup) (*child, error) {
	c := &child{cmd: exec.Command(program), lines: make(chan []byte, maxQueue), gone: make(chan struct{}), calls: map[uint64]func(*wire.Answer){}}
	c.cmd.SysProcAttr = ownGroup()
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	errs, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("no answer in %v", startTime))
	defer cancel()
	hello := make(chan error, 1)
	running.Go(func() { c.write(in) })
	running.Go(func() { c.run(out, errs, hello, log) })
	select {
	case err = <-hello:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		err = c.call(ctx, &wire.Request{Do: wire.Open, URL: url, TimeoutNS: int64(startTime)}, nil)
	}
	if err != nil {
		c.kill()
		<-c.gone
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, errChildGone) {
			err = cause
		}
		return nil, err
	}
	return c, nil
}

func (c *child) kill() { _ = c.cmd.Process.Kill() }

// write writes lines, and says that we are alive, until the program is gone or in is closed by stop.
func (c *child) write(in io.WriteCloser) {
	defer in.Close() //nolint:errcheck // its end is what matters
	alive, _ := wire.Encode(&wire.Request{Do: wire.Alive})
	tick := time.NewTicker(wire.AliveEvery)
	defer tick.Stop()
	for {
		var line []byte
		select {
		case <-c.gone:
			return
		case line = <-c.lines:
			if line == nil { // stop
				return
			}
		case <-tick.C:
			c.mu.Lock()
			c.unanswered++
			stuck := c.unanswered > maxUnanswered
			c.mu.Unlock()
			if stuck {
				c.kill()
				return
			}
			line = alive
		}
		if _, err := in.Write(line); err != nil {
			return
		}
	}
}

// run reads what the program says until it ends.
func (c *child) run(out, errs io.ReadCloser, hello chan<- error, log *slog.Logger) {
	var logging sync.WaitGroup
	logging.Go(func() { logLines(errs, log) })
	greeted := false
	err := wire.Lines(out, func(line []byte) error {
		a, err := wire.DecodeAnswer(line)
		switch {
		case err != nil:
			return err
		case greeted:
			c.answered(a)
		case a.Protocol != wire.Protocol:
			return fmt.Errorf("it speaks %.40q, not %s", a.Protocol, wire.Protocol)
		default:
			c.said, greeted = text.Printable(a.Program), true
			hello <- nil
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("what the registry's program says: %w", err)
		log.Error("registry", "error", err)
	}
	c.kill() // it may have closed its output only
	logging.Wait()
	_ = c.cmd.Wait()
	c.mu.Lock()
	c.over = true // those who wait see gone
	c.mu.Unlock()
	if !greeted {
		hello <- errors.Join(err, errChildGone)
	}
	close(c.gone)
}

// logLines writes what a program says on standard error to the log.
func logLines(errs io.Reader, log *slog.Logger) {
	r := bufio.NewReaderSize(errs, maxLogLine)
	for {
		line, _, err := r.ReadLine() // a longer one comes in pieces
		if s := text.Printable(string(line)); s != "" {
			log.Warn("registry: " + s)
		}
		if err != nil {
			_, _ = io.Copy(io.Discard, errs)
			return
		}
	}
}

func (c *child) answered(a *wire.Answer) {
	c.mu.Lock()
	c.unanswered = 0
	told := c.calls[a.ID]
	if a.End {
		delete(c.calls, a.ID)
	}
	c.mu.Unlock()
	if told != nil {
		told(a)
	}
}

// begin sends a request; told is called by the reader for each line of the answer, and must be quick.
func (c *child) begin(ctx context.Context, q *wire.Request, told func(*wire.Answer)) (id uint64, err error) {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return 0, errChildGone
	}
	c.next++
	q.ID = c.next
	c.calls[q.ID] = told
	c.mu.Unlock()
	line, err := wire.Encode(q)
	if err == nil {
		err = c.sendLine(ctx, line)
	}
	if err != nil {
		c.mu.Lock()
		delete(c.calls, q.ID)
		c.mu.Unlock()
	}
	return q.ID, err
}

func (c *child) sendLine(ctx context.Context, line []byte) error {
	select {
	case c.lines <- line:
		return nil
	case <-c.gone:
		return errChildGone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// forget ends a request that no one waits for any more.
func (c *child) forget(id uint64) {
	c.mu.Lock()
	delete(c.calls, id)
	c.mu.Unlock()
	if line, err := wire.Encode(&wire.Request{Do: wire.Cancel, Of: id}); err == nil {
		select {
		case c.lines <- line:
		default: // it does not read: it will be killed
		}
	}
}

// call sends a request and waits for the end of its answer. event is called by the reader for each line of
// it that has more than the end.
func (c *child) call(ctx context.Context, q *wire.Request, event func(*wire.Answer)) error {
	end := make(chan error, 1)
	if deadline, ok := ctx.Deadline(); ok {
		q.TimeoutNS = max(int64(time.Until(deadline)), 1)
	}
	id, err := c.begin(ctx, q, func(a *wire.Answer) {
		if event != nil {
			event(a)
		}
		if a.End {
			end <- a.Error.Err()
		}
	})
	if err != nil {
		return err
	}
	select {
	case err := <-end:
		return err
	case <-c.gone:
		select {
		case err := <-end: // it came before
			return err
		default:
			return errChildGone
		}
	case <-ctx.Done():
		c.forget(id)
		return context.Cause(ctx)
	}
}

// stop has the program give everything up and end.
func (c *child) stop() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeTime, fmt.Errorf("its program does not answer in %v", closeTime))
	defer cancel()
	err := c.call(ctx, &wire.Request{Do: wire.Close}, nil)
	if errors.Is(err, errChildGone) {
		err = nil // what it had published ends by itself
	}
	select {
	case c.lines <- nil:
	default:
		c.kill()
	}
	limit := time.AfterFunc(closeTime, c.kill)
	defer limit.Stop()
	<-c.gone
	return err
}
