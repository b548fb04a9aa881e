"""Version of the wheel, and the library and program in it, which decide its platform."""

import os
import pathlib
import runpy
import subprocess

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = pathlib.Path(__file__).parent.parent
BIN = ROOT / os.environ.get("TOPOCTL_BIN", "bin")  # where "make build lib" put them
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of an ELF file
LICENSES = os.environ.get("TOPOCTL_LICENSES")  # of the modules in them: .ci/release writes the file
GLIBC = "2_34"  # the newest that program and library need: .ci/common


def version() -> str:
    said = subprocess.run([ROOT / ".ci" / "version", "python"], capture_output=True, text=True)
    return said.stdout.strip() or "0"  # without a repository


class WheelTag(BuildHookInterface):
    def initialize(self, version, build_data):
        runpy.run_path(str(ROOT / "python" / "stubs.py"), run_name="__main__")
        library = BIN / "libtopoctl.so"
        with open(library, "rb") as file:
            machine = MACHINES[int.from_bytes(file.read(20)[18:], "little")]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{GLIBC}_{machine}"
        build_data["force_include"][str(library)] = "topoctl/libtopoctl.so"
        build_data["force_include"][str(ROOT / "LICENSE")] = "topoctl/LICENSE"
        if LICENSES:
            build_data["force_include"][str(ROOT / LICENSES)] = "topoctl/THIRD-PARTY-LICENSES"
        build_data["shared_scripts"][str(BIN / "topoctl")] = "topoctl"
