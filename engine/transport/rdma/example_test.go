package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/transport/rdma"
)

// RDMA is passed to an engine, in front of what it falls back to. Where the host has
// none the engine goes on without, and Unavailable says why.
func ExampleFactory() {
	absent := rdma.Factory(rdma.Options{Devices: []string{"no_such_device"}})
	e, err := engine.New(context.Background(), engine.Options{
		Name:       "worker",
		Transports: []engine.TransportFactory{engine.SHM(), absent, engine.TCP()},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	for _, err := range e.Unavailable() {
		fmt.Println(errors.Is(err, engine.ErrUnavailable))
	}
	// Output: true
}
