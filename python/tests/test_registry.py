"""Engines of two processes that find each other by name in etcd (Debian: etcd-server)."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from topoctl import _program

from support import until

SERVER = """
import sys, topoctl
engine = topoctl.Engine(name="server", topology="none", registry=sys.argv[1], serves=["kv"])
memory = bytearray(1 << 16)
engine.register(memory)
print(topoctl.range_of(memory).address, flush=True)
sys.stdin.read(1)
sys.stdout.write(str(memory.count(7)))
engine.close()
"""

# As in a C program, SIGPIPE is not ignored: etcd that is killed must not end the process.
CLIENT = """
import os, signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
import topoctl
engine = topoctl.Engine(name="client", topology="none", registry=sys.argv[1])
here = bytearray([7]) * (1 << 16)
engine.register(here)
engine.write("server", here, int(sys.argv[2])).wait()
def told(what):
    try:
        engine.probe(what)
        return "answered"
    except topoctl.Error as error:
        return type(error).__name__
print(told("nobody"), flush=True)
child = os.fork()
if child == 0:
    os._exit(told("server") != "Forked")
print(os.waitpid(child, 0)[1], flush=True)
sys.stdin.readline()  # etcd is killed
print(told("server"), flush=True)
engine.close()
"""


class Etcd:
    """An etcd of one member, with an empty store."""

    def __init__(self, test):
        program = shutil.which("etcd")
        if program is None and os.environ.get("TOPOCTL_REGISTRY") != "must":
            test.skipTest("no etcd")
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(
            ("127.0.0.1", 0)
        ) as two:
            at, peers = (f"http://127.0.0.1:{s.getsockname()[1]}" for s in (one, two))
        self.url = at.replace("http:", "etcd:") + "/python"
        self.process = subprocess.Popen(
            [program, "--data-dir", folder.name, "--listen-client-urls", at]
            + ["--advertise-client-urls", at, "--listen-peer-urls", peers]
            + ["--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"],
            stderr=subprocess.DEVNULL,
        )
        test.addCleanup(self.kill)
        until(lambda: self.peers() is not None)

    def peers(self):
        """The engines in it; None where it does not answer."""
        done = subprocess.run(
            [_program.program(), "peers", "--registry", self.url, "-o", "json"],
            capture_output=True,
        )
        return json.loads(done.stdout)["peers"] if done.stdout else None

    def kill(self):
        self.process.kill()
        self.process.wait()


class TestRegistry(unittest.TestCase):
    def start(self, code, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_found_by_name(self):
        etcd = Etcd(self)
        server = self.start(SERVER, etcd.url)
        address = server.stdout.readline().strip()
        until(lambda: [(p["name"], p["serves"]) for p in etcd.peers()] == [("server", ["kv"])])
        client = self.start(CLIENT, etcd.url, address)
        self.assertEqual(client.stdout.readline(), "NoPeer\n")
        self.assertEqual(client.stdout.readline(), "0\n")
        etcd.kill()
        said, errors = client.communicate("\n", timeout=120)
        self.assertEqual((client.returncode, said, errors), (0, "answered\n", ""))
        written, errors = server.communicate("x", timeout=120)
        self.assertEqual((written, errors), (str(1 << 16), ""))


if __name__ == "__main__":
    unittest.main()
