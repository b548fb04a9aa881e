"""The engine: memory that peers read and write, and batches that move it."""

from __future__ import annotations

import array
import asyncio
import atexit
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import enum
import itertools
import json
import numbers
import operator
import os
import select
import struct
import threading
import time
import weakref
from collections import deque
from typing import Any, AsyncIterator, Callable, Coroutine, Deque, Dict, Generator, Iterable, List
from typing import Mapping, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar, Union
from typing import TYPE_CHECKING, cast

from . import _lib
from ._buffers import Numbers, Range, Vector, destination, memory_of, table, vector
from .errors import Canceled, Closed, Error, InvalidArgument, Status, Timeout

if TYPE_CHECKING:
    from .documents import EngineDocument, ExplainDocument

_WAIT_SLICE_NS = 50_000_000  # a wait comes back to Python this often: signals are handled there
_LOOKS = 64  # at so many batches a loop looks in a row
_SPIN_SECONDS = 200e-6  # an await looks again at once for so long: most small batches have ended then
_READ, _WRITE = 0, 1
_T = TypeVar("_T")


class Grant(enum.Flag):
    """What peers may do with memory."""

    NONE = 0
    READ = 1
    WRITE = 2
    ALL = 3


@dataclasses.dataclass(frozen=True)
class Telemetry:
    """What a batch did so far: when it was submitted (nanoseconds since 1970), how long submit and
    the whole took, to the end or to now (nanoseconds), the bytes that are in place, the operations
    that it was made of, and the slices of them that were sent again."""

    start_unix_ns: int
    post_ns: int
    duration_ns: int
    bytes: int
    ops: int
    retries: int


@dataclasses.dataclass(frozen=True)
class Notification:
    """A message of a peer: what the sender calls itself, the message, and what the sender has
    proven to be, the name of its certificate or token, "" without one."""

    sender: str
    message: bytes
    proven: str


@dataclasses.dataclass(frozen=True)
class Named:
    """A region of Engine(regions=...): its length in bytes, what peers may do, and the NUMA node
    that it is on ("cpu:0"; None: any)."""

    length: int
    grant: Grant = Grant.ALL
    location: Optional[str] = None


class Engine:
    """Registers memory, serves it to peers, and moves bytes between this memory and theirs. Many
    threads may use an engine at once.

    Options, all of which may be left out:
      name             what the engine calls itself; default host:pid
      listen           list of host:port to listen at; default ["127.0.0.1:0"], a free port that
                       only this host reaches
      advertise        host, or host:port, to tell peers
      token_file       file with the secret that peers share, of 16 bytes or more
      cert_file, key_file, ca_file   this engine's certificate, its key, and the CAs of its peers'
                       certificates, as PEM; files that change are read again
      insecure         True: other hosts may connect without token or certificate
      registry         registry in which engines find each other by name, such as
                       "etcd://host1,host2/prefix"
      serves           with registry: list of words that tell others what this engine is for
      regions          {"kv": bytes} or {"kv": Named(bytes, grant, location)}: memory that is there
                       before a peer can open the engine: see region() and find()
      answer           True: this program answers the calls of peers: see calls()
      devices          list of RDMA devices or netdevs that may be used; default all that carry data
      transports       list of "shm", "rdma", "tcp"; default all, in this order
      protection       what data over TCP has at least: "open", "headers", "payload" or "sealed";
                       default "headers" with a token or certificate, else "open"
      compat           ["mooncake"]: also speak Mooncake's classic protocol
      metadata         with compat: "P2PHANDSHAKE" (default) or http://host:port/metadata
      topology         "discover" (default), "none", or a file with a topology document
      local_rank, local_size   which of how many engines of this host this is
      default_timeout  seconds that a batch may take without a timeout of its own; default 30
      give_up          seconds after which a peer that does not answer is lost; default 10. One whose
                       host refuses connections is lost at once
      http             host:port to serve metrics at; with port 0, stats()["http"] has the address
      log              "error" (default), "warn", "info" or "debug", to standard error

    A peer is named by host:port, by its name in the registry, or by the name that add_peer gave. It
    is opened by the first batch that uses it, and again after it was lost.

    A method that gives a Batch does not wait for the peer: Batch.wait or await does. Its timeout, in
    seconds, bounds the batch, and the opening of the peer. notify is a message that the peer gets by
    notifications() after the data is in place. Addresses are absolute: here as range_of gives them,
    at the peer as the peer, or find, tells them.

    Methods raise the classes of topoctl.errors, TypeError for a wrong type, and ValueError for a wrong
    value, in which case nothing was begun.
    """

    _handle = 0

    def __init__(
        self,
        *,
        name: Optional[str] = None,
        listen: Optional[Sequence[str]] = None,
        advertise: Optional[str] = None,
        token_file: Optional[str] = None,
        cert_file: Optional[str] = None,
        key_file: Optional[str] = None,
        ca_file: Optional[str] = None,
        insecure: Optional[bool] = None,
        registry: Optional[str] = None,
        serves: Optional[Sequence[str]] = None,
        regions: Optional[Mapping[str, Union[int, Named]]] = None,
        answer: Optional[bool] = None,
        devices: Optional[Sequence[str]] = None,
        transports: Optional[Sequence[str]] = None,
        protection: Optional[str] = None,
        compat: Optional[Sequence[str]] = None,
        metadata: Optional[str] = None,
        topology: Optional[str] = None,
        local_rank: Optional[int] = None,
        local_size: Optional[int] = None,
        default_timeout: Optional[float] = None,
        give_up: Optional[float] = None,
        http: Optional[str] = None,
        log: Optional[str] = None,
    ) -> None:
        options = {
            "name": name,
            "listen": listen,
            "advertise": advertise,
            "token_file": token_file,
            "cert_file": cert_file,
            "key_file": key_file,
            "ca_file": ca_file,
            "insecure": insecure,
            "registry": registry,
            "serves": serves,
            "regions": None if regions is None else [_named(*item) for item in regions.items()],
            "answer": answer,
            "devices": devices,
            "transports": transports,
            "protection": protection,
            "compat": compat,
            "metadata": metadata,
            "topology": topology,
            "local_rank": local_rank,
            "local_size": local_size,
            "default_timeout_ns": None if default_timeout is None else _ns(default_timeout),
            "give_up_ns": None if give_up is None else _ns(give_up),
            "http": http,
            "log": log,
        }
        given = {key: value for key, value in options.items() if value is not None}
        lists = dict(
            listen=listen, serves=serves, devices=devices, transports=transports, compat=compat
        )
        for key, items in lists.items():
            if isinstance(items, str):
                raise TypeError(f"{key} is a list of str: want [{items!r}]")
            for item in items or ():
                _text(item, f"an item of {key}")
        self._lib = _lib.load()
        self._regions: Dict[Region, Any] = {}  # with what holds their memory, until they are closed
        self._dropped: Deque[int] = deque()  # batches that no one has a reference to
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _News]
        self._loops = weakref.WeakKeyDictionary()
        self._views: Set[int] = set()  # of alloc and region, by their id
        self._lingering = 0  # the handle from close() on until those are gone
        self._handle = _lib.check(self._lib.topoctl_open(json.dumps(given).encode()))
        _engines.add(self)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Cancels what runs, closes all connections and gives registered memory back. While memory
        of alloc or region is still viewed, that memory stays open to peers, and the engine is gone
        with the last view."""
        handle, self._handle = self._handle, 0
        if not handle or _lib.forked():
            return
        for news in tuple(self._loops.values()):
            news.close()
        if self._views:
            self._lingering = handle
            for region in tuple(self._regions):
                region._unregister(handle)
        else:
            self._end(handle)

    def _end(self, handle: int) -> None:
        status = self._lib.topoctl_close(handle)
        if status == Status.UNSAFE:
            _unsafe.append(self._regions)
        self._regions = {}
        if status != Status.NO_HANDLE:  # another thread was first
            _lib.check(status)

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return not self._handle

    @property
    def name(self) -> str:
        """What the engine calls itself."""
        return _lib.fill(self._lib.topoctl_name, self._handle).decode()

    @property
    def address(self) -> str:
        """host:port by which peers reach this engine."""
        return _lib.fill(self._lib.topoctl_address, self._handle).decode()

    @property
    def port(self) -> int:
        """The port that the engine listens at."""
        return _lib.check(self._lib.topoctl_port(self._handle))

    def stats(self) -> EngineDocument:
        """Peers, lanes and what was moved: the document topoctl.engine/v1."""
        text = _lib.fill(self._lib.topoctl_stats, self._handle, capacity=1 << 16)
        return cast("EngineDocument", json.loads(text))

    # Memory.

    def register(
        self, *things: Any, grant: Grant = Grant.ALL, location: Optional[str] = None
    ) -> Region:
        """Registers the memory of buffers, numpy arrays or torch tensors, all or none. The engine
        holds references to them until the region is closed. location is "cpu:0" or "gpu:3"; None
        finds it out. TypeError for a read-only buffer that peers may write to, Exists for memory
        that is registered."""
        memories = [memory_of(thing) for thing in things]
        if grant & Grant.WRITE:
            for memory in memories:
                destination(memory)
        return self.register_ranges(
            [memory.address for memory in memories],
            [memory.length for memory in memories],
            grant=grant,
            location=location,
            owner=[memory.owner for memory in memories],
        )

    def register_ranges(
        self,
        addresses: Numbers,
        lengths: Numbers,
        *,
        grant: Grant = Grant.ALL,
        location: Optional[str] = None,
        owner: Any = None,
    ) -> Region:
        """Registers memory by addresses and lengths in bytes. It must stay mapped until the region
        is closed: owner is an object that keeps it mapped, None where the caller does."""
        start, length = vector(addresses, "Q"), vector(lengths, "Q")
        _same_count(start, length)
        region = Region(self, start)
        self._regions[region] = owner  # before the call, after which an interrupt may come
        status = self._lib.topoctl_register(
            *(self._handle, start.count, start.address, length.address),
            *(_encoded(location, "a location"), _granted(grant)),
        )
        if status < 0:
            del self._regions[region]
            raise _lib.error(status)
        return region

    def alloc(
        self, length: int, *, grant: Grant = Grant.ALL, location: Optional[str] = None
    ) -> memoryview:
        """Allocates length bytes and registers them. Engines of this host share such memory, which
        is the fastest way between processes. location is "cpu:0"; None is any NUMA node. The
        memory is freed with its last view: the memoryview, slices of it, and arrays made of it
        (numpy.frombuffer, torch.frombuffer). NoMemory where the system has not so much."""
        length = operator.index(length)
        if not 1 <= length < 1 << 63:
            raise InvalidArgument(f"alloc({length}): want 1 to 2**63 - 1 bytes")
        out = ctypes.c_uint64()
        _lib.check(
            self._lib.topoctl_alloc(
                *(self._handle, length, _encoded(location, "a location")),
                *(_granted(grant), ctypes.byref(out)),
            )
        )
        return self._view(out.value, length, out.value)

    def region(self, name: str) -> memoryview:
        """The memory of a region of Engine(regions=...), which stays until the engine is closed and
        no view is left. NoRegion where none has that name."""
        address, length = ctypes.c_uint64(), ctypes.c_uint64()
        _lib.check(
            self._lib.topoctl_region(
                *(self._handle, _text(name, "a region's name")),
                *(ctypes.byref(address), ctypes.byref(length)),
            )
        )
        return self._view(address.value, length.value, None)

    def _view(self, address: int, length: int, free: Optional[int]) -> memoryview:
        """Memory of the engine, which frees what is at that address with the last view."""
        block = (ctypes.c_ubyte * length).from_address(address)
        self._views.add(id(block))
        weakref.finalize(block, self._unview, id(block), free).atexit = False
        return memoryview(block).cast("B")

    def _unview(self, view: int, free: Optional[int]) -> None:
        if _lib.forked():
            return
        self._views.discard(view)
        if free is not None:
            self._lib.topoctl_free(self._handle or self._lingering, free)
        if self._lingering and not self._views:
            self._end(self._lingering)

    # Peers.

    def open(self, peer: str, timeout: Optional[float] = None) -> Batch[None]:
        """Opens the peer, as the first batch with it does: the batch has ended when it is open."""
        return self._submit(_READ, peer, (), (), (), None, timeout)

    def probe(self, peer: str, timeout: Optional[float] = None) -> None:
        """Waits until the peer answers; NoPeer if it does not within timeout seconds. In asyncio:
        await call(peer, b"")."""
        self.call(peer, b"", timeout=timeout).wait()

    def metadata(self) -> bytes:
        """What add_peer of another engine takes: name, addresses and epoch of this one, as JSON."""
        return _lib.fill(self._lib.topoctl_metadata, self._handle, capacity=1 << 16)

    def add_peer(self, metadata: bytes) -> str:
        """Makes another engine known by its metadata(), and gives its name: a peer's name from then
        on. After a restart PeerLost is raised until its new metadata was added."""
        name = _lib.fill(self._lib.topoctl_add_peer, self._handle, *_message(metadata))
        return name.decode()

    def remove_peer(self, peer: str) -> None:
        """Forgets a peer and closes the connections to it; its batches are canceled."""
        _lib.check(self._lib.topoctl_remove_peer(self._handle, _peer(peer)))

    def peer_ranges(self, peer: str) -> List[Range]:
        """Waits for ranges(peer)."""
        return self.ranges(peer).wait()

    def ranges(self, peer: str, *, timeout: Optional[float] = None) -> Batch[List[Range]]:
        """Asks the peer which memory it offers to this engine: the batch's result, in the order of
        addresses."""
        handle = self._lib.topoctl_peer_ranges(self._handle, _peer(peer), _ns(timeout))
        return self._batch(_lib.check(handle), _ranges)

    def find(self, peer: str, region: str, *, timeout: Optional[float] = None) -> Batch[Range]:
        """Finds a region of the peer by its name: the batch's result. It waits for a peer that is
        not there yet, or was lost, and for a region that the peer does not offer yet; after
        timeout seconds it ends with NoPeer or NoRegion."""
        arguments = _peer(peer), _text(region, "a region's name"), _ns(timeout)
        handle = self._lib.topoctl_find(self._handle, *arguments)
        return self._batch(_lib.check(handle), lambda packed: _ranges(packed)[0])

    # Transfers.

    def read(
        self,
        peer: str,
        into: Any,
        remote: Union[int, Sequence[int]],
        *,
        notify: Optional[bytes] = None,
        timeout: Optional[float] = None,
    ) -> Batch[None]:
        """Fills a buffer from the peer's memory at address remote, or a list of buffers from a list
        of addresses. The buffers lie in registered memory."""
        return self._submit_buffers(_READ, peer, into, remote, notify, timeout)

    def write(
        self,
        peer: str,
        source: Any,
        remote: Union[int, Sequence[int]],
        *,
        notify: Optional[bytes] = None,
        timeout: Optional[float] = None,
    ) -> Batch[None]:
        """Writes a buffer to the peer's memory at address remote, or a list of buffers to a list of
        addresses. The buffers lie in registered memory."""
        return self._submit_buffers(_WRITE, peer, source, remote, notify, timeout)

    def _submit_buffers(
        self, op: int, peer: str, buffers: Any, remote: Any, notify: Any, timeout: Any
    ) -> Batch[None]:
        if isinstance(remote, numbers.Number):  # a float is refused below
            buffers, remote = [buffers], [remote]
        elif remote is None or isinstance(remote, str):
            raise TypeError(f"want an address or a list of them, not {type(remote).__name__}")
        memories = [memory_of(buffer) for buffer in buffers]
        if op == _READ:
            for memory in memories:
                destination(memory)
        local = [memory.address for memory in memories]
        lengths = [memory.length for memory in memories]
        return self._submit(op, peer, local, remote, lengths, notify, timeout)

    def read_ranges(
        self,
        peer: str,
        local: Numbers,
        remote: Numbers,
        lengths: Numbers,
        *,
        notify: Optional[bytes] = None,
        timeout: Optional[float] = None,
    ) -> Batch[None]:
        """Reads by address: lengths[i] bytes from remote[i] to local[i], for all i."""
        return self._submit(_READ, peer, local, remote, lengths, notify, timeout)

    def write_ranges(
        self,
        peer: str,
        local: Numbers,
        remote: Numbers,
        lengths: Numbers,
        *,
        notify: Optional[bytes] = None,
        timeout: Optional[float] = None,
    ) -> Batch[None]:
        """Writes by address: lengths[i] bytes from local[i] to remote[i], for all i."""
        return self._submit(_WRITE, peer, local, remote, lengths, notify, timeout)

    def _submit(
        self,
        op: int,
        peer: str,
        local: Numbers,
        remote: Numbers,
        lengths: Numbers,
        notify: Optional[bytes],
        timeout: Optional[float],
    ) -> Batch[None]:
        here, there, length = vector(local, "Q"), vector(remote, "Q"), vector(lengths, "Q")
        _same_count(here, there, length)
        arguments = (
            *(_peer(peer), op, here.count, here.address, there.address, length.address),
            *(*_message(notify), _ns(timeout)),
        )
        return self._batch(_lib.check(self._lib.topoctl_submit(self._handle, *arguments)), _nothing)

    def range_list(
        self, addresses: Any, lengths: Optional[Numbers] = None, *, peer: Optional[str] = None
    ) -> RangeList:
        """Keeps a list of ranges in the library, of this engine or of a peer, from which
        read_picked and write_picked pick by index: two lists of numbers, or one table of 64-bit
        integers with columns address, length, and at most one more that is not looked at."""
        ranges = table(addresses, lengths)
        handle = self._lib.topoctl_list(
            *(self._handle, _encoded(peer, "a peer's name"), ranges.count),
            *(ranges.addresses, ranges.lengths, ranges.stride),
        )
        return RangeList(self, _lib.check(handle), ranges.count, peer or "")

    def read_picked(
        self,
        local: RangeList,
        remote: RangeList,
        local_index: Optional[Numbers] = None,
        remote_index: Optional[Numbers] = None,
        *,
        notify: Optional[bytes] = None,
        timeout: Optional[float] = None,
    ) -> Batch[None]:
        """Reads entry remote_index[k] of the peer's list into entry local_index[k] of ours, for all
        k. Without an index the entries are taken in their order."""
        return self._submit_picked(
            _READ, local, remote, local_index, remote_index, notify, timeout
        )

    def write_picked(
        self,
        local: RangeList,
        remote: RangeList,
        local_index: Optional[Numbers] = None,
        remote_index: Optional[Numbers] = None,
        *,
        notify: Optional[bytes] = None,
        timeout: Optional[float] = None,
    ) -> Batch[None]:
        """Writes entry local_index[k] of our list to entry remote_index[k] of the peer's, for all
        k. Without an index the entries are taken in their order."""
        return self._submit_picked(
            _WRITE, local, remote, local_index, remote_index, notify, timeout
        )

    def _submit_picked(
        self,
        op: int,
        local: RangeList,
        remote: RangeList,
        local_index: Optional[Numbers],
        remote_index: Optional[Numbers],
        notify: Optional[bytes],
        timeout: Optional[float],
    ) -> Batch[None]:
        none = Vector(None, 0, None)
        here = none if local_index is None else vector(local_index, "q")
        there = none if remote_index is None else vector(remote_index, "q")
        if local_index is not None and remote_index is not None:
            _same_count(here, there)
        elif local_index is None and remote_index is None and len(local) != len(remote):
            raise ValueError(f"lists of {len(local)} and {len(remote)} entries")
        count = here.count or there.count
        if local_index is None and remote_index is None:
            count = len(local)
        arguments = (
            *(op, local._handle, here.address, remote._handle, there.address, count),
            *(*_message(notify), _ns(timeout)),
        )
        handle = self._lib.topoctl_submit_lists(self._handle, *arguments)
        return self._batch(_lib.check(handle), _nothing)

    def _batch(self, handle: int, result: Callable[[bytes], _T]) -> Batch[_T]:
        batch = Batch(self, handle, result)
        # Two for each that comes, so that they do not pile up.
        for _ in range(min(2, len(self._dropped))):
            self._release_dropped()
        return batch

    def _release_dropped(self) -> None:
        """Forgets the oldest batch that no one has a reference to, if it has ended."""
        try:
            handle = self._dropped.popleft()
        except IndexError:  # another thread was first
            return
        if self._lib.topoctl_poll(self._handle, handle) == Status.OK:
            self._dropped.append(handle)
        else:
            self._lib.topoctl_release(self._handle, handle)

    def wait(self, batches: Iterable[Batch[Any]], timeout: Optional[float] = None) -> None:
        """Waits until all batches have ended, then raises why the first failed one did. Timeout
        where one still runs after timeout seconds: it goes on. Signals are handled within 50
        ms."""
        batches = tuple(batches)
        for batch in batches:
            if not isinstance(batch, Batch):
                raise TypeError(f"want batches, not {type(batch).__name__}")
        deadline = None if timeout is None else time.monotonic_ns() + _ns(timeout)
        running = [batch for batch in batches if not batch._ended]
        while running:
            handles = array.array("q", [batch._handle for batch in running])
            left = _WAIT_SLICE_NS
            if deadline is not None:
                left = min(left, max(deadline - time.monotonic_ns(), 1))
            status = self._lib.topoctl_wait(
                self._handle, len(handles), handles.buffer_info()[0], left
            )
            if status == Status.OK:
                for batch in running:
                    batch._look()
                break
            running = [batch for batch in running if not batch._look()]
            if running and deadline is not None and time.monotonic_ns() >= deadline:
                raise Timeout(f"{len(running)} of {len(batches)} batches still run")
        for batch in batches:
            batch.poll()  # raises

    # Messages. Both may be awaited as they come: "async for n in engine.watch_notifications()".

    def notify(self, peer: str, message: bytes, *, timeout: Optional[float] = None) -> None:
        """Waits for send(peer, message)."""
        self.send(peer, message, timeout=timeout).wait()

    def send(self, peer: str, message: bytes, *, timeout: Optional[float] = None) -> Batch[None]:
        """Sends a message of at most 1 MiB, which the peer gets by notifications(): the batch has
        ended when it has arrived. While those that wait there take all their memory, it waits, too."""
        return self._submit(_WRITE, peer, (), (), (), _given(message), timeout)

    def notifications(self, timeout: float = 0) -> List[Notification]:
        """Messages of peers since the last call, oldest first. Where there are none it waits for
        the first, for timeout seconds at most."""
        return self._come(self._notifications, timeout)

    def call(
        self, peer: str, request: bytes, *, timeout: Optional[float] = None
    ) -> Batch[bytes]:
        """Sends a request of at most 1 MiB to the peer's program (Engine(answer=True), calls()),
        where it arrives at most once. The batch's result is the answer, its error Refused where
        the program refuses. An empty request asks whether the peer is there: every engine answers
        it."""
        arguments = _peer(peer), *_message(_given(request)), _ns(timeout)
        handle = self._lib.topoctl_call(self._handle, *arguments)
        return self._batch(_lib.check(handle), bytes)

    def calls(self, timeout: float = 0) -> List[Call]:
        """Calls of peers since the last time, oldest first; each waits for its answer. Where there
        are none it waits for the first, for timeout seconds at most."""
        return self._come(self._calls, timeout)

    async def watch_notifications(self) -> AsyncIterator[Notification]:
        """All notifications, as they come, until the engine is closed."""
        async for notification in self._watch(self._notifications):
            yield notification

    async def watch_calls(self) -> AsyncIterator[Call]:
        """All calls of peers, as they come, until the engine is closed."""
        async for call in self._watch(self._calls):
            yield call

    def _notifications(self) -> List[Notification]:
        packed = self._packed(self._lib.topoctl_notifications)
        return [Notification(sender, message, proven) for _, sender, proven, message in packed]

    def _calls(self) -> List[Call]:
        return [Call(self, *fields) for fields in self._packed(self._lib.topoctl_calls)]

    def _packed(self, function: Any) -> List[Tuple[int, str, str, bytes]]:
        """Number, sender, what it has proven, and message, of each."""
        came: List[Tuple[int, str, str, bytes]] = []
        capacity = 1 << 16
        while True:
            out = ctypes.create_string_buffer(capacity)
            length = function(self._handle, out, capacity)
            if length == Status.LIMIT:  # even the first needs more
                capacity *= 2
            elif _lib.check(length):
                came.extend(_unpacked(out.raw[:length]))
            else:
                return came

    def _come(self, take: Callable[[], List[_T]], timeout: float) -> List[_T]:
        came = take()
        if came or not timeout:
            return came
        deadline = time.monotonic() + timeout
        fd = _lib.check(self._lib.topoctl_event_fd(self._handle))
        try:
            readable = select.poll()
            readable.register(fd, select.POLLIN)
            while not came and (left := deadline - time.monotonic()) > 0:
                if readable.poll(left * 1e3):
                    os.read(fd, 8)
                came = take()
        finally:
            self._lib.topoctl_event_close(self._handle, fd)
        return came

    async def _watch(self, take: Callable[[], List[_T]]) -> AsyncIterator[_T]:
        while not self.closed:
            news = self._news().next()
            for one in take():
                yield one
            await asyncio.shield(news)

    def _news(self) -> _News:
        """What tells the running loop of this engine's news, from now on."""
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops[loop] = _News(self, loop)
        return self._loops[loop]


class _News:
    """The engine's event descriptor in one event loop."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._fd = _lib.check(engine._lib.topoctl_event_fd(engine._handle))
        self._loop = weakref.ref(loop)
        self._next: Optional[asyncio.Future[None]] = None
        self._waits: Dict[asyncio.Future[None], Batch[Any]] = {}
        self._looking = self._again = False
        loop.add_reader(self._fd, self._came)
        # A loop that is gone, as each of asyncio.run is, leaves nothing behind.
        close = engine._lib.topoctl_event_close
        self._gone = weakref.finalize(loop, close, engine._handle, self._fd)
        self._gone.atexit = False

    def next(self) -> asyncio.Future[None]:
        """Is done when something has come, or the engine is closed."""
        if self._next is None:
            loop = self._loop()
            assert loop is not None
            self._next = loop.create_future()
        return self._next

    async def ended(self, batch: Batch[Any]) -> None:
        """Returns when the batch may have ended, or the engine is closed."""
        future = asyncio.get_running_loop().create_future()
        self._waits[future] = batch
        try:
            await future
        finally:
            del self._waits[future]

    def _came(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
        future, self._next = self._next, None
        if future is not None and not future.done():
            future.set_result(None)
        if self._looking:
            self._again = True
        else:
            self._look(iter(tuple(self._waits.items())))

    def _look(self, waits: Iterable[Tuple[asyncio.Future[None], Batch[Any]]]) -> None:
        """Wakes those whose batches have ended. Thousands may wait, so others have their turn in between."""
        looked = 0
        for looked, (future, batch) in enumerate(itertools.islice(waits, _LOOKS), 1):
            if not future.done() and batch._over():
                future.set_result(None)
        self._looking = looked == _LOOKS or self._again
        if looked < _LOOKS and self._again:  # those were the last, and more has come since the first
            waits, self._again = iter(tuple(self._waits.items())), False
        loop = self._loop()
        if self._looking and loop is not None:
            loop.call_soon(self._look, waits)

    def close(self) -> None:
        """The engine is being closed, by any thread."""
        loop = self._loop()
        if loop is None or not self._gone.alive:
            return
        if loop.is_closed():
            self._gone()
        else:
            loop.call_soon_threadsafe(self._end, loop)

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._fd)
        self._gone.detach()
        os.close(self._fd)
        for future in (*self._waits, *([self._next] if self._next else [])):
            if not future.done():
                future.set_result(None)


def _unpacked(packed: bytes) -> Iterable[Tuple[int, str, str, bytes]]:
    at = 0
    while at < len(packed):
        number, *lengths = struct.unpack_from("<QIIII", packed, at)
        at += 24
        fields = []
        for length in lengths[:3]:
            fields.append(packed[at : at + length])
            at += length
        yield number, fields[0].decode(), fields[1].decode(), fields[2]


def _ranges(packed: bytes) -> List[Range]:
    return [Range(*pair) for pair in struct.iter_unpack("<QQ", packed)]


def _nothing(packed: bytes) -> None:
    return None


class Call:
    """A request of a peer's program, to be answered once: by answer or by refuse."""

    def __init__(
        self, engine: Engine, number: int, sender: str, proven: str, request: bytes
    ) -> None:
        self._engine = engine
        self._number = number
        self.sender = sender
        """What the peer calls itself."""
        self.proven = proven
        """What it has proven to be: a name of its certificate or token, "" for nothing."""
        self.request = request

    def answer(self, answer: bytes) -> None:
        """Answers with at most 4 MiB. Closed where the peer is gone, or the call was answered."""
        self._reply(answer, None)

    def refuse(self, reason: str) -> None:
        """Answers with an error: there it is Refused, with this text."""
        self._reply(b"", reason or "refused")

    def _reply(self, answer: bytes, refused: Optional[str]) -> None:
        _lib.check(
            self._engine._lib.topoctl_answer(
                *(self._engine._handle, self._number, *_message(_given(answer))),
                _encoded(refused, "a reason"),
            )
        )


class Region:
    """Registered memory, which the engine holds until close, or the end of a with statement."""

    def __init__(self, engine: Engine, addresses: Vector) -> None:
        self._engine = engine
        self._addresses = addresses

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the memory back: waits until no peer can touch it. Unsafe where one still can
        after 5 seconds: topoctl holds the memory, and close may be called again."""
        if self in self._engine._regions and not self._engine.closed:
            self._unregister(self._engine._handle)

    def _unregister(self, handle: int) -> None:
        addresses = self._addresses
        _lib.check(self._engine._lib.topoctl_unregister(handle, addresses.count, addresses.address))
        self._engine._regions.pop(self, None)


class RangeList:
    """Ranges that the library keeps, of this engine or of a peer: see Engine.range_list."""

    def __init__(self, engine: Engine, handle: int, count: int, peer: str) -> None:
        self._engine = engine
        self._handle = handle
        self._count = count
        self._peer = peer

    def __len__(self) -> int:
        return self._count

    def __enter__(self) -> RangeList:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Frees the list. Batches that were made of it go on."""
        handle, self._handle = self._handle, 0
        if handle and not self._engine.closed and not _lib.forked():
            self._engine._lib.topoctl_list_free(self._engine._handle, handle)


class Batch(Coroutine[Any, Any, _T]):
    """What an engine does with a peer: ranges that move together, a call, a question. The memory
    that a batch moves must not be used until it has ended. One that is not referenced any more
    goes on.

    In asyncio, "await batch" does what wait does, and asyncio.create_task(batch) runs it as a
    task. Where the await is canceled, as by asyncio.timeout, the batch has ended before your code
    goes on, as with cancel."""

    def __init__(self, engine: Engine, handle: int, result: Callable[[bytes], _T]) -> None:
        self._engine = engine
        self._handle = handle
        self._read = result
        self._result: Optional[_T] = None
        self._ended = False
        self._error: Optional[Error] = None
        self._canceling = threading.Lock()
        self._running: Optional[Coroutine[Any, Any, _T]] = None  # as a coroutine

    def __del__(self) -> None:
        if self._ended and self._handle:
            self._engine._lib.topoctl_release(self._engine._handle, self._handle)
        elif self._handle:
            self._engine._dropped.append(self._handle)

    def _look(self) -> bool:
        """Whether it has ended, and notes how."""
        if not self._ended and self._handle:  # without a handle cancel is waiting for its end
            status = self._engine._lib.topoctl_poll(self._engine._handle, self._handle)
            if status < 0:
                self._error = _lib.error(status)
            elif status == Status.DONE and self._read is not _nothing:
                self._result = self._read(
                    _lib.fill(
                        *(self._engine._lib.topoctl_result, self._engine._handle, self._handle),
                        capacity=1 << 12,
                    )
                )
            self._ended = status != Status.OK
        return self._ended

    def _over(self) -> bool:
        """Whether poll has more to say than that it runs."""
        if self._ended or not self._handle:
            return self._ended
        return bool(self._engine._lib.topoctl_poll(self._engine._handle, self._handle) != Status.OK)

    def poll(self) -> bool:
        """Whether it is done: all bytes are in place, or the answer is there. False while it runs;
        raises why it failed."""
        ended = self._look()
        if self._error is not None:
            raise self._error.with_traceback(None)
        return ended

    def wait(self, timeout: Optional[float] = None) -> _T:
        """Waits until it is done, and gives its result, or raises why it failed. Timeout where it
        still runs after timeout seconds: it goes on. Signals are handled within 50 ms."""
        self._engine.wait((self,), timeout)
        return self._result  # type: ignore[return-value]

    def __await__(self) -> Generator[Any, None, _T]:
        return self._wait_in_loop().__await__()

    # A coroutine for asyncio.create_task.

    def send(self, value: Any) -> Any:
        """For asyncio."""
        return self._step(lambda running: running.send(value))

    def throw(self, *error: Any) -> Any:
        """For asyncio."""
        return self._step(lambda running: running.throw(*error))

    def _step(self, step: Callable[[Coroutine[Any, Any, _T]], Any]) -> Any:
        if self._running is None:
            self._running = self._wait_in_loop()
        try:
            return step(self._running)
        except BaseException:
            self._running = None
            raise

    def close(self) -> None:
        """For asyncio: ends a batch that runs as a task, as cancel does."""
        if self._running is not None:
            self._running.close()
            self._running = None

    async def _wait_in_loop(self) -> _T:
        """Looks when the engine has news. Small batches have mostly ended before a loop can wait
        for that."""
        began = time.monotonic()
        try:
            while not self.poll():
                if time.monotonic() - began < _SPIN_SECONDS:
                    await asyncio.sleep(0)
                    continue
                news = self._engine._news()
                if not self.poll():
                    await news.ended(self)
        except asyncio.CancelledError:
            await self._cancel_in_loop()
            raise
        except GeneratorExit:  # closed without a loop that could wait
            self.cancel()
            raise
        return self._result  # type: ignore[return-value]

    async def _cancel_in_loop(self) -> None:
        """Cancels in a thread, and waits for that though it is canceled again itself."""
        thread = concurrent.futures.ThreadPoolExecutor(1)
        canceled = asyncio.get_running_loop().run_in_executor(thread, self.cancel)
        thread.shutdown(wait=False)
        while not canceled.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((canceled,))
        canceled.result()

    def cancel(self) -> None:
        """Ends it where it runs, and forgets it. When this returns, its memory may be used again.
        Unsafe where a peer may still touch that after 5 seconds."""
        with self._canceling:
            self._look()
            handle, self._handle = self._handle, 0
            if handle:
                status = self._engine._lib.topoctl_release(self._engine._handle, handle)
                if not self._ended:
                    self._ended, self._error = True, Canceled("the batch was canceled")
                _lib.check(status)

    def _open_handle(self) -> int:
        if not self._handle and not self._engine.closed:
            raise Closed("the batch was canceled, and is forgotten")
        return self._handle

    def telemetry(self) -> Telemetry:
        """What it did so far; Closed after cancel."""
        out = _lib.TelemetryV1()
        _lib.check(
            self._engine._lib.topoctl_telemetry(
                self._engine._handle, self._open_handle(), ctypes.byref(out), ctypes.sizeof(out)
            )
        )
        return Telemetry(*(getattr(out, field.name) for field in dataclasses.fields(Telemetry)))

    def explain(self) -> ExplainDocument:
        """Which NICs carried what, what failed, and why: the document topoctl.explain/v1. Closed
        after cancel."""
        text = _lib.fill(
            *(self._engine._lib.topoctl_explain, self._engine._handle, self._open_handle()),
            capacity=1 << 14,
        )
        return cast("ExplainDocument", json.loads(text))


def _granted(grant: Grant) -> int:
    if not isinstance(grant, Grant):
        raise TypeError(f"a grant is a topoctl.Grant, not {type(grant).__name__}")
    return grant.value


def _named(name: str, region: Union[int, Named]) -> Dict[str, Any]:
    if not isinstance(region, Named):
        region = Named(region)
    return {
        "name": _text(name, "a region's name").decode(),
        "bytes": operator.index(region.length),
        "grant": _granted(region.grant),
        "location": region.location,
    }


def _ns(seconds: Optional[float]) -> int:
    """0, which the library takes for its default, only for None."""
    if seconds is None:
        return 0
    if not 0 <= seconds < 1 << 33:
        raise ValueError(f"a time of {seconds} s")
    return max(int(seconds * 1e9), 1)


def _given(data: bytes) -> bytes:
    if data is None:
        raise TypeError("want bytes, not None")
    return data


def _message(data: Optional[bytes]) -> Tuple[Optional[bytes], int]:
    if data is None:
        return None, 0
    if not isinstance(data, bytes):  # ctypes would take a str too
        raise TypeError(f"want bytes, not {type(data).__name__}")
    return data, len(data)


def _peer(name: str) -> bytes:
    return _text(name, "a peer's name")


def _encoded(text: Optional[str], what: str) -> Optional[bytes]:
    return None if text is None else _text(text, what)


def _text(value: str, what: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {type(value).__name__}")
    return value.encode()


def _same_count(*vectors: Vector) -> None:
    if len({v.count for v in vectors}) > 1:
        raise ValueError("lists of " + ", ".join(str(v.count) for v in vectors) + " numbers")


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_unsafe: List[Any] = []  # memory that peers may still touch though its engine was closed


@atexit.register
def _close_all() -> None:
    """Before the interpreter frees memory that a transfer may be writing to."""
    for engine in tuple(_engines):
        try:
            engine.close()
        except Error:
            pass  # there is no one left to tell, and the process ends
