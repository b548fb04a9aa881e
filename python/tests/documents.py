"""What mypy says of documents: each "ignore" is an error that it must find, or mypy says that it is unused."""

import topoctl

host = topoctl.discover()
host.nics  # type: ignore[attr-defined]
host.gpus[0].uuid  # type: ignore[attr-defined]
host.gpus[0]["uid"]  # type: ignore[call-overload]
uuid: str = host.gpus[0].get("uuid")  # type: ignore[assignment]
for node in host.nodes:
    node.numa_node  # type: ignore[union-attr]
    if node.kind == "rdma":
        numa_node = node.numa_node
pair = topoctl.matrix(host).between("gpu:0", "rdma:mlx5_0")
near = pair["class"] == "PIX" and pair.hops == 1
pair["clas"]  # type: ignore[call-overload]
path = topoctl.path("gpu:0", from_=host)
path.chosen.name  # type: ignore[union-attr]
if path.chosen:
    text: str = path.chosen.reason.text
topoctl.plan().ports[0].gpus  # type: ignore[attr-defined]
fixes = [finding.fix for finding in topoctl.doctor().findings]

with topoctl.Engine() as engine:
    rates = [lane["service_bytes_per_sec"] for lane in engine.stats()["lanes"]]
    engine.stats()["lane"]  # type: ignore[typeddict-item]
    batch = engine.open("127.0.0.1:7411")
    lanes = [used["lane"] for route in batch.explain()["routes"] for used in route["used"]]
    batch.explain()["states"]  # type: ignore[typeddict-item]
