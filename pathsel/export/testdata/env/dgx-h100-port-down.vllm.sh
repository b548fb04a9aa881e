# vLLM on dgx-h100: 8 local ranks, rank N on visible GPU N. Written by topoctl.

# rank 0 (gpu:0): mlx5_0: nearest usable port (PXB, 50.0 GB/s)
# rank 1 (gpu:1): mlx5_3: nearest usable port (PXB, 50.0 GB/s)
# rank 2 (gpu:2): mlx5_4: nearest usable port (PXB, 50.0 GB/s)
# rank 3 (gpu:3): mlx5_5: nearest usable port (PXB, 50.0 GB/s)
# rank 4 (gpu:4): mlx5_9: nearest usable port (NODE, at most 50.0 GB/s); shared with rank 5; mlx5_6 (PXB) is nearer and takes no part: port state DOWN, physical state Polling
# rank 5 (gpu:5): mlx5_9: nearest usable port (PXB, 50.0 GB/s); shared with rank 4
# rank 6 (gpu:6): mlx5_10: nearest usable port (PXB, 50.0 GB/s)
# rank 7 (gpu:7): mlx5_11: nearest usable port (PXB, 50.0 GB/s)
export VLLM_GPU_NIC_PCIE_MAPPING='0000:1b:00.0=0000:18:00.0,0000:43:00.0=0000:40:00.0,0000:52:00.0=0000:4f:00.0,0000:61:00.0=0000:5e:00.0,0000:9d:00.0=0000:c0:00.0,0000:c3:00.0=0000:c0:00.0,0000:d1:00.0=0000:ce:00.0,0000:df:00.0=0000:dc:00.0'

# what each worker sets to its NIC, for NIXL over UCX. Leave UCX_NET_DEVICES itself unset: vLLM adds to what it holds
# NCCL_IB_HCA is not among them: it must be the same for all ranks of a host (NVIDIA/nccl issue 1478, topoctl export env --for nccl)
export VLLM_NIC_SELECTION_VARS='UCX_NET_DEVICES:1'
