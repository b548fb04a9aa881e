# NVSHMEM on bonds: 8 local ranks, rank N on visible GPU N. Written by topoctl.

# without it NVSHMEM_HCA_LIST has no effect
export NVSHMEM_ENABLE_NIC_PE_MAPPING='1'

# RoCE v2 with a routable address on each of the 8 ports
export NVSHMEM_IB_GID_INDEX='3'

# NVSHMEM_IB_TRAFFIC_CLASS is left out: not known for mlx5_bond_0: take what the switches' lossless queue wants

case "${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-}}}}" in
0)
	# rank 0: gpu:0, 0000:13:00.0
	# mlx5_bond_0: nearest usable port (PIX, 25.0 GB/s); a bond of rdma0a and rdma0b: one connection uses one leg
	export NVSHMEM_HCA_LIST='mlx5_bond_0:1'
	;;
1)
	# rank 1: gpu:1, 0000:14:00.0
	# mlx5_bond_1: nearest usable port (PIX, 25.0 GB/s); a bond of rdma1a and rdma1b: one connection uses one leg
	export NVSHMEM_HCA_LIST='mlx5_bond_1:1'
	;;
2)
	# rank 2: gpu:2, 0000:33:00.0
	# mlx5_bond_2: nearest usable port (PIX, 25.0 GB/s); a bond of rdma2a and rdma2b: one connection uses one leg
	export NVSHMEM_HCA_LIST='mlx5_bond_2:1'
	;;
3)
	# rank 3: gpu:3, 0000:34:00.0
	# mlx5_bond_3: nearest usable port (PIX, 25.0 GB/s); a bond of rdma3a and rdma3b: one connection uses one leg
	export NVSHMEM_HCA_LIST='mlx5_bond_3:1'
	;;
4)
	# rank 4: gpu:4, 0000:83:00.0
	# mlx5_bond_4: nearest usable port (PIX, 25.0 GB/s); a bond of rdma4a and rdma4b: one connection uses one leg
	export NVSHMEM_HCA_LIST='mlx5_bond_4:1'
	;;
5)
	# rank 5: gpu:5, 0000:84:00.0
	# mlx5_bond_5: nearest usable port (PIX, 25.0 GB/s); a bond of rdma5a and rdma5b: one connection uses one leg
	export NVSHMEM_HCA_LIST='mlx5_bond_5:1'
	;;
6)
	# rank 6: gpu:6, 0000:a3:00.0
	# mlx5_bond_6: nearest usable port (PIX, 25.0 GB/s); a bond of rdma6a and rdma6b: one connection uses one leg
	export NVSHMEM_HCA_LIST='mlx5_bond_6:1'
	;;
7)
	# rank 7: gpu:7, 0000:a4:00.0
	# mlx5_bond_7: nearest usable port (PIX, 25.0 GB/s); a bond of rdma7a and rdma7b: one connection uses one leg
	export NVSHMEM_HCA_LIST='mlx5_bond_7:1'
	;;
*)
	echo 'topoctl: no settings: local rank (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, MPI_LOCALRANKID) is not 0 to 7' >&2
	;;
esac
