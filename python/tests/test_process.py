"""What happens to the process itself: fork, exit, signal handlers."""

import multiprocessing
import os
import signal
import unittest

from support import EngineTest, run_python

import topoctl
from topoctl import errors, range_of

WRITES = """
import sys, threading, topoctl
engine = topoctl.Engine(topology="none", default_timeout=60)
here = bytearray(1 << 20)
engine.register(here)
def write():
    return engine.write(sys.argv[1], here, int(sys.argv[2]))
write().wait()
def work():
    try:
        while True:
            write().wait()
    except topoctl.Error:  # the engine is closed at exit
        pass
"""


def use_engine(_):
    """In another process of multiprocessing."""
    with topoctl.Engine(topology="none") as engine:
        engine.probe(engine.address)
        return engine.port > 0


class TestFork(EngineTest):
    def in_child(self, call):
        """What call gives in a child made by fork."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                said = call()
            except BaseException as e:  # noqa: BLE001: told to the parent
                said = type(e).__name__
            os.write(write, str(said).encode())
            os._exit(0)
        os.close(write)
        with open(read) as told:
            said = told.read()
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        return said

    def test_children(self):
        engine, other = self.engine(), self.engine()
        here, there = bytearray(4096), bytearray(4096)
        region = engine.register(here)
        other.register(there)
        at = range_of(there).address
        batch = engine.write(other.address, here, at)
        batch.wait()
        address = engine.address
        for call in (
            topoctl.Engine,
            lambda: engine.write(address, here, at),
            lambda: engine.register(bytearray(1)),
            lambda: engine.probe(address),
            lambda: engine.port,
            lambda: engine.alloc(1),
            batch.explain,
            batch.cancel,
            region.close,
            engine.notifications,
        ):
            self.assertEqual(self.in_child(call), "Forked")
        self.assertEqual(self.in_child(engine.close), "None")
        engine.write(other.address, here, at).wait()  # of the parent, they go on

    def test_multiprocessing(self):
        self.engine()
        for method in "spawn", "forkserver":
            with multiprocessing.get_context(method).Pool(1) as pool:
                self.assertEqual(pool.map(use_engine, [1]), [True])

    def test_fork_before_the_library_is_opened(self):
        code = """
import os, topoctl
if os.fork() == 0:
    with topoctl.Engine(topology="none") as engine:
        engine.probe(engine.address)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
        self.assertEqual(run_python(code), (0, "7\n", ""))

    def test_exit_of_a_child(self):
        code = """
import os, sys, topoctl
engine = topoctl.Engine(topology="none")
view = engine.alloc(4096)
if os.fork() == 0:
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.wait()[1]))
engine.probe(engine.address)
"""
        self.assertEqual(run_python(code), (0, "7\n", ""))


class TestExit(EngineTest):
    def test_with_transfers_in_flight(self):
        peer = self.peer()
        for ending, want in (
            ("batches = [write() for _ in range(64)]", 0),
            ("for _ in range(64): write()", 0),
            ("batches = [write() for _ in range(64)]; sys.exit(3)", 3),
            ("batches = [write() for _ in range(64)]; del here, engine", 0),
            ("threading.Thread(target=work, daemon=True).start()", 0),
            ("batches = [write() for _ in range(64)]; 1 / 0", 1),
        ):
            with self.subTest(ending):
                code, _, said = run_python(WRITES + ending, peer.address, str(peer.memory))
                self.assertEqual(code, want, said)
                if want != 1:
                    self.assertEqual(said, "")

    def test_with_a_peer_that_stands_still(self):
        peer = self.peer()
        code = WRITES + "import os, signal\nos.kill(int(sys.argv[3]), signal.SIGSTOP)\nwrite()"
        try:
            told = run_python(code, peer.address, str(peer.memory), str(peer.process.pid))
        finally:
            peer.process.send_signal(signal.SIGCONT)
        self.assertEqual(told, (0, "", ""))


class TestUnmapped(EngineTest):
    def test_writes_fail(self):
        code = """
import ctypes, sys, topoctl
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
length = 1 << 20
address = libc.mmap(None, length, 3, 0x22, -1, 0)
engine = topoctl.Engine(topology="none")
region = engine.register_ranges([address], [length])
def write():
    engine.write_ranges(sys.argv[1], [address], [int(sys.argv[2])], [length]).wait()
write()
libc.munmap(address, length)
try:
    write()
except topoctl.errors.Failed as e:
    print("bad address" in str(e))
region.close()
"""
        peer = self.peer()
        self.assertEqual(run_python(code, peer.address, str(peer.memory)), (0, "True\n", ""))


class TestSignals(EngineTest):
    def test_faulthandler(self):
        peer = self.peer()
        for code in (
            "import faulthandler; faulthandler.enable()\n" + WRITES + "write().wait()",
            WRITES + "import faulthandler; faulthandler.enable()\nwrite().wait()",
            "import faulthandler; faulthandler.enable()\n"
            + WRITES
            + "faulthandler.disable(); write().wait()",
        ):
            with self.subTest(code):
                told = run_python(code, peer.address, str(peer.memory))
                self.assertEqual(told, (0, "", ""))

    def test_handlers_are_left_alone(self):
        code = """
import signal, topoctl
came = []
for number in signal.SIGUSR1, signal.SIGALRM, signal.SIGTERM, signal.SIGCHLD:
    signal.signal(number, lambda n, _: came.append(n))
engine = topoctl.Engine(topology="none")
engine.probe(engine.address)
for number in signal.SIGUSR1, signal.SIGALRM, signal.SIGTERM, signal.SIGCHLD:
    signal.raise_signal(number)
print(len(came))
"""
        self.assertEqual(run_python(code), (0, "4\n", ""))


if __name__ == "__main__":
    unittest.main()
