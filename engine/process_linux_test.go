package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/testkit/childtest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// The tests of this file run this program again, as a peer that is killed or stopped.
const peerVariable = "TOPOCTL_TEST_PEER" // the address that it listens at

func TestMain(m *testing.M) {
	if address := os.Getenv(peerVariable); address != "" {
		servePeer(address)
		return
	}
	longtest.Overlap()
	os.Exit(m.Run())
}

const processBytes = 32 << 20

// servePeer offers memory until its standard input ends.
func servePeer(address string) {
	e, err := New(context.Background(), Options{Name: "peer", Listen: []string{address}})
	if err == nil {
		_, err = e.Alloc(processBytes, RegionOptions{Name: "kv", Grant: memory.PeerRead | memory.PeerWrite})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString(0)
}

func startPeer(t *testing.T, address string) *childtest.Process {
	t.Helper()
	p := childtest.Start(t, peerVariable+"="+address)
	if line := p.Line(t); line != "ready" {
		t.Fatalf("the peer says %q", line)
	}
	return p
}

// overEach runs a test over each transport between processes of one host.
func overEach(t *testing.T, o Options, f func(t *testing.T, client *Engine, mine *Region)) {
	for name, factory := range map[string]TransportFactory{"tcp": TCP(), "shm": SHM()} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			o.Transports = []TransportFactory{factory}
			client := newEngine(t, o)
			mine, err := client.Alloc(processBytes, RegionOptions{})
			must(t, err)
			f(t, client, mine)
		})
	}
}

func openKV(ctx context.Context, e *Engine, address string) (*Peer, *RemoteRegion, error) {
	p, err := e.Open(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	r, err := p.Region(ctx, "kv")
	return p, r, err
}

// keepWriting submits one batch after the other, two at a time, until one fails, and gives that
// one's error. moving is closed when the first is done.
func keepWriting(ctx context.Context, p *Peer, mine *Region, kv *RemoteRegion, o SubmitOptions) (moving chan struct{}, failed chan error) {
	moving, failed = make(chan struct{}), make(chan error, 1)
	go func() {
		var before *Batch
		for n := 0; ; n++ {
			b, err := p.Submit(ctx, []Op{WriteOp(mine.All(), kv.At(0))}, o)
			if before != nil {
				<-before.Done()
				if n == 1 {
					close(moving)
				}
				err = errors.Join(before.Err(), err)
			}
			if err != nil {
				if b != nil {
					<-b.Done()
				}
				failed <- err
				return
			}
			before = b
		}
	}()
	return moving, failed
}

func zero(b []byte) bool { return bytes.Count(b, []byte{0}) == len(b) }

// gone says whether an error is that of a peer whose process is not there.
func gone(err error) bool {
	return errors.Is(err, ErrPeerLost) && errors.Is(err, syscall.ECONNREFUSED)
}

// A peer is killed in the middle of batches and started again at the same address: the next
// call works at once, the batches of before say that they failed, and no byte of them lands.
func TestProcessRestarts(t *testing.T) {
	rounds := 1
	if longtest.On() {
		rounds = 5
	}
	overEach(t, Options{}, func(t *testing.T, client *Engine, mine *Region) {
		ctx, address := testContext(t), childtest.Address(t)
		got, err := client.Alloc(processBytes, RegionOptions{})
		must(t, err)
		for i := range mine.Bytes() {
			mine.Bytes()[i] = 7
		}
		for range rounds {
			peer := startPeer(t, address)
			p, kv, err := openKV(ctx, client, address)
			must(t, err)
			moving, failed := keepWriting(ctx, p, mine, kv, SubmitOptions{})
			<-moving
			peer.Kill()
			again := startPeer(t, address)
			begin := time.Now()
			q, there, err := openKV(ctx, client, address)
			if err != nil {
				t.Fatalf("opened again: %v", err)
			}
			if err := q.Read(ctx, got.All(), there.At(0)); err != nil {
				t.Fatalf("read again: %v", err)
			}
			t.Logf("opened and read %d MiB %v after it was up", processBytes>>20, time.Since(begin))
			if took := time.Since(begin); longtest.On() && took > 2*time.Second {
				t.Errorf("it works after %v", took)
			}
			if err := <-failed; !gone(err) && !errors.Is(err, ErrPeerRestarted) {
				t.Errorf("a batch of before: %v", err)
			}
			<-p.Done()
			if err := p.Err(); !gone(err) && !errors.Is(err, ErrPeerRestarted) {
				t.Errorf("the peer of before: %v", err)
			}
			if !zero(got.Bytes()) {
				t.Error("bytes of the batches of before have landed")
			}
			if err := q.Read(ctx, got.All(), there.At(0)); err != nil || !zero(got.Bytes()) {
				t.Errorf("bytes of the batches of before have landed late (%v)", err)
			}
			ok(t, errors.Join(p.Close(), q.Close()))
			q, err = client.Open(ctx, address)
			must(t, err)
			if client.anyQuarantine.Load() || q.Close() != nil {
				t.Error("memory of the process that was killed is still refused")
			}
			again.Kill()
		}
	})
}

// A peer that is stopped for a while: calls return by their deadline, and say what is safe. Its
// memory is refused until it has said that nothing lands any more; then all is as before.
func TestProcessStops(t *testing.T) {
	stopped := time.Second
	if longtest.On() {
		stopped = 11 * time.Second // then it is lost, and opened again
	}
	const deadline, late = 500 * time.Millisecond, 5 * time.Second
	overEach(t, Options{}, func(t *testing.T, client *Engine, mine *Region) {
		ctx, address := testContext(t), childtest.Address(t)
		peer := startPeer(t, address)
		p, kv, err := openKV(ctx, client, address)
		must(t, err)
		must(t, p.Write(ctx, mine.All(), kv.At(0)))
		one := func(op Op) error {
			bounded, cancel := context.WithTimeout(ctx, deadline)
			defer cancel()
			begin := time.Now()
			b, err := p.Submit(bounded, []Op{op}, SubmitOptions{})
			if err == nil {
				<-b.Done()
				err = b.Err()
			}
			if took := time.Since(begin); took > deadline+late {
				t.Errorf("%s returned after %v, its deadline was %v", op.Kind, took, deadline)
			}
			return err
		}
		childtest.Stop(t, peer.Process)
		begin := time.Now()
		unsafe := false
		for time.Since(begin) < stopped {
			err := one(WriteOp(mine.Span(0, processBytes/2), kv.At(0)))
			if err != nil && unsafe && !errors.Is(err, ErrQuarantined) && !errors.Is(err, ErrPeerLost) {
				t.Errorf("a write where another may still land: %v", err)
			}
			unsafe = unsafe || errors.Is(err, ErrUnsafeBuffer)
			if err := one(ReadOp(mine.Span(processBytes/2, processBytes/2), kv.At(processBytes/2))); errors.Is(err, ErrUnsafeBuffer) {
				t.Errorf("a read: %v", err)
			}
		}
		bounded, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		begin = time.Now()
		if _, err := client.Open(bounded, address); err == nil || time.Since(begin) > deadline+late {
			t.Errorf("opened while it is stopped: %v after %v", err, time.Since(begin))
		}
		_ = peer.Process.Signal(syscall.SIGCONT)
		for i := range mine.Bytes() {
			mine.Bytes()[i] = 7
		}
		eventually(t, "the peer's memory can be used again", func() bool {
			if p.Err() != nil {
				if p, kv, err = openKV(ctx, client, address); err != nil {
					t.Fatal(err)
				}
			}
			return p.Write(ctx, mine.All(), kv.At(0)) == nil
		})
		got := make([]byte, processBytes)
		if _, err := kv.ReadAt(got, 0); err != nil || bytes.Count(got, []byte{7}) != len(got) {
			t.Errorf("bytes of what was given up have landed (%v)", err)
		}
	})
}

// A peer that never comes back: its host refuses connections, and calls, batches and opening it
// say so at once.
func TestProcessIsGone(t *testing.T) {
	overEach(t, Options{GiveUp: time.Hour, DefaultTimeout: time.Hour}, func(t *testing.T, client *Engine, mine *Region) {
		ctx, address := testContext(t), childtest.Address(t)
		peer := startPeer(t, address)
		p, kv, err := openKV(ctx, client, address)
		must(t, err)
		moving, failed := keepWriting(ctx, p, mine, kv, SubmitOptions{})
		<-moving
		peer.Kill()
		for err == nil { // what it shared can be read until its end is noticed
			err = p.Read(ctx, mine.All(), kv.At(0))
		}
		_, asked := p.Regions(ctx)
		<-p.Done()
		for what, err := range map[string]error{
			"a read": err, "a batch in flight": <-failed, "a call": asked, "the peer": p.Err(), "ready": p.Ready(ctx),
		} {
			if !gone(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err = client.Open(ctx, address); !errors.Is(err, ErrUnreachable) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("opening a peer that is gone: %v", err)
		}
	})
}
