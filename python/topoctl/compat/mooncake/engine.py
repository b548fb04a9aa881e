"""mooncake.engine with topoctl's engine: the same calls, results and error values as the stock
wheel's. docs/mooncake-python.md lists what differs.
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
import re
import subprocess
import threading
from array import array
from typing import Any, BinaryIO, Dict, List, NamedTuple, Optional, Sequence, Set, Union

from topoctl import _lib, discover
from topoctl._buffers import Vector, vector
from topoctl._engine import Engine
from topoctl._program import program
from topoctl.compat import _environment
from topoctl.errors import Closed, Error, ProgramError, Status

__all__ = ["Read", "TransferEngine", "TransferNotify", "TransferOpcode", "Write"]

SUPPORT_CUDA = SUPPORT_EFA = SUPPORT_HIP = (
    False  # builds of the stock wheel with calls of their own
)
SUPPORT_INTRA_NVLINK = SUPPORT_MNNVL = SUPPORT_MUSA = False

_log = _environment.log("topoctl.mooncake")  # warnings go to standard error unless configured

_OK, _FAILED, _TIMED_OUT = 0, -1, -2
_DONE = 1  # of transfer_check_status
_NOT_REGISTERED, _OVERLAPS = -3, -7  # of registration
_BAD_NAME, _NO_ANSWER = -101, -102  # of send_probe

_P2P = "P2PHANDSHAKE"
_READ, _WRITE = 0, 1
_GRANT = 3  # peers may read and write what is registered
_WAIT_SLICE_NS = 50_000_000  # a wait comes back to Python this often: signals are handled there
_PROBE_SECONDS = 2.0


class TransferOpcode(enum.Enum):
    """Read copies from the peer to here, Write from here to the peer."""

    Read = 0
    Write = 1

    def __index__(self) -> int:
        return int(self.value)

    __int__ = __hash__ = __index__


Read, Write = TransferOpcode.Read, TransferOpcode.Write


class TransferNotify:
    """A message that a peer gets after the data of a transfer."""

    def __init__(self, name: str = "", msg: str = "") -> None:
        self.name = name
        self.msg = msg


class TransferEngine:
    """Memory of this process that peers read and write, and transfers to and from theirs.

    Peers are named by "host:port" with the peer's get_rpc_port(), IPv6 addresses in brackets. Many
    threads may use an engine at once. Calls that fail log why. Addresses and lengths are in bytes.

    Environment: see docs/mooncake-python.md.
    """

    def __init__(self) -> None:
        self._lib = _lib.load()
        self._timeout_ns = _transfer_timeout() * 10**9
        self._engine: Optional[Engine] = None
        self._handle = 0  # the engine's in the library, where 0 is none
        self._names: Set[str] = set()  # by which this engine is a peer
        self._by_address = True  # peers are named by address, not by a metadata server
        self._reached: Set[str] = set()  # peers that were there
        self._lock = threading.Lock()
        self._registered: Dict[int, int] = {}  # lengths by address, in the order of registration

    def initialize(
        self,
        local_hostname: str,
        metadata_server: str,
        protocol: str,
        device_name: Optional[str],
        /,
    ) -> int:
        """Opens the engine. local_hostname is what peers call this host; with a port, that port is
        listened at where it is free. metadata_server is "P2PHANDSHAKE", or
        http://host:port/metadata, by which local_hostname with its port becomes the engine's name
        for peers. With protocol "tcp" RDMA is not used, with any other it is where there is some.
        device_name lists the NICs that may be used, with commas; "" means all that carry data.

        On an address other than loopback, TOPOCTL_TOKEN_FILE names a file with the secret that the
        peers share, or TOPOCTL_INSECURE=1 says that none is wanted. Gives 0, or -1."""
        try:
            where = _Where.of(_text(local_hostname), _text(metadata_server))
            options = {**_carriers(_text(protocol), _text(device_name or "")), **where.options()}
            try:
                options["listen"] = where.listen(where.port)
                engine = Engine(**options)
            except Error as e:
                if not where.port:
                    raise
                options["listen"] = where.listen(0)
                engine = Engine(**options)
                _log.warning(
                    "port %d is not to be had (%s): peers reach %s", where.port, e, engine.address
                )
        except (Error, ValueError) as e:
            _log.error("initialize: %s", e)
            return _FAILED
        _environment.announce(engine, _log, "mooncake")
        with self._lock:
            old, self._engine = self._engine, engine
            self._handle = engine._handle
            self._names = where.names(engine.port)
            self._by_address = where.metadata == _P2P
            self._registered = {}
        if old is not None:
            old.close()
        return _OK

    def initialize_ext(
        self,
        local_hostname: str,
        metadata_server: str,
        protocol: str,
        device_name: Optional[str],
        metadata_type: str,
        /,
    ) -> int:
        """initialize with a metadata_server that may lack its scheme: metadata_type is it then."""
        server, scheme = _text(metadata_server), _text(metadata_type)
        if server != _P2P and "://" not in server:
            server = f"{scheme}://{server}"
        return self.initialize(local_hostname, server, protocol, device_name)

    def get_rpc_port(self) -> int:
        """The port that peers reach this engine at; -1 before initialize."""
        return max(int(self._lib.topoctl_port(self._handle)), _FAILED)

    # Memory.

    def register_memory(self, buffer_addr: int, capacity: int, location: str = "*") -> int:
        """Opens memory to transfers and to peers; it must stay mapped until it is unregistered. 0,
        -7 where it overlaps what is registered, else -1. location is not used: it is found out."""
        return self.batch_register_memory((buffer_addr,), (capacity,), location)

    def batch_register_memory(
        self, buffer_addresses: Numbers, capacities: Numbers, location: str = "*"
    ) -> int:
        """register_memory for many ranges, all or none of them."""
        _text(location)
        start, length = _vector(buffer_addresses), _vector(capacities)
        if start.count != length.count:
            _log.error("addresses: %d, capacities: %d: want as many", start.count, length.count)
            return _FAILED
        status = self._lib.topoctl_register(
            *(self._handle, start.count, start.address, length.address, None, _GRANT)
        )
        if status != Status.OK:
            _log.error("registering memory, ranges: %d: %s", start.count, self._error(status))
            return _OVERLAPS if status == Status.EXISTS else _FAILED
        with self._lock:
            self._registered.update(zip(start.owner, length.owner))
        return _OK

    def unregister_memory(self, buffer_addr: int, /) -> int:
        """Closes memory again. 0: no peer can touch it any more. -3: nothing was registered at this
        address. -1: a peer still could after 5 seconds; keep it mapped and call again."""
        return self.batch_unregister_memory((buffer_addr,))

    def batch_unregister_memory(self, buffer_addresses: Numbers, /) -> int:
        """unregister_memory for many addresses: -3 where some were not registered, -1 where memory
        of the others is still in use."""
        given = _vector(buffer_addresses).owner
        with self._lock:
            known = {a: self._registered.pop(a) for a in given if a in self._registered}
        missing = len(known) < len(given)
        if not known:
            return _NOT_REGISTERED if missing else _OK
        start = _vector(tuple(known))
        status = self._lib.topoctl_unregister(self._handle, start.count, start.address)
        if status != Status.OK:
            _log.error("unregistering memory, ranges: %d: %s", start.count, self._error(status))
            with self._lock:
                self._registered.update(known)
            return _FAILED
        return _NOT_REGISTERED if missing else _OK

    def allocate_managed_buffer(self, length: int, /) -> int:
        """The address of length bytes of registered memory that engines of one host share, which is
        the fastest way between processes; 0 where there are none to be had."""
        size = max(_number(length), 1)
        out = ctypes.c_uint64()
        status = self._lib.topoctl_alloc(self._handle, size, None, _GRANT, ctypes.byref(out))
        if status != Status.OK:
            _log.error("a managed buffer of %d bytes: %s", size, self._error(status))
            return 0
        address = out.value
        with self._lock:
            self._registered[address] = size
        return address

    def free_managed_buffer(self, buffer_addr: int, length: int, /) -> int:
        """Gives a managed buffer back: 0, or -1 if no buffer begins at this address."""
        address = _number(buffer_addr)
        status = self._lib.topoctl_free(self._handle, address)
        if status != Status.OK:
            _log.error("freeing a managed buffer: %s", self._error(status))
            return _FAILED
        with self._lock:
            self._registered.pop(address, None)
        return _OK

    def write_bytes_to_buffer(
        self, dest_address: int, data: Union[bytes, str], length: int, /
    ) -> int:
        """Copies the first length bytes of data to an address of this process. -1 where data is
        shorter, or the address is not mapped."""
        source = data.encode() if isinstance(data, str) else data
        if not isinstance(source, (bytes, bytearray)):
            raise TypeError(f"want bytes or a string, not {type(data).__name__}")
        size = _number(length)
        try:
            if size > len(source):
                raise ValueError(f"there are {len(source)}")
            with _own_memory() as memory:
                written = os.pwrite(memory.fileno(), source[:size], _number(dest_address))
        except (OSError, OverflowError, ValueError) as e:
            _log.error("writing %d bytes to %#x: %s", size, dest_address, e)
            return _FAILED
        return _OK if written == size else _FAILED

    def read_bytes_from_buffer(self, source_address: int, length: int, /) -> bytes:
        """length bytes at an address of this process; OSError where it is not mapped."""
        size = _number(length)
        with _own_memory() as memory:
            return os.pread(memory.fileno(), size, _number(source_address))

    def get_first_buffer_address(self, segment_name: str, /) -> int:
        """The memory that was registered first here, or the lowest that a peer offers; 0: none."""
        name = self._named(segment_name)
        if name in self._names:
            with self._lock:
                return next(iter(self._registered), 0)
        try:
            return next((r.address for r in self._open().peer_ranges(name)), 0)
        except Error as e:
            _log.error("memory of %s: %s", name, e)
            return 0

    # Transfers. buffer is the address here, peer_buffer_address that of the peer's memory. What a
    # call moves is registered on both sides. transport_hint is taken and not used.

    def transfer_sync_write(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        """Copies memory to the peer: 0 when all of it is there."""
        one = _one(buffer, peer_buffer_address, length)
        return self._sync(_WRITE, target_hostname, one)

    def transfer_sync_read(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        """Copies memory of the peer to here: 0 when all of it is there."""
        one = _one(buffer, peer_buffer_address, length)
        return self._sync(_READ, target_hostname, one)

    def transfer_sync(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        opcode: TransferOpcode,
        notify: Optional[TransferNotify] = None,
        transport_hint: str = "",
    ) -> int:
        """transfer_sync_read or transfer_sync_write. The peer gets notify after the data."""
        one = _one(buffer, peer_buffer_address, length)
        return self._sync(_op(opcode), target_hostname, one, notify)

    def batch_transfer_sync_write(
        self,
        target_hostname: str,
        buffers: Numbers,
        peer_buffer_addresses: Numbers,
        lengths: Numbers,
        transport_hint: str = "",
    ) -> int:
        """transfer_sync_write for many ranges at once: 0 when all of them are there."""
        many = _many(buffers, peer_buffer_addresses, lengths)
        return self._sync(_WRITE, target_hostname, many)

    def batch_transfer_sync_read(
        self,
        target_hostname: str,
        buffers: Numbers,
        peer_buffer_addresses: Numbers,
        lengths: Numbers,
        transport_hint: str = "",
    ) -> int:
        """transfer_sync_read for many ranges at once: 0 when all of them are there."""
        many = _many(buffers, peer_buffer_addresses, lengths)
        return self._sync(_READ, target_hostname, many)

    def batch_transfer_sync(
        self,
        target_hostname: str,
        buffers: Numbers,
        peer_buffer_addresses: Numbers,
        lengths: Numbers,
        opcode: TransferOpcode,
        notify: Optional[TransferNotify] = None,
        transport_hint: str = "",
    ) -> int:
        """transfer_sync for many ranges at once."""
        many = _many(buffers, peer_buffer_addresses, lengths)
        return self._sync(_op(opcode), target_hostname, many, notify)

    def batch_transfer_async_write(
        self,
        target_hostname: str,
        buffers: Numbers,
        peer_buffer_addresses: Numbers,
        lengths: Numbers,
        transport_hint: str = "",
    ) -> int:
        """Begins batch_transfer_sync_write and gives its number, for get_batch_transfer_status or
        transfer_check_status; 0 where it could not begin."""
        many = _many(buffers, peer_buffer_addresses, lengths)
        return max(self._submit(_WRITE, target_hostname, many), 0)

    def batch_transfer_async_read(
        self,
        target_hostname: str,
        buffers: Numbers,
        peer_buffer_addresses: Numbers,
        lengths: Numbers,
        transport_hint: str = "",
    ) -> int:
        """Begins batch_transfer_sync_read, as batch_transfer_async_write does."""
        many = _many(buffers, peer_buffer_addresses, lengths)
        return max(self._submit(_READ, target_hostname, many), 0)

    def batch_transfer_async(
        self,
        target_hostname: str,
        buffers: Numbers,
        peer_buffer_addresses: Numbers,
        lengths: Numbers,
        opcode: TransferOpcode,
        transport_hint: str = "",
    ) -> int:
        """batch_transfer_async_read or batch_transfer_async_write."""
        many = _many(buffers, peer_buffer_addresses, lengths)
        return max(self._submit(_op(opcode), target_hostname, many), 0)

    def transfer_submit_write(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        """Begins transfer_sync_write, as batch_transfer_async_write does."""
        one = _one(buffer, peer_buffer_address, length)
        return max(self._submit(_WRITE, target_hostname, one), 0)

    def get_batch_transfer_status(self, batch_ids: Numbers, /) -> int:
        """Waits until all batches have ended, or one has failed, and forgets them: 0, or -1 where
        one failed; those that still run then are canceled."""
        result = _OK
        for batch in dict.fromkeys(_vector(batch_ids).owner):
            if result == _OK:
                result = self._wait(batch)
            else:
                self._release(batch)
        return result

    def transfer_check_status(self, batch_id: int, /) -> int:
        """0 while the batch runs. Once it has ended: 1 done, -2 its time was up, -1 it failed
        otherwise; it is forgotten then, and a further call gives -1."""
        batch = _number(batch_id)
        status = self._lib.topoctl_poll(self._handle, batch)
        if status == Status.OK:
            return 0
        if status < 0:
            self._failed(f"batch {batch}", self._error(status))
        self._release(batch)
        if status == Status.DONE:
            return _DONE
        return _TIMED_OUT if status == Status.TIMEOUT else _FAILED

    def _sync(
        self,
        op: int,
        peer: str,
        ranges: Optional[_Ranges],
        notify: Optional[TransferNotify] = None,
    ) -> int:
        name, message = self._named(peer), _message(notify)
        if ranges is None:
            return _FAILED
        running = ctypes.c_int64()  # the batch, where it goes on after the call
        try:
            status = self._lib.topoctl_transfer(
                *(self._handle, name.encode(), op, ranges.entries),
                *(ranges.local, ranges.remote, ranges.lengths),
                *(message, len(message or b""), self._timeout_ns + ranges.bytes),
                *(_WAIT_SLICE_NS, ctypes.byref(running)),
            )
            if running.value:
                status = self._ended(running.value)
            if status < 0:
                self._failed(f"peer {name}, {ranges.bytes} bytes", self._error(status))
        finally:
            if running.value:
                self._release(running.value)  # after KeyboardInterrupt it is canceled
        return _OK if status >= 0 else _FAILED

    def _submit(
        self,
        op: int,
        peer: str,
        ranges: Optional[_Ranges],
        notify: Optional[TransferNotify] = None,
    ) -> int:
        """The batch, 0 where it could not begin: the peer is not there, for example."""
        name, message = self._named(peer), _message(notify)
        if ranges is None:
            return 0
        if name not in self._reached:
            if self._sync(op, name, _NO_RANGES) != _OK:
                return 0
            self._reached.add(name)
        batch = int(
            self._lib.topoctl_submit(
                *(self._handle, name.encode(), op, ranges.entries),
                *(ranges.local, ranges.remote, ranges.lengths),
                *(message, len(message or b""), self._timeout_ns + ranges.bytes),
            )
        )
        if batch < 0:
            _log.error("peer %s, %d bytes: %s", name, ranges.bytes, self._error(batch))
        return max(batch, 0)

    def _wait(self, batch: int) -> int:
        """0 when all is in place, -1 when it failed; it is forgotten then."""
        try:
            status = self._ended(batch)
            if status < 0:
                self._failed(f"batch {batch}", self._error(status))
        finally:
            self._release(batch)  # where it still runs, as after KeyboardInterrupt, it is canceled
        return _OK if status >= 0 else _FAILED

    def _ended(self, batch: int) -> int:
        """The status of a batch, once it has ended."""
        one = array("q", (batch,))
        status = 0
        while status == Status.OK:
            at = one.buffer_info()[0]
            status = int(self._lib.topoctl_wait(self._handle, 1, at, _WAIT_SLICE_NS))
            if status != Status.TIMEOUT:
                break
            status = int(self._lib.topoctl_poll(self._handle, batch))  # its own, or of this wait
        return status

    def _release(self, batch: int) -> None:
        status = self._lib.topoctl_release(self._handle, batch)
        if status == Status.UNSAFE:
            self._failed(f"batch {batch}", self._error(status))

    def _failed(self, what: str, error: Error) -> None:
        refused = ""
        if error.status == Status.UNSAFE:
            refused = "; that memory is refused until no byte can arrive"
        _log.error("%s: %s%s", what, error, refused)

    # Peers.

    def _named(self, peer: str) -> str:
        """The peer's name, with the brackets that callers (vllm-ascend) leave out."""
        name = _text(peer)
        host, _, port = name.rpartition(":")
        if self._by_address and ":" in host and host[0] != "[":
            return f"[{host}]:{port}"
        return name

    def send_probe(self, peer_server_name: str) -> int:
        """0 where the peer answers, -101 where the name has no port, else -102."""
        name = self._named(peer_server_name)
        if not re.search(r":\d+$", name):
            return _BAD_NAME
        try:
            self._open().probe(name, _PROBE_SECONDS)
        except Error as e:
            _log.error("probe of %s: %s", name, e)
            return _NO_ANSWER if self._engine else _FAILED
        return _OK

    def get_notifies(self) -> List[TransferNotify]:
        """What peers sent since the last call, oldest first."""
        try:
            return [_notify_of(n.sender, n.message) for n in self._open().notifications()]
        except Error as e:
            _log.error("notifications: %s", e)
            return []

    def get_local_topology(self, device_name: Optional[str] = None) -> str:
        """The RDMA devices for memory of each location, as JSON: those that are preferred, and the
        others. device_name lists, with commas, those that alone are wanted."""
        devices = _text(device_name or "")
        matrix = _matrix()
        if devices:
            for lists in matrix.values():
                lists[:] = [[d for d in names if d in devices.split(",")] for names in lists]
        return json.dumps(matrix, indent="\t") + "\n"

    def warmup_efa_segment(self, segment_name: str) -> int:
        """Does nothing."""
        _text(segment_name)
        return _OK

    def get_engine(self) -> None:
        """None: the stock mooncake.store, to which callers hand this, makes its own engine then."""

    def get_engine_ptr(self) -> int:
        """0, as get_engine."""
        return 0

    def _open(self) -> Engine:
        if self._engine is None:
            raise _unopened()
        return self._engine

    def _error(self, status: int) -> Error:
        """Why the library gave this status to this thread."""
        return _lib.error(status) if self._handle else _unopened()


TransferEngine.TransferOpcode = TransferOpcode  # type: ignore[attr-defined]


def _unopened() -> Closed:
    return Closed("initialize was not called, or failed")


class _Where(NamedTuple):
    """Where an engine is, as initialize is told."""

    host: str
    port: int  # 0: any
    metadata: str
    name: str

    @classmethod
    def of(cls, hostname: str, metadata: str) -> _Where:
        if metadata != _P2P and not metadata.startswith(("http://", "https://")):
            raise ValueError(
                f"metadata server {metadata!r}: want {_P2P} or http://host:port/metadata"
            )
        match = re.fullmatch(r"\[(.+)\](?::(\d+))?|([^:]*):(\d+)", hostname)
        if match is None:  # a host, or an IPv6 address without brackets
            return cls(hostname, 0, metadata, hostname)
        host, port = match[1] or match[3] or "", int(match[2] or match[4] or 0)
        return cls(host, port, metadata, hostname)

    def options(self) -> Dict[str, Any]:
        """Arguments of Engine: those that the environment does not overrule."""
        options = _environment.options()
        if not (_environment.loopback(self.host) or _environment.guarded(options)):
            raise ValueError(
                f"peers on other hosts could read and write memory at {self.host!r}: "
                + _environment.ADVICE
            )
        if self.host not in ("", "0.0.0.0", "::"):
            options.setdefault("advertise", self.host)
        if self.metadata != _P2P:
            options.update(name=self.name, compat=["mooncake"], metadata=self.metadata)
        elif os.environ.get("TOPOCTL_COMPAT"):
            options.update(compat=os.environ["TOPOCTL_COMPAT"].split(","), metadata=_P2P)
        return options

    def listen(self, port: int) -> List[str]:
        """On all addresses, unless it is loopback."""
        given = os.environ.get("TOPOCTL_LISTEN")
        if given:
            return given.split(",")
        host = self._bracketed() if _environment.loopback(self.host) else ""
        return [f"{host}:{port}"]

    def names(self, port: int) -> Set[str]:
        return {f"{self._bracketed()}:{port}"} | ({self.name} if self.metadata != _P2P else set())

    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def _carriers(protocol: str, devices: str) -> Dict[str, Any]:
    """Arguments of Engine that say what carries data."""
    if protocol == "xgmi":
        raise ValueError("protocol xgmi: the stock engine has none of this name either")
    options: Dict[str, Any] = {}
    if protocol == "tcp" or os.environ.get("MC_FORCE_TCP") == "1":
        options["transports"] = ["shm", "tcp"]
    names = [name.strip() for name in devices.split(",") if name.strip()]
    if names:
        options["devices"] = names
    return options


def _transfer_timeout() -> int:
    """MC_TRANSFER_TIMEOUT in seconds, read as the stock engine does."""
    given = os.environ.get("MC_TRANSFER_TIMEOUT")
    if given is None:
        return 30
    number = re.match(r"\s*[+-]?\d+", given)
    return max(int(number[0]) if number else 0, 5)


class _Ranges(NamedTuple):
    """What a batch moves: the addresses of its three lists, which owner keeps there."""

    entries: int
    local: Optional[int]
    remote: Optional[int]
    lengths: Optional[int]
    bytes: int
    owner: Any


_NO_RANGES = _Ranges(0, None, None, None, 0, None)


def _one(local: int, remote: int, length: int) -> _Ranges:
    """Without what lists need: LMCache sends each page by a call of its own."""
    try:
        numbers = array("Q", (local, remote, length))
    except OverflowError as e:
        raise TypeError(f"want numbers from 0 to 2**64 - 1: {e}") from None
    at = numbers.buffer_info()[0]
    return _Ranges(1, at, at + 8, at + 16, numbers[2], numbers)


def _many(local: Numbers, remote: Numbers, lengths: Numbers) -> Optional[_Ranges]:
    """None where the lists differ in length."""
    here, there, length = _vector(local), _vector(remote), _vector(lengths)
    if not here.count == there.count == length.count:
        _log.error(
            *("buffers: %d, of the peer: %d, lengths: %d: want as many of each", here.count),
            *(there.count, length.count),
        )
        return None
    return _Ranges(
        *(here.count, here.address, there.address, length.address),
        *(sum(length.owner), (here, there, length)),
    )


Numbers = Union[Sequence[int], Any]  # a sequence, or a buffer of integers (numpy array)


def _vector(numbers: Numbers) -> Vector:
    """Addresses or lengths for the library; TypeError for anything else."""
    if isinstance(numbers, (bytes, bytearray, str)):
        raise TypeError(f"want a list of numbers, not {type(numbers).__name__}")
    try:
        return vector(numbers, "Q")
    except ValueError as e:
        raise TypeError(str(e)) from None


def _number(value: int) -> int:
    return int(_vector((value,)).owner[0])


def _text(value: Union[str, bytes]) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        return value
    raise TypeError(f"want a string, not {type(value).__name__}")


def _op(opcode: TransferOpcode) -> int:
    if not isinstance(opcode, TransferOpcode):
        raise TypeError(f"want a TransferOpcode, not {type(opcode).__name__}")
    return int(opcode.value)


def _message(notify: Optional[TransferNotify]) -> Optional[bytes]:
    """A notification as Mooncake's own protocol has it."""
    if notify is None:
        return None
    if not isinstance(notify, TransferNotify):
        raise TypeError(f"want a TransferNotify, not {type(notify).__name__}")
    return json.dumps({"name": _text(notify.name), "notify_msg": _text(notify.msg)}).encode()


def _notify_of(sender: str, message: bytes) -> TransferNotify:
    """What _message made; of other programs' messages the sender is the name."""
    text = message.decode(errors="replace")
    try:
        fields = json.loads(text)
        return TransferNotify(_text(fields["name"]), _text(fields["notify_msg"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return TransferNotify(sender, text)


def _own_memory() -> BinaryIO:
    """This process's memory as a file, in which a bad address is an error and no crash."""
    return open("/proc/self/mem", "r+b", buffering=0)


def _matrix() -> Dict[str, List[List[str]]]:
    """The stock engine's matrix of NICs. On a host without RDMA there are none in it."""
    host = discover()
    if not host.rdma_devices:
        return {node.id.replace("numa", "cpu"): [[], []] for node in host.of_kind("numa")}
    command = [program(), "export", "mooncake", "--from=-"]
    done = subprocess.run(
        command,
        input=json.dumps(host.raw),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if not done.stdout:
        raise ProgramError(done.stderr.strip(), done.returncode)
    return dict(json.loads(done.stdout))
