package texts_test

import (
	"fmt"
	"log"

	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/discover/topo"
)

// A matrix as somebody pasted it.
func ExampleDecode() {
	t, err := texts.Decode([]byte(`$ nvidia-smi topo -m
	GPU0	GPU1	NIC0	CPU Affinity	NUMA Affinity
GPU0	 X 	NV12	PIX	0-31	0
GPU1	NV12	 X 	SYS	32-63	1
NIC0	PIX	SYS	 X

NIC Legend:

  NIC0: mlx5_0
`))
	if err != nil {
		log.Fatal(err)
	}
	for _, gpu := range t.GPUs {
		fmt.Println(gpu.ID, t.Relate(gpu.ID, topo.RDMAID("mlx5_0")).Class)
	}
	// Output:
	// gpu:0 PIX
	// gpu:1 SYS
}
