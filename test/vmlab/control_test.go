package vmlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// pair gives a client whose requests are answered by handle.
func pair(t *testing.T, handle func(Request) Reply) (*Client, net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- serveControl(there, handle) }()
	c := NewClient(here)
	t.Cleanup(func() {
		c.Close()
		there.Close()
		if err := <-served; err == nil {
			t.Error("Serve ends without a reason")
		}
	})
	return c, there
}

func TestCall(t *testing.T) {
	c, _ := pair(t, func(r Request) Reply {
		if r.Op == OpQMP {
			return Reply{Error: "no such device"}
		}
		return Reply{Value: r.Name + "!" + string(r.Data)}
	})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			r, err := c.Call(t.Context(), Request{Op: OpMeet, Name: fmt.Sprint(i), Data: []byte{'x'}})
			if err != nil || r.Value != fmt.Sprintf("%d!x", i) {
				t.Errorf("%d: %+v, %v", i, r, err)
			}
		})
	}
	wg.Wait()
	_, err := c.Call(t.Context(), Request{Op: OpQMP, Command: "device_del"})
	if err == nil || err.Error() != "vmlab: qmp device_del: no such device" {
		t.Error(err)
	}
}

// A call that waits for another does not stop the others, and ends with its context or
// with the channel.
func TestCallThatWaits(t *testing.T) {
	hold := make(chan struct{})
	c, _ := pair(t, func(r Request) Reply {
		if r.Name == "hold" {
			<-hold
		}
		return Reply{}
	})
	defer close(hold)
	ctx, cancel := context.WithCancelCause(t.Context())
	held := make(chan error, 2)
	go func() { _, err := c.Call(ctx, Request{Op: OpMeet, Name: "hold"}); held <- err }()
	go func() { _, err := c.Call(t.Context(), Request{Op: OpMeet, Name: "hold"}); held <- err }()
	if _, err := c.Call(t.Context(), Request{Op: OpMeet, Name: "quick"}); err != nil {
		t.Error(err)
	}
	why := errors.New("why")
	cancel(why)
	if err := <-held; !errors.Is(err, why) {
		t.Errorf("a call whose context ended: %v", err)
	}
	c.Close()
	if err := <-held; !errors.Is(err, errClosed) {
		t.Errorf("a call whose channel ended: %v", err)
	}
	if _, err := c.Call(t.Context(), Request{}); !errors.Is(err, errClosed) {
		t.Errorf("a call after Close: %v", err)
	}
}

// What a process that was killed left in the port does no harm.
func TestHalfLines(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	var mu sync.Mutex
	var seen []string
	served := make(chan error, 1)
	go func() {
		served <- serveControl(there, func(r Request) Reply {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, r.Name)
			return Reply{Value: "v"}
		})
	}()
	if _, err := here.Write([]byte(`{"op":"meet","name":"half`)); err != nil {
		t.Fatal(err)
	}
	c := NewClient(here)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Call(ctx, Request{Op: OpMeet, Name: "whole"}); err != nil {
		t.Error(err)
	}
	c.Close()
	<-served
	if !slices.Equal(seen, []string{"whole"}) {
		t.Errorf("served %q", seen)
	}
}

func TestLines(t *testing.T) {
	got := slices.Collect(Lines(strings.NewReader("one\r\n\n" + strings.Repeat("x", 100_000) + "\nlast")))
	if len(got) != 4 || got[0] != "one" || got[1] != "" || len(got[2]) != 100_000 || got[3] != "last" {
		t.Errorf("%d lines", len(got))
	}
}

type readWriter struct {
	io.Reader
	io.Writer
}

// Whatever a machine writes, the lab answers what is a request, and each once.
func FuzzServe(f *testing.F) {
	f.Add([]byte("{\"id\":1,\"op\":\"meet\"}\n\n{\"id\":2}\nnonsense\n{\"id\":3"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		var mu sync.Mutex
		handled := 0
		err := serveControl(readWriter{bytes.NewReader(in), &out}, func(Request) Reply {
			mu.Lock()
			defer mu.Unlock()
			handled++
			return Reply{}
		})
		if err == nil {
			t.Error("no error at the end")
		}
		if got := bytes.Count(out.Bytes(), []byte("\n")); got != handled {
			t.Errorf("%d answers to %d requests", got, handled)
		}
	})
}

// A call whose request is still being written when the client closes ends as closed.
func TestCloseWhileWriting(t *testing.T) {
	here, there := net.Pipe() // nobody reads: a write waits for ever
	defer there.Close()
	c := NewClient(here)
	writing := make(chan error, 1)
	go func() { _, err := c.Call(t.Context(), Request{Op: OpMeet}); writing <- err }()
	if _, err := there.Read(make([]byte, 1)); err != nil { // the first byte: it is writing
		t.Fatal(err)
	}
	c.Close()
	if err := <-writing; !errors.Is(err, errClosed) {
		t.Errorf("got %v, want %v", err, errClosed)
	}
}
