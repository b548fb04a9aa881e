package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/transport/rdma"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// RDMA is passed to an engine, in front of what it falls back to. Where the host has
// none the engine goes on without, and Unavailable says why.
func ExampleNew() {
	overRDMA := func(env engine.TransportEnv) (transport.Transport, error) {
		return rdma.New(rdma.Options{Changed: env.Changed})
	}
	e, err := engine.New(context.Background(), engine.Options{
		Name:       "worker",
		Transports: []engine.Transport{engine.SHM(), overRDMA, engine.TCP()},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	for _, why := range e.Unavailable() {
		log.Print(why)
	}
	_, err = rdma.New(rdma.Options{Devices: []string{"no_such_device"}})
	fmt.Println(errors.Is(err, engine.ErrUnavailable))
	// Output: true
}
