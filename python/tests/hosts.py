"""mooncake and nixl of topoctl between two hosts: network namespaces with a cable between them, in
which the peers reach each other by these addresses only. Every byte is compared, and counted on the
cable. It needs ip and unshare, and a system that lets it make namespaces.

The mooncake tests also work with a stock wheel on either side (MOONCAKE_PEER_PATH, TOPOCTL_COMPAT).
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
from typing import Dict, Tuple
from unittest import mock

NEAR, FAR = "10.78.0.1", "10.78.0.2"
SIZE = 4 << 20
_INSIDE = "TOPOCTL_TEST_INSIDE"
_NEW_HOST = "unshare --net --mount".split()
_SYSFS = "mount -t sysfs sysfs /sys && "  # the namespace's own interfaces


def second_host() -> Tuple[subprocess.Popen[bytes], str]:
    """Makes a namespace with a cable to this one, and gives the words that start a command there. It
    is gone with this process."""
    command = [*_NEW_HOST, "sh", "-c", _SYSFS + "echo there && exec cat"]
    far = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert far.stdout is not None and far.stdout.readline()
    inside = f"nsenter --net --mount --target {far.pid}"
    run(f"ip link add near type veth peer name far netns {far.pid}")
    for prefix, name, address in ("", "near", NEAR), (inside, "far", FAR):
        run(f"{prefix} ip link set lo up")
        run(f"{prefix} ip address add {address}/24 dev {name}")
        run(f"{prefix} ip link set {name} up")
    # The kernel says a moment later that an interface runs, and the stock wheel looks at that.
    for prefix, name in ("", "near"), (inside, "far"):
        for _ in range(300):
            if run(f"{prefix} cat /sys/class/net/{name}/operstate") == "up\n":
                break
            time.sleep(0.1)
    return far, inside


def run(command: str) -> str:
    return subprocess.run(command.split(), check=True, stdout=subprocess.PIPE, text=True).stdout


def carried() -> int:
    """Bytes on the cable so far, both ways."""
    return sum(
        int(pathlib.Path(f"/sys/class/net/near/statistics/{way}_bytes").read_text())
        for way in ("rx", "tx")
    )


class Hosts(unittest.TestCase):
    def environment(self, **variables: str) -> None:
        patch = mock.patch.dict(os.environ, variables)
        patch.start()
        self.addCleanup(patch.stop)

    def token(self) -> None:
        file = tempfile.NamedTemporaryFile()
        file.write(uuid.uuid4().hex.encode())
        file.flush()
        self.addCleanup(file.close)
        self.environment(TOPOCTL_TOKEN_FILE=file.name)


class Mooncake(Hosts):
    def moves(self, near: str, far: str, name: str = "") -> None:
        """Bytes there and back again between engines of these names; name is what peers call far's,
        where it is not what the engine says of itself."""
        from mooncake_peer import Memory, Peer, opened

        peer = Peer(SIZE, far)
        self.addCleanup(peer.close)
        engine, memory = opened(near), Memory(SIZE)
        name = name or peer.name
        self.assertEqual(engine.register_memory(memory.address, SIZE), 0)
        self.assertEqual(engine.get_first_buffer_address(name), peer.address)
        before = carried()
        memory.pattern(1)
        self.assertEqual(engine.transfer_sync_write(name, memory.address, peer.address, SIZE), 0)
        self.assertEqual(peer.tell("digest"), memory.digest())
        peer.tell("pattern", 2)
        self.assertEqual(engine.transfer_sync_read(name, memory.address, peer.address, SIZE), 0)
        self.assertEqual(peer.tell("digest"), memory.digest())
        self.assertGreater(carried() - before, 2 * SIZE)

    def test_p2p_with_token(self) -> None:
        self.token()
        self.moves(NEAR, FAR)

    def test_p2p(self) -> None:
        self.environment(TOPOCTL_INSECURE="1")
        self.moves(NEAR, FAR)

    def test_http_metadata(self) -> None:
        from mooncake_peer import free_port, metadata_server

        metadata = metadata_server(self, NEAR)
        self.environment(TOPOCTL_INSECURE="1", MOONCAKE_METADATA=metadata)
        near, far = f"{NEAR}:{free_port()}", f"{FAR}:{free_port()}"
        self.moves(near, far, name=far)


class Nixl(Hosts):
    def test_metadata(self) -> None:
        """get_agent_metadata of each is given to the other, and nothing else."""
        try:
            from nixl_peer import Peer, address, agent, digest, finished, pattern, until
        except ImportError as e:
            self.skipTest(f"{e.name} is not installed")
        self.token()
        one, memory = agent("near"), pattern(SIZE, 1)
        one.register_memory([(address(memory), SIZE, 0, "")], "DRAM")
        local = one.get_xfer_descs([(address(memory), SIZE, 0)], "DRAM")
        with Peer("far", SIZE, 2) as peer:
            peer.ask("add", metadata=one.get_agent_metadata().hex())
            name = one.add_remote_agent(peer.metadata)
            remote = one.get_xfer_descs([(peer.base, SIZE, 0)], "DRAM")
            before = carried()
            for op in "READ", "WRITE":
                if op == "WRITE":
                    memory[:] = pattern(SIZE, 3)
                handle = one.initialize_xfer(op, local, remote, name, op.encode())
                one.transfer(handle)
                self.assertEqual(finished(one, handle), "DONE")
                self.assertEqual(peer.ask("digest", at=0, size=SIZE)["digest"], digest(memory))
                self.assertEqual(digest(memory), digest(pattern(SIZE, 2 if op == "READ" else 3)))
                self.assertEqual(peer.notifications("near", 1), [op.encode()])
            self.assertGreater(carried() - before, 2 * SIZE)
            peer.ask("send", to="near", message=b"from there".hex())
            told: Dict[str, list[bytes]] = until(one.get_new_notifs, 20, "notification")
            self.assertEqual(told, {"far": [b"from there"]})


if __name__ == "__main__":
    if _INSIDE not in os.environ:
        if os.geteuid() != 0:
            _NEW_HOST.append("--map-root-user")
        if subprocess.run([*_NEW_HOST, "sh", "-c", _SYSFS + "true"]).returncode != 0:
            print("COULD NOT CHECK: two hosts: no network namespaces can be made here")
            sys.exit()
        os.environ[_INSIDE] = "1"
        again = [*_NEW_HOST, "sh", "-c", _SYSFS + 'exec "$@"', "sh", sys.executable, *sys.argv]
        os.execvp(again[0], again)
    far, os.environ["PEER_COMMAND"] = second_host()
    unittest.main()
