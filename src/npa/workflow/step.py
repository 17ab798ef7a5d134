"""A step: one resolved unit of work, as the walk hands it out and the runtime makes it happen.

Everything here is immutable, resolved (no tokens are left) and free of secrets' values.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

Scalar = str | int | float | bool | None


class Artifact(Struct, frozen=True):
    """One declared input or output. A `uri` that ends in `/` is a prefix (one object is enough)."""

    uri: str
    schema: str = ""

    @property
    def is_prefix(self) -> bool:
        return self.uri.endswith("/")


class Command(Struct, frozen=True):
    """What runs: exactly one of `argv` and `shell`. `setup` is shell text that runs first."""

    argv: tuple[str, ...] = ()
    shell: str = ""
    setup: str = ""
    tool_ref: str = ""


class Profile(Struct, frozen=True):
    """A resource profile with units settled.

    `cpus` in cores, `memory_gib` and `disk_gib` in GiB, `accelerators` as (name, count) a node;
    0 or an empty name means "not asked for". `at_least` flags a trailing `+` in the file.
    `raw` is the resolved mapping as written, for the renderer.
    """

    name: str = "default"
    cpus: float = 0.0
    cpus_at_least: bool = False
    memory_gib: float = 0.0
    memory_at_least: bool = False
    disk_gib: float = 0.0
    accelerator: str = ""
    accelerator_count: int = 0
    num_nodes: int = 1
    cloud: str = ""
    image: str = ""
    raw: Mapping[str, object] = field(default_factory=dict)


class Trigger(Struct, frozen=True):
    """Wait until at least `min_objects` objects lie under `uri`; `max_polls` 0 means no limit."""

    uri: str
    poll_seconds: float = 30.0
    max_polls: int = 0
    min_objects: int = 1


class Retry(Struct, frozen=True):
    """Budget for payload failures of one state, and the pause before each new attempt."""

    payload: int = 0
    backoff_seconds: float = 30.0


class Checkpoint(Struct, frozen=True):
    """Mid-stage resume that the tool declares: where checkpoints lie and what loads them."""

    uri: str
    loader: str


class Step(Struct, frozen=True):
    """One resolved unit of work.

    `path` names it within the run (`refine[2]/grade`, `train[shard-07]`); `state` is the state's
    name in the file; `iterations` are the enclosing loop frames from outside in; `group` is the
    enclosing parallel group's name; `loop_label` the enclosing sequence or parallel state.
    `config` is the state's effective config (params over config), scalars only at the top level.
    """

    path: str
    state: str
    command: Command
    profile: Profile = Profile()
    iteration: int | None = None
    iterations: tuple[tuple[str, int], ...] = ()
    loop_label: str = ""
    group: str = ""
    item: tuple[str, Scalar] | None = None
    inputs: tuple[Artifact, ...] = ()
    outputs: tuple[Artifact, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)
    params: Mapping[str, Scalar] = field(default_factory=dict)
    env: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    retry: Retry | None = None
    timeout_seconds: float | None = None
    trigger: Trigger | None = None
    checkpoint: Checkpoint | None = None
    writes_decision: bool = False
    decision_uri: str = ""
