"""The files of serving engines that call mooncake.engine and nixl._api, as they are published and
unchanged, over the packages of these names that Python finds:

    python connectors.py [Test...]

Two processes of this host move memory of the host, and every byte is compared. sglang, lmcache,
checkpoint-engine and ai-dynamo-runtime are installed without what they want: modules of theirs that
are not FILES, and torch, are stand-ins, which have every name and do nothing. vLLM is not among
them: its wheel has some 500 MB (docs/python-engines.md has what was tried by hand).
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time
import types
import unittest
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple
from unittest import mock

import numpy as np

SIZE = 8 << 20  # bytes of memory on each side
BLOCK = 4096

LMCACHE = "lmcache.v1.distributed.transfer_channel"
SGLANG = "sglang.srt.distributed.device_communicators.mooncake_transfer_engine"
FILES = {
    *(f"{LMCACHE}.{name}" for name in ("abstract", "api", "factory")),
    *(f"{LMCACHE}.impl.{name}" for name in ("mooncake_te_impl", "nixl_impl")),
    *(SGLANG, "sglang.srt.utils.network"),
    *("checkpoint_engine.p2p_store", "checkpoint_engine.device_utils"),
}
PACKAGES = {"lmcache", "sglang", "checkpoint_engine", "torch"}


class StandIn(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {}) if name == "Tensor" else mock.MagicMock(name=name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds FILES where they are installed, and a stand-in for all else of PACKAGES."""

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        if fullname in FILES:
            for directory in sys.path:
                file = pathlib.Path(directory, *fullname.split(".")).with_suffix(".py")
                if file.exists():
                    return importlib.util.spec_from_file_location(fullname, file)
            raise ModuleNotFoundError(f"{fullname} is not installed")
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> StandIn:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def pattern(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, SIZE, dtype=np.uint8)


def address(memory: Any) -> int:
    return int(memory.ctypes.data)


def digest(memory: Any) -> str:
    return hashlib.sha256(memory).hexdigest()


def free() -> str:
    """A free host:port, at an address of the loopback network that no other process of a test uses."""
    host = f"127.66.{os.getpid() >> 8 & 0xFF}.{os.getpid() & 0xFF}"
    with socket.socket() as s:
        s.bind((host, 0))
        return f"{host}:{s.getsockname()[1]}"


class Peer:
    """The other process. It runs a function of PEERS, which tells what is to be known of it, then
    does what ask says."""

    def __init__(self, test: unittest.TestCase, role: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--peer", role],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        test.addCleanup(self.kill)
        self.told = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with {self.process.wait()}")
        return json.loads(line)

    def ask(self, word: str) -> Any:
        assert self.process.stdin
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self._answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in self.process.stdin, self.process.stdout:
            if pipe:
                pipe.close()


def tell(what: Any) -> None:
    print(json.dumps(what), flush=True)


def serve(answers: Dict[str, Callable[[], Any]], told: Any) -> None:
    tell(told)
    for line in sys.stdin:
        tell(answers[line.strip()]())


# checkpoint-engine: weights are registered by one, and read by another one into buckets.


class Tensor:
    """What P2PStore asks of a tensor."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.nbytes = memory.nbytes

    def data_ptr(self) -> int:
        return address(self.memory)


def store() -> Any:
    os.environ.setdefault("RANK", "0")
    p2p = importlib.import_module("checkpoint_engine.p2p_store")
    manager = mock.MagicMock(transfer_engine_protocol="rdma")
    manager.device_module.device_count.return_value = 1
    manager.rdma_device.return_value = ""
    return p2p.P2PStore(manager)


def weights() -> Iterator[Tuple[int, int]]:
    """Offset and length of tensors, some of which touch."""
    rng, at = random.Random(3), 0
    for _ in range(26):
        length = rng.randrange(1, SIZE // 30)
        yield at, length
        at += length + rng.choice([0, 64, 4096])


def peer_checkpoint() -> None:
    memory, store_ = pattern(1), store()
    tensors = {str(at): Tensor(memory[at : at + length]) for at, length in weights()}
    store_.register_named_tensors(tensors)
    serve(
        {"unregister": lambda: store_.unregister_named_tensors(list(tensors))},
        [store_.addr, address(memory)],
    )


class CheckpointEngine(unittest.TestCase):
    def test_p2p_store(self) -> None:
        peer, store_ = Peer(self, "checkpoint"), store()
        session, there = peer.told
        buckets = [np.zeros(SIZE // 2, np.uint8) for _ in range(2)]
        store_.register_named_tensors({str(i): Tensor(b) for i, b in enumerate(buckets)})
        want = pattern(1)
        parts = list(weights())
        for i, bucket in enumerate(buckets):
            mine, at = parts[i::2], 0
            places = []
            for _, length in mine:
                places.append(at)
                at += length
            store_.batch_transfer_sync_read(
                session,
                [address(bucket) + place for place in places],
                [there + offset for offset, _ in mine],
                [length for _, length in mine],
            )
            for place, (offset, length) in zip(places, mine):
                self.assertTrue((bucket[place : place + length] == want[offset:][:length]).all())
        gap = next(a + n for (a, n), (b, _) in zip(parts, parts[1:]) if a + n < b)
        for where in there + gap, there + SIZE:  # what lies between tensors, and behind
            with self.assertRaises(AssertionError):
                store_.batch_transfer_sync_read(session, [address(buckets[0])], [where], [1])
        self.assertEqual(peer.ask("unregister"), len(parts))
        with self.assertRaises(AssertionError):
            store_.batch_transfer_sync_read(session, [address(buckets[0])], [there], [1])
        self.assertEqual(store_.unregister_named_tensors(["0", "1"]), 2)


# SGLang's wrapper, which its Mooncake backend and others of its parts share.


def sglang() -> Any:
    wrapper: Any = importlib.import_module(SGLANG)
    wrapper.envs.ENABLE_ASCEND_TRANSFER_WITH_MOONCAKE.get.return_value = False
    wrapper.envs.MOONCAKE_PROTOCOL.get.return_value = "rdma"
    wrapper.run_with_deadline = lambda call, **_: call()
    return wrapper.init_mooncake_transfer_engine("127.0.0.1", 0, None)


def peer_sglang() -> None:
    memory, engine = pattern(2), sglang()
    assert engine.batch_register([address(memory)], [SIZE]) == 0
    serve({"digest": lambda: digest(memory)}, [engine.get_session_id(), address(memory)])


class SGLang(unittest.TestCase):
    def test_wrapper(self) -> None:
        peer, engine = Peer(self, "sglang"), sglang()
        session, there = peer.told
        memory, want, rng = pattern(3), pattern(2), random.Random(4)
        engine.register(address(memory), SIZE)
        self.assertEqual(engine.send_probe(session), 0)
        for _ in range(16):
            local, remote = (rng.sample(range(SIZE // BLOCK), 128) for _ in "ab")
            moved = engine.batch_transfer_sync(
                session,
                [address(memory) + i * BLOCK for i in local],
                [there + i * BLOCK for i in remote],
                [BLOCK] * 128,
            )
            self.assertEqual(moved, 0)
            for i, j in zip(local, remote):
                want[j * BLOCK :][:BLOCK] = memory[i * BLOCK :][:BLOCK]
        self.assertEqual(engine.transfer_sync(session, address(memory), there, 100), 0)
        want[:100] = memory[:100]
        self.assertEqual(peer.ask("digest"), digest(want))
        self.assertLess(engine.transfer_sync(session, address(memory), there + SIZE, 1), 0)
        peer.kill()
        self.assertLess(engine.transfer_sync(session, address(memory), there, 100), 0)
        self.assertNotEqual(engine.send_probe(session), 0)
        engine.deregister(address(memory))


# LMCache's channels, by which its hosts read pages of each other.

CHANNELS = {"mooncake": "mooncake_te", "nixl": "nixl"}


def channel(kind: str, memory: Any) -> Any:
    at = free()
    desc = types.SimpleNamespace(ptr=address(memory), size=SIZE, align_bytes=BLOCK)
    name = CHANNELS[kind]
    module: Any = importlib.import_module(f"{LMCACHE}.impl.{name}_impl")
    module.LMCacheTimeoutError = TimeoutError
    return getattr(module, f"create_{name}_transfer_channel_context")(desc, at, at)


def peer_lmcache(kind: str) -> None:
    memory = pattern(5)
    context = channel(kind, memory)
    serve({}, context.advertise_url)


class LMCache(unittest.TestCase):
    def read(self, context: Any, client: Any, local: List[int], remote: List[int]) -> List[bool]:
        places = [
            context.get_transfer_channel_address([(i * BLOCK, BLOCK) for i in pages])
            for pages in (local, remote)
        ]
        task, end = client.submit_read(*places), time.monotonic() + 60
        while not (result := client.query_read_status(task)).is_finished():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.001)
        return list(result.succeeded_mask)

    def run_channel(self, kind: str) -> None:
        peer = Peer(self, f"lmcache_{kind}")
        memory, theirs, rng = pattern(6), pattern(5), random.Random(7)
        want = memory.copy()
        context = channel(kind, memory)
        client = context.get_transfer_channel_client(peer.told)
        for _ in range(20):
            local, remote = (rng.sample(range(SIZE // BLOCK), 64) for _ in "ab")
            self.assertEqual(self.read(context, client, local, remote), [True] * 64)
            for i, j in zip(local, remote):
                want[i * BLOCK :][:BLOCK] = theirs[j * BLOCK :][:BLOCK]
            self.assertEqual(digest(memory), digest(want))
        peer.kill()
        try:  # its Mooncake channel raises where nothing could begin, its NIXL channel does not
            self.assertEqual(self.read(context, client, [0], [0]), [False])
        except RuntimeError as e:
            self.assertIn("not running", str(e))
        self.assertEqual(digest(memory), digest(want))
        context.close()

    def test_mooncake(self) -> None:
        self.run_channel("mooncake")

    def test_nixl(self) -> None:
        self.run_channel("nixl")


# Dynamo's nixl_connect: one side offers an operation, and its metadata goes to the other one.


def descriptor(connect: Any, memory: Any) -> Any:
    return connect.Descriptor((address(memory), memory.nbytes, "cpu", memory))


def peer_dynamo() -> None:
    async def run() -> None:
        connect: Any = importlib.import_module("dynamo.nixl_connect")
        connector, memory = connect.Connector(), [pattern(8), np.zeros(SIZE, np.uint8)]
        readable = await connector.create_readable(descriptor(connect, memory[0]))
        writable = await connector.create_writable(descriptor(connect, memory[1]))
        tell([operation.metadata().model_dump_json() for operation in (readable, writable)])
        await readable.wait_for_completion()
        await writable.wait_for_completion()
        tell(digest(memory[1]))
        sys.stdin.read()

    asyncio.run(run())


class Dynamo(unittest.TestCase):
    def test_nixl_connect(self) -> None:
        asyncio.run(self.both_ways())

    async def both_ways(self) -> None:
        connect: Any = importlib.import_module("dynamo.nixl_connect")
        peer, connector = Peer(self, "dynamo"), connect.Connector()
        readable, writable = map(connect.RdmaMetadata.model_validate_json, peer.told)
        here, source = np.zeros(SIZE, np.uint8), pattern(9)
        reading = await connector.begin_read(readable, descriptor(connect, here))
        await asyncio.wait_for(reading.wait_for_completion(), 60)
        self.assertEqual(digest(here), digest(pattern(8)))
        writing = await connector.begin_write(descriptor(connect, source), writable)
        await asyncio.wait_for(writing.wait_for_completion(), 60)
        self.assertEqual(peer._answer(), digest(source))


PEERS: Dict[str, Callable[[], None]] = {
    "checkpoint": peer_checkpoint,
    "sglang": peer_sglang,
    "lmcache_mooncake": lambda: peer_lmcache("mooncake"),
    "lmcache_nixl": lambda: peer_lmcache("nixl"),
    "dynamo": peer_dynamo,
}

if __name__ == "__main__":
    sys.meta_path.insert(0, Finder())
    if sys.argv[1:2] == ["--peer"]:
        PEERS[sys.argv[2]]()
    else:
        with tempfile.TemporaryDirectory() as directory:
            token = pathlib.Path(directory, "token")  # P2PStore listens at the host's own address
            token.write_text("a-secret-of-sixteen-bytes\n")
            os.environ.setdefault("TOPOCTL_TOKEN_FILE", str(token))
            os.environ.setdefault("LOGURU_LEVEL", "WARNING")
            unittest.main()
