# NCCL on sriov-pf-vf: 2 local ranks, rank N on visible GPU N. Written by topoctl.

# the ports of all ranks, by exact name. All ranks of a host must have the same list (NVIDIA/nccl issue 1478); NCCL takes the nearest of it for each GPU
export NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'

# for setting connections up: has the default route
export NCCL_SOCKET_IFNAME='=eno1'

# RoCE v2 with a routable address on each of the 2 ports
export NCCL_IB_GID_INDEX='3'

# NCCL_IB_TC is left out: not known for mlx5_0: take what the switches' lossless queue wants
