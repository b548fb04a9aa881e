"""Options of the engine from the environment, for programs that know nothing of topoctl."""

from __future__ import annotations

import ipaddress
import logging
import os
from typing import Any, Dict, Sequence, Set

from topoctl import Engine, _lib

LOOPBACK = "127.0.0.1:0"
EVERYWHERE = "0.0.0.0:0"

ADVICE = "set TOPOCTL_TOKEN_FILE to a file with a secret that all hosts have, or TOPOCTL_INSECURE=1"
"""What to do where an engine does not listen to other hosts, or refuses to."""

_announced: Set[str] = set()  # packages, once a process


def log(name: str) -> logging.Logger:
    """A logger whose lines say whose they are: where nothing is configured, Python prints the bare text."""
    logger = logging.getLogger(name)
    logger.addFilter(_prefix)
    return logger


def _prefix(record: logging.LogRecord) -> bool:
    record.msg = f"topoctl: {record.msg}"
    return True


def options() -> Dict[str, Any]:
    """Keyword arguments of topoctl.Engine. Where there is neither a token nor a certificate nor
    TOPOCTL_INSECURE=1 the engine listens at the loopback address, so that only this host reaches
    it. ValueError where a variable has no value that it can have."""
    found: Dict[str, Any] = {}
    for key in "token_file", "cert_file", "key_file", "ca_file":
        if name := os.environ.get(f"TOPOCTL_{key.upper()}"):
            found[key] = name
    insecure = os.environ.get("TOPOCTL_INSECURE", "")
    if insecure not in ("", "0", "1"):
        raise ValueError(f"TOPOCTL_INSECURE is {insecure!r}: want 1, or 0")
    if not found and insecure == "1":
        found["insecure"] = True
    found["listen"] = _list("TOPOCTL_LISTEN") or [EVERYWHERE if found else LOOPBACK]
    for key in "devices", "transports":
        if values := _list(f"TOPOCTL_{key.upper()}"):
            found[key] = values
    for key in "advertise", "topology", "http", "log", "protection":
        if value := os.environ.get(f"TOPOCTL_{key.upper()}"):
            found[key] = value
    if seconds := os.environ.get("TOPOCTL_GIVE_UP"):
        try:
            found["give_up"] = float(seconds)
        except ValueError:
            raise ValueError(f"TOPOCTL_GIVE_UP is {seconds!r}: want seconds") from None
    return found


def guarded(options: Dict[str, Any]) -> bool:
    """Whether the options say who of other hosts may be a peer."""
    return bool(options.keys() & {"token_file", "ca_file", "insecure"})


def loopback(host: str) -> bool:
    """Whether only this host reaches what listens at host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def unguarded(options: Dict[str, Any]) -> Sequence[str]:
    """Addresses that other hosts would reach, where the options do not say who may."""
    if guarded(options):
        return ()
    hosts = ((at, at.rpartition(":")) for at in options["listen"])
    return [at for at, (host, colon, _) in hosts if colon and not loopback(host.strip("[]"))]


def announce(engine: Engine, log: logging.Logger, package: str, advice: str = "") -> None:
    """Says, once a process, that topoctl is in force, and of each engine where its metrics are if
    TOPOCTL_HTTP's port was open, or taken. As warnings, which are seen where nothing is configured."""
    stats = engine.stats()
    for page in stats.get("http", ()):
        if not os.environ["TOPOCTL_HTTP"].endswith(page[page.rindex(":") :]):
            log.warning("metrics are served at %s", page)
    if package in _announced:
        return
    _announced.add(package)
    ports = {a["port"].partition(":")[2]: None for a in stats["advertised"] if "port" in a}
    log.warning(
        "version %s in place of %s, at %s%s%s",
        *(_lib.load().topoctl_version().decode(), package, engine.address),
        *(f", over {', '.join(ports)}" if ports else "", advice),
    )


def _list(name: str) -> list[str]:
    return [part.strip() for part in os.environ.get(name, "").split(",") if part.strip()]
