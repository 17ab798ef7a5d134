"""What can be known before a submit: shapes that never fit, and programs that are not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from npa.orchestration.engine import Finding
from npa.orchestration.local.inventory import Inventory, impossible
from npa.workflow.step import Step


def preflight(
    steps: Sequence[Step], machine: Inventory, env: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Each finding once for each step path."""
    found: dict[tuple[str, str], Finding] = {}
    is_there = cache(_is_there)
    for step in steps:
        for finding in _shape(step, machine) + _program(step, env, is_there):
            found.setdefault((finding.path, finding.code), finding)
    return tuple(found.values())


def _shape(step: Step, machine: Inventory) -> list[Finding]:
    reason = impossible(step.profile, machine)
    if not reason:
        return []
    return [
        Finding(
            "IMPOSSIBLE_SHAPE",
            step.path,
            f"`{step.path}` {reason}",
            "ask for less in its resource profile, or run it on a cluster with "
            "`npa workflow submit --engine skypilot`",
            blocking=True,
        )
    ]


def _is_there(program: str, path: str) -> bool:
    """Is a bare name in some folder of `path`? A name with a slash may still be made by a step."""
    if "/" in program:
        return not program.startswith("/") or os.path.exists(program)
    return shutil.which(program, path=path) is not None


def _program(
    step: Step, env: Mapping[str, str], is_there: Callable[[str, str], bool]
) -> list[Finding]:
    """A bare name that no folder of PATH has will fail; a path may still be made by a step."""
    command = step.command
    if not command.argv:
        return []
    program = command.argv[0]
    path = dict(step.env).get("PATH", env.get("PATH", os.defpath))
    if is_there(program, path):
        return []
    certain = "/" not in program and not command.setup
    where = "" if "/" in program else " in any folder of PATH"
    return [
        Finding(
            "COMMAND_NOT_FOUND",
            step.path,
            f"`{step.path}` starts `{program}`, which is not{where} on this machine",
            f"install `{program}`, or write the full path in `argv`",
            blocking=certain,
        )
    ]
