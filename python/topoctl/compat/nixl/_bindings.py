"""Types of NIXL's module of this name: enumerations, exceptions, descriptor lists, telemetry.

Descriptor lists keep their rows in one array of 64-bit numbers (address, length, device), so that
a million of them are handed to the library as they are.
"""

from __future__ import annotations

import enum
import struct
import sys
from array import array
from itertools import chain
from typing import Any, List, NamedTuple, Tuple, Union

NIXL_INIT_AGENT = ""
"""The agent's own side of a transfer, for prep_xfer_dlist."""

DEFAULT_COMM_PORT = 8888
"""Of NIXL's own exchange of metadata, which is not offered here."""

HAVE_UCX_GPU_DEVICE_API = False


class nixl_thread_sync_t(enum.IntEnum):
    """How an agent is used by threads. Here any may use it at any time."""

    NIXL_THREAD_SYNC_NONE = 0
    NIXL_THREAD_SYNC_STRICT = 1
    NIXL_THREAD_SYNC_RW = 2
    NIXL_THREAD_SYNC_DEFAULT = 0


class nixl_mem_t(enum.IntEnum):
    """Kinds of memory."""

    DRAM_SEG = 0
    VRAM_SEG = 1
    BLK_SEG = 2
    OBJ_SEG = 3
    FILE_SEG = 4


class nixl_xfer_op_t(enum.IntEnum):
    """Directions."""

    NIXL_READ = 0
    NIXL_WRITE = 1


class nixl_cost_t(enum.IntEnum):
    """How a cost was estimated."""

    NIXL_COST_ANALYTICAL_BACKEND = 0


class nixl_status_t(enum.IntEnum):
    """Results of NIXL's C++ interface."""

    NIXL_IN_PROG = 1
    NIXL_SUCCESS = 0
    NIXL_ERR_NOT_POSTED = -1
    NIXL_ERR_INVALID_PARAM = -2
    NIXL_ERR_BACKEND = -3
    NIXL_ERR_NOT_FOUND = -4
    NIXL_ERR_MISMATCH = -5
    NIXL_ERR_NOT_ALLOWED = -6
    NIXL_ERR_REPOST_ACTIVE = -7
    NIXL_ERR_UNKNOWN = -8
    NIXL_ERR_NOT_SUPPORTED = -9


NIXL_THREAD_SYNC_NONE = nixl_thread_sync_t.NIXL_THREAD_SYNC_NONE
NIXL_THREAD_SYNC_STRICT = nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
NIXL_THREAD_SYNC_RW = nixl_thread_sync_t.NIXL_THREAD_SYNC_RW
NIXL_THREAD_SYNC_DEFAULT = nixl_thread_sync_t.NIXL_THREAD_SYNC_DEFAULT
DRAM_SEG = nixl_mem_t.DRAM_SEG
VRAM_SEG = nixl_mem_t.VRAM_SEG
BLK_SEG = nixl_mem_t.BLK_SEG
OBJ_SEG = nixl_mem_t.OBJ_SEG
FILE_SEG = nixl_mem_t.FILE_SEG
NIXL_READ = nixl_xfer_op_t.NIXL_READ
NIXL_WRITE = nixl_xfer_op_t.NIXL_WRITE
NIXL_COST_ANALYTICAL_BACKEND = nixl_cost_t.NIXL_COST_ANALYTICAL_BACKEND
NIXL_IN_PROG = nixl_status_t.NIXL_IN_PROG
NIXL_SUCCESS = nixl_status_t.NIXL_SUCCESS
NIXL_ERR_NOT_POSTED = nixl_status_t.NIXL_ERR_NOT_POSTED
NIXL_ERR_INVALID_PARAM = nixl_status_t.NIXL_ERR_INVALID_PARAM
NIXL_ERR_BACKEND = nixl_status_t.NIXL_ERR_BACKEND
NIXL_ERR_NOT_FOUND = nixl_status_t.NIXL_ERR_NOT_FOUND
NIXL_ERR_MISMATCH = nixl_status_t.NIXL_ERR_MISMATCH
NIXL_ERR_NOT_ALLOWED = nixl_status_t.NIXL_ERR_NOT_ALLOWED
NIXL_ERR_REPOST_ACTIVE = nixl_status_t.NIXL_ERR_REPOST_ACTIVE
NIXL_ERR_UNKNOWN = nixl_status_t.NIXL_ERR_UNKNOWN
NIXL_ERR_NOT_SUPPORTED = nixl_status_t.NIXL_ERR_NOT_SUPPORTED


class nixlNotPostedError(Exception):
    """The transfer was not begun."""


class nixlInvalidParamError(Exception):
    """An argument is wrong: nothing was begun."""


class nixlBackendError(Exception):
    """The engine could not do it; the text says why."""


class nixlNotFoundError(Exception):
    """No such agent, backend or registered memory."""


class nixlMismatchError(Exception):
    """This is not an agent's metadata."""


class nixlNotAllowedError(Exception):
    """The engine does not allow it."""


class nixlRepostActiveError(Exception):
    """The transfer is running already."""


class nixlUnknownError(Exception):
    """None of the others."""


class nixlNotSupportedError(Exception):
    """NIXL has this call, topoctl has not."""


class nixlRemoteDisconnectError(Exception):
    """The peer does not answer, died, or was restarted."""


class nixlCancelledError(Exception):
    """The transfer was canceled."""


class nixlNoTelemetryError(Exception):
    """The agent was made without capture_telemetry."""


class nixlXferTelemetry(NamedTuple):
    """What a transfer took. Times are in µs; startTime is of the host's monotonic clock."""

    startTime: int = 0
    postDuration: int = 0  # in transfer()
    xferDuration: int = 0  # from transfer() to the end, or to now
    totalBytes: int = 0  # in place
    descCount: int = 0


Tuple3 = Tuple[int, int, int]
Tuple4 = Tuple[int, int, int, Union[str, bytes]]
_COLUMNS = 3


class _Rows:
    """Rows of address, length and device, all of one kind of memory."""

    __slots__ = ("_type", "_rows")
    __hash__ = None  # type: ignore[assignment]
    _width = _COLUMNS

    def __init__(self, type: nixl_mem_t, descs: Any = None, *, init_size: int = 0) -> None:
        self._type = nixl_mem_t(type)
        if isinstance(descs, int):  # NIXL's order of arguments: the type and a size
            descs, init_size = None, descs
        self._rows = array("Q", bytes(8 * _COLUMNS * init_size))
        if isinstance(descs, list):
            self._take(descs)
        elif descs is not None:
            self._rows.frombytes(_table(descs).cast("B"))

    def _take(self, descs: List[Any]) -> None:
        for kind in set(map(type_of, descs)):
            if not issubclass(kind, tuple):
                raise TypeError("Each descriptor must be a tuple when provided as a list")
        if set(map(len, descs)) - {self._width}:
            raise ValueError(f"Each descriptor tuple must have exactly {self._width} elements")
        self._rows = _numbers(chain.from_iterable(self._split(descs)))

    def _split(self, descs: List[Any]) -> Any:
        return descs

    def getType(self) -> nixl_mem_t:
        return self._type

    def descCount(self) -> int:
        return len(self._rows) // _COLUMNS

    def isEmpty(self) -> bool:
        return not self._rows

    def clear(self) -> None:
        del self._rows[:]

    def remDesc(self, index: int) -> None:
        at = self._at(index)
        del self._rows[at : at + _COLUMNS]

    def _at(self, index: int) -> int:
        if not 0 <= index < self.descCount():
            raise IndexError("Index is out of range")
        return index * _COLUMNS

    def _row(self, index: int) -> Tuple3:
        at = self._at(index)
        address, length, device = self._rows[at : at + _COLUMNS]
        return address, length, device

    def _set_row(self, index: int, desc: Tuple[Any, ...]) -> None:
        at = self._at(index)
        self._rows[at : at + _COLUMNS] = _numbers(_three(desc))

    def _add_row(self, desc: Tuple[Any, ...]) -> None:
        self._rows.extend(_numbers(_three(desc)))

    def _find(self, desc: Tuple[Any, ...]) -> int:
        want = tuple(_three(desc))
        for i in range(self.descCount()):
            if self._row(i) == want:
                return i
        raise nixlNotFoundError("this descriptor is not in the list")

    def print(self) -> None:
        print(f"{self.descCount()} descriptors of {self._type.name}")
        for i in range(self.descCount()):
            print("  address {:#x}, {} bytes, device {}".format(*self._row(i)))

    def _table(self) -> memoryview:
        """The rows as a table of three columns."""
        if not self._rows:
            return memoryview(bytearray()).cast("B")
        return memoryview(self._rows).cast("B").cast("Q", (self.descCount(), _COLUMNS))


class nixlXferDList(_Rows):
    """What a transfer moves: (address, length, device) of memory that is registered."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, nixlXferDList):
            return NotImplemented
        return self._type == other._type and self._rows == other._rows

    def __getitem__(self, index: int) -> Tuple3:
        return self._row(index)

    def __setitem__(self, index: int, desc: Tuple3) -> None:
        self._set_row(index, desc)

    def addDesc(self, desc: Tuple3) -> None:
        self._add_row(desc)

    append = addDesc

    def index(self, desc: Tuple3) -> int:
        return self._find(desc)

    def __reduce__(self) -> Any:
        return deserialize, (serialize(self),)


class nixlRegDList(_Rows):
    """Memory to register: (address, length, device, and a text that is kept and not looked at)."""

    __slots__ = ("_texts",)
    _width = 4

    def __init__(self, type: nixl_mem_t, descs: Any = None, *, init_size: int = 0) -> None:
        self._texts: List[bytes] = []
        super().__init__(type, descs, init_size=init_size)
        self._texts = self._texts or [b""] * self.descCount()

    def _split(self, descs: List[Any]) -> Any:
        self._texts = [_text(desc[3]) for desc in descs]
        return [desc[:3] for desc in descs]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, nixlRegDList):
            return NotImplemented
        same = self._type == other._type and self._rows == other._rows
        return same and self._texts == other._texts

    def __getitem__(self, index: int) -> Tuple4:
        return (*self._row(index), self._texts[index])

    def __setitem__(self, index: int, desc: Tuple4) -> None:
        text = _text(desc[3])
        self._set_row(index, desc)
        self._texts[index] = text

    def addDesc(self, desc: Tuple4) -> None:
        text = _text(desc[3])
        self._add_row(desc)
        self._texts.append(text)

    append = addDesc

    def index(self, desc: Tuple4) -> int:
        return self._find(desc)

    def remDesc(self, index: int) -> None:
        super().remDesc(index)
        del self._texts[index]

    def clear(self) -> None:
        super().clear()
        self._texts.clear()

    def trim(self) -> nixlXferDList:
        """The same ranges without their texts, for a transfer."""
        out = nixlXferDList(self._type)
        out._rows = self._rows[:]
        return out

    def __reduce__(self) -> Any:
        return deserialize, (serialize(self),)


type_of = type  # the constructors have an argument of this name


def _numbers(values: Any) -> "array[int]":
    try:
        return array("Q", values)
    except OverflowError as e:
        raise ValueError(f"addresses, lengths and devices are 0 to 2**64-1: {e}") from e


def _three(desc: Tuple[Any, ...]) -> Tuple[Any, ...]:
    if not isinstance(desc, tuple):
        raise TypeError(f"a descriptor is a tuple, not {type(desc).__name__}")
    if len(desc) < _COLUMNS:
        raise IndexError("tuple index out of range")
    return desc[:_COLUMNS]


def _text(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _table(descs: Any, columns: int = _COLUMNS) -> memoryview:
    view = memoryview(descs)
    if view.ndim != 2 or view.shape is None or view.shape[1] != columns:
        raise ValueError(f"descs must be a Nx{columns} numpy array")
    if view.itemsize != 8 or view.format not in ("Q", "L", "q", "l"):
        raise ValueError(f"descs must be a Nx{columns} numpy array of uint64 or int64")
    if not view.c_contiguous:
        raise ValueError("descs must be a C-contiguous numpy array")
    return view


def strided(type: nixl_mem_t, runs: Any) -> nixlXferDList:
    """Each block of an Nx5 array as a descriptor: a row is the first block's address, the length of
    one, the device, from how many bytes after a block the next one begins, and how many there are."""
    out = nixlXferDList(type)
    rows: Any = _table(runs, 5).tolist()
    for address, length, device, stride, count in rows:
        if not (0 < length <= stride and count > 0 and address + stride * count <= 1 << 64):
            raise nixlNotFoundError(
                f"{count} blocks of {length} bytes, {stride} apart, at {address:#x}"
            )
        blocks = _numbers((address, length, device)) * count
        blocks[::_COLUMNS] = array("Q", range(address, address + stride * count, stride))
        out._rows.extend(blocks)
    return out


# A list as bytes: this header, the rows (little endian), and for registrations the lengths of the
# texts (u32 each) and the texts.
_HEADER = struct.Struct("<8sBBQ")
_MAGIC = b"topoctl\x01"
_KINDS = nixlXferDList, nixlRegDList


def serialize(descs: Union[nixlXferDList, nixlRegDList]) -> bytes:
    """A list as bytes, for deserialize in another process."""
    if not isinstance(descs, _KINDS):
        raise TypeError(f"want a descriptor list, not {type(descs).__name__}")
    kind = _KINDS.index(type(descs))
    parts = [_HEADER.pack(_MAGIC, kind, descs._type, descs.descCount()), _little(descs._rows)]
    if isinstance(descs, nixlRegDList):
        parts.append(struct.pack(f"<{len(descs._texts)}I", *map(len, descs._texts)))
        parts.extend(descs._texts)
    return b"".join(parts)


def deserialize(data: bytes) -> Union[nixlXferDList, nixlRegDList]:
    """The list of serialize. Bytes of a peer run no code here; other bytes are
    nixlInvalidParamError."""
    try:
        magic, kind, memory, count = _HEADER.unpack_from(data)
        end = _HEADER.size + 8 * _COLUMNS * count
        if magic != _MAGIC or kind >= len(_KINDS) or end > len(data):
            raise ValueError("other bytes")
        rows = array("Q", data[_HEADER.size : end])
        if sys.byteorder == "big":
            rows.byteswap()
        descs: Union[nixlXferDList, nixlRegDList] = _KINDS[kind](nixl_mem_t(memory))
        descs._rows = rows
        if isinstance(descs, nixlRegDList):
            lengths = struct.unpack_from(f"<{count}I", data, end)
            end += 4 * count
            for length in lengths:
                descs._texts.append(bytes(data[end : end + length]))
                end += length
        if end != len(data):
            raise ValueError("too long, or cut")
    except (struct.error, ValueError) as e:
        raise nixlInvalidParamError(f"these bytes are not a descriptor list: {e}") from e
    return descs


def _little(rows: "array[int]") -> bytes:
    if sys.byteorder == "big":
        rows = rows[:]
        rows.byteswap()
    return rows.tobytes()
