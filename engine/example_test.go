package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
)

// serve makes an engine that offers a region, as another process would.
func serve(name string, size int64, grant memory.Grant) (*engine.Engine, *engine.Region) {
	e, err := engine.New(context.Background(), engine.Options{Name: "server"})
	if err != nil {
		log.Fatal(err)
	}
	r, err := e.Alloc(size, engine.RegionOptions{Name: name, Grant: grant})
	if err != nil {
		log.Fatal(err)
	}
	return e, r
}

// open makes another engine and opens the region of the first one.
func open(ctx context.Context, name string, server *engine.Engine, region string) (*engine.Engine, *engine.RemoteRegion) {
	e, err := engine.New(ctx, engine.Options{Name: name})
	if err != nil {
		log.Fatal(err)
	}
	peer, err := e.Open(ctx, server.Addrs()[0].String())
	if err != nil {
		log.Fatal(err)
	}
	r, err := peer.Region(ctx, region)
	if err != nil {
		log.Fatal(err)
	}
	return e, r
}

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, theirs := serve("kv", 1<<20, memory.PeerWrite)
	defer server.Close()

	e, err := engine.New(ctx, engine.Options{Name: "client"})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	mine, err := e.Alloc(1<<20, engine.RegionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	copy(mine.Bytes(), "from memory to memory")

	peer, err := e.Open(ctx, server.Addrs()[0].String())
	if err != nil {
		log.Fatal(err)
	}
	kv, err := peer.Region(ctx, "kv")
	if err != nil {
		log.Fatal(err)
	}
	if err := peer.Write(ctx, mine.Span(0, 21), kv.At(4096)); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", theirs.Bytes()[4096:4096+21])
	// Output: from memory to memory
}

// An engine that uses every NIC of its host, with peers on other hosts: it is told the
// host's topology, and a token, which it needs in order to listen on all addresses.
func ExamplePorts() {
	ctx := context.Background()
	topology, err := discover.Discover(ctx, discover.Options{})
	if err != nil {
		log.Fatal(err)
	}
	e, err := engine.New(ctx, engine.Options{
		Listen:   []string{":7411"},
		Security: engine.Security{Credentials: trust.Secret([]byte("a secret of 16 bytes or more"))},
		Ports:    engine.Ports{Topology: topology},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	peer, err := e.Open(ctx, "node2:7411")
	if err != nil {
		log.Fatal(err)
	}
	plan, err := peer.Explain("gpu:0", "gpu:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(plan.Text()) // the lanes, and what is expected of each
}

// A batch of pages with a notification after the last byte.
func ExamplePeer_Submit() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, theirs := serve("kv", 64<<10, memory.PeerWrite)
	defer server.Close()
	e, kv := open(ctx, "prefill", server, "kv")
	defer e.Close()
	mine, err := e.Alloc(64<<10, engine.RegionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for i := range mine.Bytes() {
		mine.Bytes()[i] = byte('a' + i/4096)
	}

	pages := engine.WritePages(mine.All(), []uint32{0, 1, 2}, kv.At(0), []uint32{9, 4, 7}, 4096)
	batch, err := kv.Peer().Submit(ctx, []engine.Op{pages}, engine.SubmitOptions{Notify: []byte("request 17")})
	if err != nil {
		log.Fatal(err)
	}
	n := <-server.Notifications() // in the other process
	fmt.Printf("%s from %s: %c %c %c\n", n.Payload, n.From.Claimed, theirs.Bytes()[9*4096], theirs.Bytes()[4*4096], theirs.Bytes()[7*4096])
	if err := batch.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	x := batch.Explain()
	fmt.Println(x.State, x.Bytes)
	// Output:
	// request 17 from prefill: a b c
	// done 12288
}

// A client that lives longer than its peer. The peer's regions and calls are there before anybody can open it
// (Prepare), and the target opens it again after it was restarted.
func ExampleTarget() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	start := func(address string) *engine.Engine {
		e, err := engine.New(ctx, engine.Options{
			Name: "decode", Listen: []string{address},
			Serve: engine.Serve{Prepare: func(e *engine.Engine) error {
				_, err := e.Alloc(1<<20, engine.RegionOptions{Name: "kv", Grant: memory.PeerWrite})
				return err
			}, Answer: func(_ context.Context, from trust.PeerID, request []byte) ([]byte, error) {
				return fmt.Appendf(nil, "%s of %s is used up", request, from.Claimed), nil
			}},
		})
		if err != nil {
			log.Fatal(err)
		}
		return e
	}
	server := start("127.0.0.1:0")

	e, err := engine.New(ctx, engine.Options{Name: "prefill"})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	mine, err := e.Alloc(1<<20, engine.RegionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	decode := e.Target(server.Addrs()[0].String())
	push := func() error {
		peer, err := decode.Peer(ctx) // waits until the peer is there
		if err != nil {
			return err
		}
		kv, err := peer.Region(ctx, "kv")
		if err != nil {
			return err
		}
		batch, err := peer.Submit(ctx, []engine.Op{engine.WriteOp(mine.All(), kv.At(0))}, engine.SubmitOptions{})
		if err != nil {
			return err
		}
		if err := batch.Wait(ctx); err != nil {
			return err
		}
		answer, err := peer.Call(ctx, []byte("request 17"))
		fmt.Printf("%s\n", answer)
		return err
	}
	if err := push(); err != nil {
		log.Fatal(err)
	}

	// A batch that is not wanted any more. Its memory is free when it is done.
	peer, err := decode.Peer(ctx)
	if err != nil {
		log.Fatal(err)
	}
	batch, err := peer.Submit(ctx, nil, engine.SubmitOptions{Notify: []byte("request 18")})
	if err != nil {
		log.Fatal(err)
	}
	batch.Cancel()
	<-batch.Done()
	if err := batch.Err(); err != nil && !errors.Is(err, engine.ErrCanceled) { // it may have been done before
		log.Fatal(err)
	}

	address := server.Addrs()[0].String()
	if err := server.Close(); err != nil {
		log.Fatal(err)
	}
	<-peer.Done()
	fmt.Println("lost:", errors.Is(peer.Err(), engine.ErrPeerLost))
	server = start(address)
	defer server.Close()
	for err := push(); err != nil; err = push() {
		if !errors.Is(err, engine.ErrPeerLost) && !errors.Is(err, engine.ErrPeerRestarted) {
			log.Fatal(err) // trying again is of no use
		}
	}
	// Output:
	// request 17 of prefill is used up
	// lost: true
	// request 17 of prefill is used up
}

// A remote region is an io.ReaderAt and an io.WriterAt.
func ExampleRemoteRegion_ReadAt() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, theirs := serve("greeting", 5, memory.PeerRead)
	defer server.Close()
	copy(theirs.Bytes(), "hello")
	e, r := open(ctx, "reader", server, "greeting")
	defer e.Close()
	p := make([]byte, 100)
	k, err := r.ReadAt(p, 1)
	fmt.Printf("%q %v\n", p[:k], err)
	_, err = r.WriteAt([]byte("j"), 0)
	fmt.Println(errors.Is(err, engine.ErrDenied))
	// Output:
	// "ello" EOF
	// true
}
