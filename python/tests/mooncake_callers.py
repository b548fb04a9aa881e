"""The calls that vLLM, SGLang, LMCache and checkpoint-engine make of mooncake.engine, in their
order and with their arguments, over memory of the host: every byte is compared. It works with the
stock wheel and with topoctl's mooncake, whichever is on Python's path.
"""

from __future__ import annotations

import os
import random
import re
import signal
import tempfile
import time
import unittest
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import List, Tuple
from unittest import mock

from mooncake.engine import TransferEngine
from mooncake_peer import OURS, Memory, Peer, free_port, metadata_server, opened, session

HOST = "127.0.0.1"


class VLLM(unittest.TestCase):
    """MooncakeConnector: every layer's cache is registered in one call; ten threads send the blocks
    of a request each, to a peer that has told them its addresses."""

    def test_requests(self) -> None:
        layers, blocks, block, requests = 6, 128, 4096, 40
        size = layers * blocks * block
        peer = Peer(size, register=False)
        self.addCleanup(peer.close)
        sizes = [blocks * block] * layers
        theirs = [peer.address + layer * blocks * block for layer in range(layers)]
        self.assertEqual(peer.tell("call", "batch_register_memory", theirs, sizes), 0)

        engine = TransferEngine()
        self.assertEqual(engine.initialize(HOST, "P2PHANDSHAKE", "rdma", ""), 0)
        self.assertGreater(engine.get_rpc_port(), 0)
        caches = [Memory(blocks * block) for _ in range(layers)]
        for layer, cache in enumerate(caches):
            cache.pattern(layer)
        ours = [cache.address for cache in caches]
        self.assertEqual(engine.batch_register_memory(ours, sizes), 0)

        chance = random.Random(0)
        free = list(range(blocks))
        chance.shuffle(free)
        want = [bytearray(blocks * block) for _ in range(layers)]
        per_request = blocks // requests
        jobs: List[Tuple[List[int], List[int], List[int]]] = []
        for _ in range(requests):
            there = [free.pop() for _ in range(per_request)]
            here = [chance.randrange(blocks) for _ in range(per_request)]
            source: List[int] = []
            target: List[int] = []
            for layer in range(layers):
                for a, b in zip(here, there):
                    source.append(ours[layer] + a * block)
                    target.append(theirs[layer] + b * block)
                    part = caches[layer].bytes[a * block : (a + 1) * block]
                    want[layer][b * block : (b + 1) * block] = part
            jobs.append((source, target, [block] * len(source)))
        with ThreadPoolExecutor(10) as pool:
            results = pool.map(lambda job: engine.batch_transfer_sync_write(peer.name, *job), jobs)
            self.assertEqual(list(results), [0] * requests)
        self.assertEqual(peer.tell("bytes", 0, size), b"".join(want).hex())


class SGLang(unittest.TestCase):
    """MooncakeTransferEngine, its wrapper: registers buffers alone and in lists, sends alone and in
    lists, probes a session that had failed, and gives memory back."""

    def test_wrapper(self) -> None:
        size, item = 1 << 20, 10_000
        peer = Peer(size)
        self.addCleanup(peer.close)
        engine = opened(HOST, "rdma")
        self.assertNotEqual(session(HOST, engine), peer.name)
        data, aux, state = Memory(size), Memory(4096), Memory(4096)
        for seed, memory in enumerate((data, aux, state)):
            memory.pattern(seed)
        self.assertEqual(engine.register_memory(data.address, size), 0)
        pair = [aux.address, state.address]
        self.assertEqual(engine.batch_register_memory(pair, [4096, 4096]), 0)

        want = bytearray(size)
        places = list(range(0, size - item, 2 * item))
        sent = [(data.address + at + 5, peer.address + at, item) for at in places]
        source, target, lengths = (list(column) for column in zip(*sent))
        self.assertEqual(engine.batch_transfer_sync_write(peer.name, source, target, lengths), 0)
        for at in places:
            want[at : at + item] = data.bytes[at + 5 : at + 5 + item]
        at = places[0] + item
        self.assertEqual(
            engine.transfer_sync_write(peer.name, aux.address, peer.address + at, 4096), 0
        )
        want[at : at + 4096] = aux.bytes
        self.assertEqual(peer.tell("bytes", 0, size), want.hex())

        self.assertEqual(engine.send_probe(peer.name), 0)
        self.assertEqual(engine.get_engine() is None, OURS)
        self.assertEqual(engine.batch_unregister_memory(pair), 0)
        self.assertEqual(engine.unregister_memory(data.address), 0)
        self.assertLess(engine.unregister_memory(data.address), 0)
        peer.close()
        self.assertNotEqual(engine.send_probe(peer.name), 0)

    @unittest.skipUnless(OURS, "the stock wheel needs MC_USE_IPV6")
    def test_ipv6(self) -> None:
        peer = Peer(4096, "::1")
        self.addCleanup(peer.close)
        self.assertRegex(peer.name, r"^\[::1\]:\d+$")
        engine, memory = opened("::1"), Memory(4096)
        memory.pattern(1)
        self.assertEqual(engine.register_memory(memory.address, 4096), 0)
        self.assertEqual(
            engine.transfer_sync_write(peer.name, memory.address, peer.address, 4096), 0
        )
        self.assertEqual(peer.tell("digest"), memory.digest())


class LMCache(unittest.TestCase):
    """MooncakeChannel: one big buffer on each side, and a call for each page."""

    def test_pages(self) -> None:
        page, pages = 64 << 10, 64
        peer = Peer(page * pages, "localhost")
        self.addCleanup(peer.close)
        engine, buffer = opened("localhost"), Memory(page * pages)
        buffer.pattern(1)
        self.assertEqual(engine.register_memory(buffer.address, buffer.size), 0)
        order = list(range(pages))
        random.Random(1).shuffle(order)
        want = bytearray(buffer.size)
        for here, there in enumerate(order):
            result = engine.transfer_sync_write(
                peer.name, buffer.address + here * page, peer.address + there * page, page
            )
            self.assertEqual(result, 0)
            want[there * page : (there + 1) * page] = buffer.bytes[here * page : (here + 1) * page]
        self.assertEqual(peer.tell("bytes", 0, buffer.size), want.hex())
        self.assertEqual(engine.unregister_memory(buffer.address), 0)

    def test_reads(self) -> None:
        """The channel of version 0.5: the engine is told where to listen, which may be everywhere,
        and peers another address; reads are begun, and looked at until they end."""
        page, pages = 64 << 10, 64
        with mock.patch.dict(os.environ, TOPOCTL_INSECURE="1"):
            peer, engine = Peer(page * pages, "0.0.0.0"), opened("0.0.0.0")
        self.addCleanup(peer.close)
        name = peer.name.replace("0.0.0.0", HOST)
        peer.tell("pattern", 4)
        buffer = Memory(page * pages)
        self.assertEqual(engine.register_memory(buffer.address, buffer.size), 0)
        for start in range(0, pages, 16):
            offsets = [page * i for i in range(start, start + 16)]
            batch = engine.batch_transfer_async_read(
                name,
                [buffer.address + offset for offset in offsets],
                [peer.address + offset for offset in offsets],
                [page] * len(offsets),
            )
            self.assertGreater(batch, 0)
            while (status := engine.transfer_check_status(batch)) == 0:
                time.sleep(0.001)
            self.assertEqual(status, 1)
        self.assertEqual(peer.tell("digest"), buffer.digest())


class CheckpointEngine(unittest.TestCase):
    """P2PStore: tries initialize up to eight times with an engine each, registers all tensors at
    once, reads those of other ranks into buckets, and gives them back."""

    def test_store(self) -> None:
        chance = random.Random(3)
        shapes = [chance.randrange(1, 20_000) for _ in range(300)]
        size = sum(shapes)
        starts = [sum(shapes[:i]) for i in range(len(shapes))]
        peer = Peer(size, register=False)
        self.addCleanup(peer.close)
        peer.tell("pattern", 3)
        theirs = [peer.address + start for start in starts]
        self.assertEqual(peer.tell("call", "batch_register_memory", theirs, shapes), 0)

        taken = []  # what fails at first here is the metadata server
        for attempt in range(8):
            engine = TransferEngine()
            metadata = "http://127.0.0.1:1/metadata" if attempt < 2 else "P2PHANDSHAKE"
            taken.append(engine.initialize(HOST, metadata, "tcp", ""))
            if taken[-1] == 0:
                break
        self.assertEqual(taken, [-1, -1, 0])

        bucket = Memory(size)
        self.assertEqual(engine.batch_register_memory([bucket.address], [size]), 0)
        self.assertEqual(
            engine.batch_transfer_sync_read(
                peer.name, [bucket.address + start for start in starts], theirs, shapes
            ),
            0,
        )
        self.assertEqual(peer.tell("digest"), bucket.digest())
        self.assertEqual(peer.tell("call", "batch_unregister_memory", theirs), 0)
        self.assertNotEqual(
            engine.batch_transfer_sync_read(peer.name, [bucket.address], [theirs[0]], [1]), 0
        )
        self.assertEqual(engine.batch_unregister_memory([bucket.address]), 0)


@unittest.skipUnless(OURS, "the stock initialize stops the thread that the server here runs in")
class Metadata(unittest.TestCase):
    """Engines that know each other by an HTTP metadata server, as LMCache's can."""

    def test_names(self) -> None:
        metadata = metadata_server(self)
        names = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        engines = [TransferEngine(), TransferEngine()]
        memories = [Memory(100_000), Memory(100_000)]
        for engine, name, memory in zip(engines, names, memories):
            self.assertEqual(engine.initialize(name, metadata, "tcp", ""), 0)
            self.assertEqual(engine.register_memory(memory.address, memory.size), 0)
        here, there = memories
        here.pattern(1)
        write = engines[0].transfer_sync_write
        self.assertEqual(write(names[1], here.address, there.address, here.size), 0)
        self.assertEqual(there.digest(), here.digest())
        self.assertEqual(engines[0].get_first_buffer_address(names[1]), there.address)
        for engine, memory in zip(engines, memories):
            self.assertEqual(engine.unregister_memory(memory.address), 0)


@unittest.skipUnless(OURS, "the stock wheel promises nothing here")
class Process(unittest.TestCase):
    """What may happen to the process that uses an engine."""

    def setUp(self) -> None:
        self.memory, self.engine = Memory(1 << 20), opened()
        self.peer = Peer(self.memory.size)
        self.addCleanup(self.peer.close)
        self.engine.register_memory(self.memory.address, self.memory.size)
        self.assertEqual(self.write(), 0)

    def write(self) -> int:
        here, there = self.memory.address, self.peer.address
        return int(self.engine.transfer_sync_write(self.peer.name, here, there, self.memory.size))

    def test_fork(self) -> None:
        """A child gets error values, and the parent goes on."""
        child = os.fork()
        if child == 0:
            try:
                answers = [
                    self.write(),
                    self.engine.register_memory(self.memory.address + 5, 1),
                    self.engine.unregister_memory(self.memory.address),
                    self.engine.get_batch_transfer_status([1]),
                    self.engine.transfer_check_status(1),
                    self.engine.get_rpc_port(),
                    self.engine.allocate_managed_buffer(5) - 1,
                    len(self.engine.get_notifies()) - 1,
                ]
                os._exit(answers != [-1] * len(answers))
            finally:
                os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(self.write(), 0)

    def test_other_hosts(self) -> None:
        """They need the token that a file has, or to be told that none is wanted."""
        engine = TransferEngine()
        call = ("192.0.2.1", "P2PHANDSHAKE", "tcp", "")
        self.assertEqual(engine.initialize(*call), -1)
        with mock.patch.dict(os.environ, TOPOCTL_INSECURE="1"):
            self.assertEqual(engine.initialize(*call), 0)
        with tempfile.NamedTemporaryFile() as token:
            token.write(b"sixteen-bytes-or-more")
            token.flush()
            with mock.patch.dict(os.environ, TOPOCTL_TOKEN_FILE=token.name):
                self.assertEqual(engine.initialize(*call), 0)
                peer = Peer(self.memory.size, "192.0.2.1")
        self.addCleanup(peer.close)
        name = f"127.0.0.1:{peer.name.rpartition(':')[2]}"
        self.assertEqual(engine.register_memory(self.memory.address, self.memory.size), 0)
        there = self.memory.address, peer.address, self.memory.size
        self.assertEqual(engine.transfer_sync_write(name, *there), 0)
        self.assertEqual(self.engine.transfer_sync_write(name, *there), -1)
        self.assertEqual(self.engine.send_probe(name), -102)

    def test_pages(self) -> None:
        """Workers that share an environment take a port each, and say which."""
        with mock.patch.dict(os.environ, TOPOCTL_HTTP="127.0.0.1:0"), self.assertLogs() as logged:
            engines = [opened(), opened()]
        told = [re.search(r"metrics are served at (\S+)$", line) for line in logged.output]
        ports = {found[1] for found in told if found}
        self.assertEqual(len(ports), len(engines), logged.output)
        for port in ports:
            with urllib.request.urlopen(f"http://{port}/metrics") as answer:
                self.assertIn(b"topoctl_", answer.read())

    def test_interrupt(self) -> None:
        """KeyboardInterrupt ends a wait, and the batch with it."""
        self.peer.signal(signal.SIGSTOP)
        self.addCleanup(signal.signal, signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            for _ in range(1000):  # what is in buffers succeeds
                self.write()
        self.assertLess(time.monotonic() - begin, 8)  # 5 s may go by until the memory is safe
        self.peer.signal(signal.SIGCONT)


if __name__ == "__main__":
    unittest.main()
