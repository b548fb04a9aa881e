# SGLang on bonds: 8 local ranks, rank N on visible GPU N. Written by topoctl.
# SGLang's transfer engine has settings of its own: topoctl export env --for mooncake (the default) or ucx (for nixl).

# for SGLang's command line: --disaggregation-ib-device "$topoctl_ib_device"
# GPU 0 (gpu:0): mlx5_bond_0: nearest usable port (PIX, 25.0 GB/s); a bond of rdma0a and rdma0b: one connection uses one leg
# GPU 1 (gpu:1): mlx5_bond_1: nearest usable port (PIX, 25.0 GB/s); a bond of rdma1a and rdma1b: one connection uses one leg
# GPU 2 (gpu:2): mlx5_bond_2: nearest usable port (PIX, 25.0 GB/s); a bond of rdma2a and rdma2b: one connection uses one leg
# GPU 3 (gpu:3): mlx5_bond_3: nearest usable port (PIX, 25.0 GB/s); a bond of rdma3a and rdma3b: one connection uses one leg
# GPU 4 (gpu:4): mlx5_bond_4: nearest usable port (PIX, 25.0 GB/s); a bond of rdma4a and rdma4b: one connection uses one leg
# GPU 5 (gpu:5): mlx5_bond_5: nearest usable port (PIX, 25.0 GB/s); a bond of rdma5a and rdma5b: one connection uses one leg
# GPU 6 (gpu:6): mlx5_bond_6: nearest usable port (PIX, 25.0 GB/s); a bond of rdma6a and rdma6b: one connection uses one leg
# GPU 7 (gpu:7): mlx5_bond_7: nearest usable port (PIX, 25.0 GB/s); a bond of rdma7a and rdma7b: one connection uses one leg
# by the number that the process has for the GPU. Versions that refuse the map (before pull request 12817, and some after it, issue 20241) take what --rank prints
topoctl_ib_device='{"0":"mlx5_bond_0","1":"mlx5_bond_1","2":"mlx5_bond_2","3":"mlx5_bond_3","4":"mlx5_bond_4","5":"mlx5_bond_5","6":"mlx5_bond_6","7":"mlx5_bond_7"}'
