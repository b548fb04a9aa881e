"""What mooncake and nixl over topoctl say of variables and calls that are wrong. What their calls do is
in mooncake_conformance.py and nixl_conformance.py."""

import os
import random
import sys
import unittest
from collections import Counter
from unittest import mock

import topoctl.compat

sys.path.insert(0, *topoctl.compat.__path__)

from mooncake.engine import TransferEngine  # noqa: E402
from nixl._api import nixl_agent  # noqa: E402
from nixl._bindings import nixlBackendError  # noqa: E402
from nixl._pieces import Pieces  # noqa: E402


def variables(**given):
    """These variables of topoctl's, and none else."""
    others = {k: v for k, v in os.environ.items() if not k.startswith("TOPOCTL_") or k in KEPT}
    return mock.patch.dict(os.environ, {**others, **given}, clear=True)


KEPT = "TOPOCTL_LIBRARY", "TOPOCTL_PROGRAM"


class TestVariables(unittest.TestCase):
    WRONG = {
        "TOPOCTL_INSECURE is 'yes': want 1, or 0": {"TOPOCTL_INSECURE": "yes"},
        "TOPOCTL_GIVE_UP is 'soon': want seconds": {"TOPOCTL_GIVE_UP": "soon"},
        'protection: "sealled": want one of': {"TOPOCTL_PROTECTION": "sealled"},
        'listen "here": want host:port': {"TOPOCTL_LISTEN": "here"},
        "/nowhere: no such file": {"TOPOCTL_TOKEN_FILE": "/nowhere"},
        'transports: "tpc": want each of': {"TOPOCTL_TRANSPORTS": "tpc"},
        "set TOPOCTL_TOKEN_FILE to a file": {"TOPOCTL_LISTEN": "0.0.0.0:0", "TOPOCTL_INSECURE": "0"},
    }

    def test_wrong_ones_are_named(self):
        for words, given in self.WRONG.items():
            with self.subTest(words), variables(**given):
                with self.assertRaises(nixlBackendError) as nixl:
                    nixl_agent("agent")
                self.assertIn(words, str(nixl.exception))
                with self.assertLogs("topoctl.mooncake", "ERROR") as log:
                    # 192.0.2.1 is no address of this host: only a server of metadata is told it.
                    host = "192.0.2.1" if "TOPOCTL_LISTEN" in given else "127.0.0.1"
                    self.assertEqual(TransferEngine().initialize(host, "P2PHANDSHAKE", "rdma", ""), -1)
                if "TOPOCTL_LISTEN" not in given:
                    self.assertIn(words, log.output[0])
                advised = "TOPOCTL_TOKEN_FILE to" in str(nixl.exception)
                self.assertEqual(advised, words.startswith("set"), str(nixl.exception))


class TestLog(unittest.TestCase):
    """What a server's log says, where nothing is configured and the prefix is all that says whose it is."""

    def setUp(self):
        patch = mock.patch("topoctl.compat._environment._announced", set())
        patch.start()
        self.addCleanup(patch.stop)

    def test_one_line_that_it_is_in_force(self):
        with variables(), self.assertLogs("nixl.topoctl", "WARNING") as log:
            first = nixl_agent("first")
            nixl_agent("second")
        (line,) = log.output
        self.assertIn("topoctl: version", line)
        self.assertIn(f"in place of NIXL, at {first._engine.address}, for this host only: set", line)

    def test_metrics_never_stop_an_engine(self):
        with variables(TOPOCTL_HTTP="127.0.0.1:0"), self.assertLogs("nixl.topoctl", "WARNING") as log:
            first = nixl_agent("first")
        (page,) = first._engine.stats()["http"]
        self.assertIn(page, log.output[0])
        with variables(TOPOCTL_HTTP=page), self.assertLogs("nixl.topoctl", "WARNING") as log:
            second = nixl_agent("second")
        (other,) = second._engine.stats()["http"]
        self.assertNotEqual(page, other)
        self.assertIn(f"topoctl: metrics are served at {other}", log.output[0])

    def test_a_port_that_was_not_to_be_had(self):
        first, second = TransferEngine(), TransferEngine()
        with variables():
            self.assertEqual(first.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""), 0)
            taken = first.get_rpc_port()
            with self.assertLogs("topoctl.mooncake", "WARNING") as log:
                self.assertEqual(second.initialize(f"127.0.0.1:{taken}", "P2PHANDSHAKE", "tcp", ""), 0)
            self.assertIn(f"port {taken} is not to be had", log.output[0])
            self.assertIn(f"peers reach 127.0.0.1:{second.get_rpc_port()}", log.output[0])

    def test_ipv6_without_brackets(self):
        first, second = TransferEngine(), TransferEngine()
        with variables():
            for engine in first, second:
                if engine.initialize("[::1]", "P2PHANDSHAKE", "tcp", ""):
                    self.skipTest("could not check: this host has no IPv6")
            address = first.allocate_managed_buffer(4096)
            for name in f"::1:{first.get_rpc_port()}", f"[::1]:{first.get_rpc_port()}":
                self.assertEqual(second.get_first_buffer_address(name), address)
                self.assertEqual(second.send_probe(name), 0)
                here = second.allocate_managed_buffer(4096)
                self.assertEqual(second.transfer_sync_read(name, here, address, 4096), 0)

    def test_a_range_of_ports(self):
        with variables():
            first = nixl_agent("first")
        low = first._engine.port
        with variables(TOPOCTL_LISTEN=f"127.0.0.1:{low}-{low + 20}"):
            self.assertIn(nixl_agent("second")._engine.port, range(low + 1, low + 21))


class TestPieces(unittest.TestCase):
    """Random ranges that overlap, over a model of an engine: what is wanted is registered, once, and
    nothing else."""

    def test_against_a_model(self):
        rng = random.Random(32)
        have = {}  # address: length, of the engine's
        failing = False

        def bytes_of(ranges):
            return [b for address, length in ranges for b in range(address, address + length)]

        def register(ranges):
            if failing:
                raise topoctl.errors.Failed("")
            all_bytes = bytes_of([*have.items(), *ranges])
            self.assertEqual(len(all_bytes), len(set(all_bytes)), "registered twice")
            have.update(ranges)

        def unregister(ranges):
            if failing:
                raise topoctl.errors.Unsafe("")
            for address, length in ranges:
                self.assertEqual(have.pop(address), length)

        pieces, wanted = Pieces(register, unregister), []
        for _ in range(3000):
            failing = rng.random() < 0.1
            before = dict(have)
            if rng.random() < 0.5 and len(wanted) < 12 or not wanted:
                ranges = [(rng.randrange(64), rng.randrange(1, 24)) for _ in range(rng.randrange(1, 4))]
                change, then = pieces.add, wanted + ranges
            else:
                ranges = rng.sample(wanted, rng.randrange(1, len(wanted) + 1))
                change, then = pieces.remove, list((Counter(wanted) - Counter(ranges)).elements())
            try:
                change(ranges)
                wanted = then
            except topoctl.errors.Error:
                self.assertEqual(have, before)
            self.assertEqual(set(bytes_of(have.items())), set(bytes_of(wanted)))
            self.assertEqual(sorted(have), pieces._lows)
        self.assertRaises(LookupError, pieces.remove, [(1000, 1)])


class TestUnopened(unittest.TestCase):
    def test_says_so(self):
        engine = TransferEngine()
        for call in (
            lambda: engine.register_memory(4096, 4096),
            lambda: engine.transfer_sync_write("127.0.0.1:1", 1, 1, 1),
            lambda: engine.transfer_check_status(1),
        ):
            with self.assertLogs("topoctl.mooncake", "ERROR") as log:
                self.assertEqual(call(), -1)
            self.assertIn("initialize was not called, or failed", log.output[0])


if __name__ == "__main__":
    unittest.main()
