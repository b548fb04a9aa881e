"""topoctl: a host's GPUs, NICs and how they hang together, and an engine that moves memory between
processes and hosts over many NICs at once. See docs/python.md.
"""

from . import errors
from ._buffers import Range, range_of
from ._engine import Batch, Call, Engine, Grant, Named, Notification, RangeList, Region, Telemetry
from ._program import Matrix, Path, Plan, Record, Report, Topology
from ._program import discover, doctor, matrix, path, plan
from .errors import Error

__all__ = [
    "Batch",
    "Call",
    "Engine",
    "Error",
    "Grant",
    "Matrix",
    "Named",
    "Notification",
    "Path",
    "Plan",
    "Range",
    "RangeList",
    "Record",
    "Region",
    "Report",
    "Telemetry",
    "Topology",
    "discover",
    "doctor",
    "errors",
    "matrix",
    "path",
    "plan",
    "range_of",
]

for _name in __all__:  # as help() and errors name them
    if _name != "errors":
        globals()[_name].__module__ = __name__
del _name
