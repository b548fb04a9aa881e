# For 6 hosts of class c-462d55d8: n[1-6]
# NCCL on n1: 8 local ranks, rank N on visible GPU N. Written by topoctl.

# the ports of all ranks, by exact name. All ranks of a host must have the same list (NVIDIA/nccl issue 1478); NCCL takes the nearest of it for each GPU
export NCCL_IB_HCA='=mlx5_0:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_9:1,mlx5_10:1,mlx5_11:1'

# for setting connections up: has the default route
export NCCL_SOCKET_IFNAME='=eno1'
