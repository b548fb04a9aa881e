"""What mooncake.engine answers, call for call: run it against the stock wheel and against topoctl's
mooncake. It tests the one that Python finds.

    python mooncake_conformance.py            tests
    python mooncake_conformance.py --print    what each call answers
    python mooncake_conformance.py --table    what differs, for docs/mooncake-python.md

It needs the standard library only, and moves data between two processes over loopback.
"""

import array
import ctypes
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode
from mooncake_peer import OURS, Peer, opened

SIZE = 1 << 20  # of the memory that each side registers
CRASH = "crash"
UNDEFINED = "undefined"  # it reads what it was not given: not called
CHANCE = "0 or -1"  # it comes back with either: not called
KILL = object()  # from here on the peer is dead


class Row:
    """A call, what the stock wheel answers, and where ours differs, what ours does and why."""

    def __init__(self, call, theirs, ours=None, why=""):
        self.call, self.theirs, self.why = call, theirs, why
        self.ours = theirs if ours is None else ours

    def expected(self):
        return self.ours if OURS else self.theirs


ANY_HOST = (
    "peers on other hosts could read and write: want `TOPOCTL_TOKEN_FILE`, or `TOPOCTL_INSECURE=1`"
)
NO_CRASH = "an error value, never a crash"
REGISTERED = "both sides of a transfer are registered memory, with TCP as with RDMA"
TOUCHING = "ranges that touch are one"
new = "TransferEngine().initialize"

# Each with an engine of its own; with the stock wheel in a process of its own, which some end.
ALONE = [
    Row(f"{new}('192.0.2.1', 'P2PHANDSHAKE', 'tcp', '')", 0, -1, ANY_HOST),
    Row(f"{new}('', 'P2PHANDSHAKE', 'tcp', '')", 0, -1, ANY_HOST),
    Row(f"{new}('127.0.0.1', 'P2PHANDSHAKE', 'tcp', 'none0')", 0, -1, "the host has no such NIC"),
    Row(f"{new}('127.0.0.1', 'P2PHANDSHAKE', 'tcp', None)", 0),
    Row(f"{new}('127.0.0.1', 'P2PHANDSHAKE', 'rdma', '')", 0),
    Row(f"{new}('127.0.0.1', 'P2PHANDSHAKE', 'no such', '')", 0),
    Row(f"{new}('127.0.0.1', 'P2PHANDSHAKE', 'xgmi', '')", -1),
    Row(f"{new}('localhost', 'P2PHANDSHAKE', 'tcp', '')", 0),
    Row(f"{new}('[::1]', 'P2PHANDSHAKE', 'tcp', '')", 0),
    Row(f"{new}('127.0.0.1:23456', 'P2PHANDSHAKE', 'tcp', '')", 0),
    Row(f"{new}('127.0.0.1:23456', 'http://127.0.0.1:1/metadata', 'tcp', '')", -1),
    Row("TransferEngine().initialize_ext('127.0.0.1', 'P2PHANDSHAKE', 'tcp', '', '')", 0),
    Row("TransferEngine().get_rpc_port()", CRASH, -1, NO_CRASH),
    Row("TransferEngine().register_memory(a, 100)", CRASH, -1, NO_CRASH),
    Row("TransferEngine().batch_unregister_memory([a])", CRASH, -3, NO_CRASH),
    Row("TransferEngine().transfer_sync_write('127.0.0.1:1', a, a, 1)", CRASH, -1, NO_CRASH),
    Row("TransferEngine().get_first_buffer_address('127.0.0.1:1')", CRASH, 0, NO_CRASH),
    Row("TransferEngine().allocate_managed_buffer(5)", CRASH, 0, NO_CRASH),
    Row("TransferEngine().get_notifies()", CRASH, [], NO_CRASH),
    Row("TransferEngine().send_probe('127.0.0.1:1')", -1),
    Row("TransferEngine().get_engine()", None),
    Row("TransferEngine().get_engine_ptr()", 0),
    Row("t.get_batch_transfer_status([0])", CRASH, -1, NO_CRASH),
    Row("t.get_batch_transfer_status([12345])", CRASH, -1, NO_CRASH),
    Row("t.transfer_check_status(0)", CRASH, -1, NO_CRASH),
    Row("t.transfer_check_status(12345)", CRASH, -1, NO_CRASH),
    Row("t.write_bytes_to_buffer(0, b'abc', 3)", CRASH, -1, NO_CRASH),
    Row("t.read_bytes_from_buffer(1, 3)", CRASH, OSError, "an exception, never a crash"),
    Row("t.initialize('127.0.0.1', 'P2PHANDSHAKE', 'tcp', ''), t.unregister_memory(a)", (0, -3)),
]

# One after another, with engine t whose memory is at a, and a peer whose memory is at p.
TOGETHER = [
    Row("TransferEngine(1)", TypeError),
    Row(f"{new}('127.0.0.1')", TypeError),
    Row(f"{new}(local_hostname='', metadata_server='', protocol='', device_name='')", TypeError),
    Row("t.get_rpc_port() > 0", True),
    # Registration.
    Row("t.get_first_buffer_address(me)", 0),
    Row("t.register_memory(a + 200, 100)", 0),
    Row("t.register_memory(a + 200, 100)", -7),
    Row("t.register_memory(a + 299, 1)", -7),
    Row("t.register_memory(a, SIZE)", -7),
    Row("t.register_memory(a, 0)", -1),
    Row("t.register_memory(16, 100)", 0, -1, "nothing is mapped there"),
    Row("t.unregister_memory(16)", 0, -3, "nothing is mapped there"),
    Row("t.register_memory(buffer_addr=a, capacity=100, location='cpu:0')", 0),
    Row("t.register_memory(a + 100, 100, 'no such')", 0),
    Row("t.get_first_buffer_address(me) - a", 200),
    Row("t.unregister_memory(a + 5)", -3),
    Row("t.unregister_memory(a + 200)", 0),
    Row("t.unregister_memory(a + 200)", -3),
    Row("t.get_first_buffer_address(me) - a", 0),
    Row("t.batch_register_memory([a + 1000, a + 50, a + 2000], [100, 100, 100])", -7),
    Row("t.batch_register_memory([a + 1000, a + 1050], [100, 100])", -7),
    Row("t.batch_register_memory([a + 1000, a + 2000], [100, 0])", -1),
    Row(
        "t.batch_register_memory([a + 1000, a + 2000], [100])",
        UNDEFINED,
        -1,
        "lists of two lengths",
    ),
    Row("t.unregister_memory(a + 1000)", -3),
    Row("t.batch_register_memory([a + 1000, a + 2000], [100, 100])", 0),
    Row("t.batch_register_memory([], [])", 0),
    Row("t.batch_unregister_memory([])", 0),
    Row("t.batch_unregister_memory([a + 2000, a + 1000, a, a + 100])", 0),
    Row("t.batch_register_memory([b, b + 200], [100, 100])", 0),
    Row("t.batch_unregister_memory([b, b + 5])", -3),
    Row("t.unregister_memory(b)", -3),
    Row("t.batch_register_memory([b], [100])", -7, 0, "nothing is left of what was unregistered"),
    Row("t.batch_unregister_memory([b + 200])", 0),
    Row("t.register_memory('x', 1)", TypeError),
    Row("t.register_memory(a, -1)", TypeError),
    Row("t.register_memory(1.5, 1)", TypeError),
    Row("t.register_memory(a, SIZE)", 0),
    # One transfer.
    Row("t.transfer_sync_write(peer, a, p, 4096)", 0),
    Row("t.transfer_sync_read(peer, a, p, 4096)", 0),
    Row(
        "t.transfer_sync_write(target_hostname=peer, buffer=a, peer_buffer_address=p, length=5)", 0
    ),
    Row("t.transfer_sync_write(peer, a, p, 4096, 'no such')", 0),
    Row("t.transfer_sync_write(peer, a, p, 0)", 0),
    Row("t.transfer_sync_write(peer.encode(), a, p, True)", 0),
    Row("t.transfer_sync_write(peer, a, p + SIZE, 4096)", -1),
    Row("t.transfer_sync_write(peer, a, p + SIZE - 100, 101)", -1),
    Row("t.transfer_sync_read(peer, a, p - 1, 1)", -1),
    Row("t.transfer_sync_read(peer, a, 0, 1)", -1),
    Row("t.transfer_sync_write(peer, a, p, 4096)", CHANCE, 0, "after one that the peer refused"),
    Row("t.transfer_sync_write(peer, b + 1000, p, 100)", 0, -1, REGISTERED),
    Row("t.transfer_sync_write(gone, a, p, 4096)", -1),
    Row("t.transfer_sync_read(gone, a, p, 4096)", -1),
    Row("t.transfer_sync_write('', a, p, 4096)", -1),
    Row("t.transfer_sync_write('host.invalid:1', a, p, 4096)", -1),
    Row("t.transfer_sync_write(me, a, a + 8192, 4096)", 0),
    Row("t.transfer_sync_write(None, a, p, 1)", RuntimeError, TypeError, "the usual exception"),
    Row("t.transfer_sync_write(5, a, p, 1)", TypeError),
    Row("t.transfer_sync_write(peer, 'x', p, 1)", TypeError),
    Row("t.transfer_sync_write(peer, 1.5, p, 1)", TypeError),
    Row("t.transfer_sync_write(peer, a, p, -1)", TypeError),
    Row("t.transfer_sync_write(peer, a, p, 1 << 64)", TypeError),
    Row("t.transfer_sync_write(peer, a, p, None)", TypeError),
    Row("t.transfer_sync_write(peer, a, p)", TypeError),
    # Batches.
    Row("t.batch_transfer_sync_write(peer, [a, a + 4096], [p, p + 4096], [4096, 100])", 0),
    Row("t.batch_transfer_sync_read(peer, [a, a + 4096], [p, p + 4096], [4096, 100])", 0),
    Row("t.batch_transfer_sync_write(peer, (a,), range(p, p + 1), array.array('Q', [5]))", 0),
    Row("t.batch_transfer_sync_write(peer, [a, a], [p, p + 20], [0, 5])", 0),
    Row("t.batch_transfer_sync_write(peer, [], [], [])", 0),
    Row("t.batch_transfer_sync_write(peer, [a, a], [p], [4096])", -1),
    Row("t.batch_transfer_sync_write(peer, [a, a], [p, p + SIZE], [5, 5])", -1),
    Row("t.batch_transfer_sync_write(gone, [a], [p], [5])", -1),
    Row("t.batch_transfer_sync_read(gone, [a], [p], [5])", -1),
    Row("t.batch_transfer_sync_write(peer, a, p, 5)", TypeError),
    Row("t.batch_transfer_sync_write(peer, ['x'], [p], [5])", TypeError),
    Row("t.batch_transfer_sync_write(peer, [1.5], [p], [5])", TypeError),
    Row("t.batch_transfer_sync_write(peer, [-1], [p], [5])", TypeError),
    Row("t.batch_transfer_sync_write(peer, 'abc', [p], [5])", TypeError),
    Row("t.batch_transfer_sync_write(peer, b'abc', [p], [5])", TypeError),
    Row("t.batch_transfer_sync_write(peer, None, [p], [5])", TypeError),
    # Without waiting.
    Row("t.get_batch_transfer_status([t.batch_transfer_async_write(peer, [a], [p], [5])])", 0),
    Row("t.get_batch_transfer_status([t.batch_transfer_async_read(peer, [a], [p], [5])])", 0),
    Row("t.get_batch_transfer_status([t.batch_transfer_async_read(peer, [a], [p], [0])])", 0),
    Row("t.get_batch_transfer_status([t.batch_transfer_async(peer, [a], [p], [5], Write)])", 0),
    Row("t.get_batch_transfer_status([write(), write(), write()])", 0),
    Row("t.get_batch_transfer_status([write()] * 2)", 0),
    Row("t.get_batch_transfer_status([])", 0),
    Row("t.get_batch_transfer_status([t.batch_transfer_async_write(peer, [], [], [])])", 0),
    Row("t.batch_transfer_async_write(gone, [a], [p], [5])", 0),
    Row("t.batch_transfer_async_read(gone, [a], [p], [5])", 0),
    Row("t.batch_transfer_async_write(peer, [a, a], [p], [5])", 0),
    Row("t.transfer_submit_write(gone, a, p, 5)", 0),
    Row("until_ended(t.transfer_submit_write(peer, a, p, 5))", 1),
    Row("until_ended(write())", 1),
    Row("until_ended(t.transfer_submit_write(peer, a, p + SIZE, 5))", -1),
    Row("t.get_batch_transfer_status(5)", TypeError),
    Row("t.transfer_check_status('x')", TypeError),
    # Notifications.
    Row("TransferNotify().name, TransferNotify(name='a', msg='b').msg", ("", "b")),
    Row("t.transfer_sync(peer, a, p, 5, Write)", 0),
    Row("t.transfer_sync(peer, a, p, 5, Read, None)", 0),
    Row("t.transfer_sync(peer, a, p, 5, Write, TransferNotify('n', 'first'))", 0),
    Row("t.batch_transfer_sync(peer, [a], [p], [5], Read, TransferNotify('', 'q\"\\n\\0é'))", 0),
    Row("t.transfer_sync(peer, a, p + SIZE, 5, Write, TransferNotify('n', 'failed'))", -1),
    Row("tell('notifies')", [["n", "first"], ["", 'q"\n\0é']]),
    Row("tell('notifies')", []),
    Row("t.get_notifies()", []),
    Row("t.transfer_sync(peer, a, p, 5, 1)", TypeError),
    Row("t.transfer_sync(peer, a, p, 5, None)", TypeError),
    Row("t.transfer_sync(peer, a, p, 5, Write, ('n', 'x'))", TypeError),
    Row("Write, int(Write), Read.name, Read.value", (TransferOpcode.Write, 1, "Read", 0)),
    Row("repr(Read), str(Write)", ("<TransferOpcode.Read: 0>", "TransferOpcode.Write")),
    Row("TransferEngine.TransferOpcode is TransferOpcode", True),
    Row("TransferOpcode(1) is Write or TransferOpcode(1) == Write", True),
    Row(
        "Read == 0, Read == Read, list(TransferOpcode.__members__)",
        (False, True, ["Read", "Write"]),
    ),
    # Peers.
    Row("t.send_probe(peer)", 0),
    Row("t.send_probe(peer_server_name=me)", 0),
    Row("t.send_probe(gone)", -102),
    Row("t.send_probe('no such')", -101),
    Row("t.send_probe(5)", TypeError),
    Row("t.get_first_buffer_address(peer) - p", 0),
    Row("t.get_first_buffer_address(gone)", 0),
    Row("t.warmup_efa_segment(peer)", 0),
    Row("list(json.loads(t.get_local_topology()))[0]", "cpu:0"),
    Row("list(json.loads(t.get_local_topology('none0')))[0]", "cpu:0"),
    Row(
        "t.get_engine() is None, t.get_engine_ptr() == 0",
        (False, False),
        (True, True),
        "no object of the stock engine's",
    ),
    # What the peer registers and unregisters.
    Row("tell('call', 'unregister_memory', p)", 0),
    Row("t.transfer_sync_write(peer, a, p, 5)", -1),
    Row("tell('call', 'batch_register_memory', [p, p + 100], [100, 100])", 0),
    Row("t.transfer_sync_write(peer, a, p, 10)", CHANCE, 0, "after one that the peer refused"),
    Row("t.transfer_sync_write(peer, a, p + 95, 10)", -1, 0, TOUCHING),
    Row("tell('call', 'register_memory', p + SIZE - 100, 100)", 0),
    Row("t.transfer_sync_write(peer, a, p + 190, 20)", -1),
    Row("t.transfer_sync_write(peer, a, p + SIZE - 100, 100)", 0),
    # Managed buffers.
    Row("[t.allocate_managed_buffer(n) > 0 for n in (0, 1, 8193, 300 << 20)]", [True] * 4),
    Row("managed(5000)", (0, 0, 0, b"abcdef", 0)),
    Row("managed(300 << 20)", (0, 0, 0, b"abcdef", 0)),
    Row("t.free_managed_buffer(12345, 5)", 0, -1, "there is none at this address"),
    Row("t.write_bytes_to_buffer(a, b'abc', 2), t.read_bytes_from_buffer(a, 2)", (0, b"ab")),
    Row("t.write_bytes_to_buffer(a, 'abc', 3), t.read_bytes_from_buffer(a, 3)", (0, b"abc")),
    Row("t.write_bytes_to_buffer(a, bytearray(b'xyz'), 3)", 0),
    Row(
        "t.write_bytes_to_buffer(b + 1000, b'abc', 3), t.read_bytes_from_buffer(b + 1000, 0)",
        (0, b""),
    ),
    Row("t.write_bytes_to_buffer(a, b'abc', 100)", 0, -1, "there are 3 bytes to write"),
    Row("t.write_bytes_to_buffer(a, memoryview(b'abc'), 3)", TypeError),
    Row("t.write_bytes_to_buffer(a, b'abc', -1)", TypeError),
    KILL,
    Row("t.transfer_sync_write(peer, a, p, 4096)", -1),
    Row("t.transfer_sync_read(peer, a, p, 4096)", -1),
    Row("t.batch_transfer_sync_write(peer, [a], [p], [5])", -1),
    Row("t.send_probe(peer)", -102),
    Row("t.unregister_memory(a)", 0),
]


def names(engine):
    """What calls are made of, without a peer."""
    memory, other = ctypes.create_string_buffer(SIZE), ctypes.create_string_buffer(4096)
    values = dict(globals(), t=engine, a=ctypes.addressof(memory), b=ctypes.addressof(other))
    values.update(TransferOpcode.__members__, memory=memory, other=other, gone="127.0.0.1:1")
    values["me"] = f"127.0.0.1:{engine.get_rpc_port()}"
    return values


def with_peer(engine, peer):
    """What calls are made of."""
    values = names(engine)
    values.update(peer=peer.name, p=peer.address, tell=peer.tell)

    def until_ended(batch):
        status, deadline = 0, time.monotonic() + 60
        while status == 0 and time.monotonic() < deadline:
            status = engine.transfer_check_status(batch)
            time.sleep(0.001)
        return status

    def managed(length):
        address = engine.allocate_managed_buffer(length)
        copied = engine.write_bytes_to_buffer(address, b"abcdef", 6)
        written = engine.transfer_sync_write(peer.name, address, peer.address, 6)
        read = engine.transfer_sync_read(peer.name, address + 100, peer.address, 6)
        found = engine.read_bytes_from_buffer(address + 100, 6)
        return copied, written, read, found, engine.free_managed_buffer(address, length)

    def write():
        return engine.batch_transfer_async_write(peer.name, [values["a"]], [peer.address], [100])

    def settle():
        """After a transfer that the peer refused, the stock engine's next one can fail as well."""
        for _ in range(10):
            if engine.transfer_sync_read(peer.name, values["a"], peer.address, 1) == 0:
                return

    values.update(until_ended=until_ended, managed=managed, write=write, settle=settle)
    return values


def answered(call, values):
    try:
        return eval(call, values)
    except Exception as e:
        return type(e)


def alone(row):
    """The answer of a process of its own."""
    command = [sys.executable, os.path.abspath(__file__), "--alone", row.call]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60
    )
    said = [line[7:] for line in done.stdout.splitlines() if line.startswith("answer ")]
    if not said:
        return (
            CRASH if done.returncode < 0 else f"exit code {done.returncode}: {done.stderr[-500:]}"
        )
    return eval(said[0], {"OSError": OSError})


def answers():
    """Every row with its answer."""
    if OURS:  # which survives
        yield from ((row, answered(row.call, names(opened()))) for row in ALONE)
    else:
        with ThreadPoolExecutor(10) as pool:
            yield from zip(ALONE, pool.map(alone, ALONE))
    peer = Peer(SIZE)
    try:
        values = with_peer(opened(), peer)
        for row in TOGETHER:
            if row is KILL:
                peer.close()
            elif row.expected() not in (UNDEFINED, CHANCE):
                got = answered(row.call, values)
                yield row, got
                if got == -1 and not OURS:
                    values["settle"]()
    finally:
        peer.close()


class Calls(unittest.TestCase):
    """Every call of the tables."""

    def test_answers(self):
        for row, got in answers():
            with self.subTest(row.call):
                self.assertEqual(got, row.expected())


class Table(unittest.TestCase):
    """docs/mooncake-python.md has the table as --table prints it."""

    def test_docs(self):
        docs = pathlib.Path(__file__).parents[2] / "docs" / "mooncake-python.md"
        text = docs.read_text(encoding="utf-8")
        held = text.partition("<!-- table -->\n")[2].partition("\n<!-- /table -->")[0]
        self.assertEqual(held, "\n".join(table()))


class Beside(unittest.TestCase):
    """The stock wheel's other modules."""

    def test_import(self):
        if importlib.util.find_spec("mooncake.store") is None:
            self.skipTest("the stock wheel is not installed beside it")
        import mooncake.store
        from mooncake import BufferPool
        from mooncake.mooncake_config import MooncakeConfig

        self.assertTrue(callable(mooncake.store.MooncakeDistributedStore))
        self.assertIs(BufferPool, mooncake.store.BufferPool)
        self.assertTrue(MooncakeConfig)


class Bytes(unittest.TestCase):
    """What moves, moves right: random lengths and places, every byte compared."""

    @classmethod
    def setUpClass(cls):
        cls.engine, cls.peer = opened(), Peer(SIZE)
        cls.memory = ctypes.create_string_buffer(SIZE)
        cls.at = ctypes.addressof(cls.memory)
        assert cls.engine.register_memory(cls.at, SIZE) == 0

    @classmethod
    def tearDownClass(cls):
        cls.peer.close()
        cls.engine.unregister_memory(cls.at)

    def test_one_by_one(self):
        chance = random.Random(1)
        for _ in range(200):
            length = chance.randrange(1, 10_000)
            here, there = chance.randrange(SIZE // 2 - length), chance.randrange(SIZE - length)
            data = chance.randbytes(length)
            ctypes.memmove(self.at + here, data, length)
            remote = self.peer.address + there
            self.assertEqual(
                self.engine.transfer_sync_write(self.peer.name, self.at + here, remote, length), 0
            )
            back = self.at + SIZE // 2 + here
            self.assertEqual(
                self.engine.transfer_sync_read(self.peer.name, back, remote, length), 0
            )
            self.assertEqual(ctypes.string_at(back, length), data)
        self.assertEqual(self.peer.tell("bytes", there, length), data.hex())

    def test_notification(self):
        """The peer gets name and message, whichever package it has."""
        there = self.peer.name, self.at, self.peer.address, 5
        notify = TransferNotify("the name", 'a "message"')
        self.assertEqual(self.engine.transfer_sync(*there, TransferOpcode.Write, notify), 0)
        self.assertEqual(self.peer.tell("notifies"), [["the name", 'a "message"']])

    def batches(self, write, read):
        chance, count, step = random.Random(2), 100, 5000
        for _ in range(20):
            data = chance.randbytes(SIZE // 2)
            ctypes.memmove(self.at, data, len(data))
            places = [i * step for i in range(count)]
            chance.shuffle(places)
            here = [self.at + i * step for i in range(count)]
            there = [self.peer.address + place for place in places]
            lengths = [chance.randrange(1, step) for _ in range(count)]
            self.assertEqual(write(self.peer.name, here, there, lengths), 0)
            back = [address + SIZE // 2 for address in here]
            self.assertEqual(read(self.peer.name, back, there, lengths), 0)
            for i, length in enumerate(lengths):
                want = data[i * step : i * step + length]
                self.assertEqual(ctypes.string_at(back[i], length), want)

    def test_batches(self):
        self.batches(self.engine.batch_transfer_sync_write, self.engine.batch_transfer_sync_read)

    def test_batches_without_waiting(self):
        def then_wait(begin):
            return lambda *transfer: self.engine.get_batch_transfer_status([begin(*transfer)])

        engine = self.engine
        self.batches(
            then_wait(engine.batch_transfer_async_write),
            then_wait(engine.batch_transfer_async_read),
        )

    def test_threads(self):
        """Ten at once, each with memory of its own."""
        part, failures = SIZE // 20, []

        def work(number):
            chance = random.Random(number)
            here, back = self.at + 2 * number * part, self.at + (2 * number + 1) * part
            there = self.peer.address + number * part
            for _ in range(20):
                data = chance.randbytes(chance.randrange(1, part))
                ctypes.memmove(here, data, len(data))
                results = (
                    self.engine.batch_transfer_sync_write(
                        self.peer.name, [here], [there], [len(data)]
                    ),
                    self.engine.batch_transfer_sync_read(
                        self.peer.name, [back], [there], [len(data)]
                    ),
                )
                if results != (0, 0) or ctypes.string_at(back, len(data)) != data:
                    failures.append((number, results))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


def shown(answer):
    if isinstance(answer, type):
        return answer.__name__
    return answer if answer in (CRASH, UNDEFINED, CHANCE) else f"`{answer!r}`"


def table():
    yield "| call | stock wheel | topoctl | why |"
    yield "| --- | --- | --- | --- |"
    for row in ALONE + TOGETHER:
        if row is not KILL and row.ours != row.theirs:
            yield f"| `{row.call}` | {shown(row.theirs)} | {shown(row.ours)} | {row.why} |"


def main():
    if sys.argv[1:2] == ["--alone"]:
        got = answered(sys.argv[2], names(opened()))
        print("answer", got.__name__ if isinstance(got, type) else repr(got), flush=True)
    elif sys.argv[1:] == ["--table"]:
        print("\n".join(table()))
    elif sys.argv[1:] == ["--print"]:
        for row, got in answers():
            print(f"{row.call} -> {shown(got)}", flush=True)
    else:
        unittest.main()


if __name__ == "__main__":
    main()
