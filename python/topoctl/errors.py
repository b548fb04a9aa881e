"""What can go wrong, as exceptions: one class for each status of the C library."""

from __future__ import annotations

import enum
from typing import Dict, Optional, Type


class Status(enum.IntEnum):
    """topoctl_status of topoctl.h."""

    OK = 0
    DONE = 1
    FAILED = -1
    INVALID = -2
    NO_HANDLE = -3
    TIMEOUT = -4
    UNSAFE = -5
    NO_PEER = -6
    PEER_LOST = -7
    NO_REGION = -8
    CANCELED = -9
    EXISTS = -10
    LIMIT = -11
    FORKED = -12
    INTERNAL = -13
    REFUSED = -14
    NO_MEMORY = -15


class Error(Exception):
    """Base of all errors of topoctl. status is the C library's, None where it had no part."""

    status: Optional[Status] = None


class LibraryError(Error):
    """libtopoctl.so cannot be opened, or is of another interface version."""


class ProgramError(Error):
    """The program topoctl could not be run, or could not answer. returncode is its exit code,
    None where it did not run."""

    def __init__(self, message: str, returncode: Optional[int] = None) -> None:
        super().__init__(message)
        self.returncode = returncode


class Failed(Error):
    """None of the other reasons; the text says which."""

    status = Status.FAILED


class InvalidArgument(Error, ValueError):
    """An argument is wrong: nothing was begun."""

    status = Status.INVALID


class Closed(Error):
    """The engine, batch or list does not exist any more."""

    status = Status.NO_HANDLE


class Timeout(Error, TimeoutError):
    """A wait, or the batch itself, ran out of time."""

    status = Status.TIMEOUT


class Unsafe(Error):
    """The batch failed and bytes of it may still land: its memory must not be used on either side
    until the peer has confirmed that nothing can land any more, or was restarted. The engine
    refuses the range until then, and topoctl keeps the memory alive."""

    status = Status.UNSAFE


class NoPeer(Error, ConnectionError):
    """Nothing answers at the peer's address, or it refuses the token."""

    status = Status.NO_PEER


class PeerLost(Error, ConnectionError):
    """The peer died, or restarted, while it was used."""

    status = Status.PEER_LOST


class NoRegion(Error, LookupError):
    """The range is not registered, or its owner does not grant it."""

    status = Status.NO_REGION


class Canceled(Error):
    """The batch was canceled, or the engine closed."""

    status = Status.CANCELED


class Exists(Error):
    """The range overlaps memory that is registered."""

    status = Status.EXISTS


class LimitReached(Error):
    """A limit of the engine is reached."""

    status = Status.LIMIT


class Forked(Error):
    """This process is a child, made by fork, of the one that opened the library. Use the
    multiprocessing start methods spawn or forkserver, or open the first engine after the fork."""

    status = Status.FORKED


class InternalError(Error):
    """A defect of the library, caught. Please report it."""

    status = Status.INTERNAL


class Refused(Error):
    """The peer's program answered a call with an error, which is the text."""

    status = Status.REFUSED


class NoMemory(Error, MemoryError):
    """The system has not so much memory."""

    status = Status.NO_MEMORY


_CLASSES: Dict[int, Type[Error]] = {
    cls.status: cls
    for cls in (
        Failed,
        InvalidArgument,
        Closed,
        Timeout,
        Unsafe,
        NoPeer,
        PeerLost,
        NoRegion,
        Canceled,
        Exists,
        LimitReached,
        Forked,
        InternalError,
        Refused,
        NoMemory,
    )
}


def of_status(status: int, text: str) -> Error:
    """The exception for a status below 0; text is the library's, "" where it has none."""
    cls = _CLASSES.get(status, Failed)
    return cls(text or " ".join((cls.__doc__ or "").split()))
