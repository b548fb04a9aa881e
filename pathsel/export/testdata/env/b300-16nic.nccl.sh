# NCCL on b300-16nic: 8 local ranks, rank N on visible GPU N. Written by topoctl.

# the ports of all ranks, by exact name. All ranks of a host must have the same list (NVIDIA/nccl issue 1478); NCCL takes the nearest of it for each GPU
export NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_7:1,mlx5_8:1,mlx5_9:1,mlx5_10:1,mlx5_11:1,mlx5_12:1,mlx5_13:1,mlx5_14:1,mlx5_15:1'

# for setting connections up: has the default route
export NCCL_SOCKET_IFNAME='=eno1'
