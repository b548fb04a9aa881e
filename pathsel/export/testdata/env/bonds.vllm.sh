# vLLM on bonds: 8 local ranks, rank N on visible GPU N. Written by topoctl.

# rank 0 (gpu:0): mlx5_bond_0: nearest usable port (PIX, 25.0 GB/s); a bond of rdma0a and rdma0b: one connection uses one leg
# rank 1 (gpu:1): mlx5_bond_1: nearest usable port (PIX, 25.0 GB/s); a bond of rdma1a and rdma1b: one connection uses one leg
# rank 2 (gpu:2): mlx5_bond_2: nearest usable port (PIX, 25.0 GB/s); a bond of rdma2a and rdma2b: one connection uses one leg
# rank 3 (gpu:3): mlx5_bond_3: nearest usable port (PIX, 25.0 GB/s); a bond of rdma3a and rdma3b: one connection uses one leg
# rank 4 (gpu:4): mlx5_bond_4: nearest usable port (PIX, 25.0 GB/s); a bond of rdma4a and rdma4b: one connection uses one leg
# rank 5 (gpu:5): mlx5_bond_5: nearest usable port (PIX, 25.0 GB/s); a bond of rdma5a and rdma5b: one connection uses one leg
# rank 6 (gpu:6): mlx5_bond_6: nearest usable port (PIX, 25.0 GB/s); a bond of rdma6a and rdma6b: one connection uses one leg
# rank 7 (gpu:7): mlx5_bond_7: nearest usable port (PIX, 25.0 GB/s); a bond of rdma7a and rdma7b: one connection uses one leg
export VLLM_GPU_NIC_PCIE_MAPPING='0000:13:00.0=0000:15:00.0,0000:14:00.0=0000:16:00.0,0000:33:00.0=0000:35:00.0,0000:34:00.0=0000:36:00.0,0000:83:00.0=0000:85:00.0,0000:84:00.0=0000:86:00.0,0000:a3:00.0=0000:a5:00.0,0000:a4:00.0=0000:a6:00.0'

# what each worker sets to its NIC, for NIXL over UCX. Leave UCX_NET_DEVICES itself unset: vLLM adds to what it holds
# NCCL_IB_HCA is not among them: it must be the same for all ranks of a host (NVIDIA/nccl issue 1478, topoctl export env --for nccl)
export VLLM_NIC_SELECTION_VARS='UCX_NET_DEVICES:1'

# RoCE v2 with a routable address on each of the 8 ports
export UCX_IB_GID_INDEX='3'

# UCX_IB_TRAFFIC_CLASS is left out: not known for mlx5_bond_0: take what the switches' lossless queue wants
