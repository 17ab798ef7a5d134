"""A jobs controller that is stopped: what can be said of its jobs, and how it is started again.

Only a controller on a virtual machine is ever stopped. SkyPilot 0.12.2 stops one by itself when it
has no job left to drive, and a person can stop the machine at any time. So a stopped controller
proves that it drives no job now, and nothing else: its queue lies on its disk, and the machines of
a job that it drove may run on. Such a job is unavailable: not absent, not ended. A look with
`refresh` starts the controller, and then the queue says what became of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable
from npa.orchestration.skypilot.client import Answer, Reply
from npa.orchestration.skypilot.jobqueue import CONTROLLER_NOT_UP, Clock

if TYPE_CHECKING:
    from npa.orchestration.skypilot.rows import Snapshot

START_SECONDS_MAX = 300.0  # a virtual machine, and SkyPilot's own programs on it
GAP_SECONDS = 60.0  # between two starts that came to nothing
CALL_SECONDS_MAX = 30.0
UNDER_WAY = ("PENDING", "RUNNING")  # sky/server/requests/requests.py


class StoppedController(Struct):
    """Sees that the controller is stopped, and has it started again. `call` is the bridge's."""

    call: Callable[..., Reply]
    clock: Clock = field(default_factory=Clock)
    _asked: float = float("-inf")
    _request: str = ""

    def seen(self, look: Observation[Snapshot]) -> bool:
        """Does the look say so, or that the controller is on its way up because of us?"""
        match look:
            case Unavailable(cause=cause):
                begun = self._request != "" and cause == f"{CONTROLLER_NOT_UP}:init"
                return begun or cause == f"{CONTROLLER_NOT_UP}:stopped"
            case Found() | Absent() | Ambiguous():
                return False

    def start(self) -> None:
        """Ask for its start, without waiting for it. Not while an earlier one is under way."""
        if self.clock.monotonic() - self._asked < GAP_SECONDS or self._is_under_way():
            return
        self._asked = self.clock.monotonic()
        reply = self.call("wake", CALL_SECONDS_MAX)
        self._request = str(reply.value["request_id"]) if isinstance(reply, Answer) else ""

    def _is_under_way(self) -> bool:
        """A second start does no harm, so only a plain answer holds one back."""
        if not self._request:
            return False
        reply = self.call("request", CALL_SECONDS_MAX, request_id=self._request)
        return isinstance(reply, Answer) and reply.value.get("status") in UNDER_WAY
