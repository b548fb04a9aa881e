# NCCL on vm-flat: 4 local ranks, rank N on visible GPU N. Written by topoctl.

# NCCL_TOPO_FILE is left out: this virtual machine (kvm) shows no PCIe switch between GPUs and NICs. With a file of how its host really is (topoctl export nccl-xml --skeleton on a host of that type, with this machine's bus addresses) NCCL would choose better

# the ports of all ranks, by exact name. All ranks of a host must have the same list (NVIDIA/nccl issue 1478); NCCL takes the nearest of it for each GPU
export NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_7:1'

# for setting connections up: has the default route
export NCCL_SOCKET_IFNAME='=enp1s0'
