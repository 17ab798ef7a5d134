"""Evidence for a launch that did not happen, from what the bridge said of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from npa.orchestration.engine import Evidence, LaunchRefused
from npa.orchestration.skypilot.client import Answer, Broken, Refused, Reply
from npa.orchestration.skypilot.rows import SOURCE

# What the bridge's code of a launch that did not happen means: rows of the evidence table.
REFUSED: Mapping[str, str] = {
    "invalid": "INVALID_ARGUMENT",
    "unsupported": "INVALID_ARGUMENT",
    "version": "INVALID_ARGUMENT",
    "authentication": "AUTHENTICATION",
    "authorization": "AUTHORIZATION",
    "no_resources": "CAPACITY_OR_QUOTA",
    "kubernetes_unreachable": "KUBERNETES_TRANSPORT",
    "controller_not_up": "CONTROLLER_UNAVAILABLE",
    "unreachable": "CONTROLLER_UNAVAILABLE",
    "busy": "CONTROLLER_UNAVAILABLE",
    "expired": "CONTROLLER_UNAVAILABLE",
    "interrupted": "CONTROLLER_UNAVAILABLE",
}


def refused(reply: Reply) -> LaunchRefused:
    """Evidence for a launch that was not made."""
    match reply:
        case Refused(code=code, message=message):
            return LaunchRefused(Evidence(REFUSED.get(code, code), SOURCE, hint=message[:500]))
        case Broken(cause=cause, detail=detail):
            hint = f"{cause}: {detail}"
            return LaunchRefused(Evidence("CONTROLLER_UNAVAILABLE", SOURCE, hint=hint))
        case Answer():
            return LaunchRefused(Evidence("schema", SOURCE, hint="an answer without a launch"))
        case _:
            assert_never(reply)
