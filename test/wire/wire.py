"""The protocol between engines, written from docs/wire.md and nothing else of topoctl: what the Go code
and the page have in common is held by the two talking to each other."""
import base64
import datetime
import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import threading
import time
import zlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from OpenSSL import SSL, crypto

VERSION = 2
ALPN = b"topoctl/2"
CONTROL, DATA = 1, 2
HAS_TOKEN, RESUMES = 1, 2
OK, NO_VERSION, TOKEN, BUSY, LIMIT, RESTARTED, ENDED = range(7)
SYNC, CALL, ANSWER, ACK, PING, PONG, BYE = range(1, 8)
DESCRIBE, DELTA, ACCEPT, LEAVE, NOTIFY, ASK = range(1, 7)
OPEN, HEADERS, PAYLOAD, SEALED = range(4)
WRITE, READ, FRAME_ACK, FRAME_DATA, READY = range(1, 6)
PIECE = 131072
MAX_BODY = 8 << 20
TIMEOUT = 60


class Closed(Exception):
    """The other side closed the connection, or ended it in a breach of TLS."""


class Refused(Exception):
    """A status of a handshake that is not ok."""

    def __init__(self, where, status, flags=0):
        super().__init__(f"{where}: status {status}, flags {flags}")
        self.status, self.flags = status, flags


class Failed(Exception):
    """A call that was answered with an error."""


def mac(key, label, *parts):
    return hmac.new(key, label + b"\0" + b"".join(parts), hashlib.sha256).digest()


def name(text):
    data = text.encode()
    return bytes([len(data)]) + data


def read_name(body, at):
    end = at + 1 + body[at]
    return body[at + 1:end].decode(), end


def epoch():
    return int(time.time() * 1000) << 20 | secrets.randbits(20)


# Credentials and connections.

class Credentials:
    """What a side has it demands: token is (name, secret); certificate, key and ca are PEM files."""

    def __init__(self, token=None, certificate=None, key=None, ca=None):
        self.token, self.certificate, self.key, self.ca = token, certificate, key, ca

    def context(self, server, alpn=ALPN, versions=(SSL.TLS1_3_VERSION, SSL.TLS1_3_VERSION)):
        c = SSL.Context(SSL.TLS_METHOD)
        c.set_min_proto_version(versions[0])
        c.set_max_proto_version(versions[1])
        c.set_options(SSL.OP_NO_TICKET)
        c.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        if self.certificate:
            c.use_certificate_chain_file(self.certificate)
            c.use_privatekey_file(self.key)
        elif server:
            key, certificate = ephemeral()
            c.use_privatekey(key)
            c.use_certificate(certificate)
        if self.ca:
            c.load_verify_locations(self.ca)
            c.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, lambda *a: a[-1])
        if server:
            c.set_alpn_select_callback(lambda _, offered: alpn if alpn in offered else None)
        elif alpn:
            c.set_alpn_protos([alpn])
        return c


def ephemeral():
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([])
    now = datetime.datetime.utcnow()
    certificate = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject)
                   .public_key(key.public_key()).serial_number(x509.random_serial_number())
                   .not_valid_before(now - datetime.timedelta(hours=1))
                   .not_valid_after(now + datetime.timedelta(hours=1)).sign(key, hashes.SHA256()))
    return crypto.PKey.from_cryptography_key(key), crypto.X509.from_cryptography(certificate)


class Plain:
    """A connection, read to the byte."""

    exporter = bytes(32)

    def __init__(self, sock):
        self.sock = sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", TIMEOUT, 0))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.receive, self.send = sock.recv, sock.sendall

    def read(self, n):
        got = bytearray()
        while len(got) < n:
            try:
                some = self.receive(min(n - len(got), 1 << 16))
            except (SSL.WantReadError, BlockingIOError) as e:
                raise TimeoutError(f"{len(got)} of {n} bytes came") from e
            except (SSL.Error, OSError) as e:
                raise Closed(repr(e)) from e
            if not some:
                raise Closed(f"{len(got)} of {n} bytes came")
            got += some
        return bytes(got)

    def write(self, data):
        try:
            self.send(data)
        except (SSL.Error, OSError) as e:
            raise Closed(repr(e)) from e

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()


class TLS(Plain):
    """A TLS connection. A dialler with a CA says by what host it knows the server."""

    def __init__(self, sock, context, server=False, host=None):
        super().__init__(sock)
        self.tls = SSL.Connection(context, sock)
        (self.tls.set_accept_state if server else self.tls.set_connect_state)()
        try:
            self.tls.do_handshake()
        except (SSL.Error, OSError) as e:
            raise Closed(repr(e)) from e
        if self.tls.get_alpn_proto_negotiated() != ALPN:
            raise Closed("ALPN: " + repr(self.tls.get_alpn_proto_negotiated()))
        if host and not holds(self.tls.get_peer_certificate().to_cryptography(), host):
            raise Closed("the certificate is not of " + host)
        self.receive, self.send = self.tls.recv, self.tls.sendall
        self.exporter = self.tls.export_keying_material(b"EXPORTER-topoctl", 32)


def holds(certificate, host):
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return host in names.get_values_for_type(x509.DNSName) or host in map(str, names.get_values_for_type(x509.IPAddress))


def dial(address, credentials=None, plain=None):
    """A connection to host:port, TLS unless plain says otherwise; by default where there are credentials."""
    host, port = address.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)), TIMEOUT)
    sock.settimeout(None)
    if plain or plain is None and not credentials:
        return Plain(sock)
    credentials = credentials or Credentials()
    return TLS(sock, credentials.context(False), host=credentials.ca and host)


# Handshakes.

def first_packet(body):
    return b"TPCT" + struct.pack(">HHH", VERSION, VERSION, len(body)) + body


def read_first(ch):
    head = ch.read(10)
    magic, low, high, n = struct.unpack(">4sHHH", head)
    if magic != b"TPCT" or not low <= VERSION <= high:
        raise Closed(f"no handshake of version {VERSION}: {head!r}")
    return head + ch.read(n)


def second_packet(body):
    return struct.pack(">H", len(body)) + body


def read_second(ch):
    head = ch.read(2)
    return head + ch.read(*struct.unpack(">H", head))


def hello(kind, session, conn=0, flags=0, own_epoch=0, server_epoch=0, own_name="", token_name=""):
    body, calls = (MAX_BODY, 64) if kind == CONTROL else (0, 0)
    return first_packet(struct.pack(">BBQIIQQ16sQ32s", kind, flags, 0, body, calls, own_epoch, server_epoch,
                                    session, conn, secrets.token_bytes(32)) + name(own_name) + name(token_name))


class Shaken:
    """What a handshake as dialler gave."""

    def __init__(self, ch, first, secret, data=False, resume=None):
        label = b"topoctl/2 data " if data else b"topoctl/2 "
        ch.write(first)
        answer = read_first(ch)
        _, status, flags = struct.unpack(">HHB", answer[10:15])
        if status != OK:
            raise Refused("answer", status, flags)
        if not data and bool(secret) != bool(flags & 1):
            raise Refused("the server does not demand what we have", status, flags)
        self.proof = second_packet(mac(secret, label + b"client", ch.exporter, first, answer)
                                   + (mac(resume, b"topoctl/2 resume", ch.exporter, first, answer) if resume else b""))
        ch.write(self.proof)
        welcome = read_second(ch)
        status, proven, self.epoch, self.max_body, self.max_calls = struct.unpack(">H32sQII", welcome[2:52])
        if status == TOKEN:
            raise Refused("welcome", status)
        blank = welcome[:4] + bytes(32) + welcome[36:]
        expected = mac(secret, label + b"server", ch.exporter, first, answer, self.proof, blank,
                       resume if resume and status == OK else b"")
        if not hmac.compare_digest(proven, expected):
            raise Refused("the server's proof is wrong", status)
        if status != OK:
            raise Refused("welcome", status)
        self.name, _ = read_name(welcome, 52)
        self.key = mac(secret, b"topoctl/2 session key", ch.exporter, first, answer)


# Sessions.

class Messages:
    """The messages of one connection."""

    def __init__(self, ch):
        self.ch, self.lock = ch, threading.Lock()

    def write(self, kind, fields):
        with self.lock:
            self.ch.write(struct.pack(">IB", 1 + len(fields), kind) + fields)

    def read(self):
        n, kind = struct.unpack(">IB", self.ch.read(5))
        return kind, self.ch.read(n - 1)

    def sync(self, generation, calls=()):
        self.write(SYNC, struct.pack(">QI", generation, len(calls)) + numbers(calls))

    def read_sync(self):
        kind, fields = self.read()
        if kind != SYNC:
            raise Closed(f"message {kind} in place of sync")
        generation, n = struct.unpack(">QI", fields[:12])
        return generation, struct.unpack(f">{n}Q", fields[12:])


def numbers(list_):
    return struct.pack(f">{len(list_)}Q", *list_)


class Session:
    """A session that we dialled. One call at a time is waited for."""

    def __init__(self, address, credentials=None, plain=None):
        self.address, self.credentials, self.plain = address, credentials, plain
        self.id, self.epoch, self.generation = secrets.token_bytes(16), epoch(), 1
        self.last, self.open, self.answers, self.deltas, self.conns = 0, {}, {}, [], 0
        self.shaken = None
        self.connect()

    @property
    def token(self):
        return self.credentials and self.credentials.token or ("", b"")

    def hello(self, flags=0, server_epoch=0):
        return hello(CONTROL, self.id, 0, flags | (HAS_TOKEN if self.token[1] else 0), self.epoch, server_epoch,
                     "python", self.token[0])

    def connect(self):
        ch = dial(self.address, self.credentials, self.plain)
        self.shaken = Shaken(ch, self.hello(), self.token[1])
        self.key = self.shaken.key
        self.start(ch)

    def resume(self):
        """Makes a new connection, and sends the unanswered calls again."""
        ch = dial(self.address, self.credentials, self.plain)
        Shaken(ch, self.hello(RESUMES, self.shaken.epoch), self.token[1], resume=self.key)
        self.generation += 1
        self.start(ch)

    def start(self, ch):
        self.messages = Messages(ch)
        self.messages.sync(self.generation, sorted(self.open))
        generation, _ = self.messages.read_sync()
        if generation != self.generation:
            raise Closed(f"generation {generation}")
        for number in sorted(self.open):
            self.messages.write(CALL, self.open[number])

    def begin(self, method, body=b""):
        self.last += 1
        self.open[self.last] = struct.pack(">QH", self.last, method) + body
        self.messages.write(CALL, self.open[self.last])
        return self.last

    def wait(self, number):
        while number not in self.answers:
            self.step()
        outcome, body = self.answers.pop(number)
        if outcome != 0:
            raise Failed("busy" if outcome == 2 else body.decode())
        return body

    def step(self):
        kind, fields = self.messages.read()
        if kind == ANSWER:
            number, outcome = struct.unpack(">QB", fields[:9])
            if self.open.pop(number, None) is None:
                raise Closed(f"an answer to call {number}, which was not made")
            self.answers[number] = outcome, fields[9:]
            self.messages.write(ACK, struct.pack(">I", 1) + numbers([number]))
        elif kind == CALL:
            number, method = struct.unpack(">QH", fields[:10])
            if method == DELTA:
                self.deltas.append(json.loads(fields[10:]))
            self.messages.write(ANSWER, struct.pack(">QB", number, 0 if method == DELTA else 1))
        elif kind == PING:
            self.messages.write(PONG, fields)
        elif kind == PONG:
            self.pong = struct.unpack(">Q", fields)[0]
        elif kind == BYE:
            raise Closed("bye")
        elif kind != ACK:
            raise Closed(f"message {kind}")

    def call(self, method, body=b""):
        return self.wait(self.begin(method, body))

    def ping(self, value):
        self.pong = None
        self.messages.write(PING, struct.pack(">Q", value))
        while self.pong is None:
            self.step()
        return self.pong

    def describe(self):
        self.descriptor = json.loads(self.call(DESCRIBE))
        self.regions = {r["name"]: r for r in self.descriptor.get("regions", [])}
        return self.descriptor

    def notify(self, payload):
        self.call(NOTIFY, struct.pack(">Q", 10**9) + payload)

    def leave(self, conn, proof=None, session=None):
        proof = proof or mac(self.key, b"topoctl/2 leave", b"tcp", struct.pack(">Q", conn))
        self.call(LEAVE, name("tcp") + (session or self.id) + struct.pack(">Q", conn) + proof)

    def accept(self, level):
        """What the responder answered, and the ID of the connection that it expects."""
        self.conns += 1
        answer = self.call(ACCEPT, name("tcp") + struct.pack(">Q", self.conns) + offer(level))
        return Agreed(answer), self.conns

    def data(self, level, tap=None):
        """A data connection. tap makes of its socket's connection what frames go over."""
        agreed, conn = self.accept(level)
        if agreed.level < level:
            raise Closed(f"level {agreed.level} was agreed on in place of {level}")
        if not getattr(self, "descriptor", None):
            self.describe()
        endpoint = next(e for e in self.descriptor["endpoints"] if e["transport"] == "tcp")
        ch = dial(endpoint["address"], self.credentials, plain=agreed.level != SEALED)
        Shaken(ch, hello(DATA, self.id, conn), agreed.key, data=True)
        return Requester(tap(ch) if tap else ch, agreed, conn)

    def close(self):
        self.messages.ch.close()

    def bye(self):
        """Ends the session, and waits for the other side to close."""
        self.messages.write(BYE, b"")
        try:
            while True:
                self.messages.read()
        except Closed:
            self.messages.ch.close()


# Data.

def offer(level, key=b""):
    return struct.pack(">HBBIIIQ", 2, level, 0, 1, 64, 16, 1 << 24) + key


class Agreed:
    def __init__(self, answer):
        version, self.level, _, self.features, self.spans, self.requests, self.bytes = struct.unpack(">HBBIIIQ", answer[:24])
        self.key = answer[24:56]
        if version != 2 or len(self.key) != 32:
            raise Closed("not an answer to an offer")


class Frames:
    """Frames of one connection, at its level."""

    def __init__(self, ch, agreed, own, other):
        self.ch, self.level = ch, agreed.level
        self.keyed = agreed.level in (HEADERS, PAYLOAD)
        self.out = Tags(mac(agreed.key, b"topoctl/2 frames " + own))
        self.into = Tags(mac(agreed.key, b"topoctl/2 frames " + other))

    def write(self, kind, flags=0, count=0, id_=0, n=0, at=0, spans=(), payload=b"", cuts=None):
        """cuts are the lengths of the descriptors that the payload belongs to."""
        self.ch.write(self.frame(kind, flags, count, id_, n, at, spans, payload, cuts))

    def frame(self, kind, flags, count, id_, n, at, spans, payload, cuts):
        head = struct.pack(">BBHIQI", kind, flags, count, id_, n, at)
        described = b"".join(struct.pack(">QQI", *s) for s in spans)
        if self.keyed:
            frame = head + bytes(4) + described + self.out.tag(0, head + bytes(4) + described) + payload
        else:
            frame = head + struct.pack(">I", zlib.crc32(head + described)) + described + payload
        if flags & 1 and payload:
            frame += struct.pack(">I", zlib.crc32(payload))
        if self.level == PAYLOAD and payload:
            frame += self.out.pieces(payload, cuts)
        self.out.frame += 1
        return frame

    def read(self, cuts_of):
        """The next frame; cuts_of gives the lengths that a payload of a request's ID is cut by."""
        head = self.ch.read(24)
        kind, flags, count, id_, n, at, crc = struct.unpack(">BBHIQII", head)
        described = self.ch.read(20 * count) if kind in (WRITE, READ) else b""
        if self.keyed:
            if not hmac.compare_digest(self.ch.read(16), self.into.tag(0, head + described)) or crc:
                raise Closed("a header with a wrong tag")
        elif crc != zlib.crc32(head[:20] + described):
            raise Closed("a header with a wrong CRC")
        spans = [struct.unpack(">QQI", described[i:i + 20]) for i in range(0, len(described), 20)]
        payload, good = b"", True
        if kind in (WRITE, FRAME_DATA):
            payload = self.ch.read(n)
            if self.level == PAYLOAD and n:
                tags = self.into.pieces(payload, [s[2] for s in spans] if kind == WRITE else cuts_of(id_))
                good = hmac.compare_digest(self.ch.read(len(tags)), tags)
            elif flags & 1:
                good = struct.unpack(">I", self.ch.read(4))[0] == zlib.crc32(payload)
        self.into.frame += 1
        return kind, flags, count, id_, at, spans, payload, n, good


class Tags:
    """The tags of one direction."""

    def __init__(self, key):
        self.gcm, self.frame = AESGCM(key), 0

    def tag(self, piece, data):
        return self.gcm.encrypt(struct.pack(">IQ", piece, self.frame), b"", data)

    def pieces(self, payload, cuts):
        tags, at = b"", 0
        for length in cuts:
            for begin in range(at, at + length, PIECE):
                tags += self.tag(1 + len(tags) // 16, payload[begin:min(begin + PIECE, at + length)])
            at += length
        return tags


class Requester(Frames):
    def __init__(self, ch, agreed, conn):
        super().__init__(ch, agreed, b"requester", b"responder")
        self.conn, self.last, self.cuts = conn, 0, {}
        kind, *_ = self.read(None)
        if kind != READY:
            raise Closed(f"frame {kind} in place of ready")

    def request(self, kind, spans, payload=b"", checked=False):
        self.last += 1
        self.cuts[self.last] = [s[2] for s in spans]
        flags = 1 if checked and self.level < PAYLOAD else 0
        return self.frame(kind, flags, len(spans), self.last, sum(self.cuts[self.last]), 0, spans, payload,
                          self.cuts[self.last])

    def answer(self):
        """The status and the bytes of the answer to the last request."""
        kind, _, status, id_, _, _, payload, _, good = self.read(self.cuts.get)
        if id_ != self.last or not good:
            raise Closed("another answer than that to the request" if good else "a payload with a wrong tag")
        return (status if kind == FRAME_ACK else OK), payload

    def write_to(self, spans, payload, checked=False):
        self.ch.write(self.request(WRITE, spans, payload, checked))
        return self.answer()[0]

    def read_from(self, spans, checked=False):
        self.ch.write(self.request(READ, spans, checked=checked))
        return self.answer()
