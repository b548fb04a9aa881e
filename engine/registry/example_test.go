package registry_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/registrytest"
)

// How an engine is found by its name. Engines do this by themselves with engine.Options.Registry.
func Example() {
	ctx := context.Background()
	r := registrytest.NewMemory(0, nil).Client() // for a cluster: etcd.Open
	defer r.Close()
	lease, err := r.Publish(ctx, registry.Record{Name: "decode-1", Epoch: 1, Addresses: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:7411")}})
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Close()
	found, err := r.Lookup(ctx, "decode-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found.Addresses)
	// Output: [10.0.0.2:7411]
}
