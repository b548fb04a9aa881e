# Mooncake on sriov-pf-vf: 2 local ranks, rank N on visible GPU N. Written by topoctl.

# MC_CUSTOM_TOPO_JSON is left out: --topology-file says where the output of topoctl export mooncake is. Without it Mooncake discovers by itself, and only which devices it may use is set below

# RoCE v2 with a routable address on each of the 2 ports
export MC_GID_INDEX='3'

# MC_IB_TC is left out: not known for mlx5_0: take what the switches' lossless queue wants

case "${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-}}}}" in
0)
	# rank 0: gpu:0, 0000:19:00.0
	# mlx5_0: nearest usable port (PIX, 12.5 GB/s)
	export MC_TE_FILTERS='mlx5_0'
	;;
1)
	# rank 1: gpu:1, 0000:9a:00.0
	# mlx5_1: nearest usable port (PIX, 12.5 GB/s)
	export MC_TE_FILTERS='mlx5_1'
	;;
*)
	echo 'topoctl: no settings: local rank (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, MPI_LOCALRANKID) is not 0 to 1' >&2
	;;
esac
