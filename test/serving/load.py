"""A router for a prefill and a decode server of vLLM, and the load that it routes, in one program.

Each prompt goes to the prefill server for one token, and with what that answers to the decode server. With --both the
answers are compared, token by token, with those of a server that does both.
"""

import argparse
import asyncio
import collections
import dataclasses
import itertools
import json
import random
import statistics
import sys
import time
import uuid

import aiohttp

WORDS = 2048  # of the model


@dataclasses.dataclass
class Pair:
    """Where to send prompts. Without prefill, decode does both. bootstrap is MooncakeConnector's, of the prefill server."""

    decode: str
    prefill: str = ""
    bootstrap: str = ""


@dataclasses.dataclass
class Answer:
    prompt: int
    begin: float
    tokens: list = dataclasses.field(default_factory=list)
    times: list = dataclasses.field(default_factory=list)  # when each token came
    end: float = 0
    error: str = ""

    @property
    def ttft(self):
        return self.times[0] - self.begin

    @property
    def itl(self):
        return [b - a for a, b in itertools.pairwise(self.times)]

    @property
    def tpot(self):
        return statistics.mean(self.itl)


@dataclasses.dataclass
class Run:
    answers: list
    wrong: int
    seconds: float

    @property
    def good(self):
        return [a for a in self.answers if not a.error]

    @property
    def errors(self):
        return collections.Counter(a.error for a in self.answers if a.error)

    @property
    def longest_gap(self):
        """The longest time without the end of a good answer, to the end of the run, seconds."""
        ends = [*sorted(a.end for a in self.good), max(a.end for a in self.answers)]
        return max((b - a for a, b in itertools.pairwise(ends)), default=float("inf"))


def prompts(count, low=150, high=600, shared=0, seed=1):
    """Prompts of random words. They end alike, so that only what is before, the cache that moves, tells them apart. The
    first shared words are the same too."""
    r = random.Random(seed)

    def words(n):
        return [r.randrange(3, WORDS) for _ in range(n)]

    head, tail = words(shared), words(8)
    return [head + words(r.randrange(low, high) - shared) + tail for _ in range(count)]


async def prefill(session, pair, body, name):
    """Has the cache of a prompt computed, and gives the parameters with which the decode server gets it."""
    ask = {"do_remote_decode": True, "do_remote_prefill": False}
    if pair.bootstrap:
        ask["transfer_id"] = name
    body = {**body, "max_tokens": 1, "kv_transfer_params": ask}
    async with session.post(pair.prefill + "/v1/completions", json=body, headers={"X-Request-Id": name}) as r:
        if r.status != 200:
            raise RuntimeError(f"prefill: {r.status}")
        answer = await r.json()
    if not pair.bootstrap:
        return answer["kv_transfer_params"]
    async with session.get(pair.bootstrap + "/query") as r:
        (rank,) = (await r.json()).values()
    get = {"do_remote_decode": False, "do_remote_prefill": True, "transfer_id": name}
    return {**get, "remote_bootstrap_addr": pair.bootstrap, "remote_engine_id": rank["engine_id"]}


async def decode(session, pair, body, name, tokens, answer):
    body = {**body, "max_tokens": tokens, "ignore_eos": True, "stream": True, "return_token_ids": True}
    async with session.post(pair.decode + "/v1/completions", json=body, headers={"X-Request-Id": name}) as r:
        if r.status != 200:
            raise RuntimeError(f"decode: {r.status}")
        async for line in r.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError("decode: an error in the stream")
            came = event["choices"][0].get("token_ids") or []
            answer.tokens += came
            answer.times += [time.monotonic()] * len(came)
    if len(answer.tokens) != tokens:
        raise RuntimeError("decode: the stream ended early")


async def load(pair, texts, concurrency, tokens=8, want=None, until=None, timeout=120, pause=0):
    """Sends each prompt once, or all again and again until an event is set. Each of the clients waits for its answer,
    timeout seconds at most, and after an error for pause seconds, before it sends the next. Where want is given, an
    answer with other tokens is wrong."""
    answers, wrong = [], 0
    begin = time.monotonic()
    order = itertools.cycle(range(len(texts))) if until else iter(range(len(texts)))
    total = aiohttp.ClientTimeout(total=timeout)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=total, connector=connector) as session:

        async def client():
            nonlocal wrong
            for i in order:
                if until and until.is_set():
                    return
                answer, name = Answer(i, time.monotonic()), uuid.uuid4().hex
                body = {"model": "m", "temperature": 0, "prompt": texts[i]}
                try:
                    if pair.prefill:
                        decoding = {**body, "kv_transfer_params": await prefill(session, pair, body, name)}
                    else:
                        decoding = body
                    await decode(session, pair, decoding, name, tokens, answer)
                    wrong += bool(want) and answer.tokens != want[i]
                except (aiohttp.ClientError, OSError, RuntimeError) as e:
                    answer.error = str(e) if isinstance(e, RuntimeError) else type(e).__name__
                answer.end = time.monotonic()
                answers.append(answer)
                if answer.error:
                    await asyncio.sleep(pause)

        await asyncio.gather(*(client() for _ in range(concurrency)))
    return Run(answers, wrong, time.monotonic() - begin)


HEADINGS = ["requests", "wrong", "errors", *(f"{k} TTFT" for k in ("mean", "median", "P99")), *(f"{k} TPOT" for k in ("mean", "median", "P99")), *(f"{k} ITL" for k in ("mean", "median", "P99")), "mean E2E", "requests/s"]  # fmt: skip


def columns(runs):
    """What these runs together have below HEADINGS; times are milliseconds."""
    good = [a for run in runs for a in run.good]

    def three(values):
        values = sorted(1e3 * v for v in values)
        return statistics.mean(values), statistics.median(values), values[int(0.99 * len(values))]

    times = [*three([a.ttft for a in good]), *three([a.tpot for a in good]), *three([v for a in good for v in a.itl])]
    times.append(1e3 * statistics.mean(a.end - a.begin for a in good))
    counts = len(good), sum(run.wrong for run in runs), sum(sum(run.errors.values()) for run in runs)
    rate = len(good) / sum(run.seconds for run in runs)
    return [*(str(n) for n in counts), *(f"{t:.1f}" for t in times), f"{rate:.1f}"]


def table(headings, rows):
    """Rows as a table of Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [headings, ["---"] * len(headings), *rows])


async def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefill", required=True, metavar="URL")
    parser.add_argument("--decode", required=True, metavar="URL")
    parser.add_argument("--both", metavar="URL", help="a server that does both, whose answers are the right ones")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--concurrency", type=int, default=4)
    a = parser.parse_args()
    texts = prompts(a.requests)
    want = None
    if a.both:
        alone = await load(Pair(a.both), texts, a.concurrency)
        want = {answer.prompt: answer.tokens for answer in alone.good}
    run = await load(Pair(a.decode, a.prefill), texts, a.concurrency, want=want)
    for error, count in run.errors.items():
        print(f"{count} of {error}", file=sys.stderr)
    if not run.good:
        sys.exit("no answer came")
    for heading, value in zip(HEADINGS, columns([run])):
        print(f"{heading:12} {value}")
    sys.exit(bool(run.wrong or run.errors))


if __name__ == "__main__":
    asyncio.run(main())
