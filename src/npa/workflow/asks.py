"""What a walk asks for: batches of steps to run, decisions to read, items to read; and its end."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from msgspec import Struct

from npa.workflow.step import Scalar, Step


class BatchKind(Enum):
    SERIAL = "serial"  # one step on its own
    GROUP = "group"  # members of a parallel group that are launched, and end, together
    WINDOW = "window"  # one member of a parallel group in a sliding window


class Batch(Struct, frozen=True):
    """Steps that may start now. `SERIAL` and `WINDOW` batches hold exactly one step."""

    kind: BatchKind
    group: str  # path of the parallel group, "" when serial
    steps: tuple[Step, ...]
    max_concurrency: int


class Gate(Struct, frozen=True):
    """Decide from a measured number: JSON artifact `uri`, dotted `path` in it, `op`, `value`."""

    uri: str
    path: str
    op: str  # one of < <= > >= == !=
    value: float


class AskDecision(Struct, frozen=True):
    """The walk needs the decision written by `writer` (a step path) before it can go on.

    `key` names the question within the run and is the key of the answer: `refine[2]?until`,
    `route?next`. `uris` is the search order for the artifact (first that exists); `gates` when the
    decision is computed from a measured number instead (the answer is then "gate:<index>" of the
    first gate that holds, or "gate:none"). `options` are the answers that fit; any other decision
    ends the walk with a reason.
    """

    key: str
    writer: str
    uris: tuple[str, ...]
    gates: tuple[Gate, ...] = ()
    options: tuple[str, ...] = ()


class AskItems(Struct, frozen=True):
    """A `foreach` needs its items: read the JSON list (or object with `items`) at `uri`."""

    key: str
    uri: str
    max_items: int


class Ended(Struct, frozen=True):
    """The walk is over. `reason` is empty when a terminal state was reached."""

    terminal: str  # name of the terminal state, "" if none was reached
    reason: str = ""


Ask = Batch | AskDecision | AskItems


def is_question(key: str) -> bool:
    """Is this the key of a question (`refine[2]?until`), not the path of a step?"""
    return "?" in key


def hangs_on(question: str, paths: Collection[str], states: Collection[str]) -> bool:
    """May the answer change when the steps at `paths` run again, and then those of `states`?"""
    place = question.partition("?")[0]
    asking = place.rpartition("/")[2].partition("[")[0]
    return asking in states or any(p == place or p.startswith(f"{place}/") for p in paths)


Items = tuple[Scalar, ...]
