# UCX on gb200-tray: 4 local ranks, rank N on visible GPU N. Written by topoctl.

case "${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-}}}}" in
0)
	# rank 0: gpu:0, 0008:01:00.0
	# mlx5_0: nearest usable port (NODE, 50.0 GB/s)
	export UCX_NET_DEVICES='mlx5_0:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
1)
	# rank 1: gpu:1, 0009:01:00.0
	# mlx5_1: nearest usable port (NODE, 50.0 GB/s)
	export UCX_NET_DEVICES='mlx5_1:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
2)
	# rank 2: gpu:2, 0018:01:00.0
	# mlx5_2: nearest usable port (NODE, 50.0 GB/s)
	export UCX_NET_DEVICES='mlx5_2:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
3)
	# rank 3: gpu:3, 0019:01:00.0
	# mlx5_3: nearest usable port (NODE, 50.0 GB/s)
	export UCX_NET_DEVICES='mlx5_3:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
*)
	echo 'topoctl: no settings: local rank (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, MPI_LOCALRANKID) is not 0 to 3' >&2
	;;
esac
