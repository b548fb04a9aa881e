# vLLM on b300-16nic: 8 local ranks, rank N on visible GPU N. Written by topoctl.

# rank 0 (gpu:0): mlx5_0: nearest usable port (PIX, 50.0 GB/s); vLLM takes one NIC for each GPU, so without mlx5_1
# rank 1 (gpu:1): mlx5_2: nearest usable port (PIX, 50.0 GB/s); vLLM takes one NIC for each GPU, so without mlx5_3
# rank 2 (gpu:2): mlx5_4: nearest usable port (PIX, 50.0 GB/s); vLLM takes one NIC for each GPU, so without mlx5_5
# rank 3 (gpu:3): mlx5_6: nearest usable port (PIX, 50.0 GB/s); vLLM takes one NIC for each GPU, so without mlx5_7
# rank 4 (gpu:4): mlx5_8: nearest usable port (PIX, 50.0 GB/s); vLLM takes one NIC for each GPU, so without mlx5_9
# rank 5 (gpu:5): mlx5_10: nearest usable port (PIX, 50.0 GB/s); vLLM takes one NIC for each GPU, so without mlx5_11
# rank 6 (gpu:6): mlx5_12: nearest usable port (PIX, 50.0 GB/s); vLLM takes one NIC for each GPU, so without mlx5_13
# rank 7 (gpu:7): mlx5_14: nearest usable port (PIX, 50.0 GB/s); vLLM takes one NIC for each GPU, so without mlx5_15
export VLLM_GPU_NIC_PCIE_MAPPING='0000:18:00.0=0000:19:00.0,0000:29:00.0=0000:2a:00.0,0000:3a:00.0=0000:3b:00.0,0000:4b:00.0=0000:4c:00.0,0000:9a:00.0=0000:9b:00.0,0000:aa:00.0=0000:ab:00.0,0000:ba:00.0=0000:bb:00.0,0000:ca:00.0=0000:cb:00.0'

# what each worker sets to its NIC, for NIXL over UCX. Leave UCX_NET_DEVICES itself unset: vLLM adds to what it holds
# NCCL_IB_HCA is not among them: it must be the same for all ranks of a host (NVIDIA/nccl issue 1478, topoctl export env --for nccl)
export VLLM_NIC_SELECTION_VARS='UCX_NET_DEVICES:1'
