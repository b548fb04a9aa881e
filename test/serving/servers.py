"""Servers of vLLM, forked from one process that has imported it: a start takes seconds, and a restart too.

Reads a server a line from standard input, as JSON: args of the server, env to set, paths to have first in sys.path,
log to write, and namespace, the process whose network and mounts to share, or 0. Answers with its process ID, which is
also that of its process group.
"""

import ctypes
import importlib
import json
import multiprocessing
import os
import signal
import sys
import traceback

# What a server imports only when it starts.
LATE = """vllm.distributed.kv_transfer.kv_connector.factory vllm.entrypoints.launchers.api_server.entry
vllm.entrypoints.launchers.app vllm.entrypoints.launchers.cli_args vllm.model_executor.model_loader.default_loader
vllm.model_executor.models.llama vllm.utils.argparse_utils vllm.v1.attention.backends.cpu_attn vllm.v1.core.sched.scheduler
vllm.v1.engine.async_llm vllm.v1.engine.core vllm.v1.executor.multiproc_executor vllm.v1.executor.uniproc_executor
vllm.v1.worker.cpu_model_runner vllm.v1.worker.cpu_worker torch._dynamo torch._inductor uvicorn uvloop"""


def enter(pid):
    """Moves this process to the network and the mounts of another."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in "net", "mnt":
        with open(f"/proc/{pid}/ns/{kind}") as namespace:
            if libc.setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"setns {kind} of {pid}")


def fork_workers():
    """Makes vLLM fork its processes, where it would start them anew and import everything again."""
    from vllm.utils import system_utils

    fork = multiprocessing.get_context("fork")
    original = system_utils.get_mp_context
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm") and vars(module).get("get_mp_context") is original:
            module.get_mp_context = lambda: fork


def without_gpu():
    """Lets MooncakeConnector run on processors: it asks for the number of an accelerator, and sets it."""
    import torch
    from vllm.platforms.cpu import CpuPlatform

    torch.accelerator.current_device_index = lambda: 0
    CpuPlatform.set_device = classmethod(lambda cls, device: None)


def serve(args, env, paths, log, namespace):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(log, "a") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    if namespace:
        enter(namespace)
    os.environ.update(env)
    sys.path[:0] = paths
    sys.argv[0] = "vllm"
    fork_workers()
    without_gpu()
    import uvloop
    from vllm.entrypoints.launchers.api_server import entry
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(args)
    validate_parsed_serve_args(parsed)
    uvloop.run(entry.run_server(parsed))


def main():
    for name in LATE.split():
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):  # reads no line ahead, which forks would have too
        pid = os.fork()
        if pid:
            os.setpgid(pid, pid)
            print(pid, flush=True)
        else:
            try:
                serve(**json.loads(line))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)


if __name__ == "__main__":
    main()
