# NCCL on h20-4ib-1roce: 8 local ranks, rank N on visible GPU N. Written by topoctl.

# the ports of all ranks, by exact name. All ranks of a host must have the same list (NVIDIA/nccl issue 1478); NCCL takes the nearest of it for each GPU
export NCCL_IB_HCA='=ibp14s0:1,ibp71s0:1,ibp134s0:1,ibp195s0:1'

# for setting connections up: has the default route
export NCCL_SOCKET_IFNAME='=eno1'
