"""Three ports at a time, never SkyPilot's own."""

from __future__ import annotations

import random
import socket

import pytest

from npa.errors import EngineError
from npa.orchestration.skypilot.ports import RANGE, SKYPILOTS, Ports, choose, is_free


@pytest.mark.req("A-04")
def test_the_ports_differ_and_are_not_skypilots() -> None:
    ports = choose()
    numbers = {ports.api, ports.queue, ports.metrics}
    assert len(numbers) == 3
    assert not numbers & set(SKYPILOTS)
    assert not set(RANGE) & set(SKYPILOTS)


@pytest.mark.parametrize("port", SKYPILOTS)
def test_skypilots_own_ports_are_refused(port: int) -> None:
    with pytest.raises(EngineError):
        Ports(port, 20001, 20002)


def test_a_port_in_use_is_not_chosen() -> None:
    first = choose(random.Random(7))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first.api))
        taken.listen()
        assert not is_free(first.api)
        assert first.api not in vars_of(choose(random.Random(7)))
    assert is_free(first.api)


def vars_of(ports: Ports) -> set[int]:
    return {ports.api, ports.queue, ports.metrics}
