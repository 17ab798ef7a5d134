"""A driver that finds another one says so in one way, whoever asks."""

from __future__ import annotations

import pytest

from npa.orchestration.driven import driven_elsewhere
from npa.orchestration.state import DriverView

VIEW = DriverView(3, "host", "boot", 42, 1, "complete", 0.0)


@pytest.mark.parametrize(
    ("alive", "stopped", "said", "command"),
    [
        (True, False, "which is alive", "npa workflow status r1 --watch"),
        (True, True, "which is stopped by a signal", "kill -CONT 42"),
        (None, False, "cannot be seen whether it lives", "npa workflow resume r1 --take-over"),
    ],
)
def test_each_refusal_names_the_driver_and_the_command_that_comes_next(
    alive: bool | None, stopped: bool, said: str, command: str
) -> None:
    error = driven_elsewhere("r1", VIEW, alive=alive, stopped=stopped)
    assert "process 42 on host" in error.message
    assert said in error.message
    assert error.not_done == "nothing was changed or launched here"
    assert error.next_command == command
