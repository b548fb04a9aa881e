# UCX on cpu-2eth: 2 local ranks without GPU, on the NUMA nodes in turn. Written by topoctl.

case "${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-}}}}" in
0)
	# rank 0: cpu:0
	# ens5f0: nearest usable port (SYS, 1.2 GB/s); shared with rank 1
	export UCX_NET_DEVICES='ens5f0'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
1)
	# rank 1: cpu:1
	# ens5f0: nearest usable port (PHB, 1.2 GB/s); shared with rank 0
	export UCX_NET_DEVICES='ens5f0'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
*)
	echo 'topoctl: no settings: local rank (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, MPI_LOCALRANKID) is not 0 to 1' >&2
	;;
esac
