"""A stock Mooncake process for tests: offers a buffer, and does what lines of JSON on its standard
input say. Arguments: name, metadata, bytes of the buffer. It answers each line with one of its own.
"""

import ctypes
import hashlib
import json
import os
import sys

from mooncake.engine import TransferEngine

name, metadata, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the engine logs to standard output


def say(**answer):
    out.write(json.dumps(answer) + "\n")
    out.flush()


engine = TransferEngine()
if engine.initialize(name, metadata, "tcp", "") != 0:
    sys.exit("initialize failed")
memory = (ctypes.c_char * size)()
address = ctypes.addressof(memory)
if engine.register_memory(address, size) != 0:
    sys.exit("register_memory failed")
host = name.split(":")[0]
say(
    address=address,
    name=f"{host}:{engine.get_rpc_port()}" if metadata == "P2PHANDSHAKE" else name,
)
for line in sys.stdin:
    do = json.loads(line)
    result = 0
    if do["do"] == "batch":
        call = engine.batch_transfer_sync_write if do["write"] else engine.batch_transfer_sync_read
        result = call(do["peer"], do["local"], do["remote"], do["length"])
    elif do["do"] == "set":
        ctypes.memmove(memory, bytes.fromhex(do["bytes"]), size)
    elif do["do"] == "probe":
        result = engine.send_probe(do["peer"])
    say(result=result, sum=hashlib.sha256(memory).hexdigest())
os._exit(0)
