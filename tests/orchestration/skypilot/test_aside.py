"""What a reader of logs copies for itself goes with it, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from npa.observation import Found
from npa.orchestration.skypilot.aside import aside
from npa.orchestration.skypilot.client import Answer
from npa.orchestration.skypilot.kept_logs import KeptLogs
from npa.orchestration.skypilot.log_reader import SkyPilotLogs
from orchestration.skypilot.test_kept_logs import STREAM
from orchestration.skypilot.test_log_reader import REF, FakeBridge, reader


def read_once(folder: Path, interrupt: BaseException | None = None) -> None:
    """Read a log of a run that goes on, as `npa workflow logs` does."""
    bridge = FakeBridge((), dict, Path(), Path())
    bridge.text, bridge.reply = b"one\n", Answer({"ended": False, "failed": False})
    launches = reader(bridge, folder.parent, one="a").launches
    with aside(folder) as own:
        live = SkyPilotLogs(bridge, launches, own.path, lambda: 0.0)
        logs = KeptLogs(folder, launches, lambda: 0.0, live, own.make)
        assert isinstance(logs.read(REF, STREAM, 0), Found)
        assert len(list(own.path.iterdir())) == 1
        if interrupt is not None:
            raise interrupt


@pytest.mark.parametrize("interrupt", [None, KeyboardInterrupt(), SystemExit(143)])
def test_a_reader_leaves_nothing_behind(tmp_path: Path, interrupt: BaseException | None) -> None:
    folder = tmp_path / "logs"
    if interrupt is None:
        read_once(folder)
    else:
        with pytest.raises(type(interrupt)):
            read_once(folder, interrupt)
    assert list(folder.iterdir()) == []


def test_what_a_killed_reader_left_is_removed_and_that_of_a_living_one_is_not(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "logs"
    killed, living = folder / "tail-1", folder / "tail-2"
    for path in (killed, living):
        path.mkdir(parents=True)
        (path / "copy.log").touch()
    lock = os.open(living, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    try:
        read_once(folder)
        assert list(folder.iterdir()) == [living]
    finally:
        os.close(lock)


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    with aside(tmp_path / "session" / "logs"):
        pass
    assert list(tmp_path.iterdir()) == []
