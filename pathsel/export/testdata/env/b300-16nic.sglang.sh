# SGLang on b300-16nic: 8 local ranks, rank N on visible GPU N. Written by topoctl.
# SGLang's transfer engine has settings of its own: topoctl export env --for mooncake (the default) or ucx (for nixl).

# for SGLang's command line: --disaggregation-ib-device "$topoctl_ib_device"
# GPU 0 (gpu:0): mlx5_0: nearest usable port (PIX, 50.0 GB/s)
# GPU 0 (gpu:0): mlx5_1: nearest usable port (PIX, 50.0 GB/s)
# GPU 1 (gpu:1): mlx5_2: nearest usable port (PIX, 50.0 GB/s)
# GPU 1 (gpu:1): mlx5_3: nearest usable port (PIX, 50.0 GB/s)
# GPU 2 (gpu:2): mlx5_4: nearest usable port (PIX, 50.0 GB/s)
# GPU 2 (gpu:2): mlx5_5: nearest usable port (PIX, 50.0 GB/s)
# GPU 3 (gpu:3): mlx5_6: nearest usable port (PIX, 50.0 GB/s)
# GPU 3 (gpu:3): mlx5_7: nearest usable port (PIX, 50.0 GB/s)
# GPU 4 (gpu:4): mlx5_8: nearest usable port (PIX, 50.0 GB/s)
# GPU 4 (gpu:4): mlx5_9: nearest usable port (PIX, 50.0 GB/s)
# GPU 5 (gpu:5): mlx5_10: nearest usable port (PIX, 50.0 GB/s)
# GPU 5 (gpu:5): mlx5_11: nearest usable port (PIX, 50.0 GB/s)
# GPU 6 (gpu:6): mlx5_12: nearest usable port (PIX, 50.0 GB/s)
# GPU 6 (gpu:6): mlx5_13: nearest usable port (PIX, 50.0 GB/s)
# GPU 7 (gpu:7): mlx5_14: nearest usable port (PIX, 50.0 GB/s)
# GPU 7 (gpu:7): mlx5_15: nearest usable port (PIX, 50.0 GB/s)
# by the number that the process has for the GPU. Versions that refuse the map (before pull request 12817, and some after it, issue 20241) take what --rank prints
topoctl_ib_device='{"0":"mlx5_0,mlx5_1","1":"mlx5_2,mlx5_3","2":"mlx5_4,mlx5_5","3":"mlx5_6,mlx5_7","4":"mlx5_8,mlx5_9","5":"mlx5_10,mlx5_11","6":"mlx5_12,mlx5_13","7":"mlx5_14,mlx5_15"}'
