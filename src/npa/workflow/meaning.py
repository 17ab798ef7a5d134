"""What a workflow file means: normalised, immutable, and free of the library that read it.

Strings here still hold tokens; the walk resolves them. Field names are those of the file in
snake_case (`if_` and `as_` where Python reserves the word). Defaults of the format are applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from npa.workflow.step import Checkpoint, Retry, Scalar

Path = tuple[str | int, ...]
"""Where a value stands in the file: mapping keys and list indexes from the root."""

ParallelMode = Literal["group", "window"]


class Position(Struct, frozen=True):
    """A stretch of one line. All numbers are 1-based; `end_column` is exclusive."""

    line: int
    column: int
    end_column: int


class Positions(Protocol):
    """Where keys and values of the file stand; an unknown path answers for its nearest parent."""

    def value(self, path: Path) -> Position | None: ...

    def key(self, path: Path) -> Position | None: ...


class RunBlock(Struct, frozen=True):
    """A state's own command: `argv` or `shell`. `setup` is shell text that runs before it."""

    argv: tuple[str, ...] = ()
    shell: str = ""
    setup: str = ""


class GateSpec(Struct, frozen=True):
    """Decide from a measured number: JSON artifact `uri`, dotted `path` in it, `op`, `value`."""

    uri: str
    path: str
    op: str  # one of < <= > >= == !=
    value: float | str  # a string holds tokens


class LoopSpec(Struct, frozen=True):
    """`max` is a count or a config reference; `until` a predicate name, "" when there is none."""

    max: int | str = 1
    until: str = ""
    gate: GateSpec | None = None


class TransitionSpec(Struct, frozen=True):
    """One way out of a branch. `when` and `if_` are "" when absent."""

    goto: str
    when: str = ""
    if_: str = ""
    gate: GateSpec | None = None


class ForeachSpec(Struct, frozen=True):
    """Fan-out over `items`, or over the JSON list at `uri` when `items` is None."""

    items: tuple[Scalar, ...] | None
    uri: str
    as_: str
    max_items: int


class TriggerSpec(Struct, frozen=True):
    """Wait for objects under `uri`; numbers may be config references. `max_polls` 0: no limit."""

    uri: str
    poll_seconds: int | str = 30
    max_polls: int | str = 0
    min_objects: int | str = 1


class IoSpec(Struct, frozen=True):
    """One declared input or output. `schema` is a free label, or names a registered schema."""

    uri: str
    schema: str = ""


class State(Struct, frozen=True):
    """One state. Exactly one of `tool_ref`, `run`, `sequence`, `parallel` gives it work, if any."""

    name: str
    description: str = ""
    tool_ref: str = ""
    run: RunBlock | None = None
    sequence: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    parallel_mode: ParallelMode = "group"
    max_concurrency: int | str | None = None
    params: Mapping[str, Scalar] = field(default_factory=dict)
    trigger: TriggerSpec | None = None
    loop: LoopSpec | None = None
    transitions: tuple[TransitionSpec, ...] = ()
    next: str = ""
    needs: tuple[str, ...] = ()
    inputs: tuple[IoSpec, ...] = ()
    outputs: tuple[IoSpec, ...] = ()
    resources: str = "default"
    terminal: bool = False
    writes_decision: bool = False
    multi_node: bool = False
    retry: Retry | None = None
    timeout_seconds: float | str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = None
    foreach: ForeachSpec | None = None
    parallel_count: int | str | None = None


class Workflow(Struct, frozen=True, eq=False):
    """A whole file. `config`, `run` and `resources` are as written (raw, tokens inside).

    Two are equal that mean the same, wherever it stands in their files.
    """

    api_version: str
    name: str
    description: str
    config: Mapping[str, object]
    run: Mapping[str, object]
    resources: Mapping[str, Mapping[str, object]]
    initial: str
    states: Mapping[str, State]  # in file order
    labels: Mapping[str, object] = field(default_factory=dict)
    positions: Positions | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workflow) and self._meaning() == other._meaning()

    __hash__ = None  # type: ignore[assignment]

    def _meaning(self) -> tuple[object, ...]:
        return astuple(replace(self, positions=None))
