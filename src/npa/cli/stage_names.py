"""What STEP may name on a command line: a step, a state, or a group with all that ran in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from npa.cli.lazy import unknown
from npa.errors import UsageError

if TYPE_CHECKING:
    from npa.orchestration.runs import OpenRun

_BRACKETS = re.compile(r"\[[^\]]*\]")  # the iteration or the item in a step path


def belongs(path: str, state: str, stage: str) -> bool:
    """Is the step at `path`, of the state `state`, one that `stage` names?

    `refine[2]/grade` is named by itself, by `grade`, by `refine[2]`, `refine` and `refine/grade`.
    """
    if stage in (path, state) or path.startswith(f"{stage}/"):
        return True
    if "[" in stage:
        return False
    plain = _BRACKETS.sub("", path)
    return stage in plain.split("/") or plain == stage or plain.startswith(f"{stage}/")


def comes_later(run: OpenRun, stage: str) -> bool:
    """May a step or state of that name start yet, going by the run's own file?"""
    from npa.cli.ahead import states_of

    names = _BRACKETS.sub("", stage).split("/")
    return not run.state.lifecycle.over and set(names) <= set(states_of(run))


def no_such_step(run: OpenRun, stage: str) -> UsageError:
    """The error that names the nearest step, state or group that has started."""
    latest = run.state.latest
    groups = {name for path in latest for name in _BRACKETS.sub("", path).split("/")}
    known = [*latest, *sorted(groups | {a.state_of(path) for path, a in latest.items()})]
    return UsageError(
        unknown(stage, "step", known),
        hint="a step is known once it was launched",
        next_command=f"npa workflow status {run.place.run_id}",
    )
