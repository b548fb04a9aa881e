"""What the program says, as objects."""

import copy
import os
import pickle
import unittest
from unittest import mock

import topoctl
from topoctl import _program

MACHINE = "a10-2nic"


class TestDocuments(unittest.TestCase):
    def test_discover(self):
        host = topoctl.discover(fixture=MACHINE)
        self.assertEqual([gpu.id for gpu in host.gpus], ["gpu:0", "gpu:1"])
        self.assertEqual([nic.id for nic in host.rdma_devices], ["rdma:mlx5_0", "rdma:mlx5_1"])
        self.assertEqual(host.node("net:eno1").kind, "netdev")
        self.assertEqual(host.host.name, MACHINE)
        self.assertEqual(host["schema"], host.raw["schema"])
        with self.assertRaises(KeyError):
            host.node("gpu:9")
        with self.assertRaisesRegex(AttributeError, "no key 'colour': there are schema, "):
            host.colour
        self.assertEqual(copy.deepcopy(host), host)
        self.assertEqual(pickle.loads(pickle.dumps(host)), host)

    def test_this_host(self):
        self.assertEqual(topoctl.discover().origin, "live")

    def test_a_topology_is_asked_again(self):
        host = topoctl.discover(fixture=MACHINE)
        self.assertEqual(topoctl.matrix(host), topoctl.matrix(fixture=MACHINE))

    def test_matrix(self):
        pair = topoctl.matrix(fixture=MACHINE).between("gpu:0", "rdma:mlx5_1")
        self.assertEqual((pair["class"], pair.hops, pair.basis), ("SYS", 7, "typical"))
        with self.assertRaises(KeyError):
            topoctl.matrix(fixture=MACHINE).between("gpu:0", "gpu:9")

    def test_path(self):
        path = topoctl.path("gpu:0", fixture=MACHINE)
        self.assertEqual(path.preferred, ("mlx5_0",))
        self.assertEqual(path.chosen.reason.code, "best")
        self.assertEqual(topoctl.path("gpu:0", "gpu:1", fixture=MACHINE).route["class"], "SYS")
        other = topoctl.path("gpu:0", fixture=MACHINE, role=["mlx5_0=storage"])
        self.assertEqual(other.preferred, ("mlx5_1",))
        lanes = topoctl.path("gpu:1", fixture=MACHINE, peer=f"fixture:{MACHINE}", bytes="1MiB").lanes
        self.assertEqual(lanes.remote_host, MACHINE)

    def test_plan(self):
        plan = topoctl.plan(fixture=MACHINE)
        self.assertEqual([a.consumer for a in plan.assignments], ["gpu:0", "gpu:1"])

    def test_doctor(self):
        report = topoctl.doctor(fixture="dgx-h100-gpu2-x8")  # exit code 1
        worst = [finding for finding in report.findings if finding.severity == "warning"]
        self.assertEqual([finding.subjects for finding in worst], [("gpu:2",)])
        self.assertIn("acs-redirect", [check.code for check in report.unchecked])

    def test_no_answer(self):
        for call, code, text in (
            (lambda: topoctl.path("gpu:9", fixture=MACHINE), 2, "gpu:9: no such name"),
            (lambda: topoctl.matrix(from_="/no/file"), 2, "/no/file"),
            (lambda: topoctl.doctor(colour="red"), 2, "unknown flag.*colour"),
        ):
            with self.assertRaisesRegex(_program.ProgramError, text) as raised:
                call()
            self.assertEqual(raised.exception.returncode, code)

    def test_no_program(self):
        with mock.patch.dict(os.environ, TOPOCTL_PROGRAM="/no/program"):
            with self.assertRaisesRegex(_program.ProgramError, "/no/program"):
                topoctl.discover()


if __name__ == "__main__":
    unittest.main()
