"""Loopback ports of an owned API server, chosen together and never SkyPilot's own."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

from msgspec import Struct

from npa.errors import EngineError

SKYPILOTS = (46580, 50011, 9090)  # API, queue manager, metrics: where a stranger's server listens
# Below every usual ephemeral range, so that no outgoing connection takes a port between two starts.
RANGE = range(20000, 30000)
TRIES_MAX = 200


class Ports(Struct, frozen=True):
    """`queue` is kept free for SkyPilot's queue manager; our servers need no listener on it."""

    api: int
    queue: int
    metrics: int

    def __post_init__(self) -> None:
        numbers = (self.api, self.queue, self.metrics)
        if len(set(numbers)) != 3 or any(n in SKYPILOTS or not 1024 < n < 65536 for n in numbers):
            raise EngineError(
                f"{numbers} cannot be the ports of an API server",
                hint="they must differ, and may not be SkyPilot's own 46580, 50011 and 9090",
                code="SESSION_PORTS",
            )


def is_free(port: int) -> bool:
    """May a listener be opened on 127.0.0.1:port? Connections of a dead server do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose(generator: random.Random | None = None) -> Ports:
    """Three free ports, all bound at the same time before they are let go. Raises EngineError."""
    draw = generator or random.SystemRandom()
    with ExitStack() as held:
        found: list[int] = []
        for _ in range(TRIES_MAX):
            port = draw.choice(RANGE)
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
            if len(found) == 3:
                return Ports(*found)
    raise EngineError(
        f"no three free ports between {RANGE.start} and {RANGE.stop}",
        not_done="no API server was started",
        hint="stop what listens there on 127.0.0.1",
        code="SESSION_PORTS",
    )
