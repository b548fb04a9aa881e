"""Ranges that overlap, over an engine whose registrations do not."""

from __future__ import annotations

import bisect
from typing import Callable, Dict, Iterator, List, Tuple

At = Tuple[int, int]
"""Address and length."""


class _Piece:
    """Memory that the engine has registered, for the ranges that want some of it."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high
        self.ranges: Dict[At, None] = {}


class Pieces:
    """The memory of all ranges, in pieces: what several ranges share is registered once, and given
    back with the last of them. register and unregister are the engine's; where they raise nothing
    has changed."""

    def __init__(
        self, register: Callable[[List[At]], None], unregister: Callable[[List[At]], None]
    ) -> None:
        self._register, self._unregister = register, unregister
        self._count: Dict[At, int] = {}  # how many times each range was added
        self._lows: List[int] = []  # of all pieces, sorted
        self._pieces: Dict[int, _Piece] = {}  # by their lows

    def add(self, ranges: List[At]) -> None:
        fresh = sorted({at for at in ranges if at not in self._count})
        new, reach = [], 0
        for address, length in fresh:
            low, high = max(address, reach), address + length
            for piece in self._over(low, high):
                if low < piece.low:
                    new.append(_Piece(low, piece.low))
                low = piece.high
            if low < high:
                new.append(_Piece(low, high))
            reach = max(reach, high)
        self._register([(p.low, p.high - p.low) for p in new])
        self._insert(new)
        for at in fresh:
            for piece in self._over(at[0], sum(at)):
                piece.ranges[at] = None
        for at in ranges:
            self._count[at] = self._count.get(at, 0) + 1

    def remove(self, ranges: List[At]) -> None:
        """LookupError where one was not added."""
        left: Dict[At, int] = {}
        for at in ranges:
            left[at] = left.get(at, self._count.get(at, 0)) - 1
            if left[at] < 0:
                raise LookupError("{1} bytes at {0:#x} are not registered".format(*at))
        gone = {at for at, count in left.items() if not count}
        touched = {p.low: p for at in gone for p in self._over(at[0], sum(at))}.values()
        closed, again = [], []
        for piece in touched:
            stays = (at for at in piece.ranges if at not in gone)
            if not any(at[0] <= piece.low and piece.high <= sum(at) for at in stays):
                closed.append(piece)
                again.extend(_rest(piece, gone))
        self._unregister([(p.low, p.high - p.low) for p in closed])
        for piece in closed:
            del self._lows[bisect.bisect_left(self._lows, piece.low)], self._pieces[piece.low]
        for piece in touched:
            for at in gone & piece.ranges.keys():
                del piece.ranges[at]
        self._count.update(left)
        for at in gone:
            del self._count[at]
        if again:
            self._register([(p.low, p.high - p.low) for p in again])
            self._insert(again)

    def _over(self, low: int, high: int) -> Iterator[_Piece]:
        """Pieces that have some of these bytes, in the order of addresses."""
        i = max(bisect.bisect_right(self._lows, low) - 1, 0)
        while i < len(self._lows) and self._lows[i] < high:
            piece = self._pieces[self._lows[i]]
            if piece.high > low:
                yield piece
            i += 1

    def _insert(self, new: List[_Piece]) -> None:
        self._pieces.update((p.low, p) for p in new)
        if len(new) == 1:
            bisect.insort(self._lows, new[0].low)
        elif new:
            self._lows = sorted(self._pieces)


def _rest(piece: _Piece, gone: "set[At]") -> List[_Piece]:
    """What is left of a piece for the ranges that stay."""
    rest: List[_Piece] = []
    for at in sorted(at for at in piece.ranges if at not in gone):
        low, high = max(at[0], piece.low), min(sum(at), piece.high)
        if rest and low <= rest[-1].high:
            rest[-1].high = max(rest[-1].high, high)
        else:
            rest.append(_Piece(low, high))
        rest[-1].ranges[at] = None
    return rest
