"""Is a Kubernetes API stable enough to create a jobs controller on? Three good samples in a row.

Asked only when the controller is absent: one that is UP or STOPPED is usable as it is. One bad
sample starts the count anew; a refusal that no waiting cures ends it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import assert_never

from msgspec import Struct, field

from npa.orchestration.engine import Evidence
from npa.orchestration.skypilot.client import Answer, Broken, Refused, Reply
from npa.orchestration.skypilot.jobqueue import Clock

GOOD_NEEDED = 3
SPAN_SECONDS_MIN = 10.0
GAP_SECONDS = 5.0
DEADLINE_SECONDS = 120.0
SAMPLE_SECONDS_MAX = 30.0
CALL_SECONDS_MAX = 60.0


class Sample(Enum):
    """One look at `/readyz`."""

    GOOD = "good"
    TRANSPORT = "transport"  # not reached
    RATE_LIMIT = "rate limit"  # 429
    SERVER = "server"  # 5xx
    AUTHENTICATION = "authentication"  # 401: waiting does not help
    AUTHORIZATION = "authorization"  # 403

    @property
    def final(self) -> bool:
        return self in (Sample.AUTHENTICATION, Sample.AUTHORIZATION)


_CODES = {
    Sample.TRANSPORT: "KUBERNETES_TRANSPORT",
    Sample.RATE_LIMIT: "KUBERNETES_RATE_LIMIT",
    Sample.SERVER: "KUBERNETES_SERVER",
    Sample.AUTHENTICATION: "AUTHENTICATION",
    Sample.AUTHORIZATION: "AUTHORIZATION",
}


def sample_of(reply: Reply) -> Sample:
    """What one answer of the bridge's `ready` says of the API."""
    match reply:
        case Answer(value=value):
            return _of_status(int(value["status"]))
        case Refused(code="authentication"):
            return Sample.AUTHENTICATION
        case Refused() | Broken():
            return Sample.TRANSPORT
        case _:
            assert_never(reply)


def _of_status(status: int) -> Sample:
    if status == 0:
        return Sample.TRANSPORT
    if 200 <= status < 300:
        return Sample.GOOD
    known = {401: Sample.AUTHENTICATION, 403: Sample.AUTHORIZATION, 429: Sample.RATE_LIMIT}
    return known.get(status, Sample.SERVER)


class ControllerReadiness(Struct, frozen=True):
    """Asked before each launch of a session whose controller is a pod of `context`.

    A controller that is UP or STOPPED is usable as it is; of any other the launch may create one.
    """

    call: Callable[..., Reply]  # (op, seconds, **fields), of the bridge
    context: str
    clock: Clock = field(default_factory=Clock)

    def __call__(self) -> Evidence | None:
        seen = self.call("controller", CALL_SECONDS_MAX, consolidated=False)
        if isinstance(seen, Answer) and seen.value.get("state") in ("up", "stopped"):
            return None
        return StableReadiness(self._sample, self.clock)()

    def _sample(self) -> Sample:
        return sample_of(self.call("ready", SAMPLE_SECONDS_MAX, context=self.context))


class StableReadiness(Struct, frozen=True):
    """Callable for `SkyPilotEngine.before_controller`: None when ready, else evidence."""

    sample: Callable[[], Sample]
    clock: Clock = field(default_factory=Clock)

    def __call__(self) -> Evidence | None:
        began = self.clock.monotonic()
        good: list[float] = []
        last = Sample.TRANSPORT
        while True:
            last = self.sample()
            now = self.clock.monotonic()
            if last.final:
                return Evidence(_CODES[last], "readyz")
            good = [*good, now] if last is Sample.GOOD else []
            if len(good) >= GOOD_NEEDED and now - good[0] >= SPAN_SECONDS_MIN:
                return None
            if now - began + GAP_SECONDS > DEADLINE_SECONDS:
                code = _CODES.get(last, "KUBERNETES_TRANSPORT")
                return Evidence(code, "readyz", hint=f"not stable within {DEADLINE_SECONDS:.0f} s")
            self.clock.sleep(GAP_SECONDS)
