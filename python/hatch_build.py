"""Version and platform of the wheel, both of what "make build lib" made."""

import json
import pathlib
import re
import subprocess

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BIN = pathlib.Path(__file__).parent.parent / "bin"
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of an ELF file
GLIBC = "2_34"  # the newest that program and library need; python/tests/test_wheel.py looks


def version() -> str:
    """The program's version in Python's form: v1.2.3-4-gabc-dirty is 1.2.3.post4+gabc.dirty, a
    commit alone, 0f3c5a1, is 0+g0f3c5a1; devel is 0."""
    said = subprocess.run([BIN / "topoctl", "version", "-o", "json"], check=True, capture_output=True)
    program = json.loads(said.stdout)["version"]
    release, commits, commit, dirty = re.fullmatch(
        r"(?:v?(\d+(?:\.\d+)+)(?:-(\d+)-)?)?(?:g?([0-9a-f]+)|devel)?(-dirty)?", program
    ).groups()
    local = ".".join(filter(None, [commit and "g" + commit, dirty and "dirty"]))
    return (release or "0") + (f".post{commits}" if commits else "") + (f"+{local}" if local else "")


class WheelTag(BuildHookInterface):
    def initialize(self, version, build_data):
        with open(BIN / "libtopoctl.so", "rb") as library:
            machine = MACHINES[int.from_bytes(library.read(20)[18:], "little")]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{GLIBC}_{machine}"
