"""Engines of two processes that find each other by name, in a registry that a shell script keeps."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PLUGINS = pathlib.Path(__file__).parents[2] / "internal" / "app" / "cli" / "testdata"

SERVER = """
import sys, topoctl
engine = topoctl.Engine(name="server", topology="none", registry=sys.argv[1], serves=["kv"])
memory = bytearray(1 << 16)
engine.register(memory)
print(topoctl.range_of(memory).address, flush=True)
sys.stdin.read(1)
sys.stdout.write(str(memory.count(7)))
"""

CLIENT = """
import sys, topoctl
engine = topoctl.Engine(name="client", topology="none", registry=sys.argv[1])
here = bytearray([7]) * (1 << 16)
engine.register(here)
engine.write("server", here, int(sys.argv[2])).wait()
try:
    engine.probe("nobody")
except topoctl.Error as error:
    print(type(error).__name__, flush=True)
engine.close()
"""


class TestRegistry(unittest.TestCase):
    def test_found_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            records = pathlib.Path(folder, "records")
            records.touch()
            url = f"static://{records}"
            # The library reads the environment of its process when it is loaded.
            environment = dict(os.environ, TOPOCTL_PLUGINS=str(PLUGINS))
            server = subprocess.Popen(
                [sys.executable, "-c", SERVER, url],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                address = server.stdout.readline().strip()
                client = subprocess.run(
                    [sys.executable, "-c", CLIENT, url, address],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                self.assertEqual((client.returncode, client.stderr), (0, ""))
                self.assertEqual(client.stdout, "NoPeer\n")
                written, _ = server.communicate("x", timeout=60)
                self.assertEqual(written, str(1 << 16))
            finally:
                server.kill()
                server.wait()
            first = json.loads(records.read_text().splitlines()[0])["record"]
            self.assertEqual((first["name"], first["serves"]), ("server", ["kv"]))


if __name__ == "__main__":
    unittest.main()
