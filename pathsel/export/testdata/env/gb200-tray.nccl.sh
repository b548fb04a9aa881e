# NCCL on gb200-tray: 4 local ranks, rank N on visible GPU N. Written by topoctl.

# the ports of all ranks, by exact name. All ranks of a host must have the same list (NVIDIA/nccl issue 1478); NCCL takes the nearest of it for each GPU
export NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1'

# for setting connections up: has the default route
export NCCL_SOCKET_IFNAME='=enP6p3s0f0np0'
