package export_test

import (
	"log"
	"os"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/export"
)

// What NCCL is to use on a host.
func ExampleEnv() {
	t, err := fixtures.Topology("hgx-h100-8nic")
	if err != nil {
		log.Fatal(err)
	}
	h, err := pathsel.New(t, pathsel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := export.Env(os.Stdout, h, export.EnvOptions{For: export.NCCL, Visible: export.AllGPUs(t), Rank: -1}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// # NCCL on hgx-h100-8nic: 8 local ranks, rank N on visible GPU N. Written by topoctl.
	//
	// # the ports of all ranks, by exact name. All ranks of a host must have the same list (NVIDIA/nccl issue 1478); NCCL takes the nearest of it for each GPU
	// export NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_7:1'
	//
	// # for setting connections up: has the default route
	// export NCCL_SOCKET_IFNAME='=eno1'
}
