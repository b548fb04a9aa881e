package etcd_test

import (
	"context"
	"log"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/registry/etcd"
)

// An engine that others open by its name.
func ExampleOpen() {
	ctx := context.Background()
	registry, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{"etcd-1:2379", "etcd-2:2379"}, Prefix: "/topoctl/production"})
	if err != nil {
		log.Fatal(err)
	}
	defer registry.Close()
	e, err := engine.New(ctx, engine.Options{Name: "decode-1", Registry: registry})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
}
