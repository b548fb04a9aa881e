# UCX on lab: 2 local ranks without GPU, on the NUMA nodes in turn. Written by topoctl.

# RoCE v2 with a routable address on each of the 2 ports
export UCX_IB_GID_INDEX='1'

# UCX_IB_TRAFFIC_CLASS is left out: not known for rxe0: take what the switches' lossless queue wants

case "${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-}}}}" in
0)
	# rank 0: cpu:0
	# rxe0: nearest usable port (PHB, at most 1.2 GB/s)
	export UCX_NET_DEVICES='rxe0:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
1)
	# rank 1: cpu:1
	# rxe1: at most 0.12 GB/s, rxe0 has at most 1.2 GB/s; rxe0 serves rank 0 already
	export UCX_NET_DEVICES='rxe1:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
*)
	echo 'topoctl: no settings: local rank (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, MPI_LOCALRANKID) is not 0 to 1' >&2
	;;
esac
