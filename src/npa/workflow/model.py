"""What a user may write: the closed schema of a workflow file, level by level.

camelCase is documented, snake_case is accepted. Keys that start with `x-` are free. The models
check shape and type only; what names refer to is the business of the rules in `checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    StrictStr,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from npa.workflow.step import Scalar

API_VERSIONS = ("npa.workflow/v0.0.1", "npa.workflow/v0.0.1-beta")
PREDICATES = ("promote_checkpoint", "loop_back")
GATE_OPS = ("<", "<=", ">", ">=", "==", "!=")

_NUMBER_OR_REF = r"^\s*([-+]?[0-9]+|config\.[A-Za-z0-9_.-]+|\{\{.*\}\})\s*$"


def _must_be(wanted: str, *kinds: type) -> Callable[[Any], Any]:
    """A validator of exact types: a boolean is no integer."""
    accepted = frozenset(kinds)

    def validate(value: Any) -> Any:
        if type(value) not in accepted:
            raise PydanticCustomError("kind", wanted)
        return value

    return validate


IntegerOrRef = Annotated[
    int | str,
    PlainValidator(_must_be("an integer or a config reference", int, str)),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string", "pattern": _NUMBER_OR_REF}]}),
]
NumberOrRef = Annotated[
    float | str,
    PlainValidator(_must_be("a number or a config reference", int, float, str)),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]}),
]
Number = Annotated[
    float, PlainValidator(_must_be("a number", int, float)), WithJsonSchema({"type": "number"})
]
Param = Annotated[
    Scalar,
    PlainValidator(_must_be("text, a number or a boolean", str, int, float, bool)),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
Item = Annotated[
    Scalar,
    PlainValidator(_must_be("text, a number, a boolean or null", str, int, float, bool, NoneType)),
    WithJsonSchema({"type": ["string", "number", "boolean", "null"]}),
]
EnvText = Annotated[str, PlainValidator(_must_be("text", str)), WithJsonSchema({"type": "string"})]


Measure = Annotated[
    str | float,
    PlainValidator(_must_be("text or a number", str, int, float)),
    WithJsonSchema({"type": ["string", "number"]}),
]
Flag = Annotated[
    bool | str,
    PlainValidator(_must_be("`true`, `false` or a token", bool, str)),
    WithJsonSchema({"type": ["boolean", "string"]}),
]
FlagOrMapping = Annotated[
    bool | str | dict[str, Any],
    PlainValidator(_must_be("`true`, `false` or a mapping", bool, str, dict)),
    WithJsonSchema({"type": ["boolean", "string", "object"]}),
]
TextOrMapping = Annotated[
    str | dict[str, Any],
    PlainValidator(_must_be("text or a mapping", str, dict)),
    WithJsonSchema({"type": ["string", "object"]}),
]


def _names(field: str) -> AliasChoices:
    camel = to_camel(field)
    return AliasChoices(camel, field) if camel != field else AliasChoices(field)


class Level(BaseModel):
    """Common ground of every level: closed, strict, both spellings, `x-` keys free."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        defer_build=True,  # only the levels that a file has are ever built
        validate_default=False,
        protected_namespaces=(),
        json_schema_extra={"patternProperties": {"^x-": {}}},
    )
    what: ClassVar[str] = "this mapping"

    @model_validator(mode="before")
    @classmethod
    def _drop_free_and_empty(cls, data: Any) -> Any:
        """`x-` keys are free, and a known key without a value (`inputs:`) is as if absent."""
        if type(data) is dict:
            for key, value in data.items():
                if value is None or key[:2] == "x-":
                    known = known_keys(cls)
                    return {
                        k: v
                        for k, v in data.items()
                        if k[:2] != "x-" and not (v is None and k in known)
                    }
        return data


@cache
def known_keys(level: type[Level]) -> Mapping[str, str]:
    """Every accepted key of a level, in both spellings, with its documented spelling."""
    known: dict[str, str] = {}
    for name, info in level.model_fields.items():
        alias = info.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias or name]
        for choice in choices:
            known[str(choice)] = str(choices[0])
    return known


class Metadata(Level):
    what = "`metadata`"
    name: StrictStr = Field(description="Workflow name: letters, digits, `-` and `_`, up to 63.")
    description: StrictStr = Field(default="", description="Text for people.")
    namespace: StrictStr = Field(default="", description="Free text; not used by the engine.")
    labels: dict[str, Any] = Field(default_factory=dict, description="Free labels.")


class Io(Level):
    what = "an input or output"
    uri: StrictStr = Field(
        min_length=1, description="Where the artifact lies; ends in `/` for a prefix."
    )
    schema_: StrictStr = Field(
        default="",
        validation_alias="schema",
        serialization_alias="schema",
        description="A free label, or the name of a registered JSON Schema.",
    )


class Gate(Level):
    what = "`gate`"
    uri: StrictStr = Field(min_length=1, description="JSON artifact that holds the number.")
    path: Annotated[StrictStr, Field(pattern=r"^[^\s{}]+$")] = Field(
        description="Dotted path of the number in the artifact."
    )
    op: Literal["<", "<=", ">", ">=", "==", "!="] = Field(description="How to compare.")
    value: NumberOrRef = Field(description="What to compare with: a number or a config reference.")


class Transition(Level):
    what = "a transition"
    goto: StrictStr = Field(description="The state to go to.")
    when: Literal["promote_checkpoint", "loop_back"] | None = Field(
        default=None, description="Taken if the current decision says so."
    )
    if_: StrictStr | None = Field(
        default=None,
        validation_alias="if",
        serialization_alias="if",
        description="Taken if this config key is true: `config.KEY`.",
    )
    gate: Gate | None = Field(default=None, description="Taken if a measured number says so.")


class UntilGate(Level):
    what = "`until`"
    gate: Gate = Field(description="Stop when a measured number says so.")


class Loop(Level):
    what = "`loop`"
    max: IntegerOrRef = Field(default=1, description="Iterations at most, 1 or more.")
    until: Literal["promote_checkpoint", "loop_back"] | UntilGate | None = Field(
        default=None, description="Stop early when the decision of an iteration says so."
    )
    gate: Gate | None = Field(default=None, description="Stop early when a number says so.")


class Run(Level):
    what = "`run`"
    argv: list[Param] | None = Field(default=None, description="The command, one argument an item.")
    shell: StrictStr | None = Field(default=None, description="The command as bash text.")
    setup: StrictStr | None = Field(
        default=None, description="Bash text that runs first; rank and nodes are unknown to it."
    )


class Trigger(Level):
    what = "`trigger`"
    uri: StrictStr = Field(min_length=1, description="Prefix under which objects are awaited.")
    poll_seconds: IntegerOrRef = Field(
        default=30, validation_alias=_names("poll_seconds"), description="Seconds, 1 or more."
    )
    max_polls: IntegerOrRef = Field(
        default=0, validation_alias=_names("max_polls"), description="0 means no limit."
    )
    min_objects: IntegerOrRef = Field(
        default=1, validation_alias=_names("min_objects"), description="1 or more."
    )


class RetryBlock(Level):
    what = "`retry`"
    payload: Annotated[int, Field(ge=0, le=100)] = Field(
        default=0, description="New attempts after a payload failure."
    )
    backoff_seconds: Number = Field(
        default=30,
        validation_alias=_names("backoff_seconds"),
        description="Pause before each new attempt, in seconds.",
    )


class CheckpointBlock(Level):
    what = "`checkpoint`"
    uri: StrictStr = Field(min_length=1, description="Where the tool keeps its checkpoints.")
    loader: StrictStr = Field(min_length=1, description="What loads one: the tool's own name.")


class Foreach(Level):
    what = "`foreach`"
    items: list[Item] | None = Field(default=None, description="The items themselves.")
    uri: StrictStr | None = Field(
        default=None, description="JSON list (or object with `items`) that a step wrote."
    )
    as_: Annotated[StrictStr, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")] = Field(
        default="item",
        validation_alias="as",
        serialization_alias="as",
        description="Name of the item token: `{{item.NAME}}`.",
    )
    max_items: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=256, validation_alias=_names("max_items"), description="More items are an error."
    )


class StateBlock(Level):
    what = "a state"
    description: StrictStr = Field(default="", description="Text for people.")
    tool_ref: StrictStr | None = Field(
        default=None, validation_alias=_names("tool_ref"), description="Catalogue entry to run."
    )
    run: Run | None = Field(default=None, description="A command of one's own.")
    sequence: list[StrictStr] | None = Field(
        default=None, description="Ordered group: states that run one after the other."
    )
    parallel: list[StrictStr] | None = Field(
        default=None, description="Fan-out group: states that run at the same time."
    )
    parallel_count: IntegerOrRef | None = Field(
        default=None,
        validation_alias=_names("parallel_count"),
        description="Assertion: how many members `parallel` has.",
    )
    parallel_mode: Literal["group", "window"] = Field(
        default="group",
        validation_alias=_names("parallel_mode"),
        description="Batches that start and end together, or a sliding window.",
    )
    max_concurrency: IntegerOrRef | None = Field(
        default=None,
        validation_alias=_names("max_concurrency"),
        description="Members at one time, 1 to 64.",
    )
    params: dict[str, Param] = Field(
        default_factory=dict, description="Config values of this state only."
    )
    trigger: Trigger | None = Field(default=None, description="Wait for objects first.")
    loop: Loop | None = Field(default=None, description="Repeat, with a bound.")
    transitions: list[Transition] = Field(
        default_factory=list, description="Ways out, first match wins."
    )
    next: StrictStr | None = Field(default=None, description="The state that follows.")
    needs: list[StrictStr] = Field(
        default_factory=list, description="States that must come before; checked, drives nothing."
    )
    inputs: list[Io] = Field(default_factory=list, description="Artifacts that are read.")
    outputs: list[Io] = Field(
        default_factory=list, description="Artifacts that must exist after success."
    )
    resources: StrictStr = Field(default="default", description="Name of a resource profile.")
    terminal: StrictBool = Field(default=False, description="The workflow ends here.")
    writes_decision: StrictBool = Field(
        default=False,
        validation_alias=_names("writes_decision"),
        description="This state writes the decision of the enclosing loop.",
    )
    multi_node_mode: Literal["sharded"] | None = Field(
        default=None,
        validation_alias=_names("multi_node_mode"),
        description="The author's promise that the command is rank-aware.",
    )
    retry: RetryBlock | None = Field(default=None, description="Overrides `--retries`.")
    timeout_seconds: NumberOrRef | None = Field(
        default=None,
        validation_alias=_names("timeout_seconds"),
        description="Deadline of one attempt in seconds, setup included.",
    )
    env: dict[str, EnvText] = Field(default_factory=dict, description="Environment: name, text.")
    secrets: list[StrictStr] = Field(
        default_factory=list, description="Names only; the values are taken at submit."
    )
    checkpoint: CheckpointBlock | None = Field(
        default=None, description="Resume inside the state, for a tool that can."
    )
    foreach: Foreach | None = Field(default=None, description="Fan-out over items at run time.")


class DeployBlock(Level):
    what = "`deployIfAbsent`"
    cluster_name: StrictStr = Field(
        default="npa-cluster", validation_alias=_names("cluster_name"), description="Its name."
    )
    context: StrictStr = Field(default="", description="Kubernetes context; the name by default.")
    project: StrictStr = Field(default="", description="Project to provision in.")
    skip_s3: Flag = Field(
        default=True,
        validation_alias=AliasChoices("skipS3", "skip_s3"),
        description="Leave storage alone.",
    )
    cpu_nodes: IntegerOrRef = Field(
        default=1, validation_alias=_names("cpu_nodes"), description="Nodes without GPUs."
    )
    cpu_platform: StrictStr = Field(
        default="cpu-d3", validation_alias=_names("cpu_platform"), description="Platform."
    )
    cpu_preset: StrictStr = Field(
        default="8vcpu-32gb", validation_alias=_names("cpu_preset"), description="Preset."
    )
    gpu_nodes: IntegerOrRef = Field(
        default=1, validation_alias=_names("gpu_nodes"), description="Nodes with GPUs."
    )
    gpu_platform: StrictStr = Field(
        default="gpu-rtx6000", validation_alias=_names("gpu_platform"), description="Platform."
    )
    gpu_preset: StrictStr = Field(
        default="1gpu-24vcpu-218gb", validation_alias=_names("gpu_preset"), description="Preset."
    )
    preemptible: Flag = Field(default=False, description="Nodes that may be taken away.")
    gpu_preemptible: Flag = Field(
        default=False, validation_alias=_names("gpu_preemptible"), description="The same for GPUs."
    )


class ProfileBlock(Level):
    what = "a resource profile"
    cloud: StrictStr = Field(default="", description="`kubernetes`, or another provider.")
    accelerators: TextOrMapping | None = Field(
        default=None, description="`H100:8`, `H100`, or a mapping of name to count."
    )
    cpus: Measure | None = Field(default=None, description="Cores: `4` or `4+`.")
    memory: Measure | None = Field(default=None, description="GiB: `16`, `16Gi`, `16GB`, `16+`.")
    disk_size: Measure | None = Field(
        default=None, validation_alias=AliasChoices("disk_size", "diskSize"), description="GiB."
    )
    use_spot: Flag | None = Field(
        default=None,
        validation_alias=AliasChoices("use_spot", "useSpot"),
        description="Machines that may be taken away.",
    )
    region: StrictStr | None = Field(default=None, description="Region of the provider.")
    num_nodes: IntegerOrRef | None = Field(
        default=None,
        validation_alias=AliasChoices("num_nodes", "numNodes"),
        description="Gang size, 1 to 32.",
    )
    image: StrictStr | None = Field(
        default=None, description="Container image, or `tool://<image key>`."
    )
    image_id: StrictStr | None = Field(
        default=None,
        validation_alias=AliasChoices("image_id", "imageId"),
        description="Image by ID; read only to tell Isaac images.",
    )
    kubernetes: dict[str, Any] | None = Field(
        default=None, description="`pod_config` and `provision_timeout`."
    )
    deploy_if_absent: FlagOrMapping | None = Field(
        default=None,
        validation_alias=_names("deploy_if_absent"),
        description="Provision the cluster at submit if it is not there.",
    )


class WorkflowFile(Level):
    """The whole file; the loader validates it level by level, editors use its JSON Schema."""

    what = "the file"
    api_version: Literal["npa.workflow/v0.0.1", "npa.workflow/v0.0.1-beta"] = Field(
        validation_alias=_names("api_version"), description="Version of the format."
    )
    kind: Literal["Workflow"] = Field(description="Always `Workflow`.")
    metadata: Metadata | None = Field(default=None, description="Name and description.")
    config: dict[str, Any] = Field(
        default_factory=dict, description="Values for `{{config.KEY}}`; `--var` overrides them."
    )
    run: dict[str, Any] = Field(
        default_factory=dict, description="More values for the `{{run.KEY}}` tokens."
    )
    resources: dict[str, ProfileBlock] = Field(
        default_factory=dict, description="Named resource profiles."
    )
    initial: StrictStr | None = Field(
        default=None, description="First state; the first of `states` by default."
    )
    states: dict[str, StateBlock] = Field(description="States by name.", min_length=1)


class Header(Level):
    """The top level without its big parts, which are validated on their own."""

    what = "the file"
    api_version: StrictStr = Field(validation_alias=_names("api_version"))
    kind: Literal["Workflow"]
    metadata: Metadata | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    run: dict[str, Any] = Field(default_factory=dict)
    resources: dict[str, Any] = Field(default_factory=dict)
    initial: StrictStr | None = None
    states: dict[str, Any] = Field(min_length=1)
