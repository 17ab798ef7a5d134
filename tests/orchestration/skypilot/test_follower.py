"""The bridge's copy of a log: its first reader gets what was written before it came."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from npa.orchestration.skypilot import bridge
from npa.orchestration.skypilot.bridge import Bridge


class Tail:
    """Stands for `sky.jobs.tail_logs`: writes `text`, then stays until it is `let` go."""

    def __init__(self, text: str, *, stays: bool) -> None:
        self.text = text
        self.stays = stays
        self.let = threading.Event()
        self.calls = 0

    def __call__(self, *, output_stream: Any, **_: Any) -> None:
        self.calls += 1
        output_stream.write(self.text)
        output_stream.flush()
        if self.stays:
            self.let.wait(60)


@pytest.fixture
def tail_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Tail]]:
    made: list[Tail] = []

    def make(text: str, *, stays: bool = True) -> Tail:
        tail = Tail(text, stays=stays)
        sky, jobs = ModuleType("sky"), ModuleType("sky.jobs")
        jobs.tail_logs = tail  # type: ignore[attr-defined]
        sky.jobs = jobs  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "sky", sky)
        monkeypatch.setitem(sys.modules, "sky.jobs", jobs)
        made.append(tail)
        return tail

    yield make
    for tail in made:
        tail.let.set()


def follow(asked: Bridge, path: Path) -> dict[str, Any]:
    return asked.op_follow({"path": str(path), "job_id": 1}, None)


def test_a_log_that_grows_is_there_at_the_first_look(
    tail_of: Callable[..., Tail], tmp_path: Path
) -> None:
    tail, path, asked = tail_of("one\n"), tmp_path / "copy.log", Bridge(None)
    assert follow(asked, path) == {"ended": False, "failed": False}
    assert path.read_text() == "one\n"
    assert follow(asked, path) == {"ended": False, "failed": False}
    assert tail.calls == 1


def test_a_log_that_is_over_is_whole_at_the_first_look(
    tail_of: Callable[..., Tail], tmp_path: Path
) -> None:
    tail_of("one\ntwo\n", stays=False)
    path = tmp_path / "copy.log"
    assert follow(Bridge(None), path) == {"ended": True, "failed": False}
    assert path.read_text() == "one\ntwo\n"


def test_a_task_that_writes_nothing_is_not_waited_for_for_ever(
    tail_of: Callable[..., Tail], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge.log_follower, "FIRST_SECONDS_MAX", 0.3)
    tail_of("")
    assert follow(Bridge(None), tmp_path / "copy.log") == {"ended": False, "failed": False}
