"""What the mooncake tests share: a second process with an engine, and memory. It works with the
stock wheel and with topoctl's mooncake, whichever is on Python's path, and needs nothing else.

As a program it is that process: it registers memory and obeys its standard input.
"""

from __future__ import annotations

import ctypes
import hashlib
import http.server
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import unittest
from typing import Any, Dict, Optional

import mooncake.engine
from mooncake.engine import TransferEngine

OURS = (mooncake.engine.__file__ or "").endswith(".py")
"""topoctl's mooncake is under test, and not the stock wheel's."""

BASE = 0x6000_0000_0000  # of a peer's memory: the same after a restart

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
_READ_WRITE, _PRIVATE_ANONYMOUS, _FIXED_NOREPLACE = 3, 0x22, 0x100000


class Memory:
    """size bytes that stay where they are, of which address is the first."""

    def __init__(self, size: int, address: Optional[int] = None) -> None:
        flags = _PRIVATE_ANONYMOUS | (_FIXED_NOREPLACE if address else 0)
        got = _libc.mmap(address, size, _READ_WRITE, flags, -1, 0)
        if got == ctypes.c_void_p(-1).value or (address and got != address):
            raise OSError(ctypes.get_errno(), f"no {size} bytes at {address}")
        self.address, self.size = got, size
        self.bytes = memoryview((ctypes.c_ubyte * size).from_address(got)).cast("B")

    def fill(self, value: int) -> None:
        ctypes.memset(self.address, value, self.size)

    def pattern(self, seed: int) -> None:
        self.bytes[:] = random.Random(seed).randbytes(self.size)

    def others(self, value: int) -> int:
        """How many bytes are not value."""
        return self.size - bytes(self.bytes).count(value)

    def digest(self) -> str:
        return hashlib.sha256(self.bytes).hexdigest()


def opened(host: str = "127.0.0.1", protocol: str = "tcp") -> TransferEngine:
    """An engine. Where MOONCAKE_METADATA is set, that is its metadata server."""
    engine = TransferEngine()
    metadata = os.environ.get("MOONCAKE_METADATA", "P2PHANDSHAKE")
    result = engine.initialize(host, metadata, protocol, "")
    assert result == 0, result
    return engine


def session(host: str, engine: TransferEngine) -> str:
    """What peers call an engine."""
    return f"[{host}]:{engine.get_rpc_port()}" if ":" in host else f"{host}:{engine.get_rpc_port()}"


def free_port() -> int:
    """One of those that the stock engine takes, which are below 32,768."""
    while True:
        port = random.randrange(17_000, 32_000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def metadata_server(test: unittest.TestCase, host: str = "127.0.0.1") -> str:
    """The address of an HTTP metadata server, which ends with the test."""
    known: Dict[str, bytes] = {}

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = known.get(self.path, b"metadata not found")
            self.send_response(200 if self.path in known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_PUT(self) -> None:
            known[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_DELETE(self) -> None:
            known.pop(self.path, None)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer((host, 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    test.addCleanup(server.server_close)
    test.addCleanup(server.shutdown)
    return f"http://{host}:{server.server_port}/metadata"


class Peer:
    """Another process with an engine, called name, and size bytes at address, all registered unless
    register is False. With a port it listens there. Where MOONCAKE_PEER_PATH is set it has that as
    its PYTHONPATH, and so may have the other package; PEER_COMMAND is what starts it."""

    def __init__(
        self, size: int, host: str = "127.0.0.1", port: int = 0, register: bool = True
    ) -> None:
        environment = dict(os.environ)
        if "MOONCAKE_PEER_PATH" in environment:
            environment["PYTHONPATH"] = environment["MOONCAKE_PEER_PATH"]
        if port:
            environment["TOPOCTL_LISTEN"] = f"127.0.0.1:{port}"
            for bound, number in ("MIN", port), ("MAX", port + 3):  # it wants two
                for word in "RPC", "PRC":
                    environment[f"MC_{bound}_{word}_PORT"] = str(number)
        command = os.environ.get("PEER_COMMAND", "").split()
        command += [sys.executable, os.path.abspath(__file__), host, str(size), str(int(register))]
        end = time.monotonic() + 100
        while time.monotonic() < end:  # the stock engine takes one at random, and none in TIME_WAIT
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
            try:
                self.name, self.address = self._answer()
                if not port or self.name.endswith(f":{port}"):
                    return
            except EOFError:  # it could not begin
                pass
            self.close()
            if OURS:
                break
        raise AssertionError(f"no peer that listens at port {port}")

    def tell(self, *command: Any) -> Any:
        """The answer to a command of serve."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:  # the stock engine logs there too
            if line.startswith("answer "):
                return json.loads(line[len("answer ") :])
        raise EOFError("the peer has died")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.communicate()


def serve(host: str, size: int, register: bool) -> None:
    engine, memory = opened(host), Memory(size, BASE)
    if register:
        assert engine.register_memory(memory.address, size) == 0

    def answer(value: Any) -> None:
        print("answer " + json.dumps(value), flush=True)

    answer((session(host, engine), memory.address))
    for line in sys.stdin:
        command, *rest = json.loads(line)
        if command == "call":  # a method of the engine
            answer(getattr(engine, rest[0])(*rest[1:]))
        elif command == "notifies":
            answer([(n.name, n.msg) for n in engine.get_notifies()])
        elif command == "bytes":
            start, length = rest
            answer(bytes(memory.bytes[start : start + length]).hex())
        else:  # fill, pattern, others, digest
            answer(getattr(memory, command)(*rest))


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1")
