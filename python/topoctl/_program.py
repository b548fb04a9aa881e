"""What the program topoctl prints as JSON, as objects.

The program is run for each call, so that NVML, which wants a process of its own, is asked too, and
that a process that forks can call these functions.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple, Type
from typing import TypeVar, Union, cast

from .errors import ProgramError

_ANSWERED = (0, 1, 3)  # exit codes with a document: good, bad, incomplete


class Record(Mapping[str, Any]):
    """A JSON object whose keys are attributes too: node.numa_node is node["numa_node"]. Objects in
    it are Records, lists are tuples. None is unknown, never zero. raw is the object itself.

    Documents grow by keys only, so that a key which an older program does not print is an
    AttributeError; use get("key") for those."""

    def __init__(self, raw: Dict[str, Any]) -> None:
        self.raw = raw

    def __getitem__(self, key: str) -> Any:
        return _wrapped(self.raw[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    if not TYPE_CHECKING:  # documents.pyi says which there are

        def __getattr__(self, key: str) -> Any:
            if key == "raw":  # not set yet: this object is being copied
                raise AttributeError(key)
            try:
                return self[key]
            except KeyError:
                raise AttributeError(f"no key {key!r}: there are {', '.join(self.raw)}") from None

    def __dir__(self) -> List[str]:
        return [*super().__dir__(), *self.raw]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.raw!r})"


def _wrapped(value: Any) -> Any:
    if isinstance(value, dict):
        return Record(value)
    if isinstance(value, list):
        return tuple(_wrapped(item) for item in value)
    return value


class Document(Record):
    """What a command printed."""

    schema_name = ""
    """Its schema: "topoctl.NAME/vN"."""


if TYPE_CHECKING:
    from . import documents
    from .documents import (
        DoctorDocument,
        MatrixDocument,
        PathDocument,
        PlanDocument,
        TopologyDocument,
    )
else:
    DoctorDocument = MatrixDocument = PathDocument = PlanDocument = TopologyDocument = Document


class Topology(TopologyDocument):
    """topoctl.topology/v1: docs/topology.md lists its keys."""

    schema_name = "topoctl.topology/v1"

    def of_kind(self, kind: str) -> Tuple[documents.TopologyNodes, ...]:
        """The nodes of a kind: "gpu", "rdma", "port", "netdev", "numa", "pci", ..."""
        return tuple(node for node in self.nodes if node["kind"] == kind)

    @property
    def gpus(self) -> Tuple[documents.TopologyGpu, ...]:
        """The GPUs, in PCI order."""
        return cast("Tuple[documents.TopologyGpu, ...]", self.of_kind("gpu"))

    @property
    def rdma_devices(self) -> Tuple[documents.TopologyRdma, ...]:
        """The RDMA devices."""
        return cast("Tuple[documents.TopologyRdma, ...]", self.of_kind("rdma"))

    def node(self, id: str) -> documents.TopologyNodes:
        """The node "gpu:0", "rdma:mlx5_0", "net:eth0", ...; KeyError if the topology has no such node."""
        for node in self.raw["nodes"]:
            if node["id"] == id:
                return cast("documents.TopologyNodes", Record(node))
        raise KeyError(id)


class Matrix(MatrixDocument):
    """topoctl.matrix/v1: how near devices are, and what flows between them."""

    schema_name = "topoctl.matrix/v1"

    def between(self, row: str, column: str) -> documents.MatrixPair:
        """How two devices, by id ("gpu:0", "rdma:mlx5_0"), are connected: class, nccl,
        expected_bytes_per_sec, hops, limit_link, basis. KeyError where one is not listed."""
        rows = [device["id"] for device in self.raw["rows"]]
        columns = [device["id"] for device in self.raw["cols"]]
        if row not in rows or column not in columns:
            raise KeyError((row, column))
        i, j = rows.index(row), columns.index(column)
        grids = {key: value for key, value in self.raw.items() if _is_grid(value)}
        pair = Record({key: grid[i][j] for key, grid in grids.items()})
        return cast("documents.MatrixPair", pair)


def _is_grid(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], list)


class Path(PathDocument):
    """topoctl.path/v1: chosen is the best port for the memory (None: none is usable), ranked all
    usable ones, rejected the others, each with its reason; route is the way to it."""

    schema_name = "topoctl.path/v1"

    @property
    def preferred(self) -> Tuple[str, ...]:
        """The names of the ports that equal the best, best first."""
        return tuple(p["name"] for p in self.raw["ranked"] if p["verdict"] == "preferred")


class Plan(PlanDocument):
    """topoctl.plan/v1: which ports each GPU gets when all are used at once."""

    schema_name = "topoctl.plan/v1"


class Report(DoctorDocument):
    """topoctl.doctor/v1: docs/doctor.md lists its checks."""

    schema_name = "topoctl.doctor/v1"

    @property
    def findings(self) -> Tuple[documents.DoctorChecksFindings, ...]:
        """What is wrong, with severity, subjects, text, evidence and fix."""
        return tuple(finding for check in self.checks for finding in check.findings)

    @property
    def unchecked(self) -> Tuple[documents.DoctorChecks, ...]:
        """Checks that could not be made; their missing says what is needed."""
        return tuple(check for check in self.checks if check.status == "could_not_check")


D = TypeVar("D", bound=Document)
Flag = Union[None, bool, int, float, str, Sequence[str]]


def discover(from_: Union[None, str, Topology] = None, **flags: Flag) -> Topology:
    """This host; that of a file (from_) or of a machine that ships with topoctl (fixture=...).

    This and the functions below take the program's flags as keywords: "topoctl COMMAND --help"
    lists them. all_pairs=True is --all-pairs, role=["a=data", "b=storage"] is a flag given twice.
    from_ may also be a Topology that was discovered before. Raises ProgramError where there is no
    answer; an incomplete one has complete == False and says why in its warnings."""
    return _document(Topology, ["discover"], from_, flags)


def matrix(from_: Union[None, str, Topology] = None, **flags: Flag) -> Matrix:
    """How GPUs and NICs are connected, pair by pair."""
    return _document(Matrix, ["matrix"], from_, flags)


def path(
    source: str,
    destination: Optional[str] = None,
    from_: Union[None, str, Topology] = None,
    **flags: Flag,
) -> Path:
    """Which ports the memory of source ("gpu:0", "cpu:1") should use, and why; with a destination
    the path between two devices, with peer=FILE the lanes to another host."""
    ends = [source] if destination is None else [source, destination]
    return _document(Path, ["path", *ends], from_, flags)


def plan(from_: Union[None, str, Topology] = None, **flags: Flag) -> Plan:
    """Which ports each GPU should use when all are used at once."""
    return _document(Plan, ["path", "--plan"], from_, flags)


def doctor(from_: Union[None, str, Topology] = None, **flags: Flag) -> Report:
    """What is wrong with the host."""
    return _document(Report, ["doctor"], from_, flags)


def program() -> str:
    """The program's file: TOPOCTL_PROGRAM, else the one of this package's wheel, else the first in
    PATH."""
    named = os.environ.get("TOPOCTL_PROGRAM")
    if named:
        return named
    try:
        for file in importlib.metadata.files("topoctl") or ():
            if file.name == "topoctl" and file.parent.name == "bin":
                return os.path.realpath(str(file.locate()))
    except importlib.metadata.PackageNotFoundError:
        pass
    found = shutil.which("topoctl")
    if found is None:
        raise ProgramError(
            "the program topoctl is not in PATH; install the wheel of topoctl, or name the "
            "program in TOPOCTL_PROGRAM"
        )
    return found


def _document(
    kind: Type[D], command: List[str], from_: Union[None, str, Topology], flags: Dict[str, Flag]
) -> D:
    arguments = [*command, *_arguments(flags)]
    if kind is not Topology:
        arguments.append("--output=json")
    saved = None
    if isinstance(from_, Topology):
        saved = json.dumps(from_.raw)
        from_ = "-"
    if from_ is not None:
        arguments.append(f"--from={from_}")
    try:
        done = subprocess.run(
            [program(), *arguments],
            input=saved,
            stdin=subprocess.DEVNULL if saved is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
    except OSError as e:
        raise ProgramError(f"topoctl {' '.join(command)}: {e}") from e
    if done.returncode not in _ANSWERED or not done.stdout:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise ProgramError(said, done.returncode)
    raw = json.loads(done.stdout)
    if raw["schema"] != kind.schema_name:
        raise ProgramError(f"it printed {raw['schema']}, this package reads {kind.schema_name}")
    return kind(raw)


def _arguments(flags: Dict[str, Flag]) -> Iterator[str]:
    for name, value in flags.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            yield f"{flag}={str(value).lower()}"
        elif isinstance(value, (str, int, float)):
            yield f"{flag}={value}"
        else:
            yield from (f"{flag}={item}" for item in value)
