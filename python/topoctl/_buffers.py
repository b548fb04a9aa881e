"""Addresses of other objects' memory, and lists of numbers, without copies and without numpy."""

from __future__ import annotations

import array
import ctypes
import dataclasses
import re
from typing import Any, List, Literal, NamedTuple, Optional, Sequence


class _PyBuffer(ctypes.Structure):
    """Py_buffer of Python's C interface."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None
_SIMPLE = 0  # PyBUF_SIMPLE: contiguous, and may be read-only


class Range(NamedTuple):
    """Memory by address, of this process or of a peer."""

    address: int
    length: int


class Memory(NamedTuple):
    """A contiguous range of memory. owner keeps it where it is for as long as it is referenced."""

    address: int
    length: int
    writable: bool
    owner: Any


def range_of(thing: Any) -> Range:
    """Address and length in bytes of the memory of a buffer, a torch tensor, or an object with
    __cuda_array_interface__ or __array_interface__: what to tell a peer that is to use it."""
    memory = memory_of(thing)
    return Range(memory.address, memory.length)


def memory_of(thing: Any) -> Memory:
    """The memory of a buffer (bytearray, memoryview, mmap, numpy array, ...), of a torch tensor, or
    of an object with __cuda_array_interface__ or __array_interface__. TypeError where there is
    none, ValueError where it is not contiguous."""
    try:
        view = memoryview(thing)
    except (TypeError, ValueError, BufferError):
        pass  # ValueError: a numpy array of a type that the protocol does not know
    else:
        if not view.c_contiguous:
            raise ValueError("the buffer is not contiguous")
        return Memory(_address_of(view), view.nbytes, not view.readonly, view)
    if callable(getattr(thing, "data_ptr", None)):
        if not thing.is_contiguous():
            raise ValueError("the tensor is not contiguous")
        return Memory(thing.data_ptr(), thing.numel() * thing.element_size(), True, thing)
    for protocol in "__cuda_array_interface__", "__array_interface__":
        interface = getattr(thing, protocol, None)
        if interface is not None:
            return _of_interface(interface, thing)
    raise TypeError(
        f"{type(thing).__name__} has no memory that topoctl knows: want a buffer, a torch tensor, "
        "or an object with __array_interface__ or __cuda_array_interface__"
    )


def _of_interface(interface: Any, thing: Any) -> Memory:
    itemsize = int(re.findall(r"\d+", interface["typestr"])[0])  # "<f4", "<M8[s]"
    contiguous: List[int] = []
    length = itemsize
    for size in reversed(interface["shape"]):
        contiguous.insert(0, length)
        length *= size
    if interface.get("strides") not in (None, tuple(contiguous)) and length:
        raise ValueError("the array is not contiguous")
    address, readonly = interface["data"]
    return Memory(address, length, not readonly, thing)


def _address_of(view: memoryview) -> int:
    buffer = _PyBuffer()
    _get_buffer(view, buffer, _SIMPLE)
    try:
        return buffer.buf or 0
    finally:
        _release_buffer(buffer)


def destination(memory: Memory) -> Memory:
    """memory, if it may be written to."""
    if not memory.writable:
        raise TypeError("the buffer is read-only (bytes, for example): peers must not write to it")
    return memory


Numbers = Any
"""A list of numbers: a sequence of int, array.array, or a buffer of integers (numpy array)."""

_Code = Literal["Q", "q"]


@dataclasses.dataclass
class Vector:
    """count numbers of 64 bits from address on. owner keeps them there."""

    address: Optional[int]
    count: int
    owner: Any


def vector(numbers: Numbers, code: _Code) -> Vector:
    """Numbers of 64 bits for the library: those of a buffer as they are where they have that form
    already, else a copy. code is "Q" for addresses and lengths, "q" for indexes."""
    if isinstance(numbers, (list, tuple, range)):
        return _copied(numbers, code)
    view = memoryview(numbers)
    if view.ndim != 1:
        raise ValueError(f"want numbers in one dimension, not {view.ndim}")
    if view.itemsize != 8 or view.format not in "qQlL":
        return _copied(view.tolist(), code)
    if not view.c_contiguous:  # a column of a table
        view = memoryview(view.tobytes()).cast(code)
    return Vector(_address_of(view), len(view), view)


def _copied(numbers: Sequence[int], code: _Code) -> Vector:
    try:
        copy = array.array(code, numbers)
    except OverflowError as e:
        want = "0 to 2**64 - 1" if code == "Q" else "-2**63 to 2**63 - 1"
        raise ValueError(f"want numbers from {want}: {e}") from None
    return Vector(*copy.buffer_info(), copy)


@dataclasses.dataclass
class Table:
    """Ranges: addresses and lengths, each stride numbers after the one before."""

    addresses: Optional[int]
    lengths: Optional[int]
    count: int
    stride: int
    owner: Any


def table(addresses: Any, lengths: Optional[Numbers] = None) -> Table:
    """Ranges of two lists of numbers, or of a buffer of 64-bit integers with two or three columns:
    address, length, and one that is not looked at (numpy array of shape (n, 2) or (n, 3))."""
    if lengths is not None:
        a, n = vector(addresses, "Q"), vector(lengths, "Q")
        if a.count != n.count:
            raise ValueError(f"{a.count} addresses and {n.count} lengths")
        return Table(a.address, n.address, a.count, 1, (a.owner, n.owner))
    view = memoryview(addresses)
    if view.ndim != 2 or view.shape is None or view.shape[1] not in (2, 3):
        raise ValueError("want addresses and lengths, or a table of two or three columns")
    if view.itemsize != 8 or view.format not in "qQlL" or not view.c_contiguous:
        raise ValueError("want a contiguous table of 64-bit integers")
    base = _address_of(view)
    return Table(base, base + 8, view.shape[0], view.shape[1], view)
