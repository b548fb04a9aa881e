"""Attacks on engines, by the client and the responder that were written from docs/wire.md: bounded in number and
time, on the loopback interface alone. Each prints a line of a table: what was attacked, how often, what happened.
SEED repeats a run, TIMES scales it (1: some five minutes)."""
import json
import os
import random
import re
import secrets
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

import responder
import wire
from test_wire import GO, LEVELS, PATTERN, Go, tokens, with_token

SEED = int(os.environ.get("SEED", "0")) or secrets.randbits(32)
TIMES = float(os.environ.get("TIMES", "1"))
MOST_MEMORY_KIB = 400 << 10  # of an engine that is attacked


def times(n):
    return max(1, int(n * TIMES))


def tell(what, count, happened):
    print(f"| {what} | {count} | {happened} |", flush=True)


def mutated(rng, data):
    """Some bytes changed, cut out, doubled or put in."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(5)
        if kind == 0 and at < len(out):
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 1:
            del out[at:at + rng.randint(1, 9)]
        elif kind == 2:
            out[at:at] = out[at:at + rng.randint(1, 40)]
        elif kind == 3:
            out[at:at] = rng.randbytes(rng.randint(1, 9))
        elif at + 8 <= len(out):
            out[at:at + 8] = struct.pack(">Q", rng.choice((0, 1, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)))
    return bytes(out)


class Attack(unittest.TestCase):
    """An engine in Go with two regions, and a good peer beside the attacker, who says whether all is well."""

    @classmethod
    def setUpClass(cls):
        cls.tokens = tokens(cls)
        cls.rng = random.Random(SEED)
        print(f"\nseed {SEED}, times {TIMES:g}", flush=True)

    def setUp(self):
        self.go = Go("-tokens", self.tokens, "-protect", "open")
        self.addCleanup(self.stop)
        self.good = wire.Session(self.go.address, with_token())
        self.addCleanup(self.good.close)
        self.good.describe()
        self.both, self.read = (int(self.good.regions[n]["id"]) for n in ("both", "read"))
        self.mark = secrets.token_bytes(1 << 20)
        self.assertEqual(self.good.data(wire.PAYLOAD).write_to([(self.both, 0, 1 << 20)], self.mark), wire.OK)

    def stop(self):
        said = self.go.said()
        self.go.stop()
        self.assertNotRegex(said, r"panic:|fatal error:|DATA RACE")

    def well(self, what=""):
        """The engine lives, serves, has its bytes, and has not grown."""
        s = wire.Session(self.go.address, with_token())
        d = s.data(wire.PAYLOAD)
        for region, want in (self.both, self.mark), (self.read, PATTERN):
            status, got = d.read_from([(region, 0, 1 << 20)])
            self.assertTrue(status == wire.OK and got == want, f"status {status}, or bytes changed: {what}")
        s.bye()
        with open(f"/proc/{self.go.process.pid}/status") as status:
            peak = int(re.search(r"VmHWM:\s+(\d+)", status.read())[1])
        self.assertLess(peak, MOST_MEMORY_KIB, f"{peak} KiB: {what}")

    def each(self, name, count, one, every=50):
        """Runs an attack many times; what it gets back must be a refusal or the end of its connection."""
        got = {}
        for i in range(times(count)):
            try:
                outcome = one(i)
            except wire.Refused:
                outcome = "refused"
            except wire.Failed:
                outcome = "call failed"
            except (wire.Closed, OSError):
                outcome = "closed"
            got[outcome] = got.get(outcome, 0) + 1
            if i % every == 0:
                self.well(f"{name}, attack {i}, seed {SEED}")
        self.well(f"{name}, seed {SEED}")
        tell(name, times(count), ", ".join(f"{n} {k}" for k, n in sorted(got.items())) + "; no byte changed")
        return got

    def ended(self, ch):
        """Whether the engine ends a connection, within a while."""
        ch.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 300_000))
        try:
            while ch.read(1):
                pass
        except TimeoutError:
            return "left waiting"
        finally:
            ch.close()

    def test_first_bytes(self):
        """Strangers who say anything but a handshake."""
        first = wire.hello(wire.CONTROL, secrets.token_bytes(16), flags=wire.HAS_TOKEN, own_epoch=wire.epoch(), own_name="x")

        def one(i):
            ch = wire.Plain(socket.create_connection(self.go.address.rsplit(":", 1)))
            ch.write((self.rng.randbytes(self.rng.randint(1, 200)), mutated(self.rng, first), b"GET / HTTP/1.1\r\n\r\n",
                      b"\x16\x03\x01" + self.rng.randbytes(60))[i % 4])
            return self.ended(ch)
        self.each("first bytes of a stranger", 400, one)

    def test_handshakes(self):
        """Changed handshakes, with the token and without, for sessions and for data."""
        agreed, conn = self.good.accept(wire.HEADERS)

        def one(i):
            data, token = i % 2 == 0, SECRETS[i % 3]
            first = (wire.hello(wire.DATA, self.good.id, conn) if data else
                     wire.hello(wire.CONTROL, secrets.token_bytes(16), flags=wire.HAS_TOKEN, own_epoch=wire.epoch(), own_name="x"))
            ch = wire.dial(self.go.address, with_token(), plain=data)
            try:
                if i % 5:
                    first = mutated(self.rng, first)
                    ch.write(first)
                    wire.read_first(ch)
                    ch.write(mutated(self.rng, wire.second_packet(self.rng.randbytes(32))))
                    wire.read_second(ch)
                    return "answered with a refusal"
                wire.Shaken(ch, first, self.rng.randbytes(32) if data else token, data=data)
                return "let in"
            finally:
                ch.close()
        got = self.each("handshakes with a wrong proof or changed bytes", 600, one)
        self.assertEqual(got.get("let in", 0), 0)

    def test_messages(self):
        """A peer with the token sends what no protocol has."""
        def one(i):
            s = wire.Session(self.go.address, with_token())
            try:
                kind, n = self.rng.randrange(12), self.rng.randint(0, 60)
                body = self.rng.randbytes(n)
                length = (n + 1, 0, (1 << 32) - 1, wire.MAX_BODY + 2, n + 200)[i % 5]
                s.messages.ch.write(struct.pack(">IB", length, kind) + body)
                s.ping(1)
                return "went on"
            except TimeoutError:
                return "left waiting"
            finally:
                s.close()
        self.each("messages of a peer with the token", 300, one)

    def test_calls(self):
        """Calls with bodies that are random, or changed ones of real calls."""
        offer = wire.name("tcp") + struct.pack(">Q", 1 << 40) + wire.offer(wire.PAYLOAD)
        leave = wire.name("tcp") + self.good.id + struct.pack(">Q", 1) + bytes(32)
        delta = json.dumps(self.good.descriptor).encode()
        s = [None]

        def one(i):
            if s[0] is None:
                s[0] = wire.Session(self.go.address, with_token())
            method = i % 8
            real = {wire.ACCEPT: offer, wire.LEAVE: leave, wire.DELTA: delta, wire.NOTIFY: struct.pack(">Q", 10**9) + b"x"}.get(method, b"")
            body = mutated(self.rng, real) if i % 3 else self.rng.randbytes(self.rng.randint(0, 300))
            if method == wire.NOTIFY:
                body = b"" if i % 2 else body[:4]  # nobody reads them here
            try:
                s[0].call(method, body)
                return "answered"
            except wire.Closed:
                s[0].close()
                s[0] = None
                raise
        self.each("calls with changed bodies", 1500, one)
        if s[0]:
            s[0].close()

    def test_frames(self):
        """A peer's own data connection, at each level: frames with any numbers, which its key makes valid."""
        s = wire.Session(self.go.address, with_token())
        self.addCleanup(s.close)
        s.describe()
        odd = (0, 1, 7, 1 << 20, (1 << 20) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 64) - 1)
        number = lambda bits: self.rng.choice(odd) & ((1 << bits) - 1) if self.rng.random() < 0.7 else self.rng.getrandbits(bits)
        spare = [None]

        def one(i):
            level = (wire.OPEN, wire.HEADERS, wire.PAYLOAD, wire.SEALED)[i % 4]
            d = s.data(level)
            try:
                spans = [(self.rng.choice((self.both, self.read, number(64))), number(64), number(32))
                         for _ in range(self.rng.choice((0, 1, 1, 2, 64, 65)))]
                # Never a valid WRITE to what is compared: that one is allowed.
                spans = [(r, at | 1 << 20, n) if r == self.both else (r, at, n) for r, at, n in spans]
                n, kind, flags, count = sum(x[2] for x in spans), self.rng.choice((wire.WRITE, wire.READ)), 0, len(spans)
                if i % 8 < 4:  # else only the places are wrong
                    n = self.rng.choice((n, number(64), 0))
                    kind = self.rng.choice((kind, 3, 4, 5, 0, self.rng.randrange(256)))
                    flags, count = self.rng.choice((0, 1, 2, 255)), self.rng.choice((count, number(16)))
                elif n > 1 << 16:
                    spans = [(r, at, x % 500) for r, at, x in spans]
                    n = sum(x[2] for x in spans)
                payload = self.rng.randbytes(min(n, 1 << 16)) if kind == wire.WRITE else b""
                cuts = [x[2] for x in spans] if len(payload) == n else [len(payload)]
                d.ch.write(d.frame(kind, flags, count, number(32), n, 0 if i % 8 >= 4 else number(32), spans, payload, cuts))
                d.ch.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200_000))
                try:
                    kind, _, status, *_ = d.read(lambda _: [])
                    return f"status {status}" if kind == wire.FRAME_ACK else "answered"
                except TimeoutError:
                    return "left waiting"
                except (KeyError, TypeError, struct.error):
                    return "answered"
            finally:
                d.ch.close()
        self.each("frames with any numbers", 800, one)

    def test_relay_of_frames(self):
        """A relay that knows frames: it changes, drops, doubles, swaps and cuts them at each protected level."""
        s = wire.Session(self.go.address, with_token())
        self.addCleanup(s.close)
        s.describe()
        place, n = [(self.both, 4096, 5000)], 5000
        same = self.mark[4096:9096]

        def one(i):
            level = (wire.HEADERS, wire.PAYLOAD)[i % 2]
            d = s.data(level)
            try:
                frames = [d.request(wire.WRITE, place, same), d.request(wire.READ, place), d.request(wire.WRITE, [(self.both, 5000, 9)], same[904:913])]
                how = ("changed", "dropped", "doubled", "swapped", "cut")[i % 5]
                at = self.rng.randrange(3)
                # At headers the bytes of a payload are not protected: only what says where they go.
                of = len(frames[at]) if level == wire.PAYLOAD or at == 1 else 60
                if how == "changed":
                    frames[at] = flip(self.rng, frames[at], of)
                elif how == "dropped":
                    del frames[at]
                elif how == "doubled":
                    frames.insert(at, frames[at])
                elif how == "swapped":
                    frames[at], frames[at - 1] = frames[at - 1], frames[at]
                else:
                    frames[at] = frames[at][:self.rng.randrange(1, of)]
                d.ch.write(b"".join(frames))
                d.ch.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200_000))
                statuses = []
                try:
                    while len(statuses) < 3:
                        kind, _, status, *_, good = d.read(lambda id_: d.cuts.get(id_, []))
                        statuses.append(status if kind == wire.FRAME_ACK else 0)
                except (TimeoutError, wire.Closed):
                    pass
                most = at + 1 if how == "doubled" else 2  # one that is whole, before the one that is not
                self.assertLessEqual(sum(x == 0 for x in statuses), most, f"{how} frames at level {level}, seed {SEED}, {i}")
                s.leave(d.conn)
                return how
            finally:
                d.ch.close()
                # A WRITE that failed may have left anything in its own range, and nowhere else.
                again = s.data(wire.PAYLOAD)
                self.assertEqual(again.write_to(place, same), wire.OK)
                again.ch.close()
        self.each("frames that a relay changes", 500, one)

    def test_hostile_peers(self):
        """An engine in Go opens a peer who lies about itself in every packet that it sends."""
        lies, ends = {}, {}
        for i in range(times(60)):
            def attack(packet, data, i=i):
                if self.rng.random() < 0.5:
                    return data
                lies[packet] = lies.get(packet, 0) + 1
                return mutated(self.rng, data)
            engine = responder.Engine(with_token(), self.rng.choice(list(LEVELS.values())), attack=attack)
            if i % 2:
                engine.descriptor = self.lie(engine.descriptor)
            try:
                done = subprocess.run([GO, "-open", engine.address, "-tokens", self.tokens, "-timeout", "1s"], capture_output=True, text=True, timeout=90)
            finally:
                engine.close()
            self.assertIn(done.returncode, (0, 1), done.stderr)
            self.assertNotRegex(done.stderr, r"panic:|fatal error:", f"seed {SEED}, {i}")
            self.assertNotIn("what was read is not what was written", done.stderr if lies.get("data", 0) == 0 else "", f"seed {SEED}, {i}")
            ends[done.returncode] = ends.get(done.returncode, 0) + 1
        self.well()
        tell("peers who lie", times(60), f"{ends.get(1, 0)} given up with an error, {ends.get(0, 0)} used (nothing was changed in them); "
             + ", ".join(f"{n} {k}" for k, n in sorted(lies.items())) + " packets changed")

    def lie(self, descriptor):
        """A descriptor with one field of any JSON."""
        def told():
            d = descriptor()
            target = self.rng.choice((d, d["endpoints"][0], d["regions"][0]))
            key = self.rng.choice(list(target))
            target[key] = self.rng.choice((None, -1, 1 << 70, "", "x" * 100_000, [], {}, [[]] * 1000, "169.254.169.254:80", "[::1]:22", True, 1.5, "\x1b[2J\u202e"))
            return d
        return told

    def test_chaos(self):
        """Peers that are killed, stopped and started again while one moves and compares, through a relay that cuts,
        stops and goes on."""
        relay = Relay()
        self.addCleanup(relay.close)
        rounds, ends, wrong = times(40), {}, []
        for i in range(rounds):
            peer = Go("-tokens", self.tokens, "-protect", self.rng.choice(list(LEVELS)))
            relay.target = peer.address
            mover = subprocess.Popen([GO, "-open", relay.address, "-tokens", self.tokens, "-timeout", "4s", "-rounds", "200"],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            what = ("killed", "stopped", "cut", "held")[i % 4]
            time.sleep(self.rng.uniform(0.05, 0.6))
            if what == "killed":
                peer.process.kill()
            elif what == "stopped":
                peer.process.send_signal(signal.SIGSTOP)
                time.sleep(self.rng.uniform(0.1, 1))
                peer.process.send_signal(signal.SIGCONT)
            elif what == "cut":
                relay.cut()
            else:
                relay.held.set()
                time.sleep(self.rng.uniform(0.1, 1))
                relay.held.clear()
            out, said = mover.communicate(timeout=120)
            self.assertNotRegex(said, r"panic:|fatal error:", f"seed {SEED}, {i}")
            if "what was read is not what was written" in said:
                wrong.append((i, what))
            key = f"{what}: " + ("went on" if mover.returncode == 0 else "an error")
            ends[key] = ends.get(key, 0) + 1
            if what != "killed":
                peer.stop()
        self.assertEqual(wrong, [], f"wrong bytes, seed {SEED}")
        tell("peers and connections lost while bytes move", rounds, ", ".join(f"{k} {n}" for k, n in sorted(ends.items())) + "; no byte wrong")


SECRETS = (b"x" * 20, b"", b"3f1c0b0aa5e94e0e8d3c")


def flip(rng, data, below):
    """One bit of the bytes below is another."""
    at = rng.randrange(below)
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:]


class Relay:
    """Passes connections on; held ones wait, cut ones end."""

    def __init__(self):
        self.target, self.held, self.open = None, threading.Event(), set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target.rsplit(":", 1))
            except OSError:
                near.close()
                continue
            self.open |= {near, far}
            for pair in (near, far), (far, near):
                threading.Thread(target=self.pump, args=pair, daemon=True).start()

    def pump(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                while self.held.is_set():
                    time.sleep(0.01)
                sink.sendall(data)
        except OSError:
            pass
        for s in source, sink:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        for s in list(self.open):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.open.clear()

    def close(self):
        self.listener.close()
        self.cut()


if __name__ == "__main__":
    unittest.main()
