"""Logs outlive the API server: they are copied whole before it stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from changed import replace
from npa.errors import EngineError
from npa.observation import Found, Unavailable
from npa.orchestration.logs import LogStream
from npa.orchestration.skypilot.client import Answer
from npa.orchestration.skypilot.kept_logs import KeptLogs
from orchestration.skypilot.test_log_reader import REF, FakeBridge, reader

STREAM = LogStream("a", 0, "one")


def kept_logs(bridge: FakeBridge, folder: Path) -> KeptLogs:
    live = replace(reader(bridge, folder, one="a"), folder=folder / "kept/tail-1")
    return KeptLogs(folder / "kept", live.launches, lambda: 0.0, live)


@pytest.fixture
def bridge() -> FakeBridge:
    made = FakeBridge((), dict, Path(), Path())
    made.text, made.reply = b"one\ntwo\n", Answer({"ended": True, "failed": False})
    return made


def test_what_was_kept_is_read_without_the_server(bridge: FakeBridge, tmp_path: Path) -> None:
    logs = kept_logs(bridge, tmp_path)
    logs.keep([REF])
    assert logs.complete()
    alone = KeptLogs(logs.folder, logs.launches, lambda: 0.0)
    seen = alone.read(REF, STREAM, 4)
    assert isinstance(seen, Found)
    assert (seen.value.data, seen.value.ended) == (b"two\n", True)


def test_what_could_not_be_kept_is_unavailable_and_not_empty(
    bridge: FakeBridge, tmp_path: Path
) -> None:
    bridge.reply = Answer({"ended": True, "failed": True})
    logs = kept_logs(bridge, tmp_path)
    logs.keep([REF])
    seen = KeptLogs(logs.folder, logs.launches, lambda: 0.0).read(REF, STREAM, 0)
    assert isinstance(seen, Unavailable)


def test_a_server_that_is_not_proven_is_not_asked(bridge: FakeBridge, tmp_path: Path) -> None:
    def gone() -> None:
        raise EngineError("it is gone", code="SESSION_NOT_RUNNING")

    logs = replace(kept_logs(bridge, tmp_path), prove=gone)
    seen = logs.read(REF, STREAM, 0)
    assert isinstance(seen, Unavailable)
    assert seen.cause == "SESSION_NOT_RUNNING"
