# Mooncake on b300-16nic: 8 local ranks, rank N on visible GPU N. Written by topoctl.

# MC_CUSTOM_TOPO_JSON is left out: --topology-file says where the output of topoctl export mooncake is. Without it Mooncake discovers by itself, and only which devices it may use is set below

case "${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-}}}}" in
0)
	# rank 0: gpu:0, 0000:18:00.0
	# mlx5_0: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_1: nearest usable port (PIX, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_0,mlx5_1'
	;;
1)
	# rank 1: gpu:1, 0000:29:00.0
	# mlx5_2: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_3: nearest usable port (PIX, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_2,mlx5_3'
	;;
2)
	# rank 2: gpu:2, 0000:3a:00.0
	# mlx5_4: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_5: nearest usable port (PIX, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_4,mlx5_5'
	;;
3)
	# rank 3: gpu:3, 0000:4b:00.0
	# mlx5_6: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_7: nearest usable port (PIX, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_6,mlx5_7'
	;;
4)
	# rank 4: gpu:4, 0000:9a:00.0
	# mlx5_8: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_9: nearest usable port (PIX, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_8,mlx5_9'
	;;
5)
	# rank 5: gpu:5, 0000:aa:00.0
	# mlx5_10: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_11: nearest usable port (PIX, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_10,mlx5_11'
	;;
6)
	# rank 6: gpu:6, 0000:ba:00.0
	# mlx5_12: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_13: nearest usable port (PIX, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_12,mlx5_13'
	;;
7)
	# rank 7: gpu:7, 0000:ca:00.0
	# mlx5_14: nearest usable port (PIX, 50.0 GB/s)
	# mlx5_15: nearest usable port (PIX, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_14,mlx5_15'
	;;
*)
	echo 'topoctl: no settings: local rank (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, MPI_LOCALRANKID) is not 0 to 7' >&2
	;;
esac
