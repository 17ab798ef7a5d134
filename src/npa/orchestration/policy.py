"""Budgets, deadlines and rhythms of a run. Part of the seal where they change what may happen."""

from __future__ import annotations

from msgspec import Struct


class Policy(Struct, frozen=True):
    """All numbers that a driver goes by; seconds unless the name says otherwise.

    `retries` and `recoveries` are separate budgets of one wave: payload failures and typed
    transient infrastructure failures. `max_wait_seconds` is a deadline for each attempt (0: none);
    a state's own `timeoutSeconds` overrides it. `max_concurrency` caps every group (0: none).
    """

    retries: int = 0
    backoff_seconds: float = 30.0
    recoveries: int = 1
    max_wait_seconds: float = 0.0
    max_concurrency: int = 0
    assume_decision: str = ""
    grace_seconds: float = 10.0
    skew_seconds: float = 10.0
    cancel_patience_seconds: float = 300.0
    cancel_repeat_seconds: float = 30.0
    odd_patience_seconds: float = 600.0  # how long a view that cannot last is waited out
    head_poll_seconds: float = 1.0
    heartbeat_seconds: float = 900.0
    preflight_fresh_seconds: float = 600.0
    settle_seconds: float = 0.02  # how long a launch may take to tell before it is written down

    def sealed(self) -> dict[str, object]:
        """What of this may not change within a run."""
        return {
            "retries": self.retries,
            "recoveries": self.recoveries,
            "max_wait_seconds": self.max_wait_seconds,
            "max_concurrency": self.max_concurrency,
            "assume_decision": self.assume_decision,
        }
