"""The prototypes are those of the header, and the errors those of its statuses."""

import ctypes
import os
import pathlib
import re
import subprocess
import sys
import unittest

import topoctl
from topoctl import _lib, errors

HEADER = pathlib.Path(__file__).parents[2] / "cmd" / "libtopoctl" / "topoctl.h"
TYPES = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64}


def ctype(declared):
    """The type of ctypes for one of C, without a name."""
    if declared == "const char*":
        return ctypes.c_char_p
    return ctypes.c_void_p if declared.endswith("*") else TYPES[declared]


class TestHeader(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)

    def test_prototypes(self):
        declared = {}
        for result, name, arguments in re.findall(
            r"^(const char \*|\w+ )(topoctl_\w+)\(([^;]*)\);", self.text, flags=re.M
        ):
            types = [result.replace(" *", "*").strip()]
            for argument in arguments.replace("\n", " ").split(","):
                if argument.strip() != "void":
                    types.append(re.sub(r"\s*(\*?)\s*\w+$", r"\1", argument.strip()))
            declared[name] = tuple(ctype(t) for t in types)
        self.assertEqual(declared, _lib.PROTOTYPES)

    def test_abi(self):
        self.assertIn(f"#define TOPOCTL_ABI {_lib.ABI}\n", self.text)

    def test_statuses(self):
        declared = dict(re.findall(r"TOPOCTL_(\w+) = (-?\d+)", self.text))
        for name in "READ", "WRITE", "PEER_READ", "PEER_WRITE":
            declared.pop(name)
        self.assertEqual({k: int(v) for k, v in declared.items()}, dict(errors.Status.__members__))

    def test_telemetry(self):
        fields = re.search(r"typedef struct \{(.*?)\} topoctl_telemetry_v1", self.text, re.S)[1]
        declared = [(name, ctypes.c_int64) for name in re.findall(r"int64_t (\w+);", fields)]
        self.assertEqual(declared, _lib.TelemetryV1._fields_)
        self.assertEqual([name for name, _ in declared], list(topoctl.Telemetry.__annotations__))


class TestErrors(unittest.TestCase):
    def test_each_status_has_a_class(self):
        for status in errors.Status:
            if status < 0:
                error = errors.of_status(status, "why")
                self.assertEqual((error.status, str(error)), (status, "why"))
                self.assertTrue(str(errors.of_status(status, "")))
        self.assertIsInstance(errors.of_status(-99, ""), errors.Failed)

    def test_as_python_knows_them(self):
        for cls, known in (
            (errors.InvalidArgument, ValueError),
            (errors.Timeout, TimeoutError),
            (errors.NoPeer, ConnectionError),
            (errors.PeerLost, ConnectionError),
            (errors.NoRegion, LookupError),
        ):
            self.assertTrue(issubclass(cls, known) and issubclass(cls, topoctl.Error))


class TestLoad(unittest.TestCase):
    def run_python(self, code, **env):
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
        )

    def test_not_opened_at_import(self):
        code = "import topoctl, topoctl._lib; print(topoctl._lib._library)"
        self.assertEqual(self.run_python(code, TOPOCTL_LIBRARY="/none").stdout, "None\n")

    def test_not_there(self):
        code = "import topoctl\ntry: topoctl.Engine()\nexcept topoctl.errors.LibraryError as e: print(e)"
        said = self.run_python(code, TOPOCTL_LIBRARY="/none").stdout
        self.assertRegex(said, "^/none: .*TOPOCTL_LIBRARY")

    def test_another_library(self):
        code = "import topoctl\ntry: topoctl.Engine()\nexcept topoctl.errors.LibraryError as e: print(e)"
        said = self.run_python(code, TOPOCTL_LIBRARY="libc.so.6").stdout
        self.assertRegex(said, r"libc\.so\.6: undefined symbol: topoctl_abi")


if __name__ == "__main__":
    unittest.main()
