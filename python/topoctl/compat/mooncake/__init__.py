"""mooncake with topoctl's engine: mooncake.engine is topoctl's, all else is that of the stock wheel
where it is installed. It comes in force when the directory above stands first on Python's path; see
docs/mooncake-python.md.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import extend_path
from typing import Any

__path__ = extend_path(__path__, __name__)

__all__ = ["BufferPool", "RegisteredBufferPool"]


def __getattr__(name: str) -> Any:
    # Looked up when asked for: the stock module behind it needs libraries that an engine does not.
    if name in __all__:
        return getattr(import_module("mooncake.buffer_pool"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
