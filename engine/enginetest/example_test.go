package enginetest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/enginetest"
	"github.com/topoctl/topoctl/engine/memory"
)

// Two engines with two NICs each, in one process and without hardware.
func Example() {
	ctx, network := context.Background(), enginetest.NewNetwork()
	start := func(name string) *engine.Engine {
		nics := network.RDMA(enginetest.Options{}, "mlx5_0", "mlx5_1")
		e, err := engine.New(ctx, engine.Options{Name: name, Transports: []engine.TransportFactory{nics}})
		if err != nil {
			log.Fatal(err)
		}
		return e
	}
	server, client := start("server"), start("client")
	defer server.Close()
	defer client.Close()
	kv, err := server.Alloc(1<<20, engine.RegionOptions{Name: "kv", Grant: memory.PeerWrite})
	if err != nil {
		log.Fatal(err)
	}
	peer, err := client.Open(ctx, server.Addrs()[0].String())
	if err != nil {
		log.Fatal(err)
	}
	there, err := peer.Region(ctx, "kv")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := there.WriteAt([]byte("over no wire"), 0); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", kv.Bytes()[:12])
	// Output: over no wire
}
