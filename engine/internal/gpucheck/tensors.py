"""A tensor of cupy or torch for gpucheck: prints a handle of its memory, waits until gpucheck has
read and written it, and looks at what is there."""

import json
import sys

BYTES = 1 << 20


def with_cupy():
    import cupy

    x = (cupy.arange(BYTES, dtype=cupy.int64) * 7 % 251).astype(cupy.uint8)
    cupy.cuda.Device().synchronize()
    base = x.data.mem.ptr
    handle = cupy.cuda.runtime.ipcGetMemHandle(base)

    def same():
        return bool((x == (cupy.arange(BYTES, dtype=cupy.int64) * 5 % 249).astype(cupy.uint8)).all())

    return bytes(handle), x.data.ptr - base, same, x


def with_torch():
    import torch

    x = (torch.arange(BYTES, dtype=torch.int64, device="cuda") * 7 % 251).to(torch.uint8)
    torch.cuda.synchronize()
    shared = x.untyped_storage()._share_cuda_()
    # (device, handle, bytes, offset of the storage in its allocation, ...)
    handle, offset = shared[1], shared[3]

    def same():
        torch.cuda.synchronize()
        return bool((x == (torch.arange(BYTES, dtype=torch.int64, device="cuda") * 5 % 249).to(torch.uint8)).all())

    return bytes(handle)[-64:], offset, same, x


def main():
    library = sys.argv[1]
    try:
        handle, offset, same, keep = {"cupy": with_cupy, "torch": with_torch}[library]()
    except ImportError as e:
        print(json.dumps({"missing": "%s (%s)" % (library, e)}), flush=True)
        return
    print(json.dumps({"handle": handle.hex(), "offset": offset, "bytes": BYTES}), flush=True)
    sys.stdin.readline()
    print("same" if same() else "different", flush=True)
    del keep


main()
