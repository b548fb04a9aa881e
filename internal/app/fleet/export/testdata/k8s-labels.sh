#!/bin/sh
# Node labels, written by topoctl fleet export. A label of another place is overwritten.
set -eu
kubectl label --overwrite node n1 fabric.topograph.run/tier-0=su-ae3f3952 fabric.topograph.run/tier-1=tier1-f7e6d1f3 accelerator.topograph.run/domain=0b0d27a8-3a0f-4a5d-9c5e-1f2e3d4c5b6a.1 topoctl.dev/class=c-462d55d8 topoctl.dev/rails=8 topoctl.dev/gpu-nic-class=PXB
kubectl label --overwrite node n2 fabric.topograph.run/tier-0=su-ae3f3952 fabric.topograph.run/tier-1=tier1-f7e6d1f3 accelerator.topograph.run/domain=0b0d27a8-3a0f-4a5d-9c5e-1f2e3d4c5b6a.1 topoctl.dev/class=c-462d55d8 topoctl.dev/rails=8 topoctl.dev/gpu-nic-class=PXB
kubectl label --overwrite node n3 fabric.topograph.run/tier-0=su-ae3f3952 fabric.topograph.run/tier-1=tier1-f7e6d1f3 accelerator.topograph.run/domain=0b0d27a8-3a0f-4a5d-9c5e-1f2e3d4c5b6a.1 topoctl.dev/class=c-462d55d8 topoctl.dev/rails=8 topoctl.dev/gpu-nic-class=PXB
kubectl label --overwrite node n4 fabric.topograph.run/tier-0=su-be1f95f3 fabric.topograph.run/tier-1=tier1-f7e6d1f3 accelerator.topograph.run/domain=0b0d27a8-3a0f-4a5d-9c5e-1f2e3d4c5b6a.2 topoctl.dev/class=c-462d55d8 topoctl.dev/rails=8 topoctl.dev/gpu-nic-class=PXB
kubectl label --overwrite node n5 fabric.topograph.run/tier-0=su-be1f95f3 fabric.topograph.run/tier-1=tier1-f7e6d1f3 accelerator.topograph.run/domain=0b0d27a8-3a0f-4a5d-9c5e-1f2e3d4c5b6a.2 topoctl.dev/class=c-462d55d8 topoctl.dev/rails=8 topoctl.dev/gpu-nic-class=PXB
kubectl label --overwrite node n6 fabric.topograph.run/tier-0=su-be1f95f3 fabric.topograph.run/tier-1=tier1-f7e6d1f3 accelerator.topograph.run/domain=0b0d27a8-3a0f-4a5d-9c5e-1f2e3d4c5b6a.2 topoctl.dev/class=c-462d55d8 topoctl.dev/rails=8 topoctl.dev/gpu-nic-class=PXB
