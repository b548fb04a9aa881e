# UCX on h20-4ib-1roce: 8 local ranks, rank N on visible GPU N. Written by topoctl.

case "${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-}}}}" in
0)
	# rank 0: gpu:0, 0000:0f:00.0
	# ibp14s0: nearest usable port (PIX, 50.0 GB/s); shared with rank 1
	export UCX_NET_DEVICES='ibp14s0:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
1)
	# rank 1: gpu:1, 0000:30:00.0
	# ibp14s0: nearest usable port (NODE, at most 50.0 GB/s); shared with rank 0
	export UCX_NET_DEVICES='ibp14s0:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
2)
	# rank 2: gpu:2, 0000:48:00.0
	# ibp71s0: nearest usable port (PIX, 50.0 GB/s); shared with rank 3
	export UCX_NET_DEVICES='ibp71s0:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
3)
	# rank 3: gpu:3, 0000:5c:00.0
	# ibp71s0: nearest usable port (NODE, at most 50.0 GB/s); shared with rank 2
	export UCX_NET_DEVICES='ibp71s0:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
4)
	# rank 4: gpu:4, 0000:87:00.0
	# ibp134s0: nearest usable port (PIX, 50.0 GB/s); shared with rank 5
	export UCX_NET_DEVICES='ibp134s0:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
5)
	# rank 5: gpu:5, 0000:a8:00.0
	# ibp134s0: nearest usable port (NODE, at most 50.0 GB/s); shared with rank 4
	export UCX_NET_DEVICES='ibp134s0:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
6)
	# rank 6: gpu:6, 0000:c4:00.0
	# ibp195s0: nearest usable port (PIX, 50.0 GB/s); shared with rank 7
	export UCX_NET_DEVICES='ibp195s0:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
7)
	# rank 7: gpu:7, 0000:da:00.0
	# ibp195s0: nearest usable port (NODE, at most 50.0 GB/s); shared with rank 6
	export UCX_NET_DEVICES='ibp195s0:1'

	# as many as the rank has ports; UCX's default is 2
	export UCX_MAX_RNDV_RAILS='1'
	;;
*)
	echo 'topoctl: no settings: local rank (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID, MPI_LOCALRANKID) is not 0 to 7' >&2
	;;
esac
