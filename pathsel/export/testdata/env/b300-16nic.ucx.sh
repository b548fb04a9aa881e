# UCX on b300-16nic: 8 local ranks, rank N on visible GPU N. Written by topoctl.

case "${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-}}}}" in
0)
	# rank 0: gpu:0, 0000:18:00.0
	# mlx5_0: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_1: nearest usable port (PIX, 50.0 GB/s)
	export UCX_NET_DEVICES='mlx5_0:1,mlx5_1:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='2'
	;;
1)
	# rank 1: gpu:1, 0000:29:00.0
	# mlx5_2: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_3: nearest usable port (PIX, 50.0 GB/s)
	export UCX_NET_DEVICES='mlx5_2:1,mlx5_3:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='2'
	;;
2)
	# rank 2: gpu:2, 0000:3a:00.0
	# mlx5_4: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_5: nearest usable port (PIX, 50.0 GB/s)
	export UCX_NET_DEVICES='mlx5_4:1,mlx5_5:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='2'
	;;
3)
	# rank 3: gpu:3, 0000:4b:00.0
	# mlx5_6: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_7: nearest usable port (PIX, 50.0 GB/s)
	export UCX_NET_DEVICES='mlx5_6:1,mlx5_7:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='2'
	;;
4)
	# rank 4: gpu:4, 0000:9a:00.0
	# mlx5_8: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_9: nearest usable port (PIX, 50.0 GB/s)
	export UCX_NET_DEVICES='mlx5_8:1,mlx5_9:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='2'
	;;
5)
	# rank 5: gpu:5, 0000:aa:00.0
	# mlx5_10: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_11: nearest usable port (PIX, 50.0 GB/s)
	export UCX_NET_DEVICES='mlx5_10:1,mlx5_11:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='2'
	;;
6)
	# rank 6: gpu:6, 0000:ba:00.0
	# mlx5_12: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_13: nearest usable port (PIX, 50.0 GB/s)
	export UCX_NET_DEVICES='mlx5_12:1,mlx5_13:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='2'
	;;
7)
	# rank 7: gpu:7, 0000:ca:00.0
	# mlx5_14: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_15: nearest usable port (PIX, 50.0 GB/s)
	export UCX_NET_DEVICES='mlx5_14:1,mlx5_15:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='2'
	;;
*)
	echo 'topoctl: no settings: local rank (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, MPI_LOCALRANKID) is not 0 to 7' >&2
	;;
esac
