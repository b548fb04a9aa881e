"""An engine in Python that others open: it serves one region, as docs/wire.md says."""
import json
import secrets
import socket
import struct
import threading

import wire


class Engine:
    """attack, if there is one, changes what this engine sends: it gets the name of the packet and its bytes."""

    def __init__(self, credentials, level=wire.OPEN, attack=lambda _, data: data):
        self.credentials, self.level, self.attack = credentials, level, attack
        self.secret = credentials.token[1] if credentials and credentials.token else b""
        self.epoch, self.memory = wire.epoch(), bytearray(1 << 20)
        self.sessions, self.expected, self.notified, self.errors, self.first_bytes = {}, {}, [], [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def close(self):
        self.listener.close()

    def serve(self, sock):
        ch = None
        try:
            first = sock.recv(10, socket.MSG_PEEK | socket.MSG_WAITALL)
            self.first_bytes.append(first)
            if first[:1] == b"\x16":
                ch = wire.TLS(sock, (self.credentials or wire.Credentials()).context(True), server=True)
            else:
                ch = wire.Plain(sock)
            self.shake(ch)
        except wire.Closed as e:
            self.errors.append(str(e))
        finally:
            (ch or sock).close()

    def shake(self, ch):
        hello = wire.read_first(ch)
        kind, flags, _, _, _, _, epoch, session, conn = struct.unpack(">BBQIIQQ16sQ", hello[10:68])
        own_name, at = wire.read_name(hello, 100)
        token, _ = wire.read_name(hello, at)
        data = kind == wire.DATA
        label = b"topoctl/2 data " if data else b"topoctl/2 "
        key, agreed = self.expected.pop((session, conn), (None, None)) if data else (self.secret, None)
        status = wire.OK
        if data and key is None:
            status = wire.ENDED
        elif not data and bool(flags & wire.HAS_TOKEN) != bool(self.secret):
            status = wire.TOKEN
        elif not data and self.secret and token != self.credentials.token[0]:
            key = secrets.token_bytes(32) # the names of tokens are not told: it is refused like a wrong proof
        demands = 0 if data else bool(self.secret) | bool(self.credentials and self.credentials.ca) << 1
        answer = wire.first_packet(struct.pack(">HHBQ32s", wire.VERSION, status, demands, 0, secrets.token_bytes(32)))
        ch.write(answer)
        if status != wire.OK:
            return
        proof = wire.read_second(ch)
        resumes = bool(flags & wire.RESUMES)
        if proof[2:34] != wire.mac(key, label + b"client", ch.exporter, hello, answer):
            ch.write(wire.second_packet(struct.pack(">H", wire.TOKEN) + bytes(49)))
            raise wire.Closed("the dialler's proof is wrong")
        session_key = None
        if resumes:
            session_key = self.sessions.get(session)
            if epoch != self.epoch:
                status = wire.RESTARTED
            elif session_key is None or proof[34:66] != wire.mac(session_key, b"topoctl/2 resume", ch.exporter, hello, answer):
                status = wire.ENDED
        head, tail = struct.pack(">H", status), struct.pack(">QII", self.epoch, wire.MAX_BODY, 64) + wire.name("python")
        blank = wire.second_packet(head + bytes(32) + tail)
        proven = wire.mac(key, label + b"server", ch.exporter, hello, answer, proof, blank,
                          session_key if resumes and status == wire.OK else b"")
        ch.write(self.attack("welcome", wire.second_packet(head + proven + tail)))
        if status != wire.OK:
            return
        if data:
            return self.serve_frames(wire.Frames(ch, agreed, b"responder", b"requester"))
        if not resumes:
            self.sessions[session] = wire.mac(key, b"topoctl/2 session key", ch.exporter, hello, answer)
        self.serve_session(ch, session)

    def serve_session(self, ch, session):
        messages = wire.Messages(ch)
        generation, _ = messages.read_sync()
        messages.sync(generation)
        while True:
            kind, fields = messages.read()
            if kind == wire.PING:
                messages.write(wire.PONG, fields)
            elif kind == wire.CALL:
                number, method = struct.unpack(">QH", fields[:10])
                outcome, body = self.answer(session, method, fields[10:])
                messages.write(wire.ANSWER, struct.pack(">QB", number, outcome) + body)
            elif kind == wire.BYE:
                return
            elif kind not in (wire.ACK, wire.PONG):
                raise wire.Closed(f"message {kind}")

    def answer(self, session, method, body):
        if method == wire.DESCRIBE:
            return 0, json.dumps(self.descriptor()).encode()
        if method == wire.ACCEPT:
            transport, at = wire.read_name(body, 0)
            conn, = struct.unpack(">Q", body[at:at + 8])
            asked = struct.unpack(">HBBIIIQ", body[at + 8:at + 32])
            if transport != "tcp" or asked[0] != 2 or asked[1] > wire.SEALED:
                return 1, b"not an offer that we take"
            key = secrets.token_bytes(32)
            level, spans, requests, size = max(asked[1], self.level), asked[4], asked[5], asked[6]
            answer = struct.pack(">HBBIIIQ", 2, level, 0, asked[3] & 1, min(spans, 64), min(requests, 16), min(size, 1 << 24)) + key
            self.expected[session, conn] = key, wire.Agreed(answer)
            return 0, self.attack("accept", answer)
        if method == wire.LEAVE:
            transport, at = wire.read_name(body, 0)
            owner, conn, proof = struct.unpack(">16sQ32s", body[at:at + 56])
            if proof != wire.mac(self.sessions[owner], b"topoctl/2 leave", transport.encode(), struct.pack(">Q", conn)):
                self.errors.append("a leave proof is wrong")
                return 1, b"the proof is wrong"
            return 0, b""
        if method == wire.NOTIFY:
            self.notified.append(body[8:])
            return 0, b""
        if method == wire.ASK:
            return 0, body.upper()
        return 1, b"unknown method"

    def descriptor(self):
        return {"schema": "topoctl.peer/v1", "name": "python", "epoch": str(self.epoch), "sequence": 1,
                "endpoints": [{"transport": "tcp", "address": self.address}],
                "regions": [{"id": "1", "name": "both", "bytes": len(self.memory), "location": "", "read": True, "write": True}]}

    def serve_frames(self, frames):
        frames.write(wire.READY)
        while True:
            kind, flags, _, id_, _, spans, payload, n, good = frames.read(None)
            if kind not in (wire.WRITE, wire.READ) or sum(s[2] for s in spans) != n:
                raise wire.Closed("not a request")
            status = self.check(spans) or (0 if good else 4)
            if kind == wire.READ and not status:
                data = b"".join(self.memory[at:at + length] for _, at, length in spans)
                cuts = [s[2] for s in spans]
                frame = frames.frame(wire.FRAME_DATA, flags, 0, id_, n, 0, (), data, cuts)
                frames.ch.write(self.attack("data", frame))
                continue
            if not status:
                begin = 0
                for _, at, length in spans:
                    self.memory[at:at + length] = payload[begin:begin + length]
                    begin += length
            frames.ch.write(self.attack("ack", frames.frame(wire.FRAME_ACK, 0, status, id_, 0, 0, (), b"", ())))

    def check(self, spans):
        for region, at, length in spans:
            if region != 1:
                return 1
            if at + length > len(self.memory):
                return 2
        return 0
