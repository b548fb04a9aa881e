"""The calls of serving engines, as their connectors make them, over memory of numpy: vLLM's pull
and push workers, SGLang's disaggregation, LMCache's channel, Dynamo's nixl_connect. Every byte is
compared. NIXL's own package and topoctl's are called alike.
"""

from __future__ import annotations

import base64
import os
import signal
import time
import unittest
import uuid
import zlib
from typing import Any, Dict, List
from unittest import mock

import numpy as np
from nixl._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t
from nixl_peer import STOCK, Peer, address, blocks, digest, exit_now, finished, pattern, until

PAGE = 4096


class VLLM(unittest.TestCase):
    """One agent a worker; a region for each layer; a descriptor for each block of each region;
    requests pick their blocks by index in numpy arrays."""

    LAYERS, BLOCKS, BLOCK = 8, 64, 8 << 10

    def setUp(self) -> None:
        self.total = self.LAYERS * self.BLOCKS * self.BLOCK
        self.peer = Peer(str(uuid.uuid4()), self.total, 11)
        self.addCleanup(self.peer.close)
        config = nixl_agent_config(num_threads=4, capture_telemetry=True)
        self.nixl = nixl_agent(str(uuid.uuid4()), config)
        self.caches = [pattern(self.BLOCKS * self.BLOCK, layer) for layer in range(self.LAYERS)]
        bases = [address(cache) for cache in self.caches]
        caches_data = [(base, self.BLOCKS * self.BLOCK, 0, "") for base in bases]
        self.registered = self.nixl.get_reg_descs(caches_data, "DRAM")
        self.nixl.register_memory(self.registered, backends=["UCX"])
        self.local = self.prepare("NIXL_INIT_AGENT", bases)
        self.handshake()

    def handshake(self) -> None:
        """What vLLM's side channel carries."""
        self.peer.ask("add", metadata=self.nixl.get_agent_metadata().hex())
        self.name = self.nixl.add_remote_agent(self.peer.metadata)
        region = self.BLOCKS * self.BLOCK
        theirs = [self.peer.base + layer * region for layer in range(self.LAYERS)]
        self.remote = self.prepare(self.name, theirs)

    def prepare(self, agent: Any, bases: List[int]) -> Any:
        blocks_data = np.concatenate([blocks(base, self.BLOCKS, self.BLOCK) for base in bases])
        descs = self.nixl.get_xfer_descs(blocks_data, "DRAM")
        return self.nixl.prep_xfer_dlist(agent, descs)

    def desc_ids(self, block_ids: Any) -> Any:
        layers = np.arange(self.LAYERS)[:, None] * self.BLOCKS
        return (layers + np.asarray(block_ids)[None, :]).flatten()

    def transfer(self, op: str, local: Any, remote: Any, request: str) -> Any:
        handle = self.nixl.make_prepped_xfer(
            op,
            self.local,
            self.desc_ids(local),
            self.remote,
            self.desc_ids(remote),
            notif_msg=f"{request}:1".encode(),
        )
        self.nixl.transfer(handle)
        return handle

    def done(self, handles: Dict[str, Any]) -> None:
        """What a step does with the transfers that run."""
        for request, handle in list(handles.items()):
            state = self.nixl.check_xfer_state(handle)
            self.assertIn(state, ("DONE", "PROC"))
            if state == "DONE":
                told = self.nixl.get_xfer_telemetry(handle)
                self.assertEqual(told.totalBytes, 8 * self.LAYERS * self.BLOCK)
                self.assertGreaterEqual(told.xferDuration, told.postDuration)
                self.assertGreater(told.descCount, 0)
                self.nixl.release_xfer_handle(handle)
                del handles[request]

    def forget(self) -> None:
        self.nixl.release_dlist_handle(self.remote)
        self.nixl.remove_remote_agent(self.name)

    def shut_down(self) -> None:
        self.nixl.release_dlist_handle(self.local)
        self.forget()
        self.nixl.deregister_memory(self.registered)

    def test_pull(self) -> None:
        theirs = pattern(self.total, 11).reshape(self.LAYERS, self.BLOCKS, self.BLOCK)
        want = np.stack([c.reshape(self.BLOCKS, self.BLOCK).copy() for c in self.caches])
        rng = np.random.default_rng(12)
        places = rng.permutation(self.BLOCKS)
        handles: Dict[str, Any] = {}
        names = []
        for i in range(self.BLOCKS // 8):
            local, remote = places[8 * i : 8 * i + 8], rng.permutation(self.BLOCKS)[:8]
            want[:, local] = theirs[:, remote]
            names.append(f"request-{i}")
            handles[names[-1]] = self.transfer("READ", local, remote, names[-1])
            self.nixl.send_notif(self.name, notif_msg=("HB:" + ",".join(names)).encode())
        until(lambda: self.done(handles) or not handles, 60, "transfers")
        for cache, expected in zip(self.caches, want):
            self.assertEqual(digest(cache), digest(np.ascontiguousarray(expected)))
        told = self.peer.notifications(self.nixl.name, 2 * len(names))
        self.assertEqual(
            sorted(m for m in told if not m.startswith(b"HB:")),
            sorted(f"{name}:1".encode() for name in names),
        )
        self.assertEqual(sum(m.startswith(b"HB:") for m in told), len(names))
        self.shut_down()

    def test_prefill_restarts(self) -> None:
        """Under the same engine_id. After a READ that failed vLLM asks whether the agent is known,
        and makes the handshake again where it is not. NIXL's own package knows it for ever."""
        blocks = np.arange(8)
        first = self.transfer("READ", blocks, blocks, "before")
        self.assertEqual(finished(self.nixl, first), "DONE")
        self.assertTrue(self.nixl.check_remote_metadata(self.name))
        self.peer.close()
        state = ""
        try:
            failed = self.transfer("READ", blocks, blocks, "lost")
            state = finished(self.nixl, failed)
            self.nixl.release_xfer_handle(failed)
        except Exception as e:
            state = type(e).__name__
        self.assertEqual(state, "nixlRemoteDisconnectError" if STOCK else "ERR")
        self.assertEqual(self.nixl.check_remote_metadata(self.name), STOCK)
        if STOCK:
            return
        self.forget()
        self.peer = Peer(str(uuid.uuid4()), self.total, 14)
        self.addCleanup(self.peer.close)
        begin = time.monotonic()
        self.handshake()
        self.assertTrue(self.nixl.check_remote_metadata(self.name))
        again = self.transfer("READ", blocks, blocks, "again")
        self.assertEqual(finished(self.nixl, again), "DONE")
        self.assertLess(time.monotonic() - begin, 1)
        theirs = pattern(self.total, 14).reshape(self.LAYERS, self.BLOCKS, self.BLOCK)
        for layer, cache in enumerate(self.caches):
            got = cache.reshape(self.BLOCKS, self.BLOCK)[:8]
            self.assertEqual(digest(got.copy()), digest(theirs[layer, :8].copy()))
        self.shut_down()

    @unittest.skipIf(STOCK, "its transfers have no deadline")
    def test_late_is_not_gone(self) -> None:
        blocks = np.arange(8)
        os.kill(self.peer.pid, signal.SIGSTOP)
        with mock.patch("nixl._api._TRANSFER_TIMEOUT", 0.5):
            late = self.transfer("READ", blocks, blocks, "late")
        self.assertEqual(finished(self.nixl, late), "ERR")
        self.assertTrue(self.nixl.check_remote_metadata(self.name))
        os.kill(self.peer.pid, signal.SIGCONT)
        again = self.transfer("READ", blocks, blocks, "again")
        self.assertEqual(finished(self.nixl, again), "DONE")
        self.shut_down()

    def test_push(self) -> None:
        theirs = pattern(self.total, 11)
        want = theirs.reshape(self.LAYERS, self.BLOCKS, self.BLOCK)
        # the decode worker tells by a notification which blocks are its
        self.peer.ask("send", to=self.nixl.name, message=b"REG:request-0".hex())
        until(lambda: self.nixl.get_new_notifs(), 60, "registration")
        rng = np.random.default_rng(13)
        places = rng.permutation(self.BLOCKS)
        handles: Dict[str, Any] = {}
        for i in range(self.BLOCKS // 8):
            local, remote = rng.permutation(self.BLOCKS)[:8], places[8 * i : 8 * i + 8]
            for layer, cache in enumerate(self.caches):
                want[layer, remote] = cache.reshape(self.BLOCKS, self.BLOCK)[local]
            handles[str(i)] = self.transfer("WRITE", local, remote, f"request-{i}")
        until(lambda: self.done(handles) or not handles, 60, "transfers")
        self.peer.notifications(self.nixl.name, self.BLOCKS // 8)
        self.assertEqual(self.peer.ask("digest", at=0, size=self.total)["digest"], digest(theirs))
        self.shut_down()


class SGLang(unittest.TestCase):
    """Prefill writes chunks of pages from lists made once, and a small buffer at the end; decode
    counts notifications."""

    PAGES, LAYERS = 32, 4

    def test_prefill(self) -> None:
        total = self.PAGES * self.LAYERS * PAGE + PAGE  # and one page of auxiliary data
        config = nixl_agent_config(
            backends=[], num_threads=8, sync_mode=nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
        )
        one = nixl_agent(str(uuid.uuid4()), config)
        self.assertIn("UCX", one.get_plugin_list())
        one.create_backend("UCX", {"num_threads": "8"})
        memory = pattern(total, 21)
        data = self.PAGES * self.LAYERS * PAGE
        kv = one.register_memory(
            [(address(memory) + i * PAGE * self.PAGES, PAGE * self.PAGES, 0, "") for i in range(4)],
            "DRAM",
        )
        aux = one.register_memory([(address(memory) + data, PAGE, 0, "")], "DRAM")
        self.assertTrue(kv and aux)
        with Peer(str(uuid.uuid4()), total, 22) as peer:
            name = one.add_remote_agent(peer.metadata)
            rows = self.PAGES * self.LAYERS
            source = one.prep_xfer_dlist("", blocks(address(memory), rows, PAGE), "DRAM")
            target = one.prep_xfer_dlist(name, blocks(peer.base, rows, PAGE), "DRAM")
            want = pattern(total, 22)
            view, mine = want[:data].reshape(rows, PAGE), memory[:data].reshape(rows, PAGE)
            handles = []
            order = np.random.default_rng(23).permutation(self.PAGES).astype(np.int32)
            for chunk in range(4):
                pages = order[8 * chunk : 8 * chunk + 8]
                layers = np.arange(self.LAYERS, dtype=np.int32)[:, None] * self.PAGES
                here, there = (layers + pages).ravel(), (layers + pages[::-1]).ravel()
                view[there] = mine[here]
                notif = f"77_kv_{chunk}_{int(chunk == 3)}_0"
                handle = one.make_prepped_xfer(
                    "WRITE", source, here, target, there, notif.encode("ascii")
                )
                self.assertNotEqual(one.transfer(handle), "ERR")
                handles.append(handle)
            descs = [
                one.get_xfer_descs([(base + data, 64, 0)], "DRAM")
                for base in (address(memory), peer.base)
            ]
            handle = one.initialize_xfer("WRITE", *descs, name.decode(), b"77_aux")
            self.assertNotEqual(one.transfer(handle), "ERR")
            handles.append(handle)
            want[data : data + 64] = memory[data : data + 64]

            def states() -> bool:
                now = [one.check_xfer_state(h) for h in handles]
                self.assertNotIn("ERR", now)
                return all(state == "DONE" for state in now)

            until(states, 60, "transfers")
            for handle in handles:
                one.release_xfer_handle(handle)
            got = sorted(m.decode("ascii") for m in peer.notifications(one.name, 5))
            self.assertEqual(got, ["77_aux", *(f"77_kv_{i}_{int(i == 3)}_0" for i in range(4))])
            self.assertEqual(peer.ask("digest", at=0, size=total)["digest"], digest(want))
            one.remove_remote_agent(name)
        one.deregister_memory(kv)
        one.deregister_memory(aux)


class LMCache(unittest.TestCase):
    """Both sides list all pages of one buffer; the receiver's list travels as bytes; pages are
    written by lists of int, and polled every millisecond."""

    PAGES = 64

    def test_channel(self) -> None:
        size = self.PAGES * PAGE
        memory = pattern(size, 31)
        one = nixl_agent(str(uuid.uuid4()), nixl_agent_config(backends=["UCX"]))
        registered = one.get_reg_descs([(address(memory), size, 0, "")], mem_type="cpu")
        one.register_memory(registered)
        pages = [(at, PAGE, 0) for at in range(address(memory), address(memory) + size, PAGE)]
        descs = one.get_xfer_descs(pages, mem_type="cpu")
        handler = one.prep_xfer_dlist("", descs, mem_type="cpu")
        with Peer(str(uuid.uuid4()), size, 32) as peer:
            peer.ask("add", metadata=one.get_agent_metadata().hex())
            name = one.add_remote_agent(peer.metadata)
            listed = one.deserialize_descs(bytes.fromhex(peer.ask("descriptors")["descriptors"]))
            self.assertEqual(listed.descCount(), self.PAGES)
            remote = one.prep_xfer_dlist(name, listed)
            want = pattern(size, 32).reshape(self.PAGES, PAGE)
            order = np.random.default_rng(33).permutation(self.PAGES).tolist()
            for here, there in zip(range(self.PAGES), order):
                handle = one.make_prepped_xfer("WRITE", handler, [here], remote, [there])
                one.transfer(handle)
                until_done(one, handle)
                want[there] = memory.reshape(self.PAGES, PAGE)[here]
            one.send_notif(name, b"written")
            peer.notifications(one.name, 1)
            told = peer.ask("digest", at=0, size=size)["digest"]
            self.assertEqual(told, digest(want))
            one.release_dlist_handle(remote)
        one.release_dlist_handle(handler)
        one.deregister_memory(registered)


def until_done(one: Any, handle: Any) -> None:
    while True:
        state = one.check_xfer_state(handle)
        if state == "ERR":
            raise RuntimeError("Failed to send data to remote peer")
        if state == "DONE":
            return
        time.sleep(0.001)


class Dynamo(unittest.TestCase):
    """An operation for each transfer, by keywords; metadata travels compressed; the passive side
    looks for the key of the operation among its notifications."""

    def test_connect(self) -> None:
        size = 1 << 20
        memory = np.zeros(size, dtype=np.uint8)
        one = nixl_agent(uuid.uuid4().hex)
        registered = one.register_memory([(address(memory), size, 0, "memory")], "DRAM")
        with Peer(uuid.uuid4().hex, size, 41) as peer:
            packed = base64.b64encode(zlib.compress(peer.metadata, level=6))
            peer.ask("add", metadata=one.get_agent_metadata().hex())
            name = one.add_remote_agent(zlib.decompress(base64.b64decode(packed))).decode()
            for key, op in ("read-key", "READ"), ("write-key", "WRITE"):
                local = one.get_xfer_descs(descs=[(address(memory), size, 0)], mem_type="cpu")
                remote = one.get_xfer_descs(descs=[(peer.base, size, 0)], mem_type="cpu")
                if op == "WRITE":
                    memory[:] = pattern(size, 42)
                handle = one.initialize_xfer(
                    operation=op,
                    local_descs=local,
                    remote_descs=remote,
                    remote_agent=name,
                    notif_msg=key.encode(),
                )
                state = one.transfer(handle, key.encode("utf-8"))
                self.assertIn(state, ("PROC", "DONE"))
                until_done(one, handle)
                one.release_xfer_handle(handle)
                self.assertEqual(peer.notifications(one.name, 1), [key.encode()])
                if op == "READ":
                    self.assertEqual(digest(memory), digest(pattern(size, 41)))
            told = peer.ask("digest", at=0, size=size)["digest"]
            self.assertEqual(told, digest(pattern(size, 42)))
            peer.ask("send", to=one.name, message=b"done".hex())
            until(lambda: one.update_notifs().get(name) == [b"done"], 60, "notification")
            one.remove_remote_agent(name)
        one.deregister_memory(registered, [])


if __name__ == "__main__":
    exit_now(unittest.main(exit=False).result.wasSuccessful())
