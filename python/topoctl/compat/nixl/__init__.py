"""NIXL's Python package over topoctl: see nixl._api and docs/nixl.md."""

from ._bindings import *
from ._api import *  # type: ignore[assignment]  # its nixl_thread_sync_t is another one, as in NIXL
