"""The one refusal of a driver that finds another one at its run."""

from __future__ import annotations

from npa.errors import DrivenElsewhere
from npa.orchestration.state import DriverView

_NOT_DONE = "nothing was changed or launched here"


def driven_elsewhere(
    run_id: str, view: DriverView, *, alive: bool | None, stopped: bool = False
) -> DrivenElsewhere:
    """The driver `view` is alive, or (None) cannot be seen; `stopped`: a signal holds it."""
    where = f"process {view.pid} on {view.host}"
    if alive and stopped:
        return DrivenElsewhere(
            f"the run is driven by {where}, which is stopped by a signal",
            not_done=_NOT_DONE,
            hint=f"`kill {view.pid}` and `kill -CONT {view.pid}` end it; what runs goes on",
            next_command=f"kill -CONT {view.pid}",
        )
    if alive:
        return DrivenElsewhere(
            f"the run is driven by {where}, which is alive",
            not_done=_NOT_DONE,
            next_command=f"npa workflow status {run_id} --watch",
        )
    return DrivenElsewhere(
        f"the run was last driven by {where}; from here it cannot be seen whether it lives",
        not_done=_NOT_DONE,
        hint="resume on that host, or take the run over once that driver is surely gone",
        next_command=f"npa workflow resume {run_id} --take-over",
    )
