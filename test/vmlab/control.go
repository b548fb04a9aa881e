package vmlab

// The channel on which a lab machine asks the lab for what it
// cannot do itself: to meet the other machine, to cut a cable, to speak to its own
// emulator. Lines of JSON over a virtio port; every request is answered.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
)

// Operations.
const (
	OpReady = "ready" // init: the machine is configured; Name is its kernel, Uptime its clock
	OpMeet  = "meet"  // both: wait for the other machine at Name, exchange Values
	OpBegin = "begin" // init: Suite starts
	OpEnd   = "end"   // init: Suite ended with Code, at Uptime
	OpFile  = "file"  // init: Suite left the file Name with Data
	OpWire  = "wire"  // suite: the cable of Rail obeys Rule
	OpQMP   = "qmp"   // suite: run Command with Arguments in this machine's monitor
	OpCount = "count" // suite: what the cable of Rail gave to this machine
)

// Request is what a machine asks.
type Request struct {
	ID        uint64          `json:"id"`
	Op        string          `json:"op"`
	Suite     string          `json:"suite,omitempty"`
	Name      string          `json:"name,omitempty"`
	Value     string          `json:"value,omitempty"`
	Code      int             `json:"code,omitempty"`
	Uptime    float64         `json:"uptime_s,omitempty"`
	Data      []byte          `json:"data,omitempty"`
	Rail      int             `json:"rail,omitempty"`
	Rule      *Rule           `json:"rule,omitempty"`
	Command   string          `json:"command,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Reply is the lab's answer.
type Reply struct {
	ID     uint64          `json:"id"`
	Error  string          `json:"error,omitempty"`
	Value  string          `json:"value,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// maxLine bounds one message: a file that a suite leaves is the longest.
const maxLine = 64 << 20

// errClosed is what calls give on a client that was closed, or whose lab is gone.
var errClosed = errors.New("control: the channel to the lab is closed")

// Client is a machine's end.
type Client struct {
	port io.ReadWriteCloser

	writing sync.Mutex
	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan Reply
	closed  bool
	done    chan struct{}
}

// NewClient speaks over a port, which it owns from here on.
func NewClient(port io.ReadWriteCloser) *Client {
	// An earlier process may have left answers in the port that it did not wait for.
	c := &Client{port: port, next: rand.Uint64() >> 1, waiting: map[uint64]chan Reply{}, done: make(chan struct{})}
	go c.read()
	return c
}

// Close gives up what is waiting, and waits for the reader.
func (c *Client) Close() error {
	c.fail()
	err := c.port.Close()
	<-c.done
	return err
}

func (c *Client) fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for id, ch := range c.waiting {
		close(ch)
		delete(c.waiting, id)
	}
}

func (c *Client) read() {
	defer close(c.done)
	defer c.fail()
	r := bufio.NewReader(c.port)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		var reply Reply
		if json.Unmarshal(line, &reply) != nil {
			continue // the rest of a line that an earlier process read
		}
		c.mu.Lock()
		if ch, ok := c.waiting[reply.ID]; ok {
			ch <- reply
			delete(c.waiting, reply.ID)
		}
		c.mu.Unlock()
	}
}

// Call sends one request and waits for its answer. An answer that is an error is
// returned as one.
func (c *Client) Call(ctx context.Context, r Request) (Reply, error) {
	ch := make(chan Reply, 1)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return Reply{}, errClosed
	}
	c.next++
	r.ID = c.next
	c.waiting[r.ID] = ch
	c.mu.Unlock()
	if err := c.write(r); err != nil {
		return Reply{}, c.drop(r.ID, err)
	}
	select {
	case reply, ok := <-ch:
		if !ok {
			return Reply{}, errClosed
		}
		if reply.Error != "" {
			return reply, fmt.Errorf("vmlab: %s %s: %s", r.Op, r.Name+r.Command, reply.Error)
		}
		return reply, nil
	case <-ctx.Done():
		return Reply{}, c.drop(r.ID, fmt.Errorf("vmlab: %s %s: %w", r.Op, r.Name+r.Command, context.Cause(ctx)))
	}
}

// drop forgets a call that ended with err. One that was still being written when the
// client was closed ended because of that.
func (c *Client) drop(id uint64, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
	if c.closed {
		return errClosed
	}
	return err
}

func (c *Client) write(r Request) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// A line feed first: a process that was killed may have left half a line.
	line = append(append([]byte{'\n'}, line...), '\n')
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.port.Write(line); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	return nil
}

// serveControl answers requests until the port ends. Each runs in a goroutine of its own, since
// some wait; it returns when all have.
func serveControl(port io.ReadWriter, handle func(Request) Reply) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	var writing sync.Mutex
	r := bufio.NewReader(port)
	for {
		line, err := readLine(r)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var request Request
		if err := json.Unmarshal(line, &request); err != nil {
			continue // half a line of a process that was killed
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			reply := handle(request)
			reply.ID = request.ID
			out, err := json.Marshal(reply)
			if err != nil {
				return
			}
			writing.Lock()
			defer writing.Unlock()
			_, _ = port.Write(append(out, '\n')) // a machine that is gone waits for nothing
		}()
	}
}

// Lines gives the lines of a stream without their ends, until it ends. A line longer
// than MaxLine ends it.
func Lines(r io.Reader) iter.Seq[string] {
	return func(yield func(string) bool) {
		in := bufio.NewReader(r)
		for {
			line, err := readLine(in)
			if len(line) > 0 && !yield(strings.TrimRight(string(line), "\r\n")) || err != nil {
				return
			}
		}
	}
}

func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > maxLine {
			return line, fmt.Errorf("control: a message longer than %d bytes", maxLine)
		}
	}
}
