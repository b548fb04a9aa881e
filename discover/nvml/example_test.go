package nvml_test

import (
	"context"
	"fmt"
	"log"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/nvml"
)

// With NVML discovery knows the names, UUIDs and NVLinks of GPUs. Without the library, the topology's Sources say so.
func Example() {
	gpus := nvml.New()
	defer gpus.Close()
	t, err := discover.Discover(context.Background(), discover.Options{GPUs: gpus})
	if err != nil {
		log.Fatal(err)
	}
	for _, gpu := range t.GPUs {
		fmt.Println(gpu.ID, gpu.Model, gpu.UUID)
	}
}
