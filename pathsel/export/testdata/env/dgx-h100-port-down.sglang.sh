# SGLang on dgx-h100: 8 local ranks, rank N on visible GPU N. Written by topoctl.
# SGLang's transfer engine has settings of its own: topoctl export env --for mooncake (the default) or ucx (for nixl).

# for SGLang's command line: --disaggregation-ib-device "$topoctl_ib_device"
# GPU 0 (gpu:0): mlx5_0: nearest usable port (PXB, 50.0 GB/s)
# GPU 1 (gpu:1): mlx5_3: nearest usable port (PXB, 50.0 GB/s)
# GPU 2 (gpu:2): mlx5_4: nearest usable port (PXB, 50.0 GB/s)
# GPU 3 (gpu:3): mlx5_5: nearest usable port (PXB, 50.0 GB/s)
# GPU 4 (gpu:4): mlx5_9: nearest usable port (NODE, at most 50.0 GB/s); shared with rank 5; mlx5_6 (PXB) is nearer and takes no part: port state DOWN, physical state Polling
# GPU 5 (gpu:5): mlx5_9: nearest usable port (PXB, 50.0 GB/s); shared with rank 4
# GPU 6 (gpu:6): mlx5_10: nearest usable port (PXB, 50.0 GB/s)
# GPU 7 (gpu:7): mlx5_11: nearest usable port (PXB, 50.0 GB/s)
# by the number that the process has for the GPU. Versions that refuse the map (before pull request 12817, and some after it, issue 20241) take what --rank prints
topoctl_ib_device='{"0":"mlx5_0","1":"mlx5_3","2":"mlx5_4","3":"mlx5_5","4":"mlx5_9","5":"mlx5_9","6":"mlx5_10","7":"mlx5_11"}'
