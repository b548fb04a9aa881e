"""Tensors of torch, in memory of the host."""

import os
import unittest

from support import EngineTest

from topoctl import range_of
from topoctl.compat.nixl._api import nixl_agent

try:
    import torch
except ImportError:
    torch = None


def bytes_of(tensor):
    return bytes(tensor.contiguous().flatten().view(torch.uint8).tolist())


@unittest.skipIf(torch is None, "torch is not installed")
class TestTensors(EngineTest):
    def setUp(self):
        self.engines = self.engine(), self.engine()

    def test_kinds(self):
        a, b = self.engines
        for kind in torch.float32, torch.bfloat16, torch.int64, torch.bool:
            here = torch.randint(0, 2, (64, 100)).to(kind)
            there = torch.zeros(64, 100, dtype=kind)
            with self.subTest(kind), a.register(here), b.register(there):
                self.assertEqual(range_of(here), (here.data_ptr(), len(bytes_of(here))))
                a.write(b.address, here, there.data_ptr()).wait()
                self.assertTrue(torch.equal(here, there))
                there.fill_(1)
                a.read(b.address, here, there.data_ptr()).wait()
                self.assertTrue(torch.equal(here, there))

    def test_parts(self):
        """A row of a tensor is memory, a column is not; no byte beside the row changes."""
        a, b = self.engines
        here, there = torch.rand(8, 100), torch.zeros(8, 100)
        a.register(here)
        b.register(there)
        a.write(b.address, [here[2], here[5]], [there[7].data_ptr(), there[0].data_ptr()]).wait()
        want = torch.zeros(8, 100)
        want[7], want[0] = here[2], here[5]
        self.assertTrue(torch.equal(there, want))
        with self.assertRaises(ValueError):
            range_of(here[:, 3])

    def test_shared_memory(self):
        """torch.frombuffer of alloc's memory, which keeps it, and a peer that is another process."""
        peer = self.peer(4096, shared=True)
        here = torch.frombuffer(self.engines[0].alloc(4096), dtype=torch.float32)
        here.copy_(torch.rand(1024))
        self.engines[0].write(peer.address, here, peer.memory).wait()
        self.assertEqual(peer.bytes(), bytes_of(here))

    def test_nixl(self):
        """Lists of descriptors made of tensors."""
        a, b = nixl_agent("a" + str(os.getpid())), nixl_agent("b" + str(os.getpid()))
        here, there = [torch.zeros(1000) for _ in range(3)], [torch.rand(1000) for _ in range(3)]
        a.register_memory(here)
        b.register_memory(there)
        name = a.add_remote_agent(b.get_agent_metadata())
        local, remote = a.get_xfer_descs(here), b.get_xfer_descs(there)
        handle = a.initialize_xfer("READ", local, remote, name)
        a.transfer(handle)
        while a.check_xfer_state(handle) == "PROC":
            pass
        self.assertTrue(all(map(torch.equal, here, there)))
