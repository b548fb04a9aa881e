"""What the NIXL tests share: a second process with an agent, and waiting. It works with NIXL's own
package and with topoctl's, whichever is on Python's path.

As a program it is that process: it makes an agent, registers memory, and obeys its standard input.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List

import numpy as np
from nixl import _bindings
from nixl._api import nixl_agent, nixl_agent_config

LONG = os.environ.get("TOPOCTL_TESTS") == "long"
"""Whether tests take the time that .ci/long has, not that of .ci/run."""

STOCK = hasattr(_bindings, "nixlAgent")
"""NIXL's own package is under test, and not topoctl's."""


def pattern(size: int, seed: int) -> Any:
    """size bytes that differ from those of another seed nearly everywhere."""
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def address(memory: Any) -> int:
    return int(memory.ctypes.data)


def blocks(base: int, count: int, size: int) -> Any:
    """A table of count descriptors of size bytes, one behind the other."""
    rows = np.zeros((count, 3), dtype=np.uint64)
    rows[:, 0] = base + np.arange(count, dtype=np.uint64) * np.uint64(size)
    rows[:, 1] = size
    return rows


def agent(name: str, **config: Any) -> nixl_agent:
    """An agent. NIXL_TEST_UCX_ERRORS=none lets UCX use shared memory, which notices no peer's end."""
    mode = os.environ.get("NIXL_TEST_UCX_ERRORS")
    if mode:
        config["backends"] = []
    one = nixl_agent(name, nixl_agent_config(**{"capture_telemetry": True, **config}))
    if mode:
        one.create_backend("UCX", {"ucx_error_handling_mode": mode})
    return one


def digest(memory: Any) -> str:
    return hashlib.sha256(memory).hexdigest()


def until(done: Callable[[], Any], seconds: float, what: str) -> Any:
    """What done gives as soon as it is true. AssertionError after that many seconds."""
    end = time.monotonic() + seconds
    while True:
        value = done()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.0005)


def finished(one: nixl_agent, handle: Any, seconds: float = 60) -> str:
    """The state of a transfer that has ended."""

    def state() -> str:
        now: str = one.check_xfer_state(handle)
        return "" if now == "PROC" else now

    result: str = until(state, seconds, "transfer")
    return result


def exit_now(ok: bool) -> None:
    """Ends the process. NIXL 1.5.1 with its UCX backend crashes in the interpreter's own exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if ok else 1)


class Peer:
    """The second process, started by the words of PEER_COMMAND where it is set."""

    def __init__(self, name: str, size: int, seed: int, **environment: str) -> None:
        command = os.environ.get("PEER_COMMAND", "").split()
        self._process = subprocess.Popen(
            [*command, sys.executable, os.path.abspath(__file__), name, str(size), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        hello = self._answer()
        self.name = name
        self.pid = self._process.pid
        self.metadata = bytes.fromhex(hello["metadata"])
        self.base: int = hello["base"]

    def _answer(self) -> Dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # others are NIXL's log
                answer: Dict[str, Any] = json.loads(line)
                return answer
        raise AssertionError(f"the peer ended with {self._process.wait()}")

    def ask(self, command: str, **arguments: Any) -> Dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def notifications(self, sender: str, count: int) -> List[bytes]:
        """The next count notifications of an agent."""
        got: List[bytes] = []

        def enough() -> bool:
            got.extend(bytes.fromhex(m) for m in self.ask("notifications").get(sender, []))
            return len(got) >= count

        until(enough, 60, f"{count} notifications")
        return got

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in self._process.stdin, self._process.stdout:
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _serve(name: str, size: int, seed: int) -> None:
    memory = pattern(size, seed)
    here = agent(name)
    here.register_memory([(address(memory), size, 0, "")], "DRAM")
    descs = here.get_xfer_descs(blocks(address(memory), size // 4096, 4096), "DRAM")
    print(
        json.dumps({"metadata": here.get_agent_metadata().hex(), "base": address(memory)}),
        flush=True,
    )
    for line in sys.stdin:
        request = json.loads(line)
        answer: Dict[str, Any] = {}
        if request["command"] == "notifications":
            answer = {k: [m.hex() for m in v] for k, v in here.get_new_notifs().items()}
        elif request["command"] == "digest":
            answer = {"digest": digest(memory[request["at"] : request["at"] + request["size"]])}
        elif request["command"] == "descriptors":
            answer = {"descriptors": here.get_serialized_descs(descs).hex()}
        elif request["command"] == "add":
            here.add_remote_agent(bytes.fromhex(request["metadata"]))
        elif request["command"] == "send":
            here.send_notif(request["to"], bytes.fromhex(request["message"]))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    exit_now(True)
