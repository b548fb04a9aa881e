"""What becomes of transfers whose peer is killed, stopped or restarted: NIXL's own package and
topoctl's by the same calls. It prints a table; with topoctl's package it also fails where

- a transfer whose peer is gone is still "PROC" after LOST seconds,
- a READ from the restarted peer takes longer than RESTARTED seconds, or gives other bytes,
- a call waits for a silent peer for more than WAITED seconds,
- bytes land in memory after its transfer was said to have ended.

    UCX_TLS=tcp,self python nixl_restart.py [restarted | killed | stopped | gone | silent]...
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import uuid
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
from nixl_peer import STOCK, Peer, address, agent, digest, exit_now, pattern, until

SIZE = 256 << 20
STOPPED, RESTARTED, WAITED = 20.0, 20.0, 20.0  # seconds: limits, not what it takes
LOST = 10 + 1.5 * float(os.environ.get("TOPOCTL_GIVE_UP", 60))
PATIENCE = LOST + 10
PUSHED, PIECE = 200, 64 << 10  # WRITEs to a peer that stands still
SENTINEL = 0xA5

rows: List[Tuple[str, str]] = []
failures: List[str] = []


def note(what: str, result: str) -> None:
    rows.append((what, result))
    print(f"{what}: {result}", flush=True)


def require(ok: bool, what: str) -> None:
    """Holds topoctl to it; NIXL is reported as seen."""
    if not ok:
        note("NOT", what)
        if not STOCK:
            failures.append(what)


def state(call: Callable[[], Any]) -> str:
    try:
        return str(call())
    except Exception as e:
        return type(e).__name__


def ended(here: Any, handle: Any, seconds: float) -> Tuple[str, float]:
    """The state of a transfer as soon as it has ended, or "PROC", and how long that took."""
    begin = time.monotonic()
    while True:
        now, waited = state(lambda: here.check_xfer_state(handle)), time.monotonic() - begin
        if now != "PROC" or waited > seconds:
            return now, waited
        time.sleep(0.001)


class Scene:
    """An agent here, a peer in a process of its own, and a READ of all its memory that is running."""

    def __init__(self) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.environment = {"TOPOCTL_LISTEN": f"127.0.0.1:{s.getsockname()[1]}"}
        self.name = f"producer-{uuid.uuid4()}"
        self.here = agent(f"consumer-{uuid.uuid4()}")
        self.memory = np.zeros(SIZE, dtype=np.uint8)
        self.here.register_memory([(address(self.memory), SIZE, 0, "")], "DRAM")
        self.peer = self.start()
        self.here.add_remote_agent(self.peer.metadata)

    def start(self) -> Peer:
        return Peer(self.name, SIZE, 1, **self.environment)

    def read(self, size: int = SIZE, op: str = "READ") -> Any:
        get = self.here.get_xfer_descs
        return self.here.initialize_xfer(
            op,
            get([(address(self.memory), size, 0)], "DRAM"),
            get([(self.peer.base, size, 0)], "DRAM"),
            self.name,
            b"read",
        )

    def running(self) -> Any:
        """A READ that runs. The first one makes the connection and is let to end."""
        first = self.read(4096)
        self.here.transfer(first)
        until(lambda: self.here.check_xfer_state(first) == "DONE", 20, "first READ")
        for _ in range(20):
            handle = self.read()
            if self.here.transfer(handle) == "PROC":
                return handle
        raise AssertionError("every READ had ended when it was looked at")

    def quiet(self, what: str) -> None:
        """No byte lands any more in memory that was filled with SENTINEL."""
        time.sleep(3)
        late = int((self.memory != SENTINEL).sum())
        note(f"{what}: bytes that landed late", f"{late:,}")
        require(late == 0, f"{what}: {late:,} bytes landed late")

    def read_again(self, what: str) -> None:
        """A READ of the peer as it is now."""
        begin = time.monotonic()

        def attempt() -> str:
            handle = self.read(16 << 20)
            now = self.here.transfer(handle)
            return ended(self.here, handle, PATIENCE)[0] if now == "PROC" else now

        result = state(attempt)
        took = time.monotonic() - begin
        right = np.array_equal(self.memory[: 16 << 20], pattern(SIZE, 1)[: 16 << 20])
        ok = result == "DONE" and right
        note(what, f"{result}, {'the right bytes' if right else 'not the bytes'}, {took:.2f} s")
        require(ok and took < RESTARTED, f"{what}: {result} after {took:.2f} s")

    def close(self) -> None:
        self.peer.close()


def lost(scene: Scene, handle: Any, what: str, added: bool = False) -> None:
    """The end of a transfer whose peer is gone, and has been added again where that is said."""
    now, took = ended(scene.here, handle, PATIENCE)
    still = "still PROC after" if now == "PROC" else f"{now} after"
    note(f"{what}: the old transfer", f"{still} {took:.2f} s")
    require(now == "ERR" and took < LOST, f"{what}: the old transfer says {now} after {took:.2f} s")
    known = scene.here.check_remote_metadata(scene.name)
    note(f"{what}: check_remote_metadata", str(known))
    require(known == added, f"{what}: check_remote_metadata says {known}")


def restarted(scene: Scene) -> None:
    """The peer is back, under its name and on its port, before anyone has noticed."""
    handle = scene.running()
    scene.peer.close()
    scene.peer = scene.start()
    metadata = scene.peer.metadata
    note("restarted: add_remote_agent", state(lambda: scene.here.add_remote_agent(metadata)))
    lost(scene, handle, "restarted", added=True)
    scene.read_again("restarted: READ from the peer")
    scene.memory[:] = SENTINEL
    scene.quiet("restarted")


def killed(scene: Scene) -> None:
    handle = scene.running()
    scene.peer.kill()
    lost(scene, handle, "killed")
    note("killed: release", state(lambda: scene.here.release_xfer_handle(handle)))
    scene.memory[:] = SENTINEL
    scene.quiet("killed")
    scene.peer.close()
    scene.peer = scene.start()
    begin = time.monotonic()
    added = state(lambda: scene.here.add_remote_agent(scene.peer.metadata).decode() == scene.name)
    note(
        "killed: add_remote_agent of the restarted peer",
        f"{added}, {time.monotonic() - begin:.2f} s",
    )
    if added != "True":
        require(False, f"add_remote_agent: {added}")
        note(
            "killed: remove_remote_agent", state(lambda: scene.here.remove_remote_agent(scene.name))
        )
        added = state(lambda: scene.here.add_remote_agent(scene.peer.metadata).decode())
        note("killed: add_remote_agent again", added)
    scene.read_again("killed: READ from the restarted peer")


def stopped(scene: Scene) -> None:
    """A peer that stands still is not a dead one: what was begun before and meanwhile arrives."""
    handle = scene.running()
    begin = time.monotonic()
    os.kill(scene.peer.pid, signal.SIGSTOP)
    pushed = [scene.read(PIECE, "WRITE") for _ in range(PUSHED)]
    for one in pushed:
        scene.here.transfer(one)
    now, took = ended(scene.here, handle, STOPPED)
    note(f"stopped for {STOPPED:.0f} s: the transfer", f"{now} after {took:.2f} s")
    time.sleep(max(0.0, STOPPED - (time.monotonic() - begin)))
    os.kill(scene.peer.pid, signal.SIGCONT)
    if now == "PROC":
        now, took = ended(scene.here, handle, PATIENCE)
        note("stopped: the transfer, after it goes on", f"{now} after {took:.2f} s")
    arrived = sum(ended(scene.here, one, PATIENCE)[0] == "DONE" for one in pushed)
    note("stopped: WRITEs begun meanwhile that arrived", f"{arrived} of {PUSHED}")
    require(now == "DONE" and arrived == PUSHED, f"stopped: {now}, {arrived} of {PUSHED}")
    scene.peer.notifications(scene.here.name, arrived + 2)  # and that of the READs
    require(scene.here.check_remote_metadata(scene.name), "stopped: the agent is unknown")
    scene.read_again("stopped: READ after it goes on")


def gone(scene: Scene) -> None:
    handle = scene.running()
    scene.peer.kill()
    lost(scene, handle, "never back")

    def timed(what: str, call: Callable[[], Any]) -> None:
        begin = time.monotonic()
        now = state(call)
        took = time.monotonic() - begin
        note(f"never back: {what}", f"{now}, {took:.2f} s")
        require(took < LOST and now not in ("PROC", "DONE", "None"), f"never back: {what}: {now}")

    def another() -> str:
        second = scene.read(4096)
        now = str(scene.here.transfer(second))
        return ended(scene.here, second, PATIENCE)[0] if now == "PROC" else now

    timed("the next READ", another)
    timed("send_notif", lambda: scene.here.send_notif(scene.name, b"HB:"))
    note(
        "never back: remove_remote_agent", state(lambda: scene.here.remove_remote_agent(scene.name))
    )


def silent(scene: Scene) -> None:
    """Stopped: it neither answers nor refuses. It goes on when its transfer was released."""
    handle = scene.running()
    os.kill(scene.peer.pid, signal.SIGSTOP)
    write = scene.read(op="WRITE")
    begun = state(lambda: scene.here.transfer(write))
    lost(scene, handle, "silent")
    now_write, _ = ended(scene.here, write, PATIENCE)
    note("silent: a WRITE", f"{begun}, then {now_write}")
    require(now_write in ("ERR", "nixlBackendError"), f"silent: a WRITE says {now_write}")
    read = scene.read(4096)
    begin = time.monotonic()
    begun = state(lambda: scene.here.transfer(read))
    took = time.monotonic() - begin
    now_read, _ = ended(scene.here, read, PATIENCE)
    note("silent: the next READ", f"{begun} after {took:.2f} s, then {now_read}")
    require(took < WAITED and now_read == "ERR", f"silent: the next READ says {now_read}")
    for what, call in (
        ("send_notif", lambda: scene.here.send_notif(scene.name, b"HB:")),
        ("release_xfer_handle", lambda: scene.here.release_xfer_handle(handle)),
        ("remove_remote_agent", lambda: scene.here.remove_remote_agent(scene.name)),
    ):
        begin = time.monotonic()
        now = state(call)
        took = time.monotonic() - begin
        note(f"silent: {what}", f"{now}, {took:.2f} s")
        require(took < WAITED and now != "PROC", f"silent: {what}: {now} after {took:.2f} s")
    scene.memory[:] = SENTINEL
    os.kill(scene.peer.pid, signal.SIGCONT)
    scene.quiet("silent, then goes on")
    if now_write == "ERR":  # then nothing of it arrives
        there = scene.peer.ask("digest", at=0, size=SIZE)["digest"]
        require(there == digest(pattern(SIZE, 1)), "silent: a WRITE that said ERR arrived")


SCENES: Dict[str, Callable[[Scene], None]] = {
    "restarted": restarted,
    "killed": killed,
    "stopped": stopped,
    "gone": gone,
    "silent": silent,
}


def main() -> bool:
    for name in sys.argv[1:] or SCENES:
        scene = Scene()
        try:
            SCENES[name](scene)
        finally:
            scene.close()
    for failure in failures:
        print(f"FAIL: {failure}")
    return not failures


if __name__ == "__main__":
    try:
        good = main()
    except BaseException:
        import traceback

        traceback.print_exc()
        good = False
    exit_now(good)
