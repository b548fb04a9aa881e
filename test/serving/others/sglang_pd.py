"""SGLang for processors: a prefill and a decode server beside a server that does both.

    python sglang_pd.py [topoctl:mooncake|topoctl:nixl|stock:mooncake|stock:nixl ...]

stock:nixl fails, since SGLang says of all its memory that it is a GPU's, and NIXL looks.

SGLang has wheels of its kernels for GPUs only. Without AMX it computes with torch, all but the kernels that sgl_kernel
below stands in for; and two lines of its disaggregation call CUDA, which options or the attribute below leave out.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import multiprocessing
import os
import sys
import types
from typing import Any, List

import others

ARGS = """--device cpu --dtype float32 --attention-backend torch_native --max-total-tokens 16384 --disable-radix-cache
 --disable-overlap-schedule --skip-server-warmup --skip-tokenizer-init --host 127.0.0.1""".split()
# Its default keeps KV of requests that wait in memory which it registers with CUDA.
DECODE = ["--disaggregation-decode-retraction-backup", "cpu_tensor"]


def stand_in() -> types.ModuleType:
    module: Any = types.ModuleType("sgl_kernel")

    def assign(rows: Any, table: Any, starts: Any, ends: Any, places: Any, _: int) -> None:
        at = 0
        for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist()):
            table[row, start:end] = places[at : at + end - start]
            at += end - start

    def missing(name: str) -> Any:
        if not name.endswith("_cpu"):
            raise AttributeError(name)

        def fail(*_: Any, **__: Any) -> None:
            raise NotImplementedError(name)

        return fail

    module.assign_req_to_token_pool_cpu = assign
    module.__getattr__ = missing
    return module


def pair(package: str, backend: str, model: str, both: str, version: str, launch: Any) -> None:
    asked = others.prompts(20)
    with others.Servers(package) as servers:
        bootstrap = others.free_port()
        ports = {name: others.free_port() for name in ("prefill", "decode")}

        def serve(name: str) -> None:
            args = ["--model-path", model, "--port", str(ports[name]), *ARGS, "--disaggregation-mode", name]
            args += ["--disaggregation-transfer-backend", backend, "--disaggregation-bootstrap-port", str(bootstrap)]
            if name == "decode":
                args += DECODE
            if backend == "mooncake":
                # It copies indices to pinned memory and waits for an event of CUDA, unless the sender wants none.
                conn: Any = importlib.import_module("sglang.srt.disaggregation.mooncake.conn")
                conn.MooncakeKVSender.supports_host_tensor_indices = False
            launch.run_server(launch.prepare_server_args(args))

        for name in ports:
            servers.fork(name, lambda: serve(name))
        urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        others.wait_up([url + "/model_info" for url in urls.values()], 150)
        want, got = [], []
        for room, prompt in enumerate(asked, 1):
            want.append(generate(both, prompt))
            apart = {"bootstrap_host": "127.0.0.1", "bootstrap_port": bootstrap, "bootstrap_room": room}
            with concurrent.futures.ThreadPoolExecutor() as pool:
                prefill = pool.submit(generate, urls["prefill"], prompt, **apart)
                got.append(generate(urls["decode"], prompt, **apart))
                prefill.result()
        what = f"sglang {version}, prefill and decode, {package}'s {backend}"
        others.judge(servers, what, want, got, sum(map(len, asked)))


def generate(url: str, prompt: List[int], **more: Any) -> List[int]:
    sampling = {"max_new_tokens": others.ANSWER, "temperature": 0, "ignore_eos": True}
    answer = others.post(url + "/generate", {"input_ids": prompt, "sampling_params": sampling, **more})
    return list(answer["output_ids"])


def main(pairs: List[str]) -> None:
    multiprocessing.set_start_method("fork")
    multiprocessing.set_start_method = lambda *_, **__: None  # SGLang wants spawn, which imports all anew
    os.environ.update(others.OFFLINE, SGLANG_USE_CPU_ENGINE="1", SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION="0")
    sys.modules["sgl_kernel"] = stand_in()
    launch: Any = importlib.import_module("sglang.launch_server")
    for module in "entrypoints.http_server", "managers.scheduler", "managers.detokenizer_manager":
        importlib.import_module(f"sglang.srt.{module}")
    version = importlib.import_module("sglang").__version__
    with others.Servers("stock") as servers:
        model, port = os.path.join(servers.folder, "model"), str(others.free_port())
        others.write_model(model)
        args = ["--model-path", model, "--port", port, *ARGS]
        servers.fork("both", lambda: launch.run_server(launch.prepare_server_args(args)))
        both = f"http://127.0.0.1:{port}"
        others.wait_up([both + "/model_info"], 150)
        for name in pairs:
            package, backend = name.split(":")
            pair(package, backend, model, both, version, launch)


if __name__ == "__main__":
    main(sys.argv[1:] or ["topoctl:mooncake", "topoctl:nixl", "stock:mooncake"])
