# Mooncake on dgx-h100: 8 local ranks, rank N on visible GPU N. Written by topoctl.

# MC_CUSTOM_TOPO_JSON is left out: --topology-file says where the output of topoctl export mooncake is. Without it Mooncake discovers by itself, and only which devices it may use is set below

case "${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-}}}}" in
0)
	# rank 0: gpu:0, 0000:1b:00.0
	# mlx5_0: nearest usable port (PXB, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_0'
	;;
1)
	# rank 1: gpu:1, 0000:43:00.0
	# mlx5_3: nearest usable port (PXB, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_3'
	;;
2)
	# rank 2: gpu:2, 0000:52:00.0
	# mlx5_4: nearest usable port (PXB, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_4'
	;;
3)
	# rank 3: gpu:3, 0000:61:00.0
	# mlx5_5: nearest usable port (PXB, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_5'
	;;
4)
	# rank 4: gpu:4, 0000:9d:00.0
	# mlx5_9: nearest usable port (NODE, at most 50.0 GB/s); shared with rank 5; mlx5_6 (PXB) is nearer and takes no part: port state DOWN, physical state Polling
	export MC_TE_FILTERS='mlx5_9'
	;;
5)
	# rank 5: gpu:5, 0000:c3:00.0
	# mlx5_9: nearest usable port (PXB, 50.0 GB/s); shared with rank 4
	export MC_TE_FILTERS='mlx5_9'
	;;
6)
	# rank 6: gpu:6, 0000:d1:00.0
	# mlx5_10: nearest usable port (PXB, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_10'
	;;
7)
	# rank 7: gpu:7, 0000:df:00.0
	# mlx5_11: nearest usable port (PXB, 50.0 GB/s)
	export MC_TE_FILTERS='mlx5_11'
	;;
*)
	echo 'topoctl: no settings: local rank (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, MPI_LOCALRANKID) is not 0 to 7' >&2
	;;
esac
