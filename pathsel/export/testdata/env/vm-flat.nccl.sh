# Which NIC is near which GPU cannot be seen in this virtual machine, so no rank is given NICs of its own and NCCL chooses by itself; topoctl remap can tell which are near, given a topology of the machine that this one runs on; NCCL takes the provider's topology file (NCCL_TOPO_FILE).
# NCCL on vm-flat: 4 local ranks, rank N on visible GPU N. Written by topoctl.

# NCCL_TOPO_FILE is left out: this virtual machine (kvm) shows no PCIe switch between GPUs and NICs. With a file of how its host really is (topoctl remap -o nccl-xml, or topoctl export nccl-xml --skeleton on a host of that type, with this machine's bus addresses) NCCL would choose better

# the ports of all ranks, by exact name. All ranks of a host must have the same list (NVIDIA/nccl issue 1478); NCCL decides by itself which of it each GPU uses
export NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_4:1,mlx5_5:1,mlx5_6:1,mlx5_7:1'

# for setting connections up: has the default route
export NCCL_SOCKET_IFNAME='=enp1s0'
