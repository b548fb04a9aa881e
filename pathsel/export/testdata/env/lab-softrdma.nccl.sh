# NCCL on lab: 2 local ranks without GPU, on the NUMA nodes in turn. Written by topoctl.

# the ports of all ranks, by exact name. All ranks of a host must have the same list (NVIDIA/nccl issue 1478); NCCL takes the nearest of it for each GPU
export NCCL_IB_HCA='=rxe0:1,rxe1:1'

# for setting connections up: has the default route
export NCCL_SOCKET_IFNAME='=mgmt'

# RoCE v2 with a routable address on each of the 2 ports
export NCCL_IB_GID_INDEX='1'

# NCCL_IB_TC is left out: not known for rxe0: take what the switches' lossless queue wants
