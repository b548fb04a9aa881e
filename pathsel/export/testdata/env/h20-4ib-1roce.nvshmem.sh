# NVSHMEM on h20-4ib-1roce: 8 local ranks, rank N on visible GPU N. Written by topoctl.

# without it NVSHMEM_HCA_LIST has no effect
export NVSHMEM_ENABLE_NIC_PE_MAPPING='1'

# NVSHMEM's GPU-driven transports skip devices whose name does not contain this; the default is mlx5
export NVSHMEM_HCA_PREFIX='ibp'

case "${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-}}}}" in
0)
	# rank 0: gpu:0, 0000:0f:00.0
	# ibp14s0: nearest usable port (PIX, 50.0 GB/s); shared with rank 1
	export NVSHMEM_HCA_LIST='ibp14s0:1'
	;;
1)
	# rank 1: gpu:1, 0000:30:00.0
	# ibp14s0: nearest usable port (NODE, at most 50.0 GB/s); shared with rank 0
	export NVSHMEM_HCA_LIST='ibp14s0:1'
	;;
2)
	# rank 2: gpu:2, 0000:48:00.0
	# ibp71s0: nearest usable port (PIX, 50.0 GB/s); shared with rank 3
	export NVSHMEM_HCA_LIST='ibp71s0:1'
	;;
3)
	# rank 3: gpu:3, 0000:5c:00.0
	# ibp71s0: nearest usable port (NODE, at most 50.0 GB/s); shared with rank 2
	export NVSHMEM_HCA_LIST='ibp71s0:1'
	;;
4)
	# rank 4: gpu:4, 0000:87:00.0
	# ibp134s0: nearest usable port (PIX, 50.0 GB/s); shared with rank 5
	export NVSHMEM_HCA_LIST='ibp134s0:1'
	;;
5)
	# rank 5: gpu:5, 0000:a8:00.0
	# ibp134s0: nearest usable port (NODE, at most 50.0 GB/s); shared with rank 4
	export NVSHMEM_HCA_LIST='ibp134s0:1'
	;;
6)
	# rank 6: gpu:6, 0000:c4:00.0
	# ibp195s0: nearest usable port (PIX, 50.0 GB/s); shared with rank 7
	export NVSHMEM_HCA_LIST='ibp195s0:1'
	;;
7)
	# rank 7: gpu:7, 0000:da:00.0
	# ibp195s0: nearest usable port (NODE, at most 50.0 GB/s); shared with rank 6
	export NVSHMEM_HCA_LIST='ibp195s0:1'
	;;
*)
	echo 'topoctl: no settings: local rank (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, MPI_LOCALRANKID) is not 0 to 7' >&2
	;;
esac
