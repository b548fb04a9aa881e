package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

// blocked is a standard input on which nothing ever comes. It tells when it is
// read first: then the program listens to signals.
type blocked struct{ reading chan struct{} }

func (b blocked) Read([]byte) (int, error) {
	close(b.reading)
	select {}
}

// Ctrl-C ends a command that waits, with 130.
func TestInterrupt(t *testing.T) {
	f := newStreams()
	in := blocked{make(chan struct{})}
	f.In = in
	code := make(chan int)
	go func() { code <- Main(context.Background(), []string{"topo", "--from", "-"}, f.Streams, nil, nil) }()
	<-in.reading
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != 130 || f.Stderr.String() != "topoctl: interrupted\n" {
		t.Errorf("code %d, %q", got, f.Stderr.String())
	}
}

// A reader that stops half-way is an error, whatever was read before.
func TestReadErrors(t *testing.T) {
	f := newStreams()
	f.In = io.MultiReader(strings.NewReader(`{"schema":`), iotest.ErrReader(errors.New("the cable is cut")))
	if code := Main(context.Background(), []string{"topo", "--from", "-"}, f.Streams, nil, nil); code != 2 ||
		f.Stderr.String() != "topoctl: topo: standard input: the cable is cut\n" {
		t.Errorf("code %d, %q", code, f.Stderr.String())
	}
}
