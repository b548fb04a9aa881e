"""What several tests need: engines, and peers that are processes of their own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import unittest

import topoctl

LONG = os.environ.get("TOPOCTL_TESTS") == "long"
"""Whether tests take the time that .ci/long has, not that of .ci/run."""

PEER = """
import json, sys, topoctl
options, length, shared, fill = json.loads(sys.argv[1])
engine = topoctl.Engine(topology="none", **options)
memory = engine.alloc(length) if shared else bytearray(length)
memory[:] = bytes([fill]) * length
if not shared:
    engine.register(memory)
print(json.dumps([engine.address, topoctl.range_of(memory).address]), flush=True)
for line in sys.stdin:  # each asks for the bytes
    sys.stdout.buffer.write(memory)
    sys.stdout.flush()
"""


class Peer:
    """Another process with an engine and length registered bytes of value fill."""

    def __init__(self, length=1 << 20, shared=False, fill=0, **options):
        self.length = length
        self.process = subprocess.Popen(
            [sys.executable, "-c", PEER, json.dumps([options, length, shared, fill])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        said = self.process.stdout.readline()
        if not said:
            raise RuntimeError(f"the peer ended with {self.process.wait()}")
        self.address, self.memory = json.loads(said)

    def bytes(self):
        """What is in its memory."""
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return self.process.stdout.read(self.length)

    @contextlib.contextmanager
    def stopped(self):
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def until(condition):
    """Waits for what has to come, and gives it; a minute is for machines that stand still."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.001)
    raise AssertionError("it did not come within a minute")


class EngineTest(unittest.TestCase):
    def engine(self, **options):
        engine = topoctl.Engine(**{"topology": "none", **options})
        self.addCleanup(engine.close)
        return engine

    def peer(self, *args, **options):
        peer = Peer(*args, **options)
        self.addCleanup(peer.close)
        return peer


def run_python(code, *args, timeout=120):
    """A process of its own, that must end: its exit code, stdout and stderr."""
    done = subprocess.run(
        # Python 3.12 and later warn of what the tests of fork are about.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *args],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=os.path.dirname(os.path.abspath(__file__)),  # where support is
    )
    return done.returncode, done.stdout, done.stderr
