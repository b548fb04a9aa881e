"""hello: writes into a peer's memory over every NIC, and says which of them carried it."""

import topoctl

SIZE = 1 << 20

# The side that offers memory, mostly another process on another host, and the side that writes.
with topoctl.Engine(name="there") as there, topoctl.Engine(name="here") as here:
    kv, page = there.alloc(SIZE), here.alloc(SIZE)
    page[:14] = b"over every NIC"
    remote = topoctl.range_of(kv).address
    batch = here.write(there.address, page, remote, timeout=10)
    batch.wait()
    print(bytes(kv[:14]).decode())
    for route in batch.explain()["routes"]:
        for lane in route["used"]:
            print(lane["lane"], lane["bytes"])
