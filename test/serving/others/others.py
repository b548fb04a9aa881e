"""What the runs of other serving engines share: a small model, the environment of both packages, prompts, and what
moved by topoctl's own count."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from typing import Any, Callable, Dict, List

WORDS = 2048
LAYERS, HEADS, HEAD = 4, 4, 64
TOKEN_BYTES = LAYERS * 2 * HEADS * HEAD * 4
"""Bytes of KV that one token has in float32."""
ANSWER = 12
"""Tokens of an answer."""

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "LMCACHE_TRACK_USAGE": "false",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
STOCK = {"UCX_TLS": "tcp,self", "NIXL_LOG_LEVEL": "ERROR", "MC_FORCE_TCP": "1", "MOONCAKE_PROTOCOL": "tcp"}


def write_model(folder: str) -> None:
    """A Llama with random weights. They are large enough for answers that depend on all of a prompt."""
    import tokenizers
    import torch
    import transformers

    words = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(3, WORDS))]
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    fast.chat_template = "{% for message in messages %}{{ message.content }} {% endfor %}"  # Dynamo does not start without
    fast.save_pretrained(folder)
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=HEADS * HEAD,
        intermediate_size=2 * HEADS * HEAD,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=HEAD,
        max_position_embeddings=2048,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
        initializer_range=0.2,
    )
    llama = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        llama.lm_head.weight[:3] = 0  # so that no answer has tokens that its text leaves out
    llama.save_pretrained(folder)


def prompts(n: int) -> List[List[int]]:
    """All end alike, so that only what is before, and thus KV that moved, tells their answers apart."""
    rng = random.Random(1)
    tail = [rng.randrange(3, WORDS) for _ in range(8)]
    return [[rng.randrange(3, WORDS) for _ in range(rng.randrange(150, 600))] + tail for _ in range(n)]


class Servers:
    """Processes of their own groups, which end with this one."""

    def __init__(self, package: str) -> None:
        self.ours = package == "topoctl"
        self.folder = tempfile.mkdtemp()
        self.groups: List[int] = []
        self.ports: List[int] = []  # of topoctl's metrics
        for ends in signal.SIGTERM, signal.SIGHUP:
            signal.signal(ends, lambda *_: sys.exit(1))
        self.env = dict(OFFLINE)
        self.compat: List[str] = []
        if not self.ours:
            self.env.update(STOCK)
            return
        import topoctl.compat

        token = os.path.join(self.folder, "token")
        with open(token, "w") as f:
            f.write("a-secret-of-sixteen-bytes\n")
        self.env["TOPOCTL_TOKEN_FILE"] = token
        self.compat += topoctl.compat.__path__
        self.env["PYTHONPATH"] = os.pathsep.join([*self.compat, os.environ.get("PYTHONPATH", "")])

    def environment(self) -> Dict[str, str]:
        """What one more process has of its own."""
        env = dict(self.env)
        if self.ours:
            self.ports.append(free_port())
            env["TOPOCTL_HTTP"] = f"127.0.0.1:{self.ports[-1]}"
        return env

    def log(self, name: str) -> str:
        return os.path.join(self.folder, name + ".log")

    def start(self, name: str, *command: str, **env: str) -> None:
        with open(self.log(name), "w") as log:
            environment = {**os.environ, **self.environment(), **env}
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=self.folder
            )
        self.groups.append(process.pid)

    def fork(self, name: str, run: Callable[[], Any], **env: str) -> None:
        """Runs a function in a process that has what this one has imported."""
        environment = {**self.environment(), **env}
        pid = os.fork()
        if pid:
            self.groups.append(pid)
            return
        try:
            os.setsid()
            log = os.open(self.log(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ.update(environment)
            sys.path[:0] = self.compat
            run()
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(1)

    def moved(self) -> int:
        """Bytes of all engines, by their own count."""
        total = 0
        for port in self.ports:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/engine", timeout=5) as page:
                    total += sum(lane["bytes"] for lane in json.load(page)["lanes"])
            except urllib.error.URLError:
                pass  # a process without an engine
        return total

    def __enter__(self) -> "Servers":
        return self

    def __exit__(self, failed: Any, *_: Any) -> None:
        for group in self.groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if failed:
            for name in sorted(os.listdir(self.folder)):
                if name.endswith(".log"):
                    with open(os.path.join(self.folder, name), errors="replace") as log:
                        print(f"-- {name}", *(line[:300] for line in log.read().splitlines()[-15:]), sep="\n")
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def post(url: str, body: Any, timeout: float = 60) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{url}: {error}: {error.read().decode()[:300]}") from None


def wait_up(urls: List[str], seconds: float, ready: Callable[[Any], Any] = lambda _: True) -> None:
    """Waits until each of these pages is there, and is ready."""
    end = time.monotonic() + seconds
    for url in urls:
        while True:
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    if ready(answer.read()):
                        break
            except OSError:
                pass
            if time.monotonic() > end:
                raise TimeoutError(f"{url} did not answer within {seconds:.0f} s")
            time.sleep(0.5)


def judge(servers: Servers, what: str, want: List[List[int]], got: List[List[int]], tokens: int) -> None:
    """Says what was seen. It fails where an answer differs, or less than the KV of these tokens moved."""
    equal = sum(a == b and len(a) == ANSWER for a, b in zip(want, got))
    distinct = len(set(map(tuple, want)))
    said = f"{what}: {equal} of {len(want)} answers equal, {distinct} different ones"
    if servers.ours:
        moved = servers.moved()
        said += f"; KV of {tokens} tokens is {tokens * TOKEN_BYTES} bytes, topoctl moved {moved}"
        assert moved >= tokens * TOKEN_BYTES, said
    print(said, flush=True)
    assert equal == len(want) == distinct, said
