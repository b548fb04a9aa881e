"""NIXL's Python interface over topoctl: the calls, arguments and results of nixl 1.5.1.

What differs is a table in docs/nixl.md.
"""

from __future__ import annotations

import contextlib
import enum
import os
import sys
import threading
import time
from array import array
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Type, Union

import topoctl
from topoctl import _lib, errors
from topoctl._buffers import vector
from topoctl.compat import _environment

from . import _bindings as nixlBind
from ._bindings import DEFAULT_COMM_PORT, nixlRegDList, nixlXferDList
from ._pieces import Pieces

__all__ = [
    "DEFAULT_COMM_PORT",
    "nixl_agent",
    "nixl_agent_config",
    "nixl_backend_handle",
    "nixl_prepped_dlist_handle",
    "nixl_thread_sync_t",
    "nixl_xfer_handle",
]

logger = _environment.log("nixl.topoctl")

nixl_backend_handle = int

PLUGINS = ["TOPOCTL", "UCX"]
"""Backends that programs may ask for. UCX is what they ask for by default: topoctl answers."""

_SEGMENTS = ["DRAM_SEG", "VRAM_SEG"]
_MEMORY = {
    "DRAM": nixlBind.DRAM_SEG,
    "VRAM": nixlBind.VRAM_SEG,
    "FILE": nixlBind.FILE_SEG,
    "BLOCK": nixlBind.BLK_SEG,
    "OBJ": nixlBind.OBJ_SEG,
    "cpu": nixlBind.DRAM_SEG,
    "cuda": nixlBind.VRAM_SEG,
}
_OPERATIONS = {"WRITE": nixlBind.NIXL_WRITE, "READ": nixlBind.NIXL_READ}

_TRANSFER_TIMEOUT = 120.0
"""Seconds after which a transfer has failed that has not ended. Peers that die are noticed long
before; this is for one that is alive and does not move."""

_SPIN = 50e-6
"""Seconds between two looks at a transfer below which its caller does nothing else: threads that
move the data, and lack a processor, are let run first."""

_GIVE_UP = 60.0
"""Seconds of silence after which a peer is lost, where TOPOCTL_GIVE_UP has no others. A process that is
swapped, saved or debugged stands still for some: vLLM's decode side waits for ever for a WRITE that was
given up. A process that has ended is lost at once: its host refuses connections."""

_CONNECT_TIMEOUT = 3.0
"""Seconds that a call waits for a peer that does not answer."""


class nixl_thread_sync_t(enum.Enum):
    """How an agent is used by threads. Here any may use it at any time, whatever this says."""

    NIXL_THREAD_SYNC_NONE = nixlBind.NIXL_THREAD_SYNC_NONE
    NIXL_THREAD_SYNC_STRICT = nixlBind.NIXL_THREAD_SYNC_STRICT
    NIXL_THREAD_SYNC_RW = nixlBind.NIXL_THREAD_SYNC_RW
    NIXL_THREAD_SYNC_DEFAULT = nixlBind.NIXL_THREAD_SYNC_DEFAULT


class nixl_agent_config:
    """What an agent is made with. capture_telemetry and backends count; the engine needs no advice
    on threads, and agents' metadata is exchanged by the program."""

    def __init__(
        self,
        enable_prog_thread: bool = True,
        enable_listen_thread: bool = False,
        listen_port: int = DEFAULT_COMM_PORT,
        capture_telemetry: bool = False,
        num_threads: int = 0,
        backends: List[str] = ["UCX"],
        sync_mode: Optional[nixl_thread_sync_t] = None,
    ) -> None:
        if sync_mode is not None and not isinstance(sync_mode, nixl_thread_sync_t):
            kind = type(sync_mode).__name__
            raise TypeError(f"sync_mode must be a nixl_thread_sync_t (got {kind!r})")
        self.backends = backends
        self.enable_pthread = enable_prog_thread
        self.enable_listen = enable_listen_thread
        self.port = listen_port
        self.capture_telemetry = capture_telemetry
        self.num_threads = num_threads
        self.sync_mode = sync_mode


class nixl_prepped_dlist_handle:
    """Descriptors that the library keeps, from which make_prepped_xfer picks. Transfers that were
    made of it go on after it is released."""

    def __init__(self, ranges: topoctl.RangeList, agent: Optional[str]) -> None:
        self._ranges: Optional[topoctl.RangeList] = ranges
        self._agent = agent  # None: the side of the agent that made it

    def __repr__(self) -> str:
        return f"nixl_prepped_dlist_handle(released={self._ranges is None})"

    def release(self) -> None:
        self._ranges = None


class nixl_xfer_handle:
    """A transfer, to be begun by nixl_agent.transfer as often as the caller likes. Dropped without
    release, one that runs goes on to its end."""

    def __init__(
        self,
        operation: nixlBind.nixl_xfer_op_t,
        local: topoctl.RangeList,
        remote: topoctl.RangeList,
        indexes: Tuple[Optional["array[int]"], Optional["array[int]"]],
        agent: str,
        notification: bytes,
    ) -> None:
        self._operation = operation
        self._sides: Optional[Tuple[topoctl.RangeList, topoctl.RangeList]] = (local, remote)
        self._indexes = indexes
        self._agent = agent
        self._remote: Optional[_Agent] = None  # that it was begun with
        self._notification = notification
        self._batch: Optional[topoctl.Batch[None]] = None
        self._begun_us = 0
        self._looked = 0.0
        self._error: Optional[errors.Error] = None

    def __repr__(self) -> str:
        return f"nixl_xfer_handle(released={self._sides is None})"

    def release(self) -> None:
        """Ends the transfer where it runs. When this returns, the memory is the caller's.
        nixlBackendError where the peer may still touch it after 5 s."""
        if self._sides is None:
            return
        batch, self._batch = self._batch, None
        self._sides, self._indexes = None, (None, None)
        if batch is not None:
            with _translated():
                batch.cancel()

    def _post(self, engine: topoctl.Engine) -> None:
        if self._sides is None:
            raise nixlBind.nixlInvalidParamError("the transfer was released")
        if self._batch is not None:
            if self._state() == "PROC":
                raise nixlBind.nixlRepostActiveError("the transfer is running already")
            self._batch.cancel()  # it has ended: only forgotten
            self._batch = None
        self._error = None
        self._begun_us = time.monotonic_ns() // 1000
        begin = engine.write_picked
        if self._operation == nixlBind.NIXL_READ:
            begin = engine.read_picked
        try:
            self._batch = begin(
                *(*self._sides, *self._indexes),
                notify=self._notification or None,
                timeout=_TRANSFER_TIMEOUT,
            )
        except (errors.InvalidArgument, errors.NoRegion, errors.Closed) as e:
            raise _translation(e) from e
        except errors.Error as e:
            self._fail(e)

    def _state(self) -> str:
        if self._error is None:
            if self._batch is None:
                raise nixlBind.nixlNotPostedError("the transfer was not begun")
            try:
                if self._batch.poll():
                    return "DONE"
                self._let_others_run()
                return "PROC"
            except errors.Error as e:
                self._fail(e)
        if isinstance(self._error, errors.Unsafe):  # callers take "ERR" for an end
            raise _translation(self._error)
        return "ERR"

    def _let_others_run(self) -> None:
        """Where the caller looks over and over."""
        looked, self._looked = self._looked, time.monotonic()
        if self._looked - looked < _SPIN:
            os.sched_yield()

    def _fail(self, error: errors.Error) -> None:
        self._error = error
        logger.error("transfer with agent %s: %s", self._agent, error)


class _Agent:
    """A remote agent from one add_remote_agent to the next."""

    gone = False


class nixl_agent:
    """An agent: an engine of topoctl by NIXL's calls. All threads may use it.

    It listens to other hosts where TOPOCTL_TOKEN_FILE or TOPOCTL_INSECURE=1 says so, else to this
    host only. Errors of calls are NIXL's exceptions; a transfer that fails on its way says "ERR".
    """

    nixl_mems = _MEMORY
    nixl_ops = _OPERATIONS

    def __init__(
        self,
        agent_name: str,
        nixl_conf: Optional[nixl_agent_config] = None,
        instantiate_all: bool = False,
    ) -> None:
        if not isinstance(agent_name, str):
            raise TypeError(f"an agent's name is a str, not {type(agent_name).__name__}")
        if not agent_name:
            raise ValueError("Agent needs a non-empty name")
        config = nixl_conf or nixl_agent_config()
        self.name = agent_name
        self.plugin_list = list(PLUGINS)
        self.backends: Dict[str, nixl_backend_handle] = {}
        self.notifs: Dict[str, List[bytes]] = {}
        self._telemetry = config.capture_telemetry
        self._lock = threading.Lock()
        self._pieces = Pieces(self._register, self._unregister)
        self._agents: Dict[str, _Agent] = {}  # those that were added
        wanted = PLUGINS if instantiate_all and nixl_conf is None else config.backends
        try:
            options = {"give_up": _GIVE_UP, **_environment.options()}
            if open_to_all := _environment.unguarded(options):
                raise ValueError(
                    f"peers on other hosts could read and write memory at {open_to_all[0]}: "
                    + _environment.ADVICE
                )
            self._engine = topoctl.Engine(
                name=agent_name, default_timeout=_CONNECT_TIMEOUT, **options
            )
        except (ValueError, errors.Failed) as e:
            raise nixlBind.nixlBackendError(str(e)) from e
        alone = options["listen"] == [_environment.LOOPBACK]
        advice = f", for this host only: {_environment.ADVICE}" if alone else ""
        _environment.announce(self._engine, logger, "NIXL", advice)
        for backend in wanted:
            if backend in self.plugin_list:
                self.create_backend(backend)
            else:
                logger.warning("%s", _no_backend(backend))

    # Backends.

    def get_plugin_list(self) -> List[str]:
        return self.plugin_list

    def get_plugin_mem_types(self, backend: str) -> List[str]:
        return list(_SEGMENTS) if backend in self.plugin_list else []

    def get_plugin_params(self, backend: str) -> Dict[str, str]:
        return {}

    def get_backend_mem_types(self, backend: str) -> List[str]:
        return list(_SEGMENTS) if backend in self.backends else []

    def get_backend_params(self, backend: str) -> Dict[str, str]:
        return {}

    def create_backend(self, backend: str, initParams: Dict[str, str] = {}) -> None:
        """All names are the one engine; parameters are those of other engines, and not used."""
        if backend not in self.plugin_list:
            raise nixlBind.nixlNotFoundError(_no_backend(backend))
        if backend in self.backends:
            raise nixlBind.nixlInvalidParamError(f"backend {backend} was made already")
        self.backends[backend] = len(self.backends) + 1
        if backend != "TOPOCTL":
            logger.info("backend %s: topoctl %s moves the data", backend, self._engine.address)

    def _check(self, backends: Sequence[str]) -> None:
        for backend in backends:
            self.backends[backend]  # KeyError, as in NIXL

    # Memory.

    def register_memory(
        self, reg_list: Any, mem_type: Optional[str] = None, backends: List[str] = []
    ) -> nixlRegDList:
        """Registers memory, all or none. The same range again is counted, and so is what ranges
        share."""
        descs: nixlRegDList = _required(self.get_reg_descs(reg_list, mem_type))
        self._check(backends)
        if not self.backends or descs.getType() not in (nixlBind.DRAM_SEG, nixlBind.VRAM_SEG):
            raise nixlBind.nixlNotFoundError(_no_backend(f"for {descs.getType().name}"))
        with self._lock, _translated():
            self._pieces.add(_ranges(descs))
        return descs

    def deregister_memory(self, dereg_list: nixlRegDList, backends: List[str] = []) -> None:
        """Waits until nothing can touch the memory any more. nixlBackendError where a peer still
        may after 5 s: keep it mapped and call again."""
        if not isinstance(dereg_list, nixlRegDList):
            raise TypeError(f"want a nixlRegDList, not {type(dereg_list).__name__}")
        self._check(backends)
        with self._lock, _translated():
            try:
                self._pieces.remove(_ranges(dereg_list))
            except LookupError as e:
                raise nixlBind.nixlNotFoundError(str(e)) from None

    def _register(self, ranges: List[Tuple[int, int]]) -> None:
        starts = vector([address for address, _ in ranges], "Q")
        lengths = vector([length for _, length in ranges], "Q")
        _lib.check(
            self._engine._lib.topoctl_register(
                *(self._engine._handle, starts.count, starts.address, lengths.address),
                *(None, topoctl.Grant.ALL.value),
            )
        )

    def _unregister(self, ranges: List[Tuple[int, int]]) -> None:
        gone = vector([address for address, _ in ranges], "Q")
        _lib.check(
            self._engine._lib.topoctl_unregister(self._engine._handle, gone.count, gone.address)
        )

    def query_memory(
        self, reg_list: Any, backend: str, mem_type: Optional[str] = None
    ) -> List[Optional[Dict[str, str]]]:
        if backend not in self.backends:
            raise ValueError(f"backend {backend!r}: there are {list(self.backends)}")
        raise _not_supported("query_memory")

    # Other agents.

    def get_agent_metadata(self) -> bytes:
        """What add_remote_agent of another agent wants. Memory that is registered later is
        announced to agents by itself."""
        with _translated():
            return self._engine.metadata()

    def get_partial_agent_metadata(
        self, descs: nixlRegDList, inc_conn_info: bool = False, backends: List[str] = []
    ) -> bytes:
        """All of the metadata: it has no parts."""
        self._check(backends)
        return self.get_agent_metadata()

    def add_remote_agent(self, metadata: bytes) -> bytes:
        """Takes an agent's metadata in and gives its name, as bytes like NIXL does. New metadata of
        the same name is of an agent that was restarted. The connection is made here where that
        takes less than three seconds, else by the first transfer."""
        data = metadata.encode() if isinstance(metadata, str) else metadata
        if not isinstance(data, bytes):
            raise TypeError(f"metadata is bytes, not {type(metadata).__name__}")
        if data == self.get_agent_metadata():
            raise nixlBind.nixlInvalidParamError("this metadata is the agent's own")
        try:
            name = self._engine.add_peer(data)
        except errors.InvalidArgument as e:
            raise nixlBind.nixlMismatchError(str(e)) from e
        with self._lock:
            self._agents[name] = _Agent()
        try:
            self._engine.probe(name, _CONNECT_TIMEOUT)
        except errors.Error as e:
            logger.warning("agent %s does not answer yet: %s", name, e)
        return name.encode()

    def remove_remote_agent(self, agent: Union[str, bytes]) -> None:
        """Forgets an agent; transfers with it fail."""
        name = _name(agent)
        with self._lock:
            known = self._agents.pop(name, None) is not None
        if known:
            with _translated():
                self._engine.remove_peer(name)

    def make_connection(self, remote_agent: Union[str, bytes], backends: List[str] = []) -> None:
        self._check(backends)
        name = self._known(remote_agent)
        try:
            self._engine.probe(name, _CONNECT_TIMEOUT)
        except errors.Error as e:
            raise _noted(self._agents.get(name), e) from e

    def check_remote_metadata(
        self, agent: Union[str, bytes], descs: Optional[nixlXferDList] = None
    ) -> bool:
        """Whether the agent was added, was not found gone since, and offers all of these ranges."""
        name = _name(agent)
        with self._lock:
            added = self._agents.get(name)
        if added is None or added.gone:
            return False
        if descs is None or descs.isEmpty():
            return True
        try:
            offered = _merged(self._engine.peer_ranges(name))
        except errors.Error as e:
            _noted(added, e)
            return False
        return all(
            any(low <= address and address + length <= high for low, high in offered)
            for address, length in _ranges(descs)
        )

    def _known(self, agent: Union[str, bytes]) -> str:
        name = _name(agent)
        with self._lock:
            if name not in self._agents:
                raise nixlBind.nixlNotFoundError(f"agent {name!r} was not added")
        return name

    # Transfers.

    def prep_xfer_dlist(
        self,
        agent_name: Union[str, bytes],
        xfer_list: Any,
        mem_type: Optional[str] = None,
        backends: List[str] = [],
    ) -> nixl_prepped_dlist_handle:
        """Gives descriptors to the library: of this agent ("NIXL_INIT_AGENT" or ""), or of another
        one by its name. An N x 5 array is of blocks that lie apart alike: address, length, device,
        stride, count."""
        if getattr(xfer_list, "ndim", 0) == 2 and xfer_list.shape[1] == 5:
            if mem_type is None:
                raise ValueError("blocks by stride need a memory type, DRAM or VRAM")
            descs = nixlBind.strided(_MEMORY[mem_type], xfer_list)
        else:
            descs = _required(self.get_xfer_descs(xfer_list, mem_type))
        self._check(backends)
        name = _name(agent_name)
        own = name in ("", "NIXL_INIT_AGENT")
        peer = None if own else self._peer(name)
        return nixl_prepped_dlist_handle(self._list(descs, peer), peer)

    def _peer(self, agent: Union[str, bytes]) -> str:
        """An agent that is the other side of transfers: one that was added, or this one, which is
        then a peer of itself."""
        name = _name(agent)
        if name != self.name:
            return self._known(name)
        with _translated():
            self._engine.add_peer(self._engine.metadata())
        return name

    def _list(self, descs: nixlXferDList, peer: Optional[str]) -> topoctl.RangeList:
        if not isinstance(descs, nixlXferDList):
            raise TypeError(f"want a nixlXferDList, not {type(descs).__name__}")
        if descs.isEmpty():
            raise nixlBind.nixlInvalidParamError("the list is empty")
        with _translated():
            return self._engine.range_list(descs._table(), peer=peer)

    def make_prepped_xfer(
        self,
        operation: str,
        local_xfer_side: nixl_prepped_dlist_handle,
        local_indices: Any,
        remote_xfer_side: nixl_prepped_dlist_handle,
        remote_indices: Any,
        notif_msg: Union[bytes, str] = b"",
        backends: List[str] = [],
        skip_desc_merge: bool = False,
    ) -> nixl_xfer_handle:
        """A transfer of entries of two lists: local_indices[k] goes with remote_indices[k]. They
        are lists of int, or numpy arrays of integers."""
        op = _OPERATIONS[operation]
        self._check(backends)
        local, remote = local_xfer_side._ranges, remote_xfer_side._ranges
        agent = remote_xfer_side._agent
        if local is None or remote is None:
            raise nixlBind.nixlInvalidParamError("the descriptor list was released")
        if local_xfer_side._agent is not None or agent is None:
            raise nixlBind.nixlInvalidParamError(
                "want a list of this agent and one of a remote agent"
            )
        here, there = _indexes(local_indices, len(local)), _indexes(remote_indices, len(remote))
        if len(here) != len(there) or not here:
            raise nixlBind.nixlInvalidParamError(
                f"{len(here)} local and {len(there)} remote indices"
            )
        agent = self._peer(agent)
        return nixl_xfer_handle(op, local, remote, (here, there), agent, _message(notif_msg))

    def initialize_xfer(
        self,
        operation: str,
        local_descs: nixlXferDList,
        remote_descs: nixlXferDList,
        remote_agent: Union[str, bytes],
        notif_msg: Union[bytes, str] = b"",
        backends: List[str] = [],
    ) -> nixl_xfer_handle:
        """A transfer of two lists as they are, entry by entry."""
        op = _OPERATIONS[operation]
        self._check(backends)
        agent = self._peer(remote_agent)
        local, remote = self._list(local_descs, None), self._list(remote_descs, agent)
        if len(local) != len(remote):
            raise nixlBind.nixlInvalidParamError(
                f"{len(local)} local and {len(remote)} remote ranges"
            )
        return nixl_xfer_handle(op, local, remote, (None, None), agent, _message(notif_msg))

    def transfer(self, handle: nixl_xfer_handle, notif_msg: Union[bytes, str] = b"") -> str:
        """Begins a transfer: "PROC", "DONE", or "ERR" where it failed at once. notif_msg, where it
        is given, replaces that of the handle."""
        if notif_msg:
            handle._notification = _message(notif_msg)
        handle._remote = self._agents.get(handle._agent)
        handle._post(self._engine)
        return self.check_xfer_state(handle)

    def check_xfer_state(self, handle: nixl_xfer_handle) -> str:
        """ "DONE" where all bytes are in place and the notification is delivered, "PROC" while it
        runs, "ERR" where it failed and no byte can arrive any more: the log says why.
        nixlBackendError where it failed and a byte still may."""
        state = handle._state()
        if handle._error is not None:
            _noted(handle._remote, handle._error)
        return state

    def get_xfer_telemetry(self, handle: nixl_xfer_handle) -> nixlBind.nixlXferTelemetry:
        if not self._telemetry:
            raise nixlBind.nixlNoTelemetryError("the agent was made without capture_telemetry")
        if handle._batch is None:
            raise nixlBind.nixlNotPostedError("the transfer was not begun")
        with _translated():
            t = handle._batch.telemetry()
        return nixlBind.nixlXferTelemetry(
            handle._begun_us, t.post_ns // 1000, t.duration_ns // 1000, t.bytes, t.ops
        )

    def query_xfer_backend(self, handle: nixl_xfer_handle) -> str:
        return next(iter(self.backends))

    def estimate_xfer_cost(self, req_handle: nixl_xfer_handle) -> Tuple[int, int, str]:
        raise _not_supported("estimate_xfer_cost")

    def release_xfer_handle(self, handle: nixl_xfer_handle) -> None:
        handle.release()

    def release_dlist_handle(self, handle: nixl_prepped_dlist_handle) -> None:
        handle.release()

    # Notifications.

    def get_new_notifs(self, backends: List[str] = []) -> Dict[str, List[bytes]]:
        """Those that came since the last call, by the name of the agent that sent them."""
        self._check(backends)
        return self._take({})

    def update_notifs(self, backends: List[str] = []) -> Dict[str, List[bytes]]:
        """All that check_remote_xfer_done has not taken, with the new ones."""
        self._check(backends)
        return self._take(self.notifs)

    def _take(self, into: Dict[str, List[bytes]]) -> Dict[str, List[bytes]]:
        with _translated():
            for n in self._engine.notifications():
                into.setdefault(n.sender, []).append(n.message)
        return into

    def check_remote_xfer_done(
        self,
        remote_agent_name: Union[str, bytes],
        lookup_tag: bytes,
        backends: List[str] = [],
        tag_is_prefix: bool = True,
    ) -> bool:
        """Whether the agent sent a notification that begins with the tag, or has it anywhere. The
        first such one is taken out."""
        messages = self.update_notifs(backends).get(_name(remote_agent_name), [])
        for i, message in enumerate(messages):
            if message.startswith(lookup_tag) if tag_is_prefix else lookup_tag in message:
                del messages[i]
                return True
        return False

    def send_notif(
        self,
        remote_agent_name: Union[str, bytes],
        notif_msg: Union[bytes, str],
        backend: Optional[str] = None,
    ) -> None:
        """Delivers a message of up to 1 MiB, bound to no transfer: it has arrived when this
        returns. nixlRemoteDisconnectError where the agent does not answer within three seconds."""
        if backend is not None:
            self._check([backend])
        peer = self._peer(remote_agent_name)
        try:
            # a transfer of nothing, because signals are handled while one waits for it
            self._engine.write_ranges(
                *(peer, (), (), ()), notify=_message(notif_msg), timeout=_CONNECT_TIMEOUT
            ).wait()
        except errors.Timeout as e:
            raise nixlBind.nixlRemoteDisconnectError(str(e)) from e
        except errors.Error as e:
            raise _noted(self._agents.get(peer), e) from e

    # NIXL's own exchange of metadata, and views of memory for kernels.

    def send_local_metadata(self, ip_addr: str = "", port: int = DEFAULT_COMM_PORT) -> None:
        raise _not_supported("send_local_metadata")

    def send_partial_agent_metadata(
        self,
        descs: nixlRegDList,
        inc_conn_info: bool = False,
        backends: List[str] = [],
        ip_addr: str = "",
        port: int = DEFAULT_COMM_PORT,
        label: str = "",
    ) -> None:
        raise _not_supported("send_partial_agent_metadata")

    def fetch_remote_metadata(
        self, remote_agent: str, ip_addr: str = "", port: int = DEFAULT_COMM_PORT, label: str = ""
    ) -> None:
        raise _not_supported("fetch_remote_metadata")

    def invalidate_local_metadata(self, ip_addr: str = "", port: int = DEFAULT_COMM_PORT) -> None:
        raise _not_supported("invalidate_local_metadata")

    def get_remote_descs(self, descs: Any, mem_type: Optional[str] = None) -> Any:
        raise _not_supported("get_remote_descs")

    def prep_mem_view(self, dlist: Any, *, backends: Optional[List[str]] = None) -> int:
        raise _not_supported("prep_mem_view")

    def release_mem_view(self, mvh: int) -> None:
        raise _not_supported("release_mem_view")

    # Descriptors.

    def get_xfer_descs(self, descs: Any, mem_type: Optional[str] = None) -> Optional[nixlXferDList]:
        """A list of (address, length, device), an N x 3 array of 64-bit integers (both with a
        mem_type), a tensor or a list of tensors, as a nixlXferDList. None, and a line in the log,
        where it is something else."""
        if isinstance(descs, nixlXferDList):
            return descs
        if isinstance(descs, nixlRegDList):
            logger.error("a list for registration was given for a transfer: use get_xfer_descs")
            return None
        rows, memory = _read(descs, mem_type, 3)
        return None if rows is None else nixlXferDList(memory, rows)

    def get_reg_descs(self, descs: Any, mem_type: Optional[str] = None) -> Optional[nixlRegDList]:
        """As get_xfer_descs, of tuples of four: (address, length, device, text)."""
        if isinstance(descs, nixlRegDList):
            return descs
        if isinstance(descs, nixlXferDList):
            logger.error("a list for transfers was given for registration: use get_reg_descs")
            return None
        rows, memory = _read(descs, mem_type, 4)
        return None if rows is None else nixlRegDList(memory, rows)

    def get_serialized_descs(self, descs: Union[nixlXferDList, nixlRegDList]) -> bytes:
        return nixlBind.serialize(descs)

    def deserialize_descs(self, serialized_descs: bytes) -> Union[nixlXferDList, nixlRegDList]:
        return nixlBind.deserialize(serialized_descs)


def _read(descs: Any, mem_type: Optional[str], width: int) -> Tuple[Any, nixlBind.nixl_mem_t]:
    """Rows for a descriptor list of what callers give, and the memory's kind; None for what is no
    descriptors."""
    dram = nixlBind.DRAM_SEG
    tensors = _tensors(descs)
    if tensors is not None:
        return _of_tensors(tensors, width)
    first = descs[0]
    array_like = hasattr(descs, "ndim")
    if not isinstance(first, tuple) and not array_like:
        return None, dram
    if mem_type is None:
        logger.error("addresses need a memory type, DRAM or VRAM")
        return None, dram
    if array_like:
        if descs.ndim != 2 or descs.shape[1] != 3:
            logger.error(
                "an array of descriptors has three columns, this one's shape is %s", descs.shape
            )
            return None, dram
    elif len(first) != width:
        logger.error("a descriptor is a tuple of %d here, this one has %d", width, len(first))
        return None, dram
    return descs, _MEMORY[mem_type]


def _tensors(descs: Any) -> Optional[List[Any]]:
    """A tensor or a list of tensors as a list. Where torch was not imported there are none."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if isinstance(descs, torch.Tensor):
        return [descs]
    if isinstance(descs, (list, tuple)) and descs and isinstance(descs[0], torch.Tensor):
        return list(descs)
    return None


def _of_tensors(tensors: List[Any], width: int) -> Tuple[Any, nixlBind.nixl_mem_t]:
    rows = []
    for tensor in tensors:
        if tensor.device != tensors[0].device or not tensor.is_contiguous():
            logger.error("want contiguous tensors of one device")
            return None, nixlBind.DRAM_SEG
        length = tensor.numel() * tensor.element_size()
        rows.append((tensor.data_ptr(), length, max(tensor.get_device(), 0), "")[:width])
    host = tensors[0].device.type == "cpu"
    return rows, nixlBind.DRAM_SEG if host else nixlBind.VRAM_SEG


def _indexes(indices: Any, count: int) -> "array[int]":
    """Indices as the library wants them, each one of a list of count entries."""
    if hasattr(indices, "astype"):
        if indices.ndim != 1:
            raise ValueError("indices numpy array must be 1D")
        found = array("q", indices.astype("int64").tobytes())
        low, high = (indices.min(), indices.max()) if len(found) else (0, 0)
    else:
        found = array("q", indices)
        low, high = (min(found), max(found)) if found else (0, 0)
    if low < 0 or high >= count:
        raise nixlBind.nixlInvalidParamError(f"indices from {low} to {high} of a list of {count}")
    return found


def _ranges(descs: Union[nixlRegDList, nixlXferDList]) -> List[Tuple[int, int]]:
    """Address and length of every entry that is not empty."""
    rows = descs._rows
    return [at for at in zip(rows[0::3], rows[1::3]) if at[1]]


def _merged(ranges: Sequence[topoctl.Range]) -> List[Tuple[int, int]]:
    """First and last address of ranges, those that touch as one."""
    out: List[Tuple[int, int]] = []
    for address, length in sorted(ranges):
        if out and out[-1][1] == address:
            out[-1] = out[-1][0], address + length
        else:
            out.append((address, address + length))
    return out


_EXCEPTIONS: Dict[Type[errors.Error], Type[Exception]] = {
    errors.InvalidArgument: nixlBind.nixlInvalidParamError,
    errors.Closed: nixlBind.nixlInvalidParamError,
    errors.NoRegion: nixlBind.nixlNotFoundError,
    errors.Exists: nixlBind.nixlNotAllowedError,
    errors.NoPeer: nixlBind.nixlRemoteDisconnectError,
    errors.PeerLost: nixlBind.nixlRemoteDisconnectError,
    errors.Canceled: nixlBind.nixlCancelledError,
}


def _translation(error: errors.Error) -> Exception:
    """NIXL's exception for one of topoctl's, with its text."""
    return _EXCEPTIONS.get(type(error), nixlBind.nixlBackendError)(str(error))


def _noted(agent: Optional[_Agent], error: errors.Error) -> Exception:
    """The exception for an error of a call with an agent, which is gone where nothing answers, or
    another process does. One that is only late, or refuses a range, is not."""
    if agent is not None and isinstance(error, (errors.NoPeer, errors.PeerLost)):
        agent.gone = True
    return _translation(error)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except errors.Error as e:
        raise _translation(e) from e


def _required(descs: Any) -> Any:
    if descs is None:
        raise TypeError("these are no descriptors: the log says what is wrong")
    return descs


def _no_backend(which: str) -> str:
    return (
        f"no backend {which}: there are {' and '.join(PLUGINS)}, for memory of hosts and GPUs; files "
        "and object stores need NIXL's own package (topoctl python env says how to go back)"
    )


def _name(agent: Union[str, bytes]) -> str:
    if isinstance(agent, bytes):
        return agent.decode()
    if not isinstance(agent, str):
        raise TypeError(f"an agent's name is str or bytes, not {type(agent).__name__}")
    return agent


def _message(message: Union[bytes, str]) -> bytes:
    return message.encode() if isinstance(message, str) else bytes(message)


def _not_supported(call: str) -> nixlBind.nixlNotSupportedError:
    return nixlBind.nixlNotSupportedError(f"topoctl has no {call}")
