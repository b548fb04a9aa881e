package formats_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/topoctl/topoctl/discover/formats"
)

// What somebody pasted of nvidia-smi topo -m, with prose around it.
func Example() {
	pasted := []byte(`It is slow on this host:
	GPU0	GPU1	NIC0	NIC1	CPU Affinity	NUMA Affinity
GPU0	 X 	NV18	PIX	NODE	0-47	0
GPU1	NV18	 X 	NODE	PIX	0-47	0
NIC0	PIX	NODE	 X 	NODE
NIC1	NODE	PIX	NODE	 X

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
`)
	host, err := formats.Read(context.Background(), pasted, formats.Options{Name: "pasted"})
	switch broken := (*formats.FileError)(nil); {
	case errors.Is(err, formats.ErrUnknown):
		fmt.Println("not a file of a host:", err)
	case errors.As(err, &broken):
		fmt.Println("damaged", broken.Format, broken.Err)
	case err != nil:
		fmt.Println(err)
	default:
		fmt.Println("GPU 0 to mlx5_0:", host.Relate("gpu:0", "rdma:mlx5_0").Class)
		fmt.Println("GPU 0 to GPU 1:", host.Relate("gpu:0", "gpu:1").Class)
	}
	// Output:
	// GPU 0 to mlx5_0: PIX
	// GPU 0 to GPU 1: NV18
}
