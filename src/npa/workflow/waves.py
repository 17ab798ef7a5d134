"""Waves: what is launched as one managed job. Keys come from member paths, never from a count."""

from __future__ import annotations

import hashlib
import re

from msgspec import Struct

from npa.workflow.asks import Batch, BatchKind
from npa.workflow.step import Step

LABEL_CHARS_MAX = 20  # what a job name has room for beside the run and the effect key


class Wave(Struct, frozen=True):
    """One managed job: one step, or one batch of a parallel group (`group` is its path).

    `key` is stable and unique within the run; `label` is for job names: lower-case letters, digits
    and `-`, at most LABEL_CHARS_MAX characters, not unique.
    """

    key: str
    label: str
    steps: tuple[Step, ...]
    group: str = ""


def split_for(batch: Batch, launches_groups: bool) -> tuple[Wave, ...]:
    """The waves of a batch: one for an engine that launches groups together, else one a step."""
    if batch.kind is BatchKind.GROUP and launches_groups and len(batch.steps) > 1:
        return (Wave(group_key(batch), _label(batch.group), batch.steps, batch.group),)
    return tuple(Wave(step.path, _label(step.path), (step,)) for step in batch.steps)


def group_key(batch: Batch) -> str:
    """`sweep{a..d}#1f2e3d4c`: the group, its first and last member, a digest of all members."""
    paths = [step.path for step in batch.steps]
    digest = hashlib.sha256("\n".join(paths).encode()).hexdigest()[:8]
    first, last = (path.removeprefix(f"{batch.group}/") for path in (paths[0], paths[-1]))
    return f"{batch.group}{{{first}..{last}}}#{digest}"


def _label(path: str) -> str:
    """The end of a path is what tells steps apart, so a long one loses its beginning."""
    plain = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")
    return plain[-LABEL_CHARS_MAX:].strip("-") or "step"
