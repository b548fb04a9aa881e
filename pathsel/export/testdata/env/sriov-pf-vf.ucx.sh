# UCX on sriov-pf-vf: 2 local ranks, rank N on visible GPU N. Written by topoctl.

# RoCE v2 with a routable address on each of the 2 ports
export UCX_IB_GID_INDEX='3'

# UCX_IB_TRAFFIC_CLASS is left out: not known for mlx5_0: take what the switches' lossless queue wants

case "${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-}}}}" in
0)
	# rank 0: gpu:0, 0000:19:00.0
	# mlx5_0: nearest usable port (PIX, 12.5 GB/s)
	export UCX_NET_DEVICES='mlx5_0:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
1)
	# rank 1: gpu:1, 0000:9a:00.0
	# mlx5_1: nearest usable port (PIX, 12.5 GB/s)
	export UCX_NET_DEVICES='mlx5_1:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
*)
	echo 'topoctl: no settings: local rank (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, MPI_LOCALRANKID) is not 0 to 1' >&2
	;;
esac
