"""topoctl's nixl beside NIXL's own over UCX, on this host: batches of descriptors of 4 KiB to 16 MiB
that are picked by index from prepared lists, READ and WRITE, as vLLM moves blocks (make, transfer,
check until it ends, release); and the time to prepare a million descriptors, to pick them all and
to move them. They take turns, each alone; the figures are medians of the rounds.

    python nixl_speed.py --ours PYTHON [--stock PYTHON] [--rounds 7] [--seconds 0.3]

PYTHON are the interpreters of environments with topoctl's wheel and with nixl; ours is given its
path entry by this script. The machine should do nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any, Dict, List, Sequence, Tuple

CASES = [(4 << 10, 128), (64 << 10, 64), (1 << 20, 16), (16 << 20, 4)]  # bytes, descriptors a batch
OPS = "READ", "WRITE"
TOTAL = 256 << 20
MILLION = 1_000_000
COMPAT = """
import pathlib, topoctl
print(pathlib.Path(topoctl.__file__).with_name("compat"))
"""

KINDS: Dict[str, Dict[str, str]] = {
    "topoctl": {},
    "UCX_TLS=tcp": {"UCX_TLS": "tcp,self"},
    "UCX_TLS=shm": {"UCX_TLS": "shm,self", "NIXL_TEST_UCX_ERRORS": "none"},
}


# The process that moves.


def batch(here: Any, lists: Any, op: str, picks: Any) -> None:
    handle = here.make_prepped_xfer(op, lists[0], picks[0], lists[1], picks[1])
    state = here.transfer(handle)
    while state == "PROC":
        state = here.check_xfer_state(handle)
    if state != "DONE":
        raise RuntimeError(f"{op}: {state}")
    here.release_xfer_handle(handle)


def measure(here: Any, lists: Any, request: Dict[str, Any]) -> float:
    """Bytes per second, of batches that take request["seconds"] together."""
    import numpy as np

    size, count = request["size"], request["count"]
    rng = np.random.default_rng(5)
    picks = [
        [rng.permutation(TOTAL // size)[:count].astype(np.int64) for _ in "ab"] for _ in range(16)
    ]
    batch(here, lists, request["op"], picks[0])
    rounds, begin = 0, time.perf_counter()
    while True:
        batch(here, lists, request["op"], picks[rounds % len(picks)])
        rounds += 1
        took = time.perf_counter() - begin
        if took > request["seconds"]:
            return rounds * size * count / took


def million(here: Any, peer: Any, base: int) -> Dict[str, float]:
    """Seconds to prepare, and to make a transfer of all of them."""
    import numpy as np
    from nixl_peer import blocks

    size = TOTAL // MILLION
    times = {}
    begin = time.perf_counter()
    lists = [
        here.prep_xfer_dlist(who, here.get_xfer_descs(blocks(at, MILLION, size), "DRAM"))
        for who, at in (("", base), (peer.name, peer.base))
    ]
    times["prepare both lists"] = time.perf_counter() - begin
    order = np.random.default_rng(6).permutation(MILLION)
    for kind in "int64", "int32":
        index = order.astype(kind)
        begin = time.perf_counter()
        handle = here.make_prepped_xfer("READ", lists[0], index, lists[1], index)
        times[f"pick all, {kind}"] = time.perf_counter() - begin
    begin = time.perf_counter()
    state = here.transfer(handle)
    times["transfer() of all"] = time.perf_counter() - begin
    while state == "PROC":
        time.sleep(0.01)
        state = here.check_xfer_state(handle)
    times["until all are moved"] = time.perf_counter() - begin
    if state != "DONE":
        raise RuntimeError(f"a million descriptors: {state}")
    return times


def work() -> None:
    from nixl_peer import Peer, address, agent, blocks, exit_now, pattern

    here = agent("speed-here", num_threads=4)
    memory = pattern(TOTAL, 1)
    here.register_memory([(address(memory), TOTAL, 0, "")], "DRAM")
    with Peer("speed-there", TOTAL, 2) as peer:
        here.add_remote_agent(peer.metadata)
        lists = {
            size: [
                here.prep_xfer_dlist(who, blocks(base, TOTAL // size, size), "DRAM")
                for who, base in (("", address(memory)), (peer.name, peer.base))
            ]
            for size, _ in CASES
        }
        print("{}", flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            if "size" in request:
                answer: Any = measure(here, lists[request["size"]], request)
            else:
                answer = million(here, peer, address(memory))
            print(json.dumps({"answer": answer}), flush=True)
    exit_now(True)


# The process that compares.


class Worker:
    def __init__(self, python: str, environment: Dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [python, os.path.abspath(__file__), "--work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NIXL_LOG_LEVEL": "FATAL", **environment},
        )
        self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line).get("answer")
        raise RuntimeError(f"the worker ended with {self.process.wait()}")

    def ask(self, **request: Any) -> Any:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # answer says how it ended
        return self.answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compare() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--stock")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3)
    args = parser.parse_args()
    kinds: Dict[str, Tuple[str, Dict[str, str]]] = {}
    for name, environment in KINDS.items():
        if name == "topoctl":
            path = subprocess.run(
                [args.ours, "-c", COMPAT], check=True, capture_output=True, text=True
            ).stdout.strip()
            known = os.environ.get("PYTHONPATH", "")
            kinds[name] = args.ours, {"PYTHONPATH": os.pathsep.join(filter(None, (path, known)))}
        elif args.stock:
            kinds[name] = args.stock, environment
    rates: Dict[Tuple[str, str, int], List[float]] = {}  # GB/s
    times: Dict[Tuple[str, str], List[float]] = {}  # of a million descriptors, in seconds
    for _ in range(args.rounds):
        for name, (python, environment) in kinds.items():
            worker = Worker(python, environment)  # alone: threads of UCX use processors though idle
            for op in OPS:
                for size, count in CASES:
                    asked = dict(op=op, size=size, count=count, seconds=args.seconds)
                    rates.setdefault((name, op, size), []).append(worker.ask(**asked) / 1e9)
            for what, t in worker.ask(million=True).items():
                times.setdefault((name, what), []).append(t)
            worker.close()
    control = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    print(
        f"GB/s, medians of {args.rounds} rounds of {args.seconds} s, in turns; "
        f"the system's TCP congestion control is {control}; {os.cpu_count()} processors\n"
    )
    table(["op", "descriptor", "a batch", *kinds])
    for op in OPS:
        for size, count in CASES:
            cells = [f"{statistics.median(rates[name, op, size]):.2f}" for name in kinds]
            table([op, f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB", count, *cells], False)
    print("\nA million descriptors, seconds:\n")
    table(["", *kinds])
    for what in dict.fromkeys(what for _, what in times):
        table([what, *(f"{statistics.median(times[name, what]):.2f}" for name in kinds)], False)


def table(cells: Sequence[Any], header: bool = True) -> None:
    print("| " + " | ".join(map(str, cells)) + " |")
    if header:
        print("|" + "---|" * len(cells))


if __name__ == "__main__":
    work() if sys.argv[1:] == ["--work"] else compare()
