package topoctl_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/topoctl/topoctl"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
)

// An engine that knows this host's NICs and uses all of them.
func ExampleNewEngine() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := topoctl.NewEngine(ctx, engine.Options{Name: "server"})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	theirs, err := server.Alloc(1<<20, engine.RegionOptions{Name: "kv", Grant: memory.PeerWrite})
	if err != nil {
		log.Fatal(err)
	}

	// In another process, mostly on another host.
	e, err := topoctl.NewEngine(ctx, engine.Options{Name: "client"})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	peer, err := e.Open(ctx, server.Addrs()[0].String())
	if err != nil {
		log.Fatal(err)
	}
	kv, err := peer.Region(ctx, "kv")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := kv.WriteAt([]byte("over every NIC"), 0); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", theirs.Bytes()[:14])
	// Output: over every NIC
}

// The schema of the documents that an explanation of a batch is.
func ExampleSchema() {
	data, err := topoctl.Schema(engine.SchemaExplain)
	if err != nil {
		log.Fatal(err)
	}
	var schema struct{ Title, Type string }
	if err := json.Unmarshal(data, &schema); err != nil {
		log.Fatal(err)
	}
	fmt.Println(schema.Title, "is an", schema.Type)
	// Output: topoctl.explain/v1 is an object
}
