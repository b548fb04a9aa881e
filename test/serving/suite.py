"""vLLM with a prefill and a decode server over topoctl's packages, and over the stock ones in turn.

Every answer is compared, token by token, with that of a server that does both. Runs in the environment that install
makes, as root: it makes network namespaces.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid

import load
import model

HERE = pathlib.Path(__file__).parent
BYTES_PER_TOKEN = 4 * 2 * 4 * 64 * 4  # of the model's cache: layers, keys and values, heads, width of a head, float32
ENVIRONMENT = {
    **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"), "1"),
    "NIXL_LOG_LEVEL": "WARN",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
CONNECTORS = ["NixlConnector", "NixlPushConnector", "MooncakeConnector"]
PACKAGES = ["topoctl", "stock"]
INSIDE = "TOPOCTL_SERVING_INSIDE"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


async def get(url):
    def read():
        with urllib.request.urlopen(url, timeout=5) as r:
            return r.read()

    return await asyncio.to_thread(read)


class Server:
    """A server of vLLM, in a process group of its own. start works again after kill, at the same ports."""

    def __init__(self, bench, name, package, connector=None, env={}, args=(), host="127.0.0.1", namespace=0):
        self.bench, self.name = bench, name
        port, side, http = free_port(), free_port(), free_port()
        self.url, self.bootstrap, self.engine_url = f"http://{host}:{port}", f"http://{host}:{side}", f"http://{host}:{http}"
        self.request = {
            "args": [
                *("--model", str(bench.folder / "model"), "--served-model-name", "m"),
                *("--host", host, "--port", str(port), "--dtype", "float32", "--enforce-eager"),
                *("--max-model-len", "1024", "--max-num-seqs", "16", "--no-enable-prefix-caching"),
                *("--kv-cache-memory-bytes", str(256 << 20)),
                *(("--kv-transfer-config", json.dumps(connector)) if connector else ()),
                *args,
            ],
            "env": {
                "VLLM_HOST_IP": host,
                "VLLM_NIXL_SIDE_CHANNEL_HOST": host,
                "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side),
                "VLLM_MOONCAKE_BOOTSTRAP_PORT": str(side),
                "TOPOCTL_HTTP": f"{host}:{http}",
                **env,
            },
            "paths": [str(bench.compat), str(bench.compat.parent.parent)] if package == "topoctl" else [],
            "log": str(bench.folder / f"{name.replace(' ', '-')}.log"),
            "namespace": namespace,
        }

    async def start(self):
        self.pid = await self.bench.fork(self.request)
        self.bench.servers.add(self)

    async def ready(self, seconds=180):
        end = time.monotonic() + seconds
        while time.monotonic() < end and os.path.exists(f"/proc/{self.pid}"):
            with contextlib.suppress(OSError):
                await get(self.url + "/health")
                return
            await asyncio.sleep(0.1)
        raise RuntimeError(f"{self.name} is not up: its log is {self.request['log']}")

    def signal(self, number):
        os.killpg(self.pid, number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.bench.servers.discard(self)

    async def engine(self):
        """What topoctl's engine of this server says of itself."""
        return json.loads(await get(self.engine_url + "/v1/engine"))


class Pair:
    """A prefill and a decode server. prefill and decode have what Server takes for one of them; with fixed_id they keep
    their engine_id when they are started again."""

    def __init__(self, bench, name, package, connector, prefill={}, decode={}, fixed_id=False):
        def server(role, kv_role, options):
            config = {"kv_connector": connector, "kv_role": kv_role, "kv_buffer_device": "cpu"}
            if fixed_id:
                config["engine_id"] = role
            return Server(bench, f"{name} {role}", package, config, **options)

        self.name, self.package = name, package
        self.prefill = server("prefill", "kv_producer", prefill)
        self.decode = server("decode", "kv_consumer", decode)
        self.route = load.Pair(self.decode.url, self.prefill.url, self.prefill.bootstrap if connector == "MooncakeConnector" else "")

    def signal(self, number):
        for server in self.prefill, self.decode:
            server.signal(number)

    async def __aenter__(self):
        for server in self.prefill, self.decode:
            await server.start()
        for server in self.prefill, self.decode:
            await server.ready()
        return self

    async def __aexit__(self, *_):
        for server in self.prefill, self.decode:
            server.kill()

    async def lanes(self):
        """What carried the caches, by the counters of topoctl's engines: that of the server which reads or writes."""
        engines = [await server.engine() for server in (self.prefill, self.decode)]
        return [lane for engine in engines for lane in engine["lanes"]]


class Bench:
    """What all cases share: the model, the process that servers are forked from, and the right answers."""

    def __init__(self, folder, compat, program, packages, connectors):
        self.folder, self.compat, self.program = folder, compat, program
        self.packages, self.connectors = packages, connectors
        self.servers, self.faults, self.compared = set(), [], 0

    async def open(self):
        folders = dict.fromkeys(("TMPDIR", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT"), str(self.folder))
        env = {**os.environ, **ENVIRONMENT, **folders}
        env.pop("PYTHONPATH", None)  # the stock packages are those of the environment
        with open(self.folder / "servers.log", "w") as log:
            command = [sys.executable, HERE / "servers.py"]
            pipe = asyncio.subprocess.PIPE
            self.origin = await asyncio.create_subprocess_exec(*command, env=env, stdin=pipe, stdout=pipe, stderr=log)
        model.write(str(self.folder / "model"))
        if await self.origin.stdout.readline() != b"ready\n":
            raise RuntimeError(f"vLLM cannot be imported: see {log.name}")

    async def fork(self, request):
        self.origin.stdin.write(json.dumps(request).encode() + b"\n")
        return int(await self.origin.stdout.readline())

    async def answers(self, texts):
        """What a server without a connector answers, which computes prompts and answers."""
        both = Server(self, "both", "stock")
        await both.start()
        await both.ready()
        run = await load.load(load.Pair(both.url), texts, 8)
        both.kill()
        if run.errors:
            raise RuntimeError(f"the server that does both: {run.errors}: its log is {both.request['log']}")
        return {a.prompt: a.tokens for a in run.answers}

    def check(self, right, what):
        if not right:
            self.faults.append(what)
            print("WRONG:", what, flush=True)

    def judge(self, pair, run):
        """Holds topoctl to no error and no wrong token."""
        self.compared += len(run.good)
        if pair.package == "topoctl":
            self.check(not run.errors and not run.wrong, f"{pair.name}: {dict(run.errors)}, {run.wrong} wrong answers")
        print(f"{pair.name}: {len(run.good)} answers, {run.wrong} of them wrong", flush=True)

    async def moved(self, pair, texts):
        """Holds the engine's counters to the caches of these prompts."""
        moved = sum(lane["bytes"] for lane in await pair.lanes())
        least = BYTES_PER_TOKEN * sum(map(len, texts))
        self.check(moved >= least, f"{pair.name}: the engine moved {moved} bytes for caches of {least}")
        print(f"{pair.name}: {moved} bytes moved by topoctl's engines", flush=True)

    async def close(self):
        for server in list(self.servers):
            with contextlib.suppress(ProcessLookupError):
                server.kill()
        self.origin.kill()
        await self.origin.wait()


async def short(bench):
    """One pair, 40 requests."""
    texts = load.prompts(40)
    want = await bench.answers(texts)
    async with Pair(bench, "short", "topoctl", "NixlConnector") as pair:
        run = await load.load(pair.route, texts, 4, want=want)
        bench.judge(pair, run)
        await bench.moved(pair, texts)


async def answers(bench):
    """Three connectors, topoctl's packages and the stock ones in turn while the others stand still; times in ms."""
    texts = load.prompts(60)
    want = await bench.answers(texts)
    rows = []
    for connector in bench.connectors:
        async with contextlib.AsyncExitStack() as up:
            pairs = [await up.enter_async_context(Pair(bench, f"{p}-{connector}", p, connector)) for p in bench.packages]
            runs = {(p.package, c): [] for p in pairs for c in (1, 8)}
            for _ in range(2):
                for pair in pairs:
                    for other in pairs:
                        other.signal(signal.SIGCONT if other is pair else signal.SIGSTOP)
                    for concurrency, some in (1, texts[:20]), (8, texts):
                        run = await load.load(pair.route, some, concurrency, want=want)
                        bench.judge(pair, run)
                        runs[pair.package, concurrency].append(run)
            for pair in pairs:
                pair.signal(signal.SIGCONT)
                if pair.package == "topoctl":
                    await bench.moved(pair, 2 * (texts[:20] + texts))
        rows += [[connector, package, str(c), *load.columns(some)] for (package, c), some in runs.items()]
    print(load.table(["connector", "package", "clients", *load.HEADINGS], rows))


async def options(bench):
    """topoctl's packages with prefix caching, with blocks of two sizes, and with two ranks."""
    texts = load.prompts(40, shared=140)
    want = await bench.answers(texts)
    caching = {"args": ["--enable-prefix-caching"]}
    ranks = {"args": ["--tensor-parallel-size", "2"], "env": {"TOPOCTL_HTTP": "127.0.0.1:0"}}  # two engines, two ports
    cases = {"prefix caching": (caching, caching), "2 and 2 ranks": (ranks, ranks), "1 and 2 ranks": ({}, ranks)}
    for name, (prefill, decode) in cases.items():
        async with Pair(bench, name, "topoctl", "NixlConnector", prefill, decode) as pair:
            bench.judge(pair, await load.load(pair.route, texts, 4, want=want))
    # vLLM 0.32 reads such blocks wrong on processors, over the stock package too. One request at a time always gives the
    # same wrong answers, so topoctl's package is to give those.
    for package in "stock", "topoctl":
        small, large = ({"args": ["--block-size", size]} for size in ("32", "64"))
        async with Pair(bench, f"{package}, blocks of 32 and 64", package, "NixlConnector", small, large) as pair:
            run = await load.load(pair.route, texts, 1, want=want)
            bench.judge(pair, run)
            want = {a.prompt: a.tokens for a in run.good}


@contextlib.contextmanager
def second_host():
    """A network namespace with two cables to this one, and the process that holds it."""
    command = [*"unshare --net --mount sh -c".split(), "mount -t sysfs sysfs /sys && echo up && exec cat"]
    far = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    far.stdout.readline()
    there = f"nsenter --net --target {far.pid} "
    call(there + "ip link set lo up")
    for i in range(2):
        call(f"ip link add near{i} type veth peer name far{i} netns {far.pid}")
        for prefix, name, host in ("", f"near{i}", 1), (there, f"far{i}", 2):
            call(f"{prefix}ip address add 10.79.{i}.{host}/24 dev {name}")
            call(f"{prefix}ip link set {name} up")
    try:
        yield far.pid
    finally:
        far.kill()
        far.wait()


def call(command):
    subprocess.run(command.split(), check=True, stdout=subprocess.DEVNULL)


async def hosts(bench):
    """Two hosts with two cables: open, with a token, with certificates, sealed while a cable is cut."""
    texts = load.prompts(80)
    want = await bench.answers(texts)
    (bench.folder / "token").write_text(uuid.uuid4().hex)
    addresses = ",".join(f"10.79.{i}.{host}" for i in range(2) for host in (1, 2))
    for command in "ca", f"host all --ip {addresses}":
        call(f"{bench.program} cert {command} --dir {bench.folder}")
    token = {"TOPOCTL_TOKEN_FILE": f"{bench.folder}/token"}
    files = {"CA": "ca.crt", "CERT": "all.crt", "KEY": "all.key"}
    certificates = {f"TOPOCTL_{key}_FILE": f"{bench.folder}/{name}" for key, name in files.items()}
    nixl, _, mooncake = CONNECTORS
    cases = {
        "open": (nixl, {"TOPOCTL_INSECURE": "1"}),
        "token": (nixl, token),
        "certificates": (mooncake, certificates),  # vLLM gives agents of NIXL random names, which no certificate has
        "sealed": (nixl, {**token, "TOPOCTL_PROTECTION": "sealed"}),
    }
    with second_host() as far:
        for name, (connector, env) in cases.items():
            prefill = {"host": "10.79.1.1", "env": env}
            decode = {"host": "10.79.1.2", "env": env, "namespace": far}
            async with Pair(bench, name, "topoctl", connector, prefill, decode) as pair:
                end = asyncio.Event()
                loading = asyncio.create_task(load.load(pair.route, texts, 4, want=want, until=end))
                await asyncio.sleep(5)
                if name == "sealed":
                    call("ip link set near0 down")
                await asyncio.sleep(5)
                end.set()
                bench.judge(pair, await loading)
                lanes = await pair.lanes()
                for lane in lanes:
                    print(f"{name}: {lane['lane']} {lane['connection']}: {lane['bytes']} bytes, {lane['health']}", flush=True)
                bench.check(sum(lane["bytes"] > 0 for lane in lanes) == 2, f"{name}: two lanes carry")


async def faults(bench):
    """Servers killed and started again, and stopped: what four clients see, which try again after 0.5 s."""
    texts = load.prompts(80)
    want = await bench.answers(texts)
    headings = ["fault", "connector", "package", "good", "wrong", "errors", "longest gap, s", "good again after, s"]
    stop, kill = (signal.SIGSTOP, "stop"), (signal.SIGKILL, "kill -9")
    rows = []
    for connector, package, fixed_id in itertools.product(bench.connectors, bench.packages, (False, True)):
        if connector == "MooncakeConnector":
            continue  # vLLM keeps the address of a prefill server that was started again
        some = [(*kill, 1)] if fixed_id else [(*stop, 10), (*stop, 20), (*kill, 1)]
        async with Pair(bench, f"{package}-{connector}-{fixed_id}", package, connector, fixed_id=fixed_id) as pair:
            for (number, does, seconds), role in itertools.product(some, ("prefill", "decode")):
                how = ", same engine_id" if fixed_id else f" {seconds} s" if number == signal.SIGSTOP else ""
                row = await fail(bench, pair, getattr(pair, role), number, seconds, texts, want)
                rows.append([f"{does} {role}{how}", connector, package, *row])
                print(" | ".join(rows[-1]), flush=True)
    print(load.table(headings, sorted(rows)))


async def fail(bench, pair, server, number, seconds, texts, want):
    """What clients see of a server that is sent this signal, as the columns of faults."""
    end = asyncio.Event()
    loading = asyncio.create_task(load.load(pair.route, texts, 4, want=want, until=end, timeout=40, pause=0.5))
    await asyncio.sleep(5)
    begin = time.monotonic()
    server.signal(number)
    await asyncio.sleep(seconds)
    if number == signal.SIGKILL:
        await server.start()
        await server.ready()
    else:
        server.signal(signal.SIGCONT)
    back = time.monotonic()
    await asyncio.sleep(10)
    end.set()
    run = await loading
    bench.compared += len(run.good)
    bench.check(not run.wrong or pair.package == "stock", f"{pair.name}: {run.wrong} wrong answers")
    errors = ", ".join(f"{count} {error}" for error, count in run.errors.items()) or "none"
    again = min((a.end - back for a in run.good if a.begin > begin), default=None)
    good = "never" if again is None else f"{again:.1f}"
    return str(len(run.good)), str(run.wrong), errors, f"{run.longest_gap:.1f}", good


CASES = {case.__name__: case for case in (short, answers, options, hosts, faults)}


async def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compat", type=pathlib.Path, help="the folder of topoctl's packages nixl and mooncake")
    parser.add_argument("--package", action="append", choices=PACKAGES, help="only over this; repeatable")
    parser.add_argument("--connector", action="append", choices=CONNECTORS, help="only with this; repeatable")
    parser.add_argument("case", nargs="*", choices=CASES)
    a = parser.parse_args()
    if not a.compat:
        import topoctl.compat

        a.compat = pathlib.Path(topoctl.compat.__path__[0])
    folder = pathlib.Path(tempfile.mkdtemp(prefix="serving-"))
    program = os.environ.get("TOPOCTL_PROGRAM") or str(pathlib.Path(sys.executable).parent / "topoctl")
    bench = Bench(folder, a.compat.resolve(), program, a.package or PACKAGES, a.connector or CONNECTORS)
    begin = time.monotonic()
    try:
        await bench.open()
        for name in a.case or CASES:
            print(f"\n== {name}: {CASES[name].__doc__}", flush=True)
            await CASES[name](bench)
    finally:
        await bench.close()
    print(f"\n{bench.compared} answers compared in {time.monotonic() - begin:.0f} s")
    if bench.faults:
        sys.exit(f"{len(bench.faults)} faults; logs are in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    if not os.environ.get(INSIDE):
        # A host of its own, with no network but what the cases make.
        host = 'mount -t sysfs sysfs /sys && ip link set lo up && exec "$@"'
        os.environ[INSIDE] = "1"
        os.execvp("unshare", [*"unshare --net --mount sh -c".split(), host, "sh", sys.executable, *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # stops the servers too
    asyncio.run(main())
