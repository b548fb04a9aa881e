"""Transfers between engines of one process, and between processes."""

import array
import asyncio
import contextlib
import gc
import mmap
import os
import random
import signal
import socket
import threading
import time
import unittest
import weakref

from support import LONG, EngineTest, until

import topoctl
from topoctl import Grant, errors, range_of

try:
    import numpy
except ImportError:
    numpy = None

needs_numpy = unittest.skipIf(numpy is None, "numpy is not installed")


class Buffer(bytearray):
    """That one can see go."""


class TestTransfers(EngineTest):
    def setUp(self):
        self.a, self.b = self.engine(name="a"), self.engine(name="b")

    def test_kinds_of_memory(self):
        there = bytearray(4096)
        self.b.register(there)
        kinds = [bytearray(4096), array.array("I", bytes(4096)), mmap.mmap(-1, 4096)]
        if numpy is not None:
            kinds.append(numpy.zeros((32, 32), numpy.float32))
        for here in kinds:
            with self.subTest(type(here)), self.a.register(here):
                data = os.urandom(4096)
                memoryview(here).cast("B")[:] = data
                self.a.write(self.b.address, here, range_of(there).address).wait()
                self.assertEqual(there, data)
                there[:] = data = os.urandom(4096)
                self.a.read(self.b.address, here, range_of(there).address).wait()
                self.assertEqual(bytes(memoryview(here).cast("B")), data)

    def test_lists_of_buffers(self):
        here, there = bytearray(os.urandom(100)), bytearray(100)
        self.a.register(here)
        self.b.register(there)
        at = range_of(there).address
        view = memoryview(here)
        self.a.write(self.b.address, [view[:30], view[30:]], [at + 70, at]).wait()
        self.assertEqual(there, here[30:] + here[:30])
        with self.assertRaisesRegex(ValueError, "lists of 2, 1, 2 numbers"):
            self.a.write(self.b.address, [view[:30], view[30:]], [at])

    def test_shared_memory(self):
        here, there = self.a.alloc(1 << 20), self.b.alloc(1 << 20)
        here[:] = data = os.urandom(1 << 20)
        batch = self.a.write(self.b.address, here, range_of(there).address)
        batch.wait()
        self.assertEqual(there, data)
        used = [lane["lane"] for route in batch.explain()["routes"] for lane in route["used"]]
        self.assertEqual(used, ["shm"])

    def test_allocated_memory_goes_with_its_last_view(self):
        view = self.a.alloc(4096)
        self.assertEqual(len(self.b.peer_ranges(self.a.address)), 1)
        part = view[8:16]
        del view
        part[:] = b"still ok"
        self.assertEqual(len(self.a.stats()["regions"]), 1)
        del part
        self.assertEqual(len(self.a.stats()["regions"]), 0)

    def test_views_survive_close(self):
        view = self.a.alloc(4096)
        address = self.a.address
        self.a.close()
        view[:2] = b"ok"
        self.assertTrue(self.a.closed)
        del view
        with self.assertRaises(errors.NoPeer):
            self.b.probe(address)

    def test_regions_by_name(self):
        with self.assertRaises(errors.NoPeer):
            self.b.find("127.0.0.1:1", "kv", timeout=0.05).wait()
        named = {"kv": 4096, "read": topoctl.Named(4096, topoctl.Grant.READ, "cpu:0")}
        with topoctl.Engine(topology="none", regions=named) as there:
            kv = there.region("kv")
            found = self.b.find(there.address, "kv").wait()
            self.assertEqual(found, range_of(kv))
            source = self.b.alloc(4096)
            source[:2] = b"ok"
            self.b.write(there.address, source, found.address).wait()
            self.assertEqual(bytes(kv[:2]), b"ok")
            read_only = self.b.find(there.address, "read").wait().address
            with self.assertRaises(errors.NoRegion):
                self.b.write(there.address, source, read_only).wait()
            with self.assertRaisesRegex(errors.NoRegion, 'it offers \\["kv" "read"\\]'):
                self.b.find(there.address, "nosuch", timeout=0.05).wait()
            with self.assertRaises(errors.NoRegion):
                there.region("nosuch")
        self.assertEqual(bytes(kv[:2]), b"ok")  # while it is viewed
        for regions, error in [
            ({"kv": 0}, errors.InvalidArgument),
            ({"kv": "4096"}, TypeError),
            ({7: 4096}, TypeError),
            ({"kv": topoctl.Named(1 << 50)}, errors.NoMemory),
        ]:
            with self.subTest(regions=regions), self.assertRaises(error):
                topoctl.Engine(topology="none", regions=regions)

    def test_picked(self):
        count, size = (1_000_000, 16) if LONG else (20_000, 16)
        here, there = bytearray(count * size), bytearray(os.urandom(count * size))
        self.a.register(here)
        self.b.register(there)
        at, to = range_of(here).address, range_of(there).address
        local = self.a.range_list(range(at, at + count * size, size), [size] * count)
        remote = self.a.range_list(
            range(to, to + count * size, size), [size] * count, peer=self.b.address
        )
        self.assertEqual(len(local), count)
        order = array.array("q", random.sample(range(count), count))
        self.a.read_picked(local, remote, remote_index=order).wait()
        for k in random.sample(range(count), 1000):
            i = order[k]
            self.assertEqual(here[k * size : (k + 1) * size], there[i * size : (i + 1) * size])
        there[:] = bytes(len(there))
        self.a.write_picked(local, remote, [0, count - 1], [1, 0]).wait()
        self.assertEqual(there[:size], here[-size:])
        self.assertEqual(there[size : 2 * size], here[:size])
        with self.assertRaises(errors.InvalidArgument):
            self.a.read_picked(local, remote, [count], [0])
        with self.assertRaises(errors.InvalidArgument):
            self.a.read_picked(local, remote, [-1], [0])
        with self.assertRaisesRegex(ValueError, "lists of 2, 1 numbers"):
            self.a.read_picked(local, remote, [1, 2], [0])
        local.close()
        with self.assertRaises(errors.Closed):
            self.a.read_picked(local, remote, [0], [0])

    @needs_numpy
    def test_picked_from_tables(self):
        here, there = numpy.zeros((64, 8), "u8"), numpy.arange(512, dtype="u8").reshape(64, 8)
        self.a.register(here)
        self.b.register(there)

        def rows(a):
            start = a.ctypes.data + 64 * numpy.arange(64, dtype="u8")
            return numpy.stack([start, numpy.full(64, 64, "u8"), numpy.zeros(64, "u8")], axis=1)

        local = self.a.range_list(rows(here))
        remote = self.a.range_list(rows(there), peer=self.b.address)
        order = numpy.random.permutation(64)
        self.a.read_picked(local, remote, numpy.arange(64), order).wait()
        self.assertTrue((here == there[order]).all())

    def test_notifications_come_after_the_data(self):
        here, there = bytearray(b"data" * 1024), bytearray(4096)
        self.a.register(here)
        self.b.register(there)
        self.assertEqual(self.b.notifications(), [])
        messages = [b"%d" % i for i in range(20)] + [b"", b"x" * 10_000]
        for message in messages:
            there[:] = bytes(4096)
            self.a.write(self.b.address, here, range_of(there).address, notify=message).wait()
            came = until(self.b.notifications)
            self.assertEqual(there, here)
            self.assertEqual(came, [topoctl.Notification("a", message, "")])
        for message in messages:
            self.a.notify(self.b.address, message)
        came = []
        while len(came) < len(messages):
            came += until(self.b.notifications)
        self.assertEqual([n.message for n in came], messages)

    def test_peers_by_metadata(self):
        there = bytearray(16)
        self.b.register(there)
        name = self.a.add_peer(self.b.metadata())
        self.assertEqual(name, "b")
        self.a.probe(name)
        self.assertEqual(self.a.peer_ranges(name), [range_of(there)])
        self.a.remove_peer(name)
        with self.assertRaises(topoctl.Error):
            self.a.probe(name)
        with self.assertRaises(errors.InvalidArgument):
            self.a.add_peer(b"nonsense")

    def test_await(self):
        size, count = 1 << 16, 64
        here, there = bytearray(os.urandom(size * count)), bytearray(size * count)
        self.a.register(here)
        self.b.register(there)
        at, view = range_of(there).address, memoryview(here)
        before = threading.active_count()

        async def write(i):
            part = view[i * size : (i + 1) * size]
            await self.a.write(self.b.address, part, at + i * size)
            return threading.active_count()

        async def everything():
            return await asyncio.gather(*map(write, range(count)))

        self.assertEqual(set(asyncio.run(everything())), {before})
        self.assertEqual(there, here)

    def test_telemetry(self):
        here, there = bytearray(1 << 20), bytearray(1 << 20)
        self.a.register(here)
        self.b.register(there)
        batch = self.a.write(self.b.address, here, range_of(there).address)
        batch.wait()
        told = batch.telemetry()
        self.assertEqual((told.bytes, told.ops), (1 << 20, 1))
        self.assertTrue(told.post_ns > 0 and told.duration_ns > 0, told)

    def test_grants(self):
        here, readable, writable = bytearray(16), bytearray(16), bytearray(16)
        self.a.register(here)
        self.b.register(readable, grant=Grant.READ)
        self.b.register(writable, grant=Grant.WRITE)
        self.b.register(b"constant".ljust(16), grant=Grant.READ)
        self.a.read(self.b.address, here, range_of(readable).address).wait()
        self.a.write(self.b.address, here, range_of(writable).address).wait()
        with self.assertRaises(errors.NoRegion):
            self.a.write(self.b.address, here, range_of(readable).address).wait()
        with self.assertRaises(errors.NoRegion):
            self.a.read(self.b.address, here, range_of(writable).address).wait()
        with self.assertRaisesRegex(TypeError, "read-only"):
            self.b.register(b"constant".ljust(16))

    def test_registered_memory_is_not_unmapped(self):
        mapped = mmap.mmap(-1, 4096)
        with self.a.register(mapped):
            with self.assertRaises(BufferError):
                mapped.close()
        mapped.close()

    def test_overlap(self):
        here = bytearray(4096)
        self.a.register(memoryview(here)[:1000])
        with self.assertRaises(errors.Exists):
            self.a.register(memoryview(here)[900:1100])
        with self.assertRaises(errors.Exists):  # all or none
            self.a.register(bytearray(10), memoryview(here)[:10])
        self.assertEqual(len(self.a.stats()["regions"]), 1)


class TestLifetimes(EngineTest):
    def setUp(self):
        self.a, self.b = self.engine(), self.engine()

    def test_registered_memory_is_held(self):
        buffer = Buffer(4096)
        gone = weakref.ref(buffer)
        address = range_of(buffer).address
        region = self.a.register(buffer)
        del buffer
        gc.collect()
        self.assertTrue(gone() is not None)
        here = bytearray(4096)
        self.b.register(here)
        self.b.read(self.a.address, here, address).wait()
        region.close()
        region.close()
        gc.collect()
        self.assertTrue(gone() is None)
        with self.assertRaises(errors.NoRegion):
            self.b.read(self.a.address, here, address).wait()

    def test_closing_an_engine_gives_memory_back(self):
        buffer = Buffer(4096)
        gone = weakref.ref(buffer)
        region = self.a.register(buffer)
        self.a.close()
        region.close()
        del buffer, region
        gc.collect()
        self.assertTrue(gone() is None)

    def test_dropped_batches_go_on_and_are_forgotten(self):
        size = 1 << 20
        here, there = Buffer(b"\1" * size), bytearray(size)
        self.a.register(here)
        self.b.register(there)
        at = range_of(there).address
        for _ in range(8):
            self.a.write(self.b.address, here, at)  # no reference
        del here
        gc.collect()
        until(lambda: there == b"\1" * size)
        small = bytearray(8)
        self.a.register(small)
        for _ in range(20):
            self.a.write(self.b.address, small, at).wait()
        self.assertLessEqual(len(self.a._dropped), 2)

    def test_dead_handles(self):
        here, there = bytearray(4096), bytearray(4096)
        region = self.a.register(here)
        self.b.register(there)
        at = range_of(there).address
        peer = self.b.address
        ranges = self.a.range_list([range_of(here).address], [4096])
        batch = self.a.write(peer, here, at)
        batch.wait()
        canceled = self.a.write(peer, here, at)
        canceled.cancel()
        canceled.cancel()
        with self.assertRaisesRegex(errors.Closed, "canceled"):
            canceled.telemetry()
        with self.assertRaisesRegex(errors.Closed, "canceled"):
            canceled.explain()
        self.a.close()
        self.a.close()
        self.assertTrue(batch.poll())
        batch.wait()
        for call in (
            batch.telemetry,
            batch.explain,
            lambda: self.a.write(peer, here, at),
            lambda: self.a.register(bytearray(1)),
            lambda: self.a.alloc(1),
            lambda: self.a.read_picked(ranges, ranges),
            lambda: self.a.port,
            lambda: self.a.name,
            lambda: self.a.address,
            lambda: self.a.probe(peer),
            lambda: self.a.notify(peer, b""),
            self.a.notifications,
            self.a.stats,
            self.a.metadata,
        ):
            with self.assertRaises(errors.Closed):
                call()
        region.close()
        ranges.close()

    def test_wrong_types(self):
        buffer = bytearray(8)
        self.a.register(buffer)
        peer = self.b.address
        for call in (
            lambda: topoctl.Engine(colour="red"),
            lambda: self.a.register(1),
            lambda: self.a.register("text"),
            lambda: topoctl.Engine(listen="127.0.0.1:0"),
            lambda: topoctl.Engine(serves="kv"),
            lambda: topoctl.Engine(listen=[7411]),
            lambda: self.a.send(peer, None),
            lambda: self.a.call(peer, None),
            lambda: self.a.alloc(8, grant="read"),
            lambda: self.a.register(bytearray(8), grant="read"),
            lambda: self.a.call(peer, "text"),
            lambda: self.a.register(bytearray(8), location=0),
            lambda: self.a.probe(5),
            lambda: self.a.write(5, buffer, 1),
            lambda: self.a.write(None, buffer, 1),
            lambda: self.a.range_list([1], [1], peer=5),
            lambda: self.a.write(peer, None, 1),
            lambda: self.a.write(peer, buffer, "1"),
            lambda: self.a.write(peer, [buffer], None),
            lambda: self.a.write(peer, buffer, 1.5),
            lambda: self.a.write(peer, buffer, 1, notify="text"),
            lambda: self.a.write(peer, buffer, 1, timeout="1"),
            lambda: self.a.read(peer, b"constant", 1),
            lambda: self.a.write_ranges(peer, ["a"], [1], [1]),
            lambda: self.a.alloc("1"),
            lambda: self.a.add_peer("text"),
            lambda: self.a.notify(peer, "text"),
            lambda: self.a.wait([1]),
        ):
            with self.assertRaises(TypeError):
                call()
        for call in (
            lambda: self.a.alloc(0),
            lambda: self.a.alloc(-5),
            lambda: self.a.alloc(1 << 64),
            lambda: self.a.alloc(8, location="nonsense"),
            lambda: self.a.alloc(8, location="cpu:4095"),
            lambda: self.a.write("nobody", buffer, 1),
            lambda: self.a.probe("nobody"),
            lambda: self.a.write(peer, buffer, 1, timeout=-1),
            lambda: self.a.write(peer, buffer, 1, timeout=float("nan")),
            lambda: self.a.write(peer, buffer, -1),
            lambda: self.a.write_ranges(peer, [1], [1, 2], [1]),
            lambda: topoctl.Engine(transports=["pigeon"]),
            lambda: topoctl.Engine(log="loud"),
            lambda: topoctl.Engine(give_up=-1),
        ):
            with self.assertRaises(ValueError):
                call()
        with self.assertRaises(MemoryError):
            self.a.alloc(1 << 50)

    def test_open_and_close(self):
        """Nothing is left: no thread, no file, no memory."""
        rounds = 10_000 if LONG else 30
        here = bytearray(4096)

        def use():
            with topoctl.Engine(topology="none") as engine:
                engine.register(here)
                view = engine.alloc(4096)
                engine.probe(engine.address)
                del view

        def held():
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

        for _ in range(10):
            use()
        gc.collect()
        files, threads = held()
        for _ in range(rounds):
            use()
        gc.collect()
        files_after, threads_after = held()
        self.assertLessEqual(files_after, files)
        self.assertLessEqual(threads_after, threads + 8)  # those of Go's scheduler come and stay


class TestInterrupts(EngineTest):
    """KeyboardInterrupt comes while a call waits."""

    def setUp(self):
        super().setUp()
        # A program that is started in the background ignores the signal from the start.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)

    def interrupted(self, call):
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            call()
        timer.join()
        # 100 ms on an idle machine; here the limit is far below that of the call.
        self.assertLess(time.monotonic() - began, 10)

    def test_wait(self):
        engine, peer = self.engine(), self.peer()
        here = bytearray(peer.length)
        engine.register(here)
        engine.read(peer.address, here, peer.memory).wait()
        with peer.stopped():
            batch = engine.read(peer.address, here, peer.memory, timeout=60)
            self.interrupted(batch.wait)
            # asyncio cancels what runs, and what is canceled has ended.
            other = engine.read(peer.address, here, peer.memory, timeout=60)
            self.interrupted(lambda: asyncio.run(other._wait_in_loop()))
            with self.assertRaises(errors.Canceled):
                other.wait()
        batch.wait()

    def test_first_contact(self):
        engine = self.engine()
        here = bytearray(16)
        region = engine.register(here)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            peer = "127.0.0.1:%d" % silent.getsockname()[1]
            self.interrupted(lambda: engine.probe(peer, 60))
            self.interrupted(lambda: engine.write(peer, here, 1, timeout=60).wait())
            self.interrupted(lambda: engine.notify(peer, b"", timeout=60))
            self.interrupted(lambda: engine.peer_ranges(peer))
            at = range_of(here).address
            local, remote = engine.range_list([at], [1]), engine.range_list([1], [1], peer=peer)
            self.interrupted(lambda: engine.read_picked(local, remote, timeout=60).wait())
            self.interrupted(lambda: engine.notifications(60))
        region.close()


class TestMessages(EngineTest):
    def setUp(self):
        self.a, self.b = self.engine(name="a"), self.engine(name="b", answer=True)

    def test_calls(self):
        asked = self.a.call(self.b.address, b"what is there?", timeout=20)
        refused = self.a.call(self.b.address, b"and here?", timeout=20)
        for call in self.b.calls(20) + self.b.calls(0 if refused.poll() else 1):
            self.assertEqual((call.sender, call.proven), ("a", ""))
            if call.request == b"what is there?":
                call.answer(b"a cache")
                with self.assertRaises(errors.Closed):
                    call.refuse("twice")
            else:
                call.refuse("not yours")
        self.assertEqual(asked.wait(20), b"a cache")
        self.assertEqual(asked.wait(), b"a cache")
        with self.assertRaisesRegex(errors.Refused, "not yours"):
            refused.wait(20)
        with self.assertRaisesRegex(errors.Refused, "answers no calls"):
            self.b.call(self.a.address, b"x").wait()
        self.assertEqual(self.b.call(self.a.address, b"").wait(), b"")
        self.assertEqual(self.a.ranges(self.b.address).wait(), [])
        self.a.open(self.b.address).wait()
        self.assertEqual(self.b.calls(), [])

    def test_waiting_for_notifications(self):
        self.assertEqual(self.b.notifications(0.01), [])
        timer = threading.Timer(0.1, self.a.notify, (self.b.address, b"late"))
        timer.start()
        self.assertEqual(self.b.notifications(20), [topoctl.Notification("a", b"late", "")])
        timer.join()

    def test_in_a_loop(self):
        """Notifications and calls come by themselves, batches run as tasks, and the engine's end ends all."""

        async def serve():
            async for call in self.b.watch_calls():
                call.answer(call.request.upper())

        async def read():
            return [n.message async for n in self.b.watch_notifications()]

        async def use():
            serving, reading = asyncio.create_task(serve()), asyncio.create_task(read())
            answers = [asyncio.create_task(self.a.call(self.b.address, b"x%d" % i)) for i in range(50)]
            self.assertEqual(await asyncio.gather(*answers), [b"X%d" % i for i in range(50)])
            for i in range(50):
                await self.a.send(self.b.address, b"%d" % i)
            await asyncio.sleep(0.05)
            self.b.close()
            await asyncio.wait_for(serving, 20)
            self.assertEqual(await asyncio.wait_for(reading, 20), [b"%d" % i for i in range(50)])

        asyncio.run(use())
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):  # a loop that is gone leaves nothing
            asyncio.run(self.a.send(self.a.address, b"x")._wait_in_loop())
        gc.collect()
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before + 2)

    def test_a_loop_is_never_held_up(self):
        """By peers that are silent, gone, killed, slow, stopped or full, whatever is asked of them, nor by thousands
        that wait."""
        killed, slow, stopped, full, here = self.peer(), self.peer(), self.peer(), self.peer(answer=True), bytearray(16)
        self.a.register(here)
        for peer in killed, stopped, full:
            self.a.probe(peer.address)
        with trickle(slow.address) as relay, socket.create_server(("127.0.0.1", 0)) as silent, stopped.stopped():
            peers = ["127.0.0.1:%d" % silent.getsockname()[1], "127.0.0.1:1", killed.address, relay, stopped.address]

            def ask(peer):
                return [
                    self.a.open(peer, 0.5),
                    self.a.write(peer, here, 1, timeout=0.5),
                    self.a.send(peer, b"x", timeout=0.5),
                    self.a.call(peer, b"x", timeout=0.5),
                    self.a.ranges(peer, timeout=0.5),
                ]

            async def use():
                ticks = asyncio.create_task(longest_tick())
                asked = []
                for _ in range(10):
                    for peer in peers:
                        asked += map(asyncio.create_task, ask(peer))
                        await asyncio.sleep(0)
                    self.a.stats()
                    self.a.add_peer(self.b.metadata())
                    self.a.remove_peer("b")
                killed.kill()
                for task in asked[::50]:
                    task.cancel()
                for i in range(1100):  # more than a peer takes whose program answers none
                    asked.append(asyncio.create_task(self.a.call(full.address, b"x", timeout=1)))
                    if i % 50 == 0:
                        await asyncio.sleep(0)
                ends = await asyncio.gather(*asked, return_exceptions=True)
                self.assertTrue(all(isinstance(end, topoctl.Error) for end in ends[-1100:]))
                for i in range(6000):
                    asked.append(asyncio.create_task(self.a.call(stopped.address, b"x", timeout=3)))
                    if i % 50 == 0:
                        await asyncio.sleep(0)
                for _ in range(30):
                    await self.a.send(self.b.address, b"x")
                await asyncio.gather(*asked, return_exceptions=True)
                ticks.cancel()
                return await ticks

            longest = asyncio.run(use())
        self.assertLess(longest, 0.05)


async def longest_tick():
    """How many seconds later than after 5 ms this was called at most, until it is canceled. What the machine has kept
    the threads of this process waiting for a processor does not count."""
    longest = 0.0
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            began, before = time.monotonic(), waits()
            await asyncio.sleep(5e-3)
            late = time.monotonic() - began - 5e-3
            kept = sum(max(waited - before.get(of, 0), 0) for of, waited in waits().items())
            longest = max(longest, late - kept)
    return longest


def waits():
    """Seconds that each thread of this process has waited for a processor, and that the hypervisor had them all."""
    with open("/proc/stat") as file:
        found = {"stolen": int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")}
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/schedstat") as file:
            found[thread] = int(file.read().split()[1]) / 1e9
    return found


@contextlib.contextmanager
def trickle(address):
    """host:port at which a peer is that gets and sends a byte now and then."""
    host, _, port = address.rpartition(":")
    ends = []

    def move(source, to):
        with contextlib.suppress(OSError):
            while byte := source.recv(1):
                to.sendall(byte)
                time.sleep(0.02)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                ends.append(listener.accept()[0])
                ends.append(socket.create_connection((host, port)))
                for pair in ends[-2:], ends[:-3:-1]:
                    threading.Thread(target=move, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield "127.0.0.1:%d" % listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for end in ends:
                end.close()


class TestProcesses(EngineTest):
    def test_both_directions(self):
        for shared in False, True:
            with self.subTest(shared=shared):
                engine, peer = self.engine(), self.peer(shared=shared, fill=7)
                here = engine.alloc(peer.length) if shared else bytearray(peer.length)
                if not shared:
                    engine.register(here)
                engine.read(peer.address, here, peer.memory).wait()
                self.assertEqual(here, b"\7" * peer.length)
                here[:] = data = os.urandom(peer.length)
                engine.write(peer.address, here, peer.memory).wait()
                self.assertEqual(peer.bytes(), data)

    def test_await_canceled(self):
        """However an await ends, the memory is the caller's then: nothing lands in it later."""
        engine, peer = self.engine(), self.peer()
        here = bytearray(peer.length)
        engine.register(here)
        engine.read(peer.address, here, peer.memory).wait()

        def read():
            return engine.read(peer.address, here, peer.memory, timeout=60)

        class Closed(Exception):
            pass

        async def timed_out():
            await asyncio.wait_for(read()._wait_in_loop(), 0.05)

        async def canceled():
            task = asyncio.create_task(read())
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()  # once more, while it waits for the end
            await task

        async def both():
            batch = read()
            tasks = [asyncio.create_task(batch._wait_in_loop()) for _ in range(2)]
            await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            for end in await asyncio.gather(*tasks, return_exceptions=True):
                self.assertIsInstance(end, asyncio.CancelledError)
            raise Closed

        async def closed():
            wait = read()._wait_in_loop()
            wait.send(None)
            wait.close()
            raise Closed

        for way in (timed_out, canceled, both, closed):
            with self.subTest(way.__name__):
                with peer.stopped():
                    with self.assertRaises((asyncio.TimeoutError, asyncio.CancelledError, Closed)):
                        asyncio.run(way())
                    here[:] = b"\7" * len(here)
                peer.bytes()  # it goes on
                time.sleep(0.3)
                self.assertEqual(here.count(7), len(here))

    def test_many_threads(self):
        engine, peer = self.engine(), self.peer()
        size = peer.length // 16
        here = bytearray(os.urandom(peer.length))
        engine.register(here)
        view, failed = memoryview(here), []

        def work(i):
            try:
                for at in range(i * size, (i + 1) * size, 4096):
                    engine.write(peer.address, view[at : at + 4096], peer.memory + at).wait()
            except Exception as e:  # noqa: BLE001: told below
                failed.append(e)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        self.assertEqual(peer.bytes(), here)

    def test_a_peer_that_dies_and_comes_back(self):
        engine, peer = self.engine(), self.peer(fill=1)
        here = bytearray(peer.length)
        engine.register(here)
        engine.read(peer.address, here, peer.memory).wait()
        with peer.stopped():
            running = engine.read(peer.address, here, peer.memory)
            self.assertFalse(running.poll())
            peer.kill()
        again = self.peer(fill=2, listen=[peer.address])
        with self.assertRaises(topoctl.Error):
            running.wait()
        engine.read(again.address, here, again.memory).wait()
        self.assertEqual(here, b"\2" * again.length)

    def test_timeouts(self):
        engine, peer = self.engine(), self.peer()
        here = bytearray(peer.length)
        engine.register(here)
        engine.read(peer.address, here, peer.memory).wait()
        with peer.stopped():
            batch = engine.read(peer.address, here, peer.memory, timeout=60)
            with self.assertRaisesRegex(errors.Timeout, "1 of 1 batches still run"):
                batch.wait(0.1)
            self.assertFalse(batch.poll())
        batch.wait()
        with peer.stopped():
            batch = engine.read(peer.address, here, peer.memory, timeout=0.1)
            with self.assertRaises((errors.Timeout, errors.Unsafe)):
                batch.wait()


if __name__ == "__main__":
    unittest.main()
