"""Pusher moves pages of a KV cache into another process, and goes on when that was killed and started again:
"pusher.py receive TOKEN HOST:PORT [TRANSPORT]", and "pusher.py push TOKEN HOST:PORT REQUESTS". TOKEN is a file with the
secret that both have. At its end the pusher prints the engine's statistics: which lanes carried how much, and which one
failed.

A request is 8 pages. A page goes to slot PAGE % 16 of the receiver's memory, and with it the notification "PAGE". The
call "PAGE" then returns the credit for the slot, once the receiver has consumed the page. Whatever fails, the same page
is pushed again until then, so that what is still under way changes nothing.
"""

import asyncio
import json
import os
import struct
import sys
import zlib

import topoctl

SLOTS = 16
PAGES = 8  # of a request
DEADLINE = 20  # seconds, of a request, of which each try of a page has 1 s
PAGE_BYTES = 64 << 10  # the page's number (4 bytes), anything, and the Adler-32 of both (4 bytes)


async def receive(token, address, *transports):
    regions = {"kv": topoctl.Named(SLOTS * PAGE_BYTES, topoctl.Grant.WRITE)}
    with topoctl.Engine(
        token_file=token, listen=[address], transports=transports or None, regions=regions, answer=True
    ) as engine:
        kv = engine.region("kv")
        consumed = [0] * SLOTS  # the last page of each slot, from 1 on
        async for call in engine.watch_calls():
            # The notification of a page has come before its call.
            for notification in engine.notifications():
                page = int(notification.message)
                if page <= consumed[page % SLOTS]:
                    continue  # it was pushed twice, and its slot may be the next one's by now
                content = kv[page % SLOTS * PAGE_BYTES :][:PAGE_BYTES]
                stated = struct.unpack_from("<I", content)[0], struct.unpack_from("<I", content, PAGE_BYTES - 4)[0]
                right = stated == (page, zlib.adler32(content[:-4]))
                print("page", page, "right", str(right).lower(), flush=True)
                consumed[page % SLOTS] = page
            try:
                page = int(call.request)
                if page <= consumed[page % SLOTS]:
                    call.answer(b"")
                else:  # it came to the receiver that was here before
                    call.refuse(f"page {page} did not come")
            except topoctl.errors.Closed:
                pass  # the pusher does not wait for it any more


class Pusher:
    def __init__(self, engine, peer):
        self.engine = engine
        self.peer = peer
        self.local = engine.alloc(SLOTS * PAGE_BYTES, grant=topoctl.Grant.NONE)
        self.kv = None  # where the receiver's memory is

    async def requests(self, first, count):
        """Pushes every second request."""
        for request in range(first, count, SLOTS // PAGES):
            pages = range(request * PAGES + 1, (request + 1) * PAGES + 1)
            await asyncio.wait_for(asyncio.gather(*map(self.page, pages)), DEADLINE)
            print("request", request, flush=True)

    async def page(self, page):
        """Returns when the receiver has consumed the page."""
        content = self.local[page % SLOTS * PAGE_BYTES :][:PAGE_BYTES]
        content[:-4] = struct.pack("<I", page) + os.urandom(PAGE_BYTES - 8)
        content[-4:] = struct.pack("<I", zlib.adler32(content[:-4]))
        message = str(page).encode()
        while True:
            try:
                self.kv = self.kv or await self.engine.find(self.peer, "kv", timeout=1)
                at = self.kv.address + page % SLOTS * PAGE_BYTES
                await self.engine.write(self.peer, content, at, notify=message, timeout=1)
                await self.engine.call(self.peer, message, timeout=1)
                return
            except topoctl.errors.InvalidArgument:
                raise  # it will not be better
            except topoctl.Error as error:
                print("page", page, "again:", repr(error), file=sys.stderr)
                self.kv = None  # the receiver that was started again has it elsewhere
                await asyncio.sleep(0.05)


async def push(token, address, requests):
    with topoctl.Engine(token_file=token) as engine:
        pusher = Pusher(engine, address)
        await asyncio.gather(*(pusher.requests(first, int(requests)) for first in range(SLOTS // PAGES)))
        print(json.dumps(engine.stats()))


if __name__ == "__main__":
    asyncio.run({"receive": receive, "push": push}[sys.argv[1]](*sys.argv[2:]))
