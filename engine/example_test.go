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
		Listen: []string{":7411"},
		Token:  []byte("a secret of 16 bytes or more"),
		Ports:  engine.Ports{Topology: topology},
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
