package bind

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/testkit/childtest"
)

// serveAt is the environment variable that makes this program a peer which listens there.
const serveAt = "TOPOCTL_BIND_SERVE"

// Where a peer's memory is, each time it is started.
const (
	killedAddress = 0x5f0000000000
	killedSize    = 1 << 16
)

func TestMain(m *testing.M) {
	if listen := os.Getenv(serveAt); listen != "" {
		if err := serve(listen); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve is a peer until its standard input ends.
func serve(listen string) error {
	at := uintptr(killedAddress)
	p, err := unix.MmapPtr(-1, 0, *(*unsafe.Pointer)(unsafe.Pointer(&at)), killedSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE)
	if err != nil {
		return err
	}
	e, err := Open(context.Background(), fmt.Sprintf(`{"topology":"none","listen":[%q]}`, listen))
	if err != nil {
		return err
	}
	if err := e.Register([]uint64{uint64(uintptr(p))}, []uint64{killedSize}, "", both); err != nil {
		return err
	}
	fmt.Println(e.Address())
	_, err = os.Stdin.Read(make([]byte, 1))
	return err
}

// startPeer gives the peer's address when it serves.
func startPeer(t *testing.T, listen string) (*childtest.Process, string) {
	t.Helper()
	c := childtest.Start(t, serveAt+"="+listen)
	return c, c.Line(t)
}

// A peer is killed and started again at the same address, with its memory at the same addresses:
// the next call works, without a word from the program, and is for the new process.
func TestKilledAndStartedAgain(t *testing.T) {
	a := open(t, "")
	a.settle = time.Minute // however busy the machine is
	mine, here := mapped(t, killedSize)
	must(t, a.Register([]uint64{here}, []uint64{killedSize}, "", 0))
	address := childtest.Address(t)
	c, _ := startPeer(t, address)
	for round := range 3 {
		x := Transfer{Peer: address, Op: read, Local: []uint64{here}, Remote: []uint64{killedAddress}, Length: []uint64{killedSize}}
		mine[0] = 1
		if err := ended(a)(a.Submit(x)); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if mine[0] != 0 { // of a process that is new
			t.Errorf("round %d: memory of a process that is gone", round)
		}
		mine[0], x.Op = 1, write
		run(t, a, x)
		c.Kill()
		time.Sleep(time.Duration(round) * 100 * time.Millisecond) // the longer it is gone, the rarer it is looked for
		c, _ = startPeer(t, address)
	}
	run(t, a, Transfer{Peer: address, Notify: []byte("x")})
}

// A peer that is stopped when the first transfer with it is submitted: what it offers is known since it was
// opened. What is not known is asked for, and such a call ends by the engine's default timeout, not by
// the batch's or when the peer is given up.
func TestStoppedBeforeTheFirst(t *testing.T) {
	a := open(t, `,"give_up_ns":300000000000`)
	_, here := mapped(t, killedSize)
	must(t, a.Register([]uint64{here}, []uint64{killedSize}, "", 0))
	c, address := startPeer(t, "127.0.0.1:0")
	must(t, probe(a, address, time.Minute))
	a.o.DefaultTimeout = time.Second / 2
	childtest.Stop(t, c.Process)
	x := Transfer{Peer: address, Op: read, Local: []uint64{here}, Remote: []uint64{killedAddress}, Length: []uint64{killedSize}, TimeoutNS: int64(5 * time.Minute)}
	n, err := a.Submit(x)
	must(t, err)
	unknown := x
	unknown.Remote = []uint64{killedAddress + killedSize}
	if err := ended(a)(a.Submit(unknown)); err == nil || strings.Contains(err.Error(), "still running") {
		t.Errorf("a batch of a range that is not known: %v", err)
	}
	if over, err := a.Poll(n); over || err != nil {
		t.Errorf("%v, %v: the batch waits for the peer", over, err)
	}
	must(t, c.Process.Signal(unix.SIGCONT))
	must(t, a.Wait([]int64{n}, int64(time.Minute)))
}
