"""What becomes of transfers whose peer is killed, stopped or restarted: the stock wheel and
topoctl's mooncake by the same calls. It prints what it saw; with topoctl's it also fails where

- a transfer whose peer is gone has not failed after LOST seconds,
- a transfer with the restarted peer takes longer than RESTARTED seconds, or moves other bytes,
- bytes land after the call that moves them has said that it failed.

    python mooncake_restart.py [restarted | idle | stopped | gone]...
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any, Callable, List, Optional

os.environ.setdefault("MC_TRANSFER_TIMEOUT", "5")  # the least there is; read by the constructor

from mooncake_peer import OURS, Memory, Peer, free_port, opened

SIZE, PIECE, AGAIN = 64 << 20, 1 << 20, 16 << 20
LOST, RESTARTED, STOPPED, PATIENCE = 30.0, 20.0, 10.0, 60.0  # seconds: limits, not what it takes
SENTINEL = 0xA5

failures: List[str] = []


def note(what: str, seen: str) -> None:
    print(f"{what}: {seen}", flush=True)


def require(ok: bool, what: str) -> None:
    """Holds topoctl to it; the stock wheel is reported as seen."""
    if not ok:
        note("NOT", what)
        if OURS:
            failures.append(what)


class Call(threading.Thread):
    """A call in a thread of its own, since it may never come back."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.call, self.result, self.seconds = call, None, PATIENCE
        self.start()

    def run(self) -> None:
        begin = time.monotonic()
        try:
            self.result = self.call()
        except Exception as e:
            self.result = type(e).__name__
        self.seconds = time.monotonic() - begin

    def value(self) -> Any:
        self.join(PATIENCE)
        return self.result

    def __str__(self) -> str:
        self.value()
        if self.is_alive():
            return f"no answer in {PATIENCE:.0f} s"
        return f"{self.result} after {self.seconds:.2f} s"


class Scene:
    """An engine, a peer that listens at the same port each time, and a batch that runs."""

    def __init__(self, op: str) -> None:
        self.op, self.engine, self.memory = op, opened(), Memory(SIZE)
        assert self.engine.register_memory(self.memory.address, SIZE) == 0
        self.port = free_port()
        self.peer = self.start()

    def start(self) -> Peer:
        return Peer(SIZE, port=self.port)

    def transfer(self, size: int) -> int:
        move = getattr(self.engine, f"batch_transfer_sync_{self.op}")
        here, there = self.memory.address, self.peer.address
        places = range(0, size, PIECE)
        return int(
            move(
                self.peer.name,
                [here + at for at in places],
                [there + at for at in places],
                [min(PIECE, size)] * len(places),
            )
        )

    def running(self, number: int) -> Call:
        """A transfer in whose middle the peer got a signal."""
        assert self.transfer(PIECE) == 0, "the first transfer failed"
        for part in 4, 8, 16, 32, 64:
            begin = time.monotonic()
            assert self.transfer(SIZE) == 0, "a transfer that nothing happens to failed"
            alone = time.monotonic() - begin
            self.memory.fill(1)
            call = Call(lambda: self.transfer(SIZE))
            time.sleep(alone / part)
            self.peer.signal(number)
            call.join(0.1)
            if call.result != 0:
                return call
            self.restart()  # it was over before
            end = time.monotonic() + PATIENCE
            while self.transfer(PIECE) != 0 and time.monotonic() < end:
                pass  # the engine learns by it that the peer is another
        raise AssertionError("every transfer was over before the peer got the signal")

    def failed(self, call: Call, what: str) -> None:
        note(f"{what}: the old transfer", str(call))
        require(call.result == -1 and call.seconds < LOST, f"{what}: the old transfer: {call}")

    def works(self, what: str) -> None:
        """A transfer with the peer as it is now."""
        self.memory.fill(2 if self.op == "write" else 3)
        self.peer.tell("fill", 3 if self.op == "write" else 2)
        call = Call(lambda: self.transfer(AGAIN))
        said = str(call)
        wrong = self.peer.tell("others", 2) if self.op == "write" else self.memory.others(2)
        right = wrong == SIZE - AGAIN
        note(what, f"{said}, {'the right bytes' if right else 'not the bytes'}")
        ok = call.result == 0 and right and call.seconds < RESTARTED
        require(ok, f"{what}: {said}, {wrong:,} other bytes")
        if call.result != 0:
            self.until_it_works(what)

    def until_it_works(self, what: str) -> None:
        begin, calls = time.monotonic(), 1
        while time.monotonic() - begin < PATIENCE:
            calls += 1
            if Call(lambda: self.transfer(AGAIN)).value() == 0:
                return note(
                    f"{what}: works", f"{time.monotonic() - begin:.1f} s later, call {calls}"
                )
            time.sleep(0.5)
        note(f"{what}: works", f"not within {PATIENCE:.0f} s")

    def quiet(self, what: str) -> None:
        """No byte lands any more."""
        self.memory.fill(SENTINEL)
        self.peer.tell("fill", SENTINEL)
        time.sleep(2)
        late = self.memory.others(SENTINEL) + self.peer.tell("others", SENTINEL)
        note(f"{what}: bytes that landed late", f"{late:,}")
        require(late == 0, f"{what}: {late:,} bytes landed late")

    def restart(self) -> None:
        self.peer.close()
        self.peer = self.start()


def restarted(scene: Scene, what: str) -> None:
    """kill -9, and the peer is back on its port."""
    call = scene.running(signal.SIGKILL)
    scene.restart()
    scene.failed(call, what)
    scene.works(f"{what}: the next call")
    scene.quiet(what)


def idle(scene: Scene, what: str) -> None:
    """kill -9 while nothing runs, and the peer is back on its port."""
    assert scene.transfer(PIECE) == 0, "the first transfer failed"
    scene.restart()
    scene.works(f"{what}: the next call")


def stopped(scene: Scene, what: str) -> None:
    """SIGSTOP for ten seconds, twice what a transfer may take."""
    began = time.monotonic()
    call = scene.running(signal.SIGSTOP)
    scene.failed(call, what)
    time.sleep(max(0.0, STOPPED - (time.monotonic() - began)))
    scene.peer.signal(signal.SIGCONT)
    scene.works(f"{what}: the first call after it")
    scene.quiet(what)


def gone(scene: Scene, what: str) -> None:
    """kill -9, and the peer never comes back."""
    scene.failed(scene.running(signal.SIGKILL), what)
    call = Call(lambda: scene.transfer(AGAIN))
    note(f"{what}: the next call", str(call))
    require(call.result == -1 and call.seconds < LOST, f"{what}: the next call: {call}")
    known = scene.engine.get_first_buffer_address(scene.peer.name)
    note(f"{what}: get_first_buffer_address", f"{known:#x}")
    require(known == 0, f"{what}: get_first_buffer_address: {known:#x}")
    scene.memory.fill(SENTINEL)
    time.sleep(1)
    late = scene.memory.others(SENTINEL)
    require(late == 0, f"{what}: {late:,} bytes landed late")


def main() -> Optional[str]:
    scenes = {"restarted": restarted, "idle": idle, "stopped": stopped, "gone": gone}
    for name in sys.argv[1:] or scenes:
        for op in "write", "read":
            scene = Scene(op)
            try:
                scenes[name](scene, f"{name}, {op}")
            finally:
                scene.peer.close()
    return "; ".join(failures) or None


if __name__ == "__main__":
    failure = main()
    print(failure or "ok", flush=True)
    os._exit(1 if failure else 0)  # a call that never came back would hold the interpreter
