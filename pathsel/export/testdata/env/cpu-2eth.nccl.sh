# NCCL on cpu-2eth: 2 local ranks without GPU, on the NUMA nodes in turn. Written by topoctl.

# NCCL_IB_HCA is left out: no usable RDMA port: NCCL uses sockets

# the interfaces of all ranks, by exact name
export NCCL_SOCKET_IFNAME='=ens5f0'
