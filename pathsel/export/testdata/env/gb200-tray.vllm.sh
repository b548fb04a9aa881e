# vLLM on gb200-tray: 4 local ranks, rank N on visible GPU N. Written by topoctl.

# rank 0 (gpu:0): mlx5_0: nearest usable port (NODE, 50.0 GB/s)
# rank 1 (gpu:1): mlx5_1: nearest usable port (NODE, 50.0 GB/s)
# rank 2 (gpu:2): mlx5_2: nearest usable port (NODE, 50.0 GB/s)
# rank 3 (gpu:3): mlx5_3: nearest usable port (NODE, 50.0 GB/s)
export VLLM_GPU_NIC_PCIE_MAPPING='0008:01:00.0=0000:01:00.0,0009:01:00.0=0002:01:00.0,0018:01:00.0=0010:01:00.0,0019:01:00.0=0012:01:00.0'

# what each worker sets to its NIC, for NIXL over UCX. Leave UCX_NET_DEVICES itself unset: vLLM adds to what it holds
# NCCL_IB_HCA is not among them: it must be the same for all ranks of a host (NVIDIA/nccl issue 1478, topoctl export env --for nccl)
export VLLM_NIC_SELECTION_VARS='UCX_NET_DEVICES:1'
