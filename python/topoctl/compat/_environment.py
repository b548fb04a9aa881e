"""Options of the engine from the environment, for programs that know nothing of topoctl."""

from __future__ import annotations

import logging
import os
from typing import Any, Dict

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
    it."""
    found: Dict[str, Any] = {}
    for key in "token_file", "cert_file", "key_file", "ca_file":
        if name := os.environ.get(f"TOPOCTL_{key.upper()}"):
            found[key] = name
    if not found and os.environ.get("TOPOCTL_INSECURE") == "1":
        found["insecure"] = True
    found["listen"] = _list("TOPOCTL_LISTEN") or [EVERYWHERE if found else LOOPBACK]
    for key in "devices", "transports":
        if values := _list(f"TOPOCTL_{key.upper()}"):
            found[key] = values
    for key in "advertise", "topology", "http", "log":
        if value := os.environ.get(f"TOPOCTL_{key.upper()}"):
            found[key] = value
    if seconds := os.environ.get("TOPOCTL_GIVE_UP"):
        found["give_up"] = float(seconds)
    return found


def tell_pages(engine: Engine, log: logging.Logger) -> None:
    """Says where metrics are served, where TOPOCTL_HTTP left the port open."""
    if os.environ.get("TOPOCTL_HTTP", "").endswith(":0"):
        log.warning("metrics are served at %s", ", ".join(engine.stats()["http"]))


def _list(name: str) -> list[str]:
    return [part.strip() for part in os.environ.get(name, "").split(",") if part.strip()]
