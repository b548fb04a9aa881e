package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/topoctl/topoctl/internal/app/cli/clitest"
	"github.com/topoctl/topoctl/internal/app/cli/command"
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
	f := clitest.New()
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
	f := clitest.New()
	f.In = io.MultiReader(strings.NewReader(`{"schema":`), iotest.ErrReader(errors.New("the cable is cut")))
	if code := Main(context.Background(), []string{"topo", "--from", "-"}, f.Streams, nil, nil); code != 2 ||
		f.Stderr.String() != "topoctl: topo: standard input: the cable is cut\n" {
		t.Errorf("code %d, %q", code, f.Stderr.String())
	}
}

// Values that are no files are not completed as files.
func TestNoFilesAsValues(t *testing.T) {
	f := clitest.New()
	env := &command.Env{Streams: f.Streams}
	root := command.NewRoot(env, commands(env)...)
	for _, name := range []string{"agent", "bench", "probe local", "probe fabric"} {
		cmd, _, err := root.Find(strings.Fields(name))
		if err != nil {
			t.Fatal(err)
		}
		cmd.LocalFlags().VisitAll(func(fl *pflag.Flag) {
			if fl.Value.Type() == "bool" || slices.Contains([]string{"token-file", "probe", "hosts", "fabric", "resume", "out-file", "report", "events", "help"}, fl.Name) {
				return
			}
			complete, ok := cmd.GetFlagCompletionFunc(fl.Name)
			if !ok {
				t.Errorf("%s --%s completes file names", cmd.Name(), fl.Name)
				return
			}
			if _, directive := complete(cmd, nil, ""); directive&cobra.ShellCompDirectiveNoFileComp == 0 {
				t.Errorf("%s --%s completes file names", cmd.Name(), fl.Name)
			}
		})
	}
}
