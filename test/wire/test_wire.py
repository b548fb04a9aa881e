"""Engines in Go and in Python talk to each other, and attackers get nothing. WIRE is the program of the Go
side, TOPOCTL topoctl, which makes the certificates."""
import datetime
import ipaddress
import os
import re
import secrets
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import responder
import wire

GO, TOPOCTL = os.environ["WIRE"], os.environ["TOPOCTL"]
SECRET = "3f1c0b0aa5e94e0e8d3b"
PATTERN = bytes(i * 7 & 255 for i in range(1 << 20))
LEVELS = {"open": wire.OPEN, "headers": wire.HEADERS, "payload": wire.PAYLOAD, "sealed": wire.SEALED}


class Go:
    """A Go engine that serves."""

    def __init__(self, *args):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([GO, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.address = self.process.stdout.readline().strip()
        assert self.address, self.said()

    def line(self):
        return self.process.stdout.readline().strip()

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def says(self, pattern):
        """Waits until the log has the pattern."""
        end = time.monotonic() + wire.TIMEOUT
        while not re.search(pattern, self.said()):
            if time.monotonic() > end:
                raise AssertionError(f"the engine's log has no {pattern!r}:\n{self.said()}")
            time.sleep(0.02)

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(wire.TIMEOUT) == 0, self.said()
        self.log.close()


def tokens(case, *lines):
    """A file with tokens."""
    f = tempfile.NamedTemporaryFile("w")
    case.addClassCleanup(f.close)
    f.write("\n".join(lines or [SECRET]) + "\n")
    f.flush()
    return f.name


def serve(case, *args):
    go = Go(*args)
    case.addClassCleanup(go.stop)
    return go


def with_token(secret=SECRET, token=""):
    return wire.Credentials(token=(token, secret.encode()))


class Client(unittest.TestCase):
    """Python opens a Go engine, which accepts every level of protection."""

    @classmethod
    def setUpClass(cls):
        cls.tokens = tokens(cls)
        cls.go = serve(cls, "-tokens", cls.tokens, "-protect", "open")

    def open(self):
        s = wire.Session(self.go.address, with_token())
        self.addCleanup(s.close)
        s.describe()
        return s

    def data(self, session, level):
        d = session.data(level)
        self.addCleanup(d.ch.close)
        return d

    def test_session(self):
        s = self.open()
        self.assertEqual(s.shaken.name, "go")
        self.assertEqual(s.descriptor["name"], "go")
        self.assertEqual(s.descriptor["epoch"], str(s.shaken.epoch))
        self.assertEqual({n: (r["bytes"], r["read"], r["write"]) for n, r in s.regions.items()},
                         {"both": (1 << 20, True, True), "read": (1 << 20, True, False)})
        self.assertEqual(s.ping(77), 77)
        self.assertEqual(s.call(wire.ASK, b"upper case"), b"UPPER CASE")
        s.notify(b"good day")
        self.assertEqual(self.go.line(), "notified by python: good day")
        with self.assertRaises(wire.Failed):
            s.call(999)
        s.bye()

    def test_data(self):
        for level, number in LEVELS.items():
            for checked in (False, True):
                with self.subTest(level, checked=checked):
                    s = self.open()
                    both, read = int(s.regions["both"]["id"]), int(s.regions["read"]["id"])
                    d = self.data(s, number)
                    self.assertEqual(d.level, number)
                    data = secrets.token_bytes(400_000)
                    spans = [(both, 5, 300_000), (both, 700_000, 0), (both, 800_001, 100_000)]
                    self.assertEqual(d.write_to(spans, data, checked), wire.OK)
                    self.assertEqual(d.read_from(spans, checked), (wire.OK, data))
                    self.assertEqual(d.read_from([(read, 9, 131_073), (both, 5, 3)], checked),
                                     (wire.OK, PATTERN[9:131_082] + data[:3]))
                    self.assertEqual(d.write_to([(both, 5, 3), (read, 0, 3)], b"abcdef", checked), 3)
                    self.assertEqual(d.write_to([(both, 1 << 20, 1)], b"a", checked), 2)
                    self.assertEqual(d.read_from([(1 << 40, 0, 1)], checked)[0], 1)
                    self.assertEqual(d.read_from([(both, 5, 3)], checked), (wire.OK, data[:3]), "a refused WRITE moved bytes")
                    s.leave(d.conn)
                    with self.assertRaises(wire.Closed):
                        d.read_from([(both, 0, 1)])
                    s.bye()

    def test_resume_runs_a_call_once(self):
        s = self.open()
        n = s.begin(wire.ASK, b"hold")
        while s.call(wire.ASK, b"held") != b"1":
            pass
        s.close()
        s.resume()
        self.assertEqual(s.call(wire.ASK, b"held"), b"1")
        s.call(wire.ASK, b"release")
        self.assertEqual(s.wait(n), b"run 1")
        s.bye()

    def refused(self, status, make, said=None):
        """A connection is refused with this status, and the engine's log has the reason."""
        with self.assertRaises(wire.Refused) as e:
            make()
        self.assertEqual(e.exception.status, status, e.exception)
        if said:
            self.go.says(said)
        return e.exception

    def test_wrong_tokens(self):
        for wrong in with_token("x" * 20), with_token(token="unknown"):
            said = self.refused(wire.TOKEN, lambda: wire.Session(self.go.address, wrong), "its token is not ours")
            self.assertIn("welcome", str(said), "the server tells names from secrets")

    def test_downgrades(self):
        e = self.refused(wire.TOKEN, lambda: wire.Session(self.go.address, with_token(), plain=True))
        self.assertEqual(e.flags & 1, 1)
        tls12 = with_token().context(False, versions=(wire.SSL.TLS1_2_VERSION,) * 2)
        for context, cause in (tls12, "protocol version"), (with_token().context(False, b"h2"), "no application protocol"):
            with self.assertRaisesRegex(wire.Closed, cause):
                wire.TLS(socket.create_connection(self.go.address.rsplit(":", 1)), context)
        with self.assertRaisesRegex(wire.Closed, "ALPN|no application protocol"):
            wire.TLS(socket.create_connection(self.go.address.rsplit(":", 1)), with_token().context(False, None))
        s = self.open()
        with self.assertRaisesRegex(wire.Failed, "protection"):
            s.accept(9)

    def test_relay(self):
        """A man in the middle has a TLS connection with each side, and passes on what they say."""
        relay = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(relay.close)
        welcomes = []

        def pass_on():
            while True:
                try:
                    sock, _ = relay.accept()
                except OSError:
                    return
                try:
                    near = wire.TLS(sock, wire.Credentials().context(True), server=True)
                    far = wire.dial(self.go.address, plain=False)
                    far.write(wire.read_first(near))
                    near.write(wire.read_first(far))
                    far.write(wire.read_second(near))
                    welcomes.append(wire.read_second(far))
                    near.write(welcomes[-1])
                    near.close()
                    far.close()
                except wire.Closed:
                    pass
        threading.Thread(target=pass_on, daemon=True).start()
        address = "127.0.0.1:%d" % relay.getsockname()[1]
        client = subprocess.run([GO, "-open", address, "-tokens", self.tokens], capture_output=True, text=True, timeout=120)
        self.assertNotEqual(client.returncode, 0, client.stdout)
        self.assertRegex(client.stderr, "token")
        self.assertEqual(client.stdout, "")
        self.assertEqual(set(w[2:4] for w in welcomes), {b"\0\2"}, "the server did not refuse the relay")
        before = len(welcomes)
        self.refused(wire.TOKEN, lambda: wire.Session(address, with_token()))
        self.assertEqual(welcomes[before:], [b"\0\x33\0\2" + bytes(49)])

    def test_replayed_handshakes(self):
        first = wire.hello(wire.CONTROL, secrets.token_bytes(16), flags=wire.HAS_TOKEN, own_epoch=wire.epoch(), own_name="python")
        ch = wire.dial(self.go.address, with_token())
        proof = wire.Shaken(ch, first, SECRET.encode()).proof
        ch.close()
        again = wire.dial(self.go.address, with_token())
        again.write(first)
        wire.read_first(again)
        again.write(proof)
        self.assertEqual(wire.read_second(again)[2:4], b"\0\2")
        again.close()

    def test_connections_of_others(self):
        """A peer that knows IDs, and even the token, has neither data connections nor sessions of others."""
        s = self.open()
        agreed, conn = s.accept(wire.HEADERS)

        def data(key, conn):
            ch = wire.dial(self.go.address, plain=True)
            self.addCleanup(ch.close)
            return wire.Shaken(ch, wire.hello(wire.DATA, s.id, conn), key, data=True)
        self.refused(wire.TOKEN, lambda: data(SECRET.encode(), conn))
        self.refused(wire.ENDED, lambda: data(agreed.key, conn + 1))
        d = self.data(s, wire.HEADERS)
        self.refused(wire.ENDED, lambda: data(agreed.key, d.conn))
        other = self.open()
        for proof in bytes(32), wire.mac(other.key, b"topoctl/2 leave", b"tcp", struct.pack(">Q", d.conn)):
            with self.assertRaisesRegex(wire.Failed, "proof"):
                other.leave(d.conn, proof, s.id)
        other.id, other.key = s.id, bytes(32)
        other.generation = 9
        self.refused(wire.ENDED, other.resume)
        self.assertEqual(s.ping(1), 1)
        self.assertEqual(d.read_from([(int(s.regions["read"]["id"]), 0, 9)]), (wire.OK, PATTERN[:9]))

    def test_data_without_the_agreed_tls(self):
        for level, plain in (wire.SEALED, True), (wire.HEADERS, False):
            s = self.open()
            agreed, conn = s.accept(level)
            ch = wire.dial(self.go.address, with_token(), plain=plain)
            self.addCleanup(ch.close)
            with self.assertRaises((wire.Closed, wire.Refused)):
                wire.Shaken(ch, wire.hello(wire.DATA, s.id, conn), agreed.key, data=True)
                ch.read(1)

    def test_changed_sessions(self):
        """A changed byte ends a connection, and the call that it was in still runs once."""
        proxy = Flipper(self.go.address)
        self.addCleanup(proxy.close)
        for at in 0, 1, 5, 20, -1: # a longer record would wait for more
            for direction in proxy.out, proxy.back:
                s = wire.Session(proxy.address, with_token())
                direction.flip = at
                n = s.begin(wire.ASK, b"again")
                with self.assertRaises(wire.Closed, msg=f"byte {at}"):
                    s.wait(n)
                self.assertIsNone(direction.flip)
                s.close()
                s.resume()
                self.assertEqual(s.wait(n), b"AGAIN")
                s.bye()

    def test_changed_frames(self):
        s = self.open()
        both = int(s.regions["both"]["id"])
        place = [(both, 4096, 300)]
        payload = bytes(300)
        for level in wire.HEADERS, wire.PAYLOAD:
            good = self.data(s, level)
            for at in list(range(0, 24)) + [24, 31, 39, 43, 44, 59]: # header, descriptor, tag
                self.assertEqual(good.write_to(place, b"x" * 300), wire.OK)
                d = self.data(s, level)
                d.ch.write(flipped(d.request(wire.WRITE, place, payload), at))
                with self.assertRaises(wire.Closed, msg=f"byte {at}"):
                    d.answer()
                self.assertEqual(good.read_from(place), (wire.OK, b"x" * 300), f"byte {at} moved bytes")
        for at in 60, 200, 359, 360, 375: # payload, tag
            good.ch.write(flipped(good.request(wire.WRITE, place, payload), at))
            self.assertEqual(good.answer()[0], 4, f"byte {at}")
        self.assertEqual(good.write_to(place, b"y" * 300), wire.OK)

    def test_replayed_frames(self):
        s = self.open()
        place = [(int(s.regions["both"]["id"]), 9000, 10)]
        for level in wire.HEADERS, wire.PAYLOAD:
            d, good = self.data(s, level), self.data(s, level)
            first = d.request(wire.WRITE, place, b"a" * 10)
            d.ch.write(first)
            self.assertEqual(d.answer()[0], wire.OK)
            self.assertEqual(d.write_to(place, b"b" * 10), wire.OK)
            d.ch.write(first)
            with self.assertRaises(wire.Closed):
                d.answer()
            self.assertEqual(good.read_from(place), (wire.OK, b"b" * 10), "a repeated frame moved bytes")


class Opened:
    """What a Go engine does with an engine in Python that it opens."""

    WRITTEN = b"from the Go engine " * 20_000

    def use(self, engine, *args):
        """What the Go engine has done, and what it said."""
        self.addCleanup(engine.close)
        done = subprocess.run([GO, "-open", engine.address, *args], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout.split("\n")[:-1], done.stderr

    def used(self, engine, *args):
        code, out, said = self.use(engine, *args)
        self.assertEqual(code, 0, said)
        self.assertEqual(out, ["open: python", "written: 380000", "read: 380000", "answer: UPPER CASE"])
        self.assertEqual(bytes(engine.memory[1000:381_000]), self.WRITTEN)
        self.assertEqual(engine.notified, [b"all is there"])
        self.assertNotIn("a leave proof is wrong", engine.errors)

    def refused(self, engine, cause, args=(), opened=False):
        code, out, said = self.use(engine, *args)
        self.assertNotEqual(code, 0, out)
        self.assertEqual(out, ["open: python"] if opened else [])
        self.assertRegex(said, cause)
        self.assertEqual(engine.notified, [])


class Server(Opened, unittest.TestCase):
    """A Go engine opens one in Python, and uses its region."""

    @classmethod
    def setUpClass(cls):
        cls.tokens = tokens(cls)

    def test_levels(self):
        for level, number in LEVELS.items():
            with self.subTest(level):
                self.used(responder.Engine(with_token(), number), "-tokens", self.tokens, "-protect", level)

    def test_higher_level_of_both(self):
        for theirs, own in ((wire.PAYLOAD, "open"), (wire.OPEN, "sealed")):
            self.used(responder.Engine(with_token(), theirs), "-tokens", self.tokens, "-protect", own)

    def test_without_token_on_loopback(self):
        engine = responder.Engine(None)
        self.used(engine)
        self.assertEqual(set(b[:4] for b in engine.first_bytes), {b"TPCT"})

    def test_impostors(self):
        token = ("-tokens", self.tokens)
        for engine, cause in (
            (responder.Engine(with_token("y" * 20)), "token"),
            (responder.Engine(with_token(token="another")), "token"),
            (responder.Engine(None), "token"),
            (responder.Engine(with_token(), attack=forge("welcome", 10)), "token|proof"),
        ):
            self.refused(engine, cause, token)
            self.assertEqual(set(b[:1] for b in engine.first_bytes), {b"\x16"}, "something was said without TLS")

    def test_downgraded_level(self):
        def downgrade(packet, data):
            return data[:2] + bytes([wire.OPEN]) + data[3:] if packet == "accept" else data
        for level in "headers", "payload", "sealed":
            engine = responder.Engine(with_token(), attack=downgrade)
            self.refused(engine, "protection", ("-tokens", self.tokens, "-protect", level, "-timeout", "2s"), opened=True)
            self.assertFalse(any(engine.memory))

    def test_changed_answers(self):
        """Data that came changed is not taken for what was read, and acks that did not for those of a WRITE."""
        for packet, at, level in (("ack", 4, "headers"), ("ack", 30, "headers"), ("data", 12, "headers"),
                                  ("data", 300, "payload"), ("data", -1, "payload")):
            with self.subTest(packet, at=at):
                before = ["open: python"] + (["written: 380000"] if packet == "data" else [])
                for limit in "1s", "5s", "25s":  # it is used up; a busy machine needs more for what comes before
                    engine = responder.Engine(with_token(), attack=forge(packet, at))
                    code, out, said = self.use(engine, "-tokens", self.tokens, "-protect", level, "-timeout", limit)
                    self.assertNotEqual(code, 0)
                    self.assertNotIn("what was read is not what was written", said)
                    if out == before:
                        break
                self.assertEqual(out, before, said)


class Certificates(Opened, unittest.TestCase):
    """Both sides have certificates that topoctl cert has made."""

    @classmethod
    def setUpClass(cls):
        d = tempfile.TemporaryDirectory()
        cls.addClassCleanup(d.cleanup)
        cls.dir = d.name
        for ca in "ours", "others":
            os.mkdir(cls.file(ca, ""))
            cls.make("ca", ca)
            cls.make("host", ca, "go", "--ip", "127.0.0.1")
            cls.make("host", ca, "python", "--ip", "127.0.0.1")
        cls.make("host", "ours", "elsewhere", "--ip", "192.0.2.7")
        expired(cls.file("ours", "ca"), cls.file("ours", "expired"))
        cls.go = serve(cls, *cls.files("ours", "go"))

    @classmethod
    def make(cls, what, ca, *args):
        subprocess.run([TOPOCTL, "cert", what, *args, "--dir", os.path.join(cls.dir, ca)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    @classmethod
    def file(cls, ca, name):
        return os.path.join(cls.dir, ca, name)

    @classmethod
    def files(cls, ca, name):
        of = cls.file(ca, name)
        return "-cert", of + ".crt", "-key", of + ".key", "-ca", cls.file("ours", "ca.crt")

    def credentials(self, ca, name, roots="ours"):
        of = self.file(ca, name)
        return wire.Credentials(certificate=of + ".crt", key=of + ".key", ca=self.file(roots, "ca.crt"))

    def test_client(self):
        s = wire.Session(self.go.address, self.credentials("ours", "python"))
        s.describe()
        for level in LEVELS.values():
            d = s.data(level)
            self.assertEqual(d.read_from([(int(s.regions["read"]["id"]), 1, 9)]), (wire.OK, PATTERN[1:10]))
            d.ch.close()
        s.close()
        s.resume()
        self.assertEqual(s.ping(3), 3)
        s.bye()

    def test_server(self):
        engine = responder.Engine(self.credentials("ours", "python"))
        self.used(engine, *self.files("ours", "go"))

    def test_clients_that_are_refused(self):
        for credentials, cause in (
            (self.credentials("others", "python"), "unknown ca|bad certificate"),
            (self.credentials("ours", "expired"), "certificate expired"),
            (wire.Credentials(), "certificate required"),
        ):
            with self.subTest(cause), self.assertRaisesRegex((wire.Closed, wire.Refused), cause):
                wire.Session(self.go.address, credentials)
        with self.assertRaisesRegex(wire.Closed, "certificate verify failed"):
            wire.Session(self.go.address, self.credentials("ours", "python", roots="others"))
        with self.assertRaises(wire.Refused) as e:
            wire.Session(self.go.address, plain=True)
        self.assertEqual((e.exception.status, e.exception.flags), (wire.TOKEN, 2))
        self.go.says("certificate")

    def test_resume_with_another_certificate(self):
        s = wire.Session(self.go.address, self.credentials("ours", "python"))
        s.credentials = self.credentials("ours", "elsewhere")
        with self.assertRaises(wire.Refused) as e:
            s.resume()
        self.assertEqual(e.exception.status, wire.ENDED)
        self.assertEqual(s.ping(4), 4)
        s.bye()

    def test_servers_that_are_refused(self):
        for credentials, cause in (
            (self.credentials("others", "python"), "unknown authority|CA"),
            (self.credentials("ours", "expired"), "expired"),
            (self.credentials("ours", "elsewhere"), "127.0.0.1"),
        ):
            credentials.ca = None
            with self.subTest(cause):
                self.refused(responder.Engine(credentials), cause, self.files("ours", "go"))


def expired(ca, of):
    """A certificate like those of topoctl cert host, which was valid until yesterday."""
    with open(ca + ".crt", "rb") as crt, open(ca + ".key", "rb") as key:
        issuer, signer = x509.load_pem_x509_certificate(crt.read()), serialization.load_pem_private_key(key.read(), None)
    own, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.utcnow()
    usages = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(issuer.subject)
                   .public_key(own.public_key()).serial_number(x509.random_serial_number())
                   .not_valid_before(now - datetime.timedelta(days=2)).not_valid_after(now - datetime.timedelta(days=1))
                   .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), True)
                   .add_extension(x509.ExtendedKeyUsage(usages), False).sign(signer, hashes.SHA256()))
    with open(of + ".crt", "wb") as f:
        f.write(certificate.public_bytes(serialization.Encoding.PEM))
    with open(of + ".key", "wb") as f:
        f.write(own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    os.chmod(of + ".key", 0o600)


def forge(packet, at):
    """Changes a byte of every such packet."""
    return lambda what, data: flipped(data, at) if what == packet else data


def flipped(data, at):
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


class Flipper:
    """Passes connections on, and changes the byte that it is told to of what comes next."""

    class Direction:
        flip = None

        def pump(self, source, sink):
            try:
                while data := source.recv(1 << 16):
                    if self.flip is not None:
                        data, self.flip = flipped(data, self.flip), None
                    sink.sendall(data)
            except OSError:
                pass
            for s in source, sink:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def __init__(self, address):
        self.target = address.rsplit(":", 1)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.out, self.back = self.Direction(), self.Direction()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.pass_on, args=(near,), daemon=True).start()

    def pass_on(self, near):
        with near, socket.create_connection(self.target) as far:
            back = threading.Thread(target=self.back.pump, args=(far, near), daemon=True)
            back.start()
            self.out.pump(near, far)
            back.join()

    def close(self):
        self.listener.close()


if __name__ == "__main__":
    unittest.main()
