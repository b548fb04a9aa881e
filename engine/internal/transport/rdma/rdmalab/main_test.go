//go:build vmlab && linux && cgo

package rdma

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"os"
	"testing"
	"time"

	"github.com/topoctl/topoctl/test/vmlab/guest"
)

var (
	long    = flag.Bool("long", false, "run the long forms of the tests: by hand, not in CI")
	over    = flag.String("over", "rdma", "transport that is tested: rdma or tcp")
	verbose = flag.Bool("log", false, "print what the engines log")
	soakFor = flag.Duration("soak", 0, "how long the soak takes (default 15s, with -long 5m)")
	seed    = flag.Uint64("seed", rand.Uint64(), "of everything that is drawn")
)

// withTCP are the transports for tests in which RDMA may be gone for a while.
func withTCP() []string {
	if *over == "tcp" {
		return []string{"tcp"}
	}
	return []string{*over, "tcp"}
}

// What all tests of machine 1 use.
var (
	lab *guest.Lab
	far *rpc.Client
)

// within bounds what must happen. It is for liveness only.
const within = 60 * time.Second

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := start(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// start runs the tests on machine 1, and the far end on machine 2.
func start(m *testing.M) (code int, err error) {
	lab, err = guest.Open()
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	switch {
	case lab.Peer() == 0:
		return 1, errors.New("these tests need two machines: run the lab with -machines rails,rails")
	case lab.Host() == 2:
		return 0, serve(lab)
	}
	if far, err = dial(lab); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, far.Close()) }()
	fmt.Printf("seed %d\n", *seed)
	code = m.Run()
	return code, ask("Bye", Nothing{}, &Nothing{})
}

// ask has machine 2 do something.
func ask(what string, args, reply any) error {
	call := far.Go("Far."+what, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-time.After(2 * within):
		return fmt.Errorf("machine 2 has not answered %s for %v", what, 2*within)
	}
	if call.Error != nil {
		return fmt.Errorf("machine 2: %s: %w", what, call.Error)
	}
	return nil
}

func mustAsk(t testing.TB, what string, args, reply any) {
	t.Helper()
	if err := ask(what, args, reply); err != nil {
		t.Fatal(err)
	}
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), within, fmt.Errorf("not within %v", within))
	t.Cleanup(cancel)
	return ctx
}

// dice are drawn from the seed, others for each test.
func dice(t testing.TB) *rand.Rand {
	s := *seed
	for _, c := range t.Name() {
		s = s*31 + uint64(c)
	}
	return rand.New(rand.NewPCG(s, *seed))
}

// mended makes sure that a test leaves both machines as they were.
func mended(t testing.TB) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if err := errors.Join(lab.MendAll(ctx), ask("Mend", Nothing{}, &Nothing{})); err != nil {
			t.Error(err)
		}
	})
}
