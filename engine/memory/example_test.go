package memory_test

import (
	"fmt"
	"log"

	"github.com/topoctl/topoctl/engine/memory"
)

// Memory that other processes of the host could map.
func ExampleAlloc() {
	block, err := memory.Alloc(1<<20, memory.Options{Pages: memory.Huge})
	if err != nil {
		log.Fatal(err)
	}
	defer block.Free()
	copy(block.Bytes(), "outside Go's heap")
	fmt.Printf("%d bytes: %s\n", block.Size(), block.Bytes()[:17])
	// Output: 1048576 bytes: outside Go's heap
}
