"""The C library libtopoctl, as topoctl.h describes it, opened at first use.

It is not opened at import, because programs import first and fork afterwards, and a process that
has forked cannot use a library that its parent opened.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import threading
from typing import Any, Dict, Optional, Tuple

from .errors import Error, LibraryError, Status, of_status

ABI = 2
"""The interface version that this package is written for."""

_i32, _i64, _u64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64
_text = ctypes.c_char_p
_pointer = ctypes.c_void_p  # an address as an int, or None


class TelemetryV1(ctypes.Structure):
    """topoctl_telemetry_v1."""

    _fields_ = [
        ("start_unix_ns", _i64),
        ("post_ns", _i64),
        ("duration_ns", _i64),
        ("bytes", _i64),
        ("ops", _i64),
        ("retries", _i64),
    ]


# Result and arguments of each function, in the order of topoctl.h.
PROTOTYPES: Dict[str, Tuple[Any, ...]] = {
    "topoctl_abi": (_i32,),
    "topoctl_version": (_text,),
    "topoctl_error": (_i64, _pointer, _i64),
    "topoctl_open": (_i64, _text),
    "topoctl_close": (_i32, _i64),
    "topoctl_port": (_i32, _i64),
    "topoctl_address": (_i64, _i64, _pointer, _i64),
    "topoctl_name": (_i64, _i64, _pointer, _i64),
    "topoctl_register": (_i32, _i64, _i64, _pointer, _pointer, _text, _i32),
    "topoctl_unregister": (_i32, _i64, _i64, _pointer),
    "topoctl_alloc": (_i32, _i64, _u64, _text, _i32, _pointer),
    "topoctl_free": (_i32, _i64, _u64),
    "topoctl_region": (_i32, _i64, _text, _pointer, _pointer),
    "topoctl_metadata": (_i64, _i64, _pointer, _i64),
    "topoctl_add_peer": (_i64, _i64, _pointer, _i64, _pointer, _i64),
    "topoctl_remove_peer": (_i32, _i64, _text),
    "topoctl_peer_ranges": (_i64, _i64, _text, _i64),
    "topoctl_find": (_i64, _i64, _text, _text, _i64),
    "topoctl_submit": (
        *(_i64, _i64, _text, _i32, _i64, _pointer, _pointer, _pointer),
        *(_pointer, _i64, _i64),
    ),
    "topoctl_transfer": (
        *(_i32, _i64, _text, _i32, _i64, _pointer, _pointer, _pointer),
        *(_pointer, _i64, _i64, _i64, _pointer),
    ),
    "topoctl_list": (_i64, _i64, _text, _i64, _pointer, _pointer, _i64),
    "topoctl_list_free": (_i32, _i64, _i64),
    "topoctl_submit_lists": (
        *(_i64, _i64, _i32, _i64, _pointer, _i64, _pointer, _i64),
        *(_pointer, _i64, _i64),
    ),
    "topoctl_poll": (_i32, _i64, _i64),
    "topoctl_wait": (_i32, _i64, _i64, _pointer, _i64),
    "topoctl_wait_any": (_i32, _i64, _i64, _pointer, _i64),
    "topoctl_result": (_i64, _i64, _i64, _pointer, _i64),
    "topoctl_event_fd": (_i32, _i64),
    "topoctl_event_close": (_i32, _i64, _i32),
    "topoctl_release": (_i32, _i64, _i64),
    "topoctl_telemetry": (_i32, _i64, _i64, _pointer, _i64),
    "topoctl_explain": (_i64, _i64, _i64, _pointer, _i64),
    "topoctl_stats": (_i64, _i64, _pointer, _i64),
    "topoctl_notifications": (_i64, _i64, _pointer, _i64),
    "topoctl_calls": (_i64, _i64, _pointer, _i64),
    "topoctl_answer": (_i32, _i64, _i64, _pointer, _i64, _text),
    "topoctl_call": (_i64, _i64, _text, _pointer, _i64, _i64),
}

_lock = threading.Lock()
_library: Optional[ctypes.CDLL] = None
_forked = False


def path() -> str:
    """The library's file: TOPOCTL_LIBRARY, else the one beside this package."""
    beside = pathlib.Path(__file__).with_name("libtopoctl.so")
    return os.environ.get("TOPOCTL_LIBRARY") or str(beside)


def load() -> Any:
    """The library, opened by the first call. Functions are called as topoctl.h says; see check."""
    global _library
    if _forked:
        raise error(Status.FORKED)
    if _library is None:
        with _lock:
            if _library is None:
                _library = _open(path())
    return _library


def _open(name: str) -> ctypes.CDLL:
    try:
        lib = ctypes.CDLL(name)
        for function, (result, *arguments) in PROTOTYPES.items():
            prototype = getattr(lib, function)
            prototype.restype, prototype.argtypes = result, arguments
    except (OSError, AttributeError) as e:
        why = str(e) if name in str(e) else f"{name}: {e}"
        raise LibraryError(
            f"{why}; install the wheel of topoctl, or name the file in TOPOCTL_LIBRARY"
        ) from e
    if lib.topoctl_abi() != ABI:
        raise LibraryError(
            f"{name}: its interface version is {lib.topoctl_abi()}, this package needs {ABI}"
        )
    return lib


def _in_child() -> None:
    global _forked, _lock
    _forked = _library is not None
    _lock = threading.Lock()  # another thread may have held it


os.register_at_fork(after_in_child=_in_child)


def forked() -> bool:
    """Whether this process is a child of the one that opened the library."""
    return _forked


def error(status: int) -> Error:
    """The exception for a status that a function has just given to this thread."""
    if _forked:
        return of_status(Status.FORKED, "")
    return of_status(status, fill(load().topoctl_error).decode(errors="replace"))


def check(status: int) -> int:
    """status where it is 0 or above, else its exception."""
    if status < 0:
        raise error(status)
    return status


def fill(function: Any, *arguments: Any, capacity: int = 4096) -> bytes:
    """What a function that fills out has to say, called again where the first buffer is small."""
    while True:
        out = ctypes.create_string_buffer(capacity)
        length = check(function(*arguments, out, capacity)) if arguments else function(out, capacity)
        if length < capacity:  # a text ends in a zero byte
            return out.raw[: max(length, 0)]
        capacity = length + 1
