"""The wheel as it is installed; TOPOCTL_WHEEL names its file."""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import unittest
import zipfile

import topoctl
from topoctl import _lib, _program

WHEEL = os.environ.get("TOPOCTL_WHEEL")


@unittest.skipUnless(WHEEL, "TOPOCTL_WHEEL is not set: the package is not installed from a wheel")
class TestWheel(unittest.TestCase):
    def test_platform(self):
        self.assertRegex(pathlib.Path(WHEEL).name, r"-py3-none-manylinux_2_34_(x86_64|aarch64)\.whl$")
        for file in _lib.path(), _program.program():
            symbols = subprocess.run(["readelf", "-W", "-V", file], capture_output=True, text=True)
            versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", symbols.stdout)
            self.assertTrue(versions, symbols.stderr)
            self.assertLessEqual(max((int(a), int(b)) for a, b in versions), (2, 34), file)

    def test_everything_is_in_it(self):
        source = pathlib.Path(__file__).parents[1]
        want = {str(f.relative_to(source)) for f in source.glob("topoctl/**/*.py")}
        with zipfile.ZipFile(WHEEL) as wheel:
            have = set(wheel.namelist())
        self.assertEqual(want - have, set())
        self.assertLessEqual({"topoctl/py.typed", "topoctl/documents.pyi"}, have)
        self.assertFalse([name for name in have if "__pycache__" in name or "tests/" in name])

    def test_installed(self):
        site = pathlib.Path(topoctl.__file__).parent
        self.assertEqual(pathlib.Path(_lib.path()).parent, site)
        self.assertTrue(site.is_relative_to(sys.prefix))
        self.assertEqual(pathlib.Path(_program.program()), pathlib.Path(sys.prefix, "bin", "topoctl"))

    def test_version(self):
        said = subprocess.run([_program.program(), "version"], capture_output=True, text=True).stdout
        program = re.match(r"topoctl v?(.*)", said)[1]
        installed = importlib.metadata.version("topoctl")
        for part in re.findall(r"\w+", program.replace("-g", "-").replace("devel", "0")):
            self.assertIn(part, installed)

    def test_environment_for_other_programs(self):
        said = subprocess.run(
            [_program.program(), "python", "env", "--for", "vllm"],
            env={**os.environ, "PYTHONPATH": ""},
            capture_output=True,
            text=True,
        )
        compat = pathlib.Path(topoctl.__file__).with_name("compat")
        self.assertIn(f"export PYTHONPATH='{compat}'\n", said.stdout, said.stderr)


if __name__ == "__main__":
    unittest.main()
