"""One set of calls against NIXL 1.5.1 of the package registry (UCX over TCP or shared memory), and
against topoctl's package of the same name, whichever is on Python's path:

    UCX_TLS=tcp,self python nixl_conformance.py                 # in an environment with nixl
    PYTHONPATH=python:python/topoctl/compat python nixl_conformance.py

Where the two differ, DIFFERENCES says how; --differences prints it as the table of docs/nixl.md.
"""

from __future__ import annotations

import contextlib
import inspect
import ipaddress
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple
from unittest import mock

import numpy as np
from nixl import _api, _bindings
from nixl_peer import (
    LONG,
    STOCK,
    Peer,
    address,
    agent,
    blocks,
    digest,
    exit_now,
    finished,
    pattern,
    until,
)

# What is compared: the call, what NIXL 1.5.1 does, what topoctl does.
DIFFERENCES: Dict[str, Tuple[str, str, str]] = {
    "plugins": (
        "`get_plugin_list()`",
        "ten, `UCX` among them",
        "`TOPOCTL` and `UCX`; topoctl answers to both",
    ),
    "plugin parameters": ("`get_plugin_params`, `get_backend_params`", "those of UCX", "none"),
    "unregistered": (
        "a range of this agent that is not registered, in `prep_xfer_dlist` or `initialize_xfer`",
        "`nixlNotFoundError` there",
        "`nixlNotFoundError` from `transfer`: memory may be registered in between",
    ),
    "not offered": (
        "a range that the remote agent does not offer, in `prep_xfer_dlist` or `initialize_xfer`",
        "`nixlNotFoundError` there",
        "`check_xfer_state` gives `ERR` when the agent has answered that, and the log says why",
    ),
    "unequal lengths": (
        "descriptors of different lengths in `make_prepped_xfer` or `initialize_xfer`",
        "`nixlInvalidParamError` there",
        "`nixlInvalidParamError` from `transfer`",
    ),
    "memory types": (
        "a device number, or `VRAM` for memory of the host",
        "`nixlNotFoundError`, `nixlBackendError`",
        "not looked at: the address says what memory it is",
    ),
    "index": ("`nixlXferDList[i]` behind the end", "reads other memory", "`IndexError`"),
    "serialized": (
        "`deserialize_descs` of other bytes",
        "unpickles them, which runs code that their author chose",
        "`nixlInvalidParamError`",
    ),
    "released": (
        "calls with a transfer that was released",
        "use freed memory",
        "`nixlInvalidParamError`, `nixlNotPostedError`",
    ),
    "released list": (
        "`make_prepped_xfer` with a list that was released",
        "uses freed memory",
        "`nixlInvalidParamError`",
    ),
    "large notification": ("a notification above 1 MiB", "delivered", "`nixlBackendError`"),
    "backend of a notification": (
        '`send_notif(..., backend="UCX")`',
        "`TypeError`",
        "sends it",
    ),
    "cost": ("`estimate_xfer_cost`", "a time, method `UNKNOWN`", "`nixlNotSupportedError`"),
    "uncast": (
        "numbers that are none, or out of range, in descriptors",
        "`RuntimeError`",
        "`TypeError`, `ValueError`",
    ),
    "uncast indices": ("indices that are none", "`RuntimeError`", "`TypeError`"),
    "partial": (
        "`get_partial_agent_metadata`",
        "of the ranges that are given",
        "all of the metadata",
    ),
    "failed transfer": (
        "a transfer whose peer is gone, in `check_xfer_state` or `transfer`",
        "`nixlRemoteDisconnectError`",
        '"ERR", as its documentation says, where no byte can arrive any more, else '
        "`nixlBackendError`; the log says why",
    ),
    "restarted agent": (
        "`add_remote_agent` with new metadata of a known name",
        "`nixlNotAllowedError` until `remove_remote_agent`",
        "replaces what was known",
    ),
    "own metadata exchange": (
        "`send_local_metadata`, `fetch_remote_metadata`, `invalidate_local_metadata`, "
        "`send_partial_agent_metadata`",
        "NIXL's own exchange, by address or etcd",
        "`nixlNotSupportedError`: exchange the bytes of `get_agent_metadata`",
    ),
}

SIGNATURES = {
    "add_remote_agent": "metadata",
    "check_remote_metadata": "agent, descs=None",
    "check_remote_xfer_done": "remote_agent_name, lookup_tag, backends=[], tag_is_prefix=True",
    "check_xfer_state": "handle",
    "create_backend": "backend, initParams={}",
    "deregister_memory": "dereg_list, backends=[]",
    "deserialize_descs": "serialized_descs",
    "estimate_xfer_cost": "req_handle",
    "fetch_remote_metadata": "remote_agent, ip_addr='', port=8888, label=''",
    "get_agent_metadata": "",
    "get_backend_mem_types": "backend",
    "get_backend_params": "backend",
    "get_new_notifs": "backends=[]",
    "get_partial_agent_metadata": "descs, inc_conn_info=False, backends=[]",
    "get_plugin_list": "",
    "get_plugin_mem_types": "backend",
    "get_plugin_params": "backend",
    "get_reg_descs": "descs, mem_type=None",
    "get_remote_descs": "descs, mem_type=None",
    "get_serialized_descs": "descs",
    "get_xfer_descs": "descs, mem_type=None",
    "get_xfer_telemetry": "handle",
    "initialize_xfer": "operation, local_descs, remote_descs, remote_agent, notif_msg=b'', backends=[]",
    "invalidate_local_metadata": "ip_addr='', port=8888",
    "make_connection": "remote_agent, backends=[]",
    "make_prepped_xfer": "operation, local_xfer_side, local_indices, remote_xfer_side, "
    "remote_indices, notif_msg=b'', backends=[], skip_desc_merge=False",
    "prep_mem_view": "dlist, *, backends=None",
    "prep_xfer_dlist": "agent_name, xfer_list, mem_type=None, backends=[]",
    "query_memory": "reg_list, backend, mem_type=None",
    "query_xfer_backend": "handle",
    "register_memory": "reg_list, mem_type=None, backends=[]",
    "release_dlist_handle": "handle",
    "release_mem_view": "mvh",
    "release_xfer_handle": "handle",
    "remove_remote_agent": "agent",
    "send_local_metadata": "ip_addr='', port=8888",
    "send_notif": "remote_agent_name, notif_msg, backend=None",
    "send_partial_agent_metadata": "descs, inc_conn_info=False, backends=[], ip_addr='', "
    "port=8888, label=''",
    "transfer": "handle, notif_msg=b''",
    "update_notifs": "backends=[]",
}

CONFIG = (
    "enable_prog_thread=True, enable_listen_thread=False, listen_port=8888, "
    "capture_telemetry=False, num_threads=0, backends=['UCX'], sync_mode=None"
)


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or the class of what it raises."""
    try:
        return call()
    except Exception as e:
        return type(e)


def signature(function: Any) -> str:
    parameters = list(inspect.signature(function).parameters.values())
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters if p.name != "self"]
    return str(inspect.Signature(plain))[1:-1]


class Case(unittest.TestCase):
    """A test of calls. Memory that a test registers is kept to the end: peers may know it."""

    kept: List[Any] = []

    def same(self, want: Any, call: Callable[[], Any]) -> None:
        """Both packages give (or raise) want."""
        self.assertEqual(outcome(call), want)

    def differs(self, key: str, stock: Any, ours: Any, call: Callable[[], Any]) -> None:
        """The packages differ as DIFFERENCES[key] says."""
        self.assertIn(key, DIFFERENCES)
        self.assertEqual(outcome(call), stock if STOCK else ours)

    def pair(self, size: int = 1 << 16, **config: Any) -> Tuple[Any, Any, Any, Any]:
        """Two agents of this process that know each other, and registered memory of each."""
        here, there = (agent(f"{who}-{uuid.uuid4()}", **config) for who in ("here", "there"))
        a, b = pattern(size, 1), pattern(size, 2)
        here.register_memory([(address(a), size, 0, "")], "DRAM")
        there.register_memory([(address(b), size, 0, "")], "DRAM")
        here.add_remote_agent(there.get_agent_metadata())
        there.add_remote_agent(here.get_agent_metadata())
        Case.kept += [here, there, a, b]
        return here, there, a, b


class Names(Case):
    def test_modules(self) -> None:
        for name in "nixl_agent", "nixl_agent_config", "nixl_thread_sync_t", "DEFAULT_COMM_PORT":
            self.assertTrue(hasattr(_api, name), name)
        for name in "nixl_prepped_dlist_handle", "nixl_xfer_handle", "nixl_backend_handle":
            self.assertTrue(hasattr(_api, name), name)
        for error in (
            *("NotPosted", "InvalidParam", "Backend", "NotFound", "Mismatch", "NotAllowed"),
            *("RepostActive", "Unknown", "NotSupported", "RemoteDisconnect", "Cancelled"),
            "NoTelemetry",
        ):
            kind = getattr(_bindings, f"nixl{error}Error")
            self.assertEqual(kind.__bases__, (Exception,), error)

    def test_enumerations(self) -> None:
        want = {
            "nixl_mem_t": ["DRAM_SEG", "VRAM_SEG", "BLK_SEG", "OBJ_SEG", "FILE_SEG"],
            "nixl_xfer_op_t": ["NIXL_READ", "NIXL_WRITE"],
            "nixl_cost_t": ["NIXL_COST_ANALYTICAL_BACKEND"],
        }
        for kind, names in want.items():
            members = getattr(_bindings, kind).__members__
            self.assertEqual({k: int(v) for k, v in members.items()}, dict(zip(names, range(9))))
            for name in names:
                self.assertEqual(getattr(_bindings, name), members[name])
        status = {k: int(v) for k, v in _bindings.nixl_status_t.__members__.items()}
        self.assertEqual(sorted(status.values()), list(range(-9, 2)))
        self.assertEqual(status["NIXL_ERR_REPOST_ACTIVE"], -7)
        sync = {k: int(v) for k, v in _bindings.nixl_thread_sync_t.__members__.items()}
        self.assertEqual(sync["NIXL_THREAD_SYNC_STRICT"], 1)
        self.assertEqual(sync["NIXL_THREAD_SYNC_DEFAULT"], 0)
        self.assertEqual(_bindings.NIXL_INIT_AGENT, "")
        self.assertEqual(_bindings.DEFAULT_COMM_PORT, 8888)
        self.assertEqual(
            _api.nixl_thread_sync_t.NIXL_THREAD_SYNC_RW.value, _bindings.NIXL_THREAD_SYNC_RW
        )

    def test_signatures(self) -> None:
        for name, want in SIGNATURES.items():
            self.assertEqual(signature(getattr(_api.nixl_agent, name)), want, name)
        self.assertEqual(signature(_api.nixl_agent_config.__init__), CONFIG)
        self.assertEqual(
            signature(_api.nixl_agent.__init__), "agent_name, nixl_conf=None, instantiate_all=False"
        )

    def test_config(self) -> None:
        strict = _api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
        self.assertEqual(
            vars(_api.nixl_agent_config(num_threads=4, capture_telemetry=True, sync_mode=strict)),
            {
                "backends": ["UCX"],
                "enable_pthread": True,
                "enable_listen": False,
                "port": 8888,
                "capture_telemetry": True,
                "num_threads": 4,
                "sync_mode": strict,
            },
        )
        self.same(TypeError, lambda: _api.nixl_agent_config(sync_mode=1))


class Lists(Case):
    def setUp(self) -> None:
        self.agent = agent(f"lists-{uuid.uuid4()}")

    def test_transfer_descriptors(self) -> None:
        get = self.agent.get_xfer_descs
        rows = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.uint64)
        for descs in [(1, 2, 3), (4, 5, 6)], rows, rows.astype(np.int64):
            got = get(descs, "DRAM")
            self.assertEqual([got[i] for i in range(got.descCount())], [(1, 2, 3), (4, 5, 6)])
            self.assertEqual(got.getType(), _bindings.DRAM_SEG)
            self.assertIs(get(got), got)
        self.assertEqual(get(rows, "cuda").getType(), _bindings.VRAM_SEG)
        self.assertEqual(get(rows, "cpu").getType(), _bindings.DRAM_SEG)
        self.same(None, lambda: get([(1, 2, 3)]))
        self.same(None, lambda: get(rows))
        self.same(None, lambda: get([(1, 2, 3, "")], "DRAM"))
        self.same(None, lambda: get([[1, 2, 3]], "DRAM"))
        self.same(None, lambda: get(np.zeros((2, 4), dtype=np.uint64), "DRAM"))
        self.same(None, lambda: get(self.agent.get_reg_descs([(1, 2, 3, "")], "DRAM"), "DRAM"))
        self.same(KeyError, lambda: get([(1, 2, 3)], "GPU"))
        self.same(IndexError, lambda: get([], "DRAM"))
        self.same(IndexError, lambda: get(np.zeros((0, 3), dtype=np.uint64), "DRAM"))
        self.same(TypeError, lambda: get(None, "DRAM"))
        self.same(ValueError, lambda: get(np.zeros((2, 3)), "DRAM"))
        self.same(ValueError, lambda: get(np.zeros((2, 3), dtype=np.uint32), "DRAM"))
        self.same(ValueError, lambda: get(np.zeros((4, 3), dtype=np.uint64)[::2], "DRAM"))
        self.same(ValueError, lambda: get([(1, 2, 3), (4, 5)], "DRAM"))
        self.differs("uncast", RuntimeError, TypeError, lambda: get([(1, "x", 3)], "DRAM"))
        self.differs("uncast", RuntimeError, ValueError, lambda: get([(-1, 2, 3)], "DRAM"))

    def test_registration_descriptors(self) -> None:
        get = self.agent.get_reg_descs
        rows = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.uint64)
        for descs in [(1, 2, 3, ""), (4, 5, 6, "")], rows, rows.astype(np.int64):
            got = get(descs, "DRAM")
            self.assertEqual([got[i] for i in range(2)], [(1, 2, 3, b""), (4, 5, 6, b"")])
            self.assertIs(get(got), got)
        self.assertEqual(get([(1, 2, 3, "text")], "DRAM")[0], (1, 2, 3, b"text"))
        self.same(None, lambda: get([(1, 2, 3, "")]))
        self.same(None, lambda: get([(1, 2, 3)], "DRAM"))
        self.same(None, lambda: get([[1, 2, 3, ""]], "DRAM"))
        self.same(None, lambda: get(self.agent.get_xfer_descs([(1, 2, 3)], "DRAM"), "DRAM"))
        self.same(KeyError, lambda: get([(1, 2, 3, "")], "GPU"))
        self.same(IndexError, lambda: get([], "DRAM"))
        self.same(TypeError, lambda: get(None, "DRAM"))
        self.same(ValueError, lambda: get([(1, 2, 3, ""), (4, 5, 6)], "DRAM"))
        self.same(ValueError, lambda: get(np.zeros((2, 3)), "DRAM"))

    def test_transfer_list(self) -> None:
        make, dram = _bindings.nixlXferDList, _bindings.DRAM_SEG
        descs = make(dram, [(1, 2, 3), (4, 5, 6)])
        self.assertEqual(descs, make(type=dram, descs=[(1, 2, 3), (4, 5, 6)]))
        self.assertNotEqual(descs, make(_bindings.VRAM_SEG, [(1, 2, 3), (4, 5, 6)]))
        self.assertNotEqual(descs, 3)
        self.assertEqual(make(dram).descCount(), 0)
        self.assertEqual(make(dram, 3).descCount(), 3)
        self.assertTrue(make(dram).isEmpty())
        self.same(TypeError, lambda: hash(descs))
        descs[1] = (7, 8, 9)
        descs.addDesc((10, 11, 12))
        descs.append((13, 14, 15))
        self.assertEqual(descs.index((10, 11, 12)), 2)
        self.same(_bindings.nixlNotFoundError, lambda: descs.index((1, 1, 1)))
        self.same(None, lambda: descs.remDesc(0))
        self.same(IndexError, lambda: descs.remDesc(9))
        self.assertEqual([descs[i][0] for i in range(descs.descCount())], [7, 10, 13])
        self.assertEqual(pickle.loads(pickle.dumps(descs)), descs)
        self.same(IndexError, lambda: descs.addDesc((1, 2)))
        self.same(TypeError, lambda: descs.addDesc([1, 2, 3]))
        self.same(TypeError, lambda: make(dram, [[1, 2, 3]]))
        self.same(ValueError, lambda: make(dram, [(1, 2)]))
        if not STOCK:  # DIFFERENCES["index"]
            self.same(IndexError, lambda: descs[9])
            self.assertEqual(list(descs), [(7, 8, 9), (10, 11, 12), (13, 14, 15)])
        self.same(None, descs.clear)
        self.assertTrue(descs.isEmpty())

    def test_registration_list(self) -> None:
        make, dram = _bindings.nixlRegDList, _bindings.DRAM_SEG
        descs = make(dram, [(1, 2, 3, "a"), (4, 5, 6, "")])
        self.assertEqual(pickle.loads(pickle.dumps(descs)), descs)
        self.assertEqual(descs.trim(), _bindings.nixlXferDList(dram, [(1, 2, 3), (4, 5, 6)]))
        descs.addDesc((7, 8, 9, "b"))
        descs[1] = (4, 5, 7, "c")
        descs.remDesc(0)
        self.assertEqual([descs[i] for i in range(2)], [(4, 5, 7, b"c"), (7, 8, 9, b"b")])
        self.same(1, lambda: descs.index((7, 8, 9, "b")))
        self.same(IndexError, lambda: descs.addDesc((1, 2, 3)))
        self.same(ValueError, lambda: make(dram, [(1, 2, 3)]))

    def test_serialized(self) -> None:
        for descs in (
            self.agent.get_xfer_descs([(1, 2, 3), (4, 5, 6)], "VRAM"),
            self.agent.get_reg_descs([(1, 2, 3, "text"), (4, 5, 6, "")], "DRAM"),
        ):
            data = self.agent.get_serialized_descs(descs)
            self.assertIsInstance(data, bytes)
            self.assertEqual(self.agent.deserialize_descs(data), descs)
            if not STOCK:
                for cut in range(len(data)):
                    with self.assertRaises(_bindings.nixlInvalidParamError):
                        self.agent.deserialize_descs(data[:cut])
        self.differs(
            "serialized",
            pickle.UnpicklingError,
            _bindings.nixlInvalidParamError,
            lambda: self.agent.deserialize_descs(b"other bytes, twenty"),
        )


class Agents(Case):
    def test_names(self) -> None:
        self.same(ValueError, lambda: _api.nixl_agent(""))
        self.same(TypeError, lambda: _api.nixl_agent(3))
        self.same("a", lambda: _api.nixl_agent("a").name)

    def test_backends(self) -> None:
        one = agent(f"backends-{uuid.uuid4()}", backends=[])
        self.assertEqual(one.backends, {})
        self.assertIn("UCX", one.get_plugin_list())
        self.differs("plugins", False, True, lambda: "TOPOCTL" in one.get_plugin_list())
        memory = pattern(4096, 1)
        descs = one.get_reg_descs([(address(memory), 4096, 0, "")], "DRAM")
        self.same(_bindings.nixlNotFoundError, lambda: one.register_memory(descs))
        self.same(None, lambda: one.create_backend("UCX", {}))
        self.same(_bindings.nixlInvalidParamError, lambda: one.create_backend("UCX", {}))
        self.same(_bindings.nixlNotFoundError, lambda: one.create_backend("NONE"))
        self.assertEqual(list(one.backends), ["UCX"])
        self.same(["DRAM_SEG", "VRAM_SEG"], lambda: one.get_plugin_mem_types("UCX"))
        self.same(["DRAM_SEG", "VRAM_SEG"], lambda: one.get_backend_mem_types("UCX"))
        self.same([], lambda: one.get_plugin_mem_types("NONE"))
        self.same([], lambda: one.get_backend_mem_types("NONE"))
        self.same({}, lambda: one.get_backend_params("UCX"))
        self.same({}, lambda: one.get_plugin_params("NONE"))
        self.differs("plugin parameters", True, False, lambda: bool(one.get_plugin_params("UCX")))
        self.same({}, lambda: agent(f"none-{uuid.uuid4()}", backends=["NONE"]).backends)
        self.same(KeyError, lambda: one.register_memory(descs, backends=["NONE"]))
        self.same(KeyError, lambda: one.get_new_notifs(["NONE"]))

    def test_registration(self) -> None:
        one = agent(f"registration-{uuid.uuid4()}")
        memory = pattern(1 << 16, 1)
        base = address(memory)
        descs = one.get_reg_descs([(base, 4096, 0, ""), (base + 8192, 4096, 0, "")], "DRAM")
        self.assertIs(one.register_memory(descs, backends=["UCX"]), descs)
        self.same(None, lambda: one.deregister_memory(descs))
        self.same(_bindings.nixlNotFoundError, lambda: one.deregister_memory(descs))
        again = [one.register_memory([(base, 4096, 0, "")], "DRAM") for _ in range(2)]
        for registered in again:
            self.same(None, lambda: one.deregister_memory(registered))
        self.same(_bindings.nixlNotFoundError, lambda: one.deregister_memory(again[0]))
        touching = np.array([[base, 4096, 0], [base + 4096, 4096, 0]], dtype=np.uint64)
        self.same(None, lambda: one.deregister_memory(one.register_memory(touching, "DRAM")))
        self.same(TypeError, lambda: one.register_memory(None))
        self.same(TypeError, lambda: one.register_memory([(base, 4096, 0)], "DRAM"))
        self.same(TypeError, lambda: one.deregister_memory(None))
        self.same(
            _bindings.nixlNotFoundError, lambda: one.register_memory([(base, 1, 0, "")], "FILE")
        )

    def test_overlapping_registrations(self) -> None:
        """Views of tensors, before and after the whole; what stays can be read."""
        here, there, _, _ = self.pair()
        whole = pattern(1 << 16, 7)
        base = address(whole)
        both = [(base + 8192, 8192, 0, ""), (base + 12288, 8192, 0, "")]
        views = there.register_memory(both, "DRAM")
        all_of_it = there.register_memory([(base, 1 << 16, 0, "")], "DRAM")
        inside = there.register_memory([(base + 100, 50, 0, "")], "DRAM")
        for gone in inside, all_of_it:
            self.same(None, lambda: there.deregister_memory(gone))
        into = np.zeros(1 << 16, dtype=np.uint8)
        here.register_memory([(address(into), 1 << 16, 0, "")], "DRAM")
        here.add_remote_agent(there.get_agent_metadata())
        get = here.get_xfer_descs
        read = here.initialize_xfer(
            "READ",
            get([(address(into) + at, 8192, 0) for at in (0, 8192)], "DRAM"),
            get([(at, length, 0) for at, length, _, _ in both], "DRAM"),
            there.name,
        )
        here.transfer(read)
        self.same("DONE", lambda: finished(here, read))
        want = np.concatenate([whole[8192:16384], whole[12288:20480]])
        self.assertEqual(digest(into[:16384]), digest(want))
        self.same(None, lambda: there.deregister_memory(views))
        self.same(_bindings.nixlNotFoundError, lambda: there.deregister_memory(views))

    def test_metadata(self) -> None:
        here, there = (agent(f"{who}-{uuid.uuid4()}") for who in ("here", "there"))
        memory, more = pattern(4096, 1), pattern(4096, 2)
        there.register_memory([(address(memory), 4096, 0, "")], "DRAM")
        data = there.get_agent_metadata()
        self.assertIsInstance(data, bytes)
        self.same(False, lambda: here.check_remote_metadata(there.name))
        not_found, mismatch = _bindings.nixlNotFoundError, _bindings.nixlMismatchError
        self.same(not_found, lambda: here.send_notif(there.name, b"x"))
        self.same(not_found, lambda: here.make_connection(there.name))
        self.same(
            not_found, lambda: here.prep_xfer_dlist(there.name, [(address(memory), 1, 0)], "DRAM")
        )
        self.same(mismatch, lambda: here.add_remote_agent(b"garbage"))
        self.same(mismatch, lambda: here.add_remote_agent(b""))
        self.same(TypeError, lambda: here.add_remote_agent(None))
        self.same(
            _bindings.nixlInvalidParamError,
            lambda: here.add_remote_agent(here.get_agent_metadata()),
        )
        self.same(there.name.encode(), lambda: here.add_remote_agent(data))
        self.same(there.name.encode(), lambda: here.add_remote_agent(data))
        self.same(None, lambda: here.make_connection(there.name))
        self.same(True, lambda: here.check_remote_metadata(there.name))
        self.same(True, lambda: here.check_remote_metadata(there.name.encode()))

        def offers(at: int, size: int) -> bool:
            descs = here.get_xfer_descs([(at, size, 0)], "DRAM")
            return bool(here.check_remote_metadata(there.name, descs))

        self.same(True, lambda: offers(address(memory), 4096))
        self.same(True, lambda: offers(address(memory) + 100, 16))
        self.same(False, lambda: offers(address(memory) + 1, 4096))
        self.same(False, lambda: offers(64, 16))
        self.same(None, lambda: here.remove_remote_agent(there.name))
        self.same(None, lambda: here.remove_remote_agent(there.name))
        self.same(None, lambda: here.remove_remote_agent("no one"))
        self.same(TypeError, lambda: here.remove_remote_agent(3))
        self.same(False, lambda: here.check_remote_metadata(there.name))
        self.same(not_found, lambda: here.send_notif(there.name, b"x"))
        one = there.get_reg_descs([(address(memory), 4096, 0, "")], "DRAM")
        there.register_memory([(address(more), 4096, 0, "")], "DRAM")
        part = there.get_partial_agent_metadata(one, True)
        self.differs("partial", False, True, lambda: part == there.get_agent_metadata())

    def test_not_offered(self) -> None:
        one = agent(f"not-offered-{uuid.uuid4()}")
        self.same(
            _bindings.nixlNotSupportedError,
            lambda: one.query_memory([(4096, 1, 0, "")], "UCX", "DRAM"),
        )
        self.same(ValueError, lambda: one.query_memory([(4096, 1, 0, "")], "NONE", "DRAM"))
        if not STOCK:  # DIFFERENCES["own metadata exchange"]
            descs = one.get_reg_descs([(4096, 1, 0, "")], "DRAM")
            for call in (
                one.send_local_metadata,
                one.invalidate_local_metadata,
                lambda: one.fetch_remote_metadata("x"),
                lambda: one.send_partial_agent_metadata(descs),
            ):
                self.same(_bindings.nixlNotSupportedError, call)


class Transfers(Case):
    COUNT, SIZE = 64, 1024

    def setUp(self) -> None:
        self.here, self.there, self.a, self.b = self.pair(self.COUNT * self.SIZE)
        self.local = blocks(address(self.a), self.COUNT, self.SIZE)
        self.remote = blocks(address(self.b), self.COUNT, self.SIZE)

    def prepare(self) -> Tuple[Any, Any]:
        return (
            self.here.prep_xfer_dlist("NIXL_INIT_AGENT", self.local, "DRAM"),
            self.here.prep_xfer_dlist(self.there.name, self.remote, "DRAM"),
        )

    def run_to_end(self, handle: Any, notif: Any = b"") -> None:
        self.assertIn(self.here.transfer(handle, notif), ("PROC", "DONE"))
        self.assertEqual(finished(self.here, handle), "DONE")

    def messages(self, count: int) -> List[bytes]:
        got: List[bytes] = []

        def enough() -> bool:
            got.extend(self.there.get_new_notifs().get(self.here.name, []))
            return len(got) >= count

        until(enough, 60, f"{count} notifications")
        return got

    def test_prepped(self) -> None:
        local, remote = self.prepare()
        rng = np.random.default_rng(3)
        for op, kind in (
            *(("WRITE", t) for t in ("int64", "int32", "uint32", "uint64", "int16")),
            *(("READ", list), ("READ", "int64"), ("WRITE", list), ("WRITE", range)),
        ):
            here, there = rng.permutation(self.COUNT)[:20], rng.permutation(self.COUNT)[:20]
            if kind is range:
                here, there = np.arange(20), np.arange(20, 40)
                pick: Tuple[Any, Any] = range(20), range(20, 40)
            elif kind is list:
                pick = here.tolist(), there.tolist()
            else:
                pick = here.astype(kind), there.astype(kind)
            want_a = self.a.reshape(self.COUNT, self.SIZE).copy()
            want_b = self.b.reshape(self.COUNT, self.SIZE).copy()
            if op == "WRITE":
                want_b[there] = want_a[here]
            else:
                want_a[here] = want_b[there]
            handle = self.here.make_prepped_xfer(op, local, pick[0], remote, pick[1])
            self.run_to_end(handle)
            self.here.release_xfer_handle(handle)
            if STOCK:  # UCX over TCP says DONE when the sender may reuse its memory
                until(lambda: np.array_equal(self.b, want_b.ravel()), 60, "bytes")
            self.assertTrue(np.array_equal(self.a, want_a.ravel()), (op, kind))
            self.assertTrue(np.array_equal(self.b, want_b.ravel()), (op, kind))

    @unittest.skipIf(STOCK, "of topoctl's batches")
    def test_unsure_end(self) -> None:
        """ "ERR" says that no byte arrives any more: it is an exception where one may."""
        from topoctl import errors

        get = self.here.get_xfer_descs
        local, remote = get(self.local, "DRAM"), get(self.remote, "DRAM")
        for error, want in (errors.PeerLost, None), (errors.Unsafe, _bindings.nixlBackendError):
            handle = self.here.initialize_xfer("WRITE", local, remote, self.there.name)
            self.run_to_end(handle)
            with mock.patch.object(handle._batch, "poll", side_effect=error("why")):
                for _ in range(2):
                    if want is None:
                        self.assertEqual(self.here.check_xfer_state(handle), "ERR")
                    else:
                        self.assertRaises(want, self.here.check_xfer_state, handle)

    def test_strided(self) -> None:
        """Rows of five columns, as vLLM and SGLang prepare caches: address, length, device, stride,
        count."""
        half, size = self.COUNT // 2, self.SIZE
        a, b = address(self.a), address(self.b)
        here = np.array([[a, 100, 0, size, half], [a + half * size, size, 0, size, half]], np.int64)
        there = np.array([[b, 100, 0, size, half], [b + half * size, size, 0, size, half]], "uint64")
        prepare, peer = self.here.prep_xfer_dlist, self.there.name
        local, remote = prepare("", here, "DRAM"), prepare(peer, there, "DRAM")
        mine, theirs = self.a.reshape(self.COUNT, size), self.b.reshape(self.COUNT, size)
        want = mine.copy()
        want[:half, :100] = theirs[:half, :100][::-1]
        want[half:] = theirs[half:]
        every = np.arange(2 * half)
        other = np.concatenate([every[:half][::-1], every[half:]])
        handle = self.here.make_prepped_xfer("READ", local, every, remote, other)
        self.run_to_end(handle)
        self.assertTrue(np.array_equal(mine, want))
        last = [2 * half]
        self.same(
            _bindings.nixlInvalidParamError,
            lambda: self.here.make_prepped_xfer("READ", local, last, remote, last),
        )
        self.same(ValueError, lambda: prepare("", here))
        self.same(ValueError, lambda: prepare("", here.astype(np.int32), "DRAM"))
        self.same(ValueError, lambda: prepare("", np.asfortranarray(here), "DRAM"))
        for column, value in (1, 0), (3, 0), (3, 99), (3, 1 << 62), (4, 0):
            wrong = here.copy()
            wrong[0, column] = value
            self.same(_bindings.nixlNotFoundError, lambda: prepare("", wrong, "DRAM"))

    def test_one_entry_many_times(self) -> None:
        local, remote = self.prepare()
        handle = self.here.make_prepped_xfer("WRITE", local, [5, 5], remote, [1, 2], b"twice")
        self.run_to_end(handle)
        self.assertEqual(self.messages(1), [b"twice"])
        rows = self.b.reshape(self.COUNT, self.SIZE)
        source = self.a.reshape(self.COUNT, self.SIZE)[5]
        self.assertTrue((rows[1] == source).all() and (rows[2] == source).all())

    def test_wrong_picks(self) -> None:
        local, remote = self.prepare()
        make, invalid = self.here.make_prepped_xfer, _bindings.nixlInvalidParamError
        self.same(KeyError, lambda: make("COPY", local, [0], remote, [0]))
        self.same(KeyError, lambda: make("READ", local, [0], remote, [0], b"", ["NONE"]))
        for here, there in (
            *(([0, 1], [0]), ([0], [0, 1]), ([], []), ([0, 64], [0, 1]), ([0, 1], [0, 64])),
            *(([-1], [0]), ([0], [-1])),
        ):
            self.same(invalid, lambda: make("READ", local, here, remote, there))
            # ints, because an empty numpy array is of floats
            arrays = np.array(here, dtype=np.int64), np.array(there, dtype=np.int64)
            if min([*here, *there], default=0) >= 0:  # a wrapped index is NIXL's own affair
                self.same(invalid, lambda: make("READ", local, arrays[0], remote, arrays[1]))
        self.same(ValueError, lambda: make("READ", local, np.zeros((2, 2), int), remote, [0, 1]))
        self.differs(
            "uncast indices",
            RuntimeError,
            TypeError,
            lambda: make("READ", local, None, remote, None),
        )
        self.same(invalid, lambda: make("READ", remote, [0], local, [0]))
        self.same(invalid, lambda: make("READ", local, [0], local, [1]))
        self.same(invalid, lambda: make("READ", remote, [0], remote, [1]))
        self.same(AttributeError, lambda: make("READ", 1, [0], remote, [0]))
        short = self.here.prep_xfer_dlist("", [(address(self.a), 100, 0)], "DRAM")

        def unequal() -> Any:
            return self.here.transfer(make("READ", short, [0], remote, [0]))

        self.same(invalid, unequal)  # DIFFERENCES["unequal lengths"]

    def test_wrong_ranges(self) -> None:
        not_found = _bindings.nixlNotFoundError
        end = address(self.a) + self.COUNT * self.SIZE

        def attempt(local: int, remote: int) -> Any:
            left = self.here.prep_xfer_dlist("", [(local, 64, 0)], "DRAM")
            right = self.here.prep_xfer_dlist(self.there.name, [(remote, 64, 0)], "DRAM")
            handle = self.here.make_prepped_xfer("READ", left, [0], right, [0])
            state = self.here.transfer(handle)
            while state == "PROC":
                time.sleep(1e-3)
                state = self.here.check_xfer_state(handle)
            return state

        # DIFFERENCES["unregistered"]: the exception is the same, the call that raises it is not
        self.same(not_found, lambda: attempt(end - 32, address(self.b)))
        self.differs("not offered", not_found, "ERR", lambda: attempt(address(self.a), 64))
        self.differs(
            "not offered", not_found, "ERR", lambda: attempt(address(self.a), address(self.a))
        )
        self.same(TypeError, lambda: self.here.prep_xfer_dlist("", None, "DRAM"))
        self.same(KeyError, lambda: self.here.prep_xfer_dlist("", self.local, "DRAM", ["NONE"]))
        self.differs(
            "memory types",
            not_found,
            _api.nixl_prepped_dlist_handle,
            lambda: _raise_type(self.here.prep_xfer_dlist("", [(address(self.a), 64, 7)], "DRAM")),
        )
        self.differs(
            "memory types",
            not_found,
            _api.nixl_prepped_dlist_handle,
            lambda: _raise_type(self.here.prep_xfer_dlist("", [(address(self.a), 64, 0)], "VRAM")),
        )

    def test_initialized(self) -> None:
        get = self.here.get_xfer_descs
        local, remote = get(self.local, "DRAM"), get(self.remote, "DRAM")
        make = self.here.initialize_xfer
        want = digest(self.b)
        handle = make("READ", local, remote, self.there.name, "str")
        self.run_to_end(handle)
        self.assertEqual(digest(self.a), want)
        self.assertEqual(self.messages(1), [b"str"])
        self.run_to_end(make("WRITE", local, remote, self.there.name.encode(), b"bytes"))
        self.assertEqual(self.messages(1), [b"bytes"])
        self.same(KeyError, lambda: make("COPY", local, remote, self.there.name))
        self.same(_bindings.nixlNotFoundError, lambda: make("READ", local, remote, "no one"))
        short = get(self.remote[:3], "DRAM")
        self.same(
            _bindings.nixlInvalidParamError, lambda: make("READ", local, short, self.there.name)
        )

    def test_states(self) -> None:
        local, remote = self.prepare()
        handle = self.here.make_prepped_xfer("WRITE", local, [0], remote, [0], b"first")
        self.same(_bindings.nixlNotPostedError, lambda: self.here.check_xfer_state(handle))
        self.same(_bindings.nixlNotPostedError, lambda: self.here.get_xfer_telemetry(handle))
        self.run_to_end(handle)
        self.same("DONE", lambda: self.here.check_xfer_state(handle))
        self.run_to_end(handle)
        self.run_to_end(handle, b"second")
        self.run_to_end(handle, "third")
        self.run_to_end(handle)
        self.assertEqual(self.messages(5), [b"first", b"first", b"second", b"third", b"third"])
        self.same("UCX", lambda: self.here.query_xfer_backend(handle))
        self.differs(
            "cost",
            "UNKNOWN",
            _bindings.nixlNotSupportedError,
            lambda: _third(self.here.estimate_xfer_cost(handle)),
        )
        for release in (lambda: self.here.release_xfer_handle(handle), handle.release) * 2:
            self.same(None, release)
        if not STOCK:  # DIFFERENCES["released"]
            self.same(_bindings.nixlInvalidParamError, lambda: self.here.transfer(handle))
            self.same(_bindings.nixlNotPostedError, lambda: self.here.check_xfer_state(handle))
            self.same(_bindings.nixlNotPostedError, lambda: self.here.get_xfer_telemetry(handle))

    def test_lists_released_before_their_transfer(self) -> None:
        local, remote = self.prepare()
        handle = self.here.make_prepped_xfer("WRITE", local, [0], remote, [9], b"end")
        for side in local, remote:
            self.same(None, lambda: self.here.release_dlist_handle(side))
            self.same(None, side.release)
        self.run_to_end(handle)
        self.messages(1)
        rows = self.a.reshape(-1, self.SIZE), self.b.reshape(-1, self.SIZE)
        self.assertTrue((rows[0][0] == rows[1][9]).all())
        if not STOCK:  # DIFFERENCES["released list"]
            self.same(
                _bindings.nixlInvalidParamError,
                lambda: self.here.make_prepped_xfer("READ", local, [0], remote, [0]),
            )

    def test_telemetry(self) -> None:
        local, remote = self.prepare()
        handle = self.here.make_prepped_xfer("WRITE", local, [0, 2, 4, 6], remote, [1, 3, 5, 7])
        before = time.monotonic_ns() // 1000
        self.run_to_end(handle)
        after = time.monotonic_ns() // 1000
        told = self.here.get_xfer_telemetry(handle)
        self.assertEqual((told.totalBytes, told.descCount), (4 * self.SIZE, 4))
        self.assertTrue(before <= told.startTime <= after, (before, told.startTime, after))
        self.assertTrue(
            0 <= told.postDuration <= told.xferDuration <= after - before + 1000,
            (told.postDuration, told.xferDuration, after - before),
        )
        empty = _bindings.nixlXferTelemetry()
        self.assertEqual((empty.totalBytes, empty.xferDuration), (0, 0))
        here, there, a, b = self.pair(capture_telemetry=False)
        get = here.get_xfer_descs
        handle = here.initialize_xfer(
            "READ",
            get([(address(a), 64, 0)], "DRAM"),
            get([(address(b), 64, 0)], "DRAM"),
            there.name,
        )
        here.transfer(handle)
        self.assertEqual(finished(here, handle), "DONE")
        self.same(_bindings.nixlNoTelemetryError, lambda: here.get_xfer_telemetry(handle))

    def test_loopback(self) -> None:
        local = self.here.prep_xfer_dlist("", self.local, "DRAM")
        own = self.here.prep_xfer_dlist(self.here.name, self.local, "DRAM")
        handle = self.here.make_prepped_xfer("WRITE", local, [0], own, [9], b"me")
        self.run_to_end(handle)
        until(lambda: self.here.update_notifs().get(self.here.name), 60, "notification")
        self.assertEqual(self.here.update_notifs()[self.here.name], [b"me"])
        rows = self.a.reshape(-1, self.SIZE)
        self.assertTrue((rows[0] == rows[9]).all())

    def test_removed_agent(self) -> None:
        local, remote = self.prepare()
        self.here.remove_remote_agent(self.there.name)
        self.same(
            _bindings.nixlNotFoundError,
            lambda: self.here.make_prepped_xfer("READ", local, [0], remote, [0]),
        )
        self.here.add_remote_agent(self.there.get_agent_metadata())
        remote = self.here.prep_xfer_dlist(self.there.name, self.remote, "DRAM")
        self.run_to_end(self.here.make_prepped_xfer("READ", local, [0], remote, [0]))


class Running(Case):
    SIZE = 1 << (26 if STOCK else 28)  # more than connections hold

    def test_running(self) -> None:
        here = agent(f"here-{uuid.uuid4()}")
        memory = pattern(self.SIZE, 1)
        here.register_memory([(address(memory), self.SIZE, 0, "")], "DRAM")
        with Peer(f"peer-{uuid.uuid4()}", self.SIZE, 2) as peer:
            here.add_remote_agent(peer.metadata)
            get = here.get_xfer_descs
            local = get([(address(memory), self.SIZE, 0)], "DRAM")
            remote = get([(peer.base, self.SIZE, 0)], "DRAM")
            handle = here.initialize_xfer("WRITE", local, remote, peer.name, b"one")
            os.kill(peer.pid, signal.SIGSTOP)
            try:
                self.assertEqual(here.transfer(handle), "PROC")
                self.same(_bindings.nixlRepostActiveError, lambda: here.transfer(handle))
            finally:
                os.kill(peer.pid, signal.SIGCONT)
            self.same("DONE", lambda: finished(here, handle))
            self.assertEqual(peer.notifications(here.name, 1), [b"one"])
            self.assertEqual(self.digest(peer), digest(memory))
            memory[:] = pattern(self.SIZE, 3)
            handle = here.initialize_xfer("WRITE", local, remote, peer.name, b"two")
            here.transfer(handle)
            self.same(None, lambda: here.release_xfer_handle(handle))
            self.same(None, lambda: here.release_xfer_handle(handle))
            here.send_notif(peer.name, b"last")
            got = peer.notifications(here.name, 1)
            if got[0] == b"two":  # it was over before it was released
                self.assertEqual(self.digest(peer), digest(memory))
                got = got[1:] or peer.notifications(here.name, 1)
            self.assertEqual(got, [b"last"])

    def digest(self, peer: Peer) -> str:
        return str(peer.ask("digest", at=0, size=self.SIZE)["digest"])


class Notifications(Case):
    def test_messages(self) -> None:
        here, there, _, _ = self.pair()
        for message in (b"bytes", "str", b"\0\xff", b"", b"x" * 60000):
            self.same(None, lambda: here.send_notif(there.name, message))
        self.same(None, lambda: here.send_notif(there.name.encode(), notif_msg=b"name"))
        got: List[bytes] = []

        def enough() -> bool:
            got.extend(there.get_new_notifs().get(here.name, []))
            return len(got) >= 6

        until(enough, 60, "notifications")
        self.assertEqual(got, [b"bytes", b"str", b"\0\xff", b"", b"x" * 60000, b"name"])
        self.same({}, there.get_new_notifs)
        self.same({}, lambda: there.get_new_notifs(["UCX"]))
        self.same(None, lambda: here.send_notif(here.name, b"own"))
        until(lambda: here.update_notifs().get(here.name) == [b"own"], 60, "own notification")
        self.same(_bindings.nixlNotFoundError, lambda: here.send_notif("no one", b"x"))
        self.same(KeyError, lambda: here.send_notif(there.name, b"x", "NONE"))
        self.differs(
            "backend of a notification",
            TypeError,
            None,
            lambda: here.send_notif(there.name, b"x", "UCX"),
        )
        self.differs(
            "large notification",
            None,
            _bindings.nixlBackendError,
            lambda: here.send_notif(there.name, b"x" * (2 << 20)),
        )

    def test_heartbeats(self) -> None:
        """vLLM's name all requests that wait, and a worker that computes does not read them."""
        here, there, _, _ = self.pair()
        heartbeat = b"HB:" + b",".join(b"%043d" % i for i in range(4000))
        self.same(None, lambda: here.send_notif(there.name, heartbeat))
        for _ in range(1200):
            here.send_notif(there.name, b"HB:")
        until(lambda: len(there.update_notifs().get(here.name, [])) == 1201, 60, "notifications")
        self.assertEqual(there.notifs[here.name], [heartbeat, *[b"HB:"] * 1200])

    def test_tags(self) -> None:
        here, there, _, _ = self.pair()
        here.send_notif(there.name, b"tag-1")
        here.send_notif(there.name, b"tag-2")
        until(lambda: len(there.update_notifs().get(here.name, [])) == 2, 60, "notifications")
        done = there.check_remote_xfer_done
        self.same(True, lambda: done(here.name, b"tag-2"))
        self.same(False, lambda: done(here.name, b"tag-2"))
        self.same(False, lambda: done(here.name, b"ag-1"))
        self.same(True, lambda: done(here.name, b"ag-1", tag_is_prefix=False))
        self.same(False, lambda: done("no one", b"tag"))
        self.same({here.name: []}, there.update_notifs)
        here.send_notif(there.name, b"new")
        got: Dict[str, List[bytes]] = {}
        until(lambda: got.update(there.get_new_notifs()) or got, 60, "notification")
        self.assertEqual(got, {here.name: [b"new"]})
        self.same({here.name: []}, there.update_notifs)


class Processes(Case):
    """The other agent is in another process."""

    COUNT, SIZE = 256, 16 << 10

    def test_random_batches(self) -> None:
        total = self.COUNT * self.SIZE
        here = agent(f"here-{uuid.uuid4()}")
        memory = pattern(total, 7)
        here.register_memory([(address(memory), total, 0, "")], "DRAM")
        with Peer(f"peer-{uuid.uuid4()}", total, 8) as peer:
            theirs = pattern(total, 8)  # what it has there
            self.assertEqual(here.add_remote_agent(peer.metadata), peer.name.encode())
            peer.ask("add", metadata=here.get_agent_metadata().hex())
            local = here.prep_xfer_dlist("", blocks(address(memory), self.COUNT, self.SIZE), "DRAM")
            remote = here.prep_xfer_dlist(
                peer.name, blocks(peer.base, self.COUNT, self.SIZE), "DRAM"
            )
            mine, other = memory.reshape(self.COUNT, -1), theirs.reshape(self.COUNT, -1)
            rng = np.random.default_rng(9)
            for i in range(60 if STOCK and not LONG else 200):
                n = int(rng.integers(1, 40))
                a, b = (rng.permutation(self.COUNT)[:n] for _ in "ab")
                op = ("READ", "WRITE")[int(rng.integers(2))]
                handle = here.make_prepped_xfer(op, local, a, remote, b, f"{i}".encode())
                want = mine.copy() if op == "READ" else other
                want[a if op == "READ" else b] = other[b] if op == "READ" else mine[a]
                here.transfer(handle)
                self.assertEqual(finished(here, handle), "DONE")
                here.release_xfer_handle(handle)
                # the peer's program sees the notification, and then the bytes
                self.assertEqual(peer.notifications(here.name, 1), [f"{i}".encode()])
                if op == "READ":
                    self.assertTrue(np.array_equal(mine, want), i)
                if i % 20 == 19:
                    told = peer.ask("digest", at=0, size=total)["digest"]
                    self.assertEqual(told, digest(theirs), i)
            peer.ask("send", to=here.name, message=b"bye".hex())
            until(lambda: here.update_notifs().get(peer.name) == [b"bye"], 60, "notification")

    def test_threads(self) -> None:
        """Ten threads with transfers of their own, as vLLM's and SGLang's workers have."""
        total = self.COUNT * self.SIZE
        strict = _api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
        here = agent(f"here-{uuid.uuid4()}", sync_mode=strict)
        memory = np.zeros(total, dtype=np.uint8)
        here.register_memory([(address(memory), total, 0, "")], "DRAM")
        failures: List[BaseException] = []
        with Peer(f"peer-{uuid.uuid4()}", total, 8) as peer:
            here.add_remote_agent(peer.metadata)
            local = here.prep_xfer_dlist("", blocks(address(memory), self.COUNT, self.SIZE), "DRAM")
            remote = here.prep_xfer_dlist(
                peer.name, blocks(peer.base, self.COUNT, self.SIZE), "DRAM"
            )

            def work(first: int) -> None:
                try:
                    for i in range(first, self.COUNT, 10):
                        handle = here.make_prepped_xfer("READ", local, [i], remote, [i])
                        here.transfer(handle)
                        self.assertEqual(finished(here, handle), "DONE")
                        here.release_xfer_handle(handle)
                except BaseException as e:
                    failures.append(e)

            threads = [threading.Thread(target=work, args=(i,)) for i in range(10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])
            self.assertEqual(digest(memory), digest(pattern(total, 8)))


class Hosts(Case):
    """Who may be a peer: topoctl's own, NIXL lets everyone in."""

    def setUp(self) -> None:
        if STOCK:
            self.skipTest("NIXL's package has no token")

    def read(self, here: Any, peer: Peer) -> str:
        memory = np.zeros(4096, dtype=np.uint8)
        here.register_memory([(address(memory), 4096, 0, "")], "DRAM")
        Case.kept += [here, memory]
        get = here.get_xfer_descs
        handle = here.initialize_xfer(
            "READ",
            get([(address(memory), 4096, 0)], "DRAM"),
            get([(peer.base, 4096, 0)], "DRAM"),
            here.add_remote_agent(peer.metadata),
        )
        state = here.transfer(handle)
        state = finished(here, handle) if state == "PROC" else state
        if state == "DONE":
            self.assertEqual(digest(memory), digest(pattern(4096, 51)))
        return str(state)

    def test_token(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            right, wrong = (pathlib.Path(folder, name) for name in ("right", "wrong"))
            right.write_text("a-secret-of-sixteen-bytes\n")
            wrong.write_text("another-one-that-is-wrong\n")
            with Peer(f"peer-{uuid.uuid4()}", 4096, 51, TOPOCTL_TOKEN_FILE=str(right)) as peer:
                for token, want in (right, "DONE"), (wrong, "ERR"), (None, "ERR"):
                    with environment(TOPOCTL_TOKEN_FILE=token and str(token)):
                        here = agent(f"here-{uuid.uuid4()}")
                    self.assertEqual(self.read(here, peer), want, token)

    def test_addresses(self) -> None:
        with environment(TOPOCTL_LISTEN="0.0.0.0:0"):
            with self.assertRaisesRegex(_bindings.nixlBackendError, "TOPOCTL_INSECURE=1"):
                agent(f"here-{uuid.uuid4()}")
        with Peer(f"peer-{uuid.uuid4()}", 4096, 51, TOPOCTL_INSECURE="1") as peer:
            self.assertEqual(self.read(agent(f"here-{uuid.uuid4()}"), peer), "DONE")
            told = json.loads(peer.metadata)["addresses"]
            hosts = [ipaddress.ip_address(at.rpartition(":")[0].strip("[]")) for at in told]
            routes = pathlib.Path("/proc/net/route").read_text().splitlines()[1:]
            if routes:
                self.assertTrue(any(not host.is_loopback for host in hosts), told)
            self.assertFalse(any(host.is_unspecified for host in hosts), told)


@contextlib.contextmanager
def environment(**variables: Optional[str]) -> Iterator[None]:
    """Variables for the agents that are made inside, without others of topoctl that say who may be
    a peer."""
    ours = ("TOPOCTL_TOKEN_FILE", "TOPOCTL_INSECURE", "TOPOCTL_LISTEN")
    before = dict(os.environ)
    for name in ours:
        os.environ.pop(name, None)
    os.environ.update({name: value for name, value in variables.items() if value})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def table() -> str:
    rows = ["| call | NIXL 1.5.1 | topoctl |", "|---|---|---|"]
    return "\n".join(rows + ["| " + " | ".join(row) + " |" for row in DIFFERENCES.values()])


ENDS = """
import os, sys
import numpy as np
import rixl._api
from nixl_peer import address, agent, pattern
size = 64 << 20
here, there = agent("here"), agent("there")
assert type(here) is rixl._api.nixl_agent
a, b = pattern(size, 1), np.zeros(size, dtype=np.uint8)
here.register_memory([(address(a), size, 0, "")], "DRAM")
there.register_memory([(address(b), size, 0, "")], "DRAM")
here.add_remote_agent(there.get_agent_metadata())
descs = [here.get_xfer_descs([(address(m), size, 0)], "DRAM") for m in (a, b)]
handle = here.initialize_xfer("WRITE", *descs, "there")
here.transfer(handle)
if sys.argv[1] == "fork":
    child = os.fork()
    if not child:
        try:
            here.send_notif("there", b"x")
        except Exception as e:
            os._exit(int("fork" not in str(e)))
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
elif sys.argv[1] == "drop":
    del handle, here
elif sys.argv[1] == "raise":
    raise SystemExit(7)
"""


class Ends(Case):
    """What topoctl's package does where a process ends or forks while it moves memory; NIXL's
    crashes at every exit."""

    def test_process(self) -> None:
        if STOCK:
            self.skipTest("NIXL's package crashes when the interpreter exits")
        for how, want in ("return", 0), ("fork", 0), ("drop", 0), ("raise", 7):
            done = subprocess.run(
                [sys.executable, "-c", ENDS, how],
                cwd=pathlib.Path(__file__).parent,
                timeout=60,
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.returncode, want, (how, done.stderr))


class Document(Case):
    def test_table(self) -> None:
        page = pathlib.Path(__file__).parents[2] / "docs/nixl.md"
        self.assertIn(table(), page.read_text())


def _raise_type(value: Any) -> Any:
    """The class of a result, to compare it with that of an exception."""
    return type(value)


def _third(value: Any) -> Any:
    return value[2]


if __name__ == "__main__":
    if sys.argv[1:] == ["--differences"]:
        print(table())
        exit_now(True)
    exit_now(unittest.main(exit=False).result.wasSuccessful())
