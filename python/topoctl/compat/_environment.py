"""Options of the engine from the environment, for programs that know nothing of topoctl."""

from __future__ import annotations

import ipaddress
import logging
import os
from typing import Any, Dict, Sequence

from topoctl import Engine

LOOPBACK = "127.0.0.1:0"
EVERYWHERE = "0.0.0.0:0"

ADVICE = (
    "set TOPOCTL_TOKEN_FILE to a file with the same secret on all hosts, or TOPOCTL_CERT_FILE, "
    "TOPOCTL_KEY_FILE and TOPOCTL_CA_FILE (topoctl cert makes the files), or TOPOCTL_INSECURE=1 "
    "where everyone who reaches this host may read and write the memory"
)
"""What to do where an engine does not listen to other hosts, or refuses to."""


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


def tell_pages(engine: Engine, log: logging.Logger) -> None:
    """Says where metrics are served, where TOPOCTL_HTTP left the port open."""
    if os.environ.get("TOPOCTL_HTTP", "").endswith(":0"):
        log.warning("metrics are served at %s", ", ".join(engine.stats()["http"]))


def _list(name: str) -> list[str]:
    return [part.strip() for part in os.environ.get(name, "").split(",") if part.strip()]
