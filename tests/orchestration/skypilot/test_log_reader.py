"""Logs are read by byte offset from the copy that the bridge keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from npa.observation import Absent, Found, Unavailable
from npa.orchestration.engine import JobRef
from npa.orchestration.logs import LogStream
from npa.orchestration.skypilot.client import Answer, BridgeClient, Refused, Reply
from npa.orchestration.skypilot.launches import Launches
from npa.orchestration.skypilot.log_reader import SkyPilotLogs

REF = JobRef("job", "ab", "7")


class FakeBridge(BridgeClient):
    """Copies `text` when asked to follow."""

    reply: Reply = Answer({"ended": False, "failed": False})
    text: bytes | None = b""
    asked: dict[str, Any] = msgspec.field(default_factory=dict)

    def call(self, op: str, seconds: float, **fields: Any) -> Reply:
        self.asked = fields
        if self.text is not None:
            Path(fields["path"]).write_bytes(self.text)
        return self.reply


@pytest.fixture
def bridge() -> FakeBridge:
    return FakeBridge((), dict, Path(), Path())


def reader(bridge: FakeBridge, folder: Path, **paths: str) -> SkyPilotLogs:
    launches = Launches(folder / "launches")
    launches.prepare("ab", "job", "d", paths, 0.0)
    return SkyPilotLogs(bridge, launches, folder / "logs", lambda: 0.0)


def test_a_task_is_a_stream_under_its_step_path(bridge: FakeBridge, tmp_path: Path) -> None:
    logs = reader(bridge, tmp_path, one="group/one", two="group/two")
    seen = logs.streams(REF)
    assert isinstance(seen, Found)
    assert [s.path for s in seen.value] == ["group/one", "group/two"]
    assert isinstance(logs.streams(JobRef("other", "cd")), Absent)


def test_bytes_come_as_they_were_written_and_go_on_from_the_offset(
    bridge: FakeBridge, tmp_path: Path
) -> None:
    """SkyPilot 2329: long lines, `\\r` and binary stay whole."""
    logs = reader(bridge, tmp_path, one="a")
    bridge.text = b"x" * 300_000 + b"\r50%\r100%\n\xff"
    stream = LogStream("a", 0, "one")
    first = logs.read(REF, stream, 0)
    assert isinstance(first, Found)
    assert first.value.data == bridge.text
    assert not first.value.ended
    bridge.text += b"more"
    bridge.reply = Answer({"ended": True, "failed": False})
    rest = logs.read(REF, stream, first.value.next_offset)
    assert isinstance(rest, Found)
    assert (rest.value.data, rest.value.ended) == (b"more", True)


def test_a_job_of_one_task_is_asked_for_without_a_task(bridge: FakeBridge, tmp_path: Path) -> None:
    reader(bridge, tmp_path, one="a").read(REF, LogStream("a", 0, "one"), 0)
    assert bridge.asked["task"] is None
    reader(bridge, tmp_path, one="a", two="b").read(REF, LogStream("b", 0, "two"), 0)
    assert bridge.asked["task"] == "two"


def test_a_log_that_was_not_begun_is_empty_and_not_ended(
    bridge: FakeBridge, tmp_path: Path
) -> None:
    bridge.text = None
    seen = reader(bridge, tmp_path, one="a").read(REF, LogStream("a", 0, "one"), 0)
    assert isinstance(seen, Found)
    assert (seen.value.data, seen.value.ended) == (b"", False)


@pytest.mark.parametrize(
    "reply", [Answer({"ended": True, "failed": True}), Refused("busy", "X", "m")]
)
def test_a_log_that_cannot_be_read_is_unavailable(
    bridge: FakeBridge, tmp_path: Path, reply: Reply
) -> None:
    bridge.reply = reply
    seen = reader(bridge, tmp_path, one="a").read(REF, LogStream("a", 0, "one"), 0)
    assert isinstance(seen, Unavailable)
