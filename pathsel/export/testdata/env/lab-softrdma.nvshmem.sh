# NVSHMEM on lab: 2 local ranks without GPU, on the NUMA nodes in turn. Written by topoctl.

# without it NVSHMEM_HCA_LIST has no effect
export NVSHMEM_ENABLE_NIC_PE_MAPPING='1'

# NVSHMEM's GPU-driven transports skip devices whose name does not contain this; the default is mlx5
export NVSHMEM_HCA_PREFIX='rxe'

# RoCE v2 with a routable address on each of the 2 ports
export NVSHMEM_IB_GID_INDEX='1'

# NVSHMEM_IB_TRAFFIC_CLASS is left out: not known for rxe0: take what the switches' lossless queue wants

case "${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-}}}}" in
0)
	# rank 0: cpu:0
	# rxe0: nearest usable port (PHB, at most 1.2 GB/s)
	export NVSHMEM_HCA_LIST='rxe0:1'
	;;
1)
	# rank 1: cpu:1
	# rxe1: at most 0.12 GB/s, rxe0 has at most 1.2 GB/s; rxe0 serves rank 0 already
	export NVSHMEM_HCA_LIST='rxe1:1'
	;;
*)
	echo 'topoctl: no settings: local rank (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, MPI_LOCALRANKID) is not 0 to 1' >&2
	;;
esac
