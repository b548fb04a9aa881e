"""How fast mooncake.engine moves memory between two processes of this host, over TCP: topoctl
bench, topoctl's mooncake, and the stock wheel as it comes and with its pool of connections. They take
turns; the figures are medians of the rounds.

    python mooncake_speed.py --wheel PYTHON --compat DIR --topoctl PROGRAM [--rounds 7]

PYTHON has the stock wheel and topoctl's package, DIR is what "topoctl python env" puts in front of
its path.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from typing import Dict, List

SIZES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20}
OPS = "write", "read"
SPACE, BATCH = 64 << 20, 64  # bytes on each side, ops of a batch at most
PAGE = "64 KiB"  # LMCache's, which sends each with a call of its own
PAGE_P50 = f"{PAGE}, one write at a time, p50 in µs"

Figures = Dict[str, float]  # GB/s by size and direction, and PAGE_P50


def batch_of(size: int) -> int:
    return min(BATCH, SPACE // size)


def measure(seconds: float) -> Figures:
    """One round of the package that Python finds."""
    from mooncake_peer import Memory, Peer, opened

    engine, memory, peer = opened(), Memory(SPACE), Peer(SPACE)
    assert engine.register_memory(memory.address, SPACE) == 0
    memory.fill(1)
    seen: Figures = {}
    for name, size in SIZES.items():
        count, batches = batch_of(size), []
        for start in range(0, SPACE, size * count):
            places = range(start, start + size * count, size)
            here = [memory.address + at for at in places]
            there = [peer.address + at for at in reversed(places)]  # so that none continues another
            batches.append((peer.name, here, there, [size] * count))
        for op in OPS:
            move = getattr(engine, f"batch_transfer_sync_{op}")
            done, begin = -1, time.perf_counter()  # the first is not counted
            while (took := time.perf_counter() - begin) < seconds:
                if move(*batches[done % len(batches)]) != 0:
                    raise SystemExit(f"{op} of {count} x {name} failed")
                done += 1
                if done == 0:
                    begin = time.perf_counter()
            seen[f"{name}, {op}"] = done * count * size / took / 1e9
    times, size = [], SIZES[PAGE]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        at = len(times) % (SPACE // size) * size
        begin = time.perf_counter()
        result = engine.transfer_sync_write(peer.name, memory.address + at, peer.address + at, size)
        times.append(time.perf_counter() - begin)
        assert result == 0
    seen[PAGE_P50] = statistics.median(times) * 1e6
    peer.close()
    return seen


def of_python(python: str, seconds: float, **environment: str) -> Figures:
    command = [python, os.path.abspath(__file__), "--measure", str(seconds)]
    environment = {**os.environ, **environment}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said = [line[7:] for line in done.stdout.splitlines() if line.startswith("answer ")]
    if not said:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return dict(json.loads(said[0]))


def of_bench(program: str, seconds: float) -> Figures:
    def bench(*flags: str) -> List[Dict[str, object]]:
        every = f"--transport tcp --in-flight 1 --memory {SPACE} --duration {seconds}s -o json -q"
        command = [program, "bench", *every.split(), *flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        document = json.loads(done.stdout)
        congestion_control.update(r["congestion_control"] for r in document["results"])
        return list(document["results"])

    seen: Figures = {}
    for name, size in SIZES.items():
        for result in bench(f"--size={size}", f"--batch={batch_of(size)}"):
            seen[f"{name}, {result['op']}"] = result["bytes_per_sec"] / 1e9
    single = bench(f"--size={SIZES[PAGE]}", "--batch=1", "--op=write")[0]
    seen[PAGE_P50] = single["latency_ns"]["p50"] / 1e3
    return seen


congestion_control: set = set()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--measure", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--wheel")
    parser.add_argument("--compat")
    parser.add_argument("--topoctl")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    o = parser.parse_args()
    if o.measure is not None:
        print("answer " + json.dumps(measure(o.measure)), flush=True)
        os._exit(0)  # the stock wheel takes its time to end
    ways = {
        "topoctl bench": lambda: of_bench(o.topoctl, o.seconds),
        "topoctl": lambda: of_python(o.wheel, o.seconds, PYTHONPATH=o.compat),
        "stock": lambda: of_python(o.wheel, o.seconds, PYTHONPATH=""),
        "stock, pool": lambda: of_python(
            *(o.wheel, o.seconds), PYTHONPATH="", MC_TCP_ENABLE_CONNECTION_POOL="1"
        ),
    }
    rounds: Dict[str, List[Figures]] = {way: [] for way in ways}
    for _ in range(o.rounds):
        for way, figures in ways.items():
            rounds[way].append(figures())
    print(f"GB/s, medians of {o.rounds}, {o.seconds} s each; {', '.join(congestion_control)}\n")
    print(f"| | {' | '.join(ways)} |")
    print(f"| --- |{' --- |' * len(ways)}")
    for cell in rounds["stock"][0]:
        medians = (statistics.median(r[cell] for r in rounds[way]) for way in ways)
        print(f"| {cell} | {' | '.join(f'{m:.2f}' for m in medians)} |")


if __name__ == "__main__":
    main()
