package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/memory/cuda"
)

// Memory of a GPU that peers write to. A machine without GPU says so.
func Example() {
	e, err := engine.New(context.Background(), engine.Options{})
	if err != nil {
		log.Fatal(err)
	}
	driver, err := cuda.Open(cuda.Options{Topology: e.Topology()})
	if errors.Is(err, cuda.ErrUnavailable) {
		fmt.Println("no GPU:", err)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer driver.Close()
	defer e.Close() // frees the block
	block, err := driver.GPUs()[0].Alloc(1 << 30)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := e.Register(block, engine.RegionOptions{Name: "kv", Grant: memory.PeerWrite}); err != nil {
		log.Fatal(err)
	}
}
