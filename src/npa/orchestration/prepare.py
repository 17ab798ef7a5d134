"""From a request to something that can be driven: load, plan, seal. No effects.

A `Request` is what the user asked for, as plain values; it is kept in the genesis of the run, so
that a run can be rebuilt from its journal alone. Preparing it again from present inputs gives the
parts of the seal a second time, for comparison.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from npa import __version__
from npa.errors import UsageError
from npa.orchestration.payloads import schemas_of
from npa.orchestration.policy import Policy
from npa.orchestration.raw_task import workflow_text
from npa.orchestration.seal import PLAN_VERSION, digest_of, plain, seal_of
from npa.orchestration.source import SourceTree, scan
from npa.workflow.diagnostics import Diagnostic
from npa.workflow.graph import Graph, compile_graph
from npa.workflow.load import Loaded, load_text
from npa.workflow.meaning import Workflow
from npa.workflow.overrides import declared
from npa.workflow.payload import PayloadSchema
from npa.workflow.tools import Tools
from npa.workflow.walk import Context, Walk, make_context

PLACEHOLDER_BUCKETS = frozenset({"", "example-bucket", "your-bucket", "my-bucket"})


class Request(Struct, frozen=True):
    """What a user asked for. `secrets` and `env` are names only; values are taken when needed.

    `spec_path` is where the file was; `spec_text` what it said; `source` the folder that is staged
    ("" for none). `jobs` is the folder of a local run's jobs: a command with another home must
    find the same ones, for not finding a job is what it concludes from ("" for the home's own).
    `engine_options` are the engine's own (npa.orchestration.skypilot.settings).
    """

    spec_path: str
    spec_text: str
    run_id: str
    run_uri: str
    engine: str = "local"
    overrides: Mapping[str, str] = {}
    policy: Mapping[str, object] = {}
    source: str = ""
    jobs: str = ""
    secrets: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    catalogs: tuple[str, ...] = ()
    engine_options: Mapping[str, object] = {}
    npa_version: str = __version__

    def to_json(self) -> dict[str, object]:
        return {name: plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Request:
        """Read what `to_json` wrote; unknown keys of a newer version are an error (TypeError)."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()}
        return cls(**values)

    def policy_of(self) -> Policy:
        return Policy(**self.policy)  # type: ignore[arg-type]


class InvalidWorkflow(UsageError):
    """The file has errors; `diagnostics` holds all of them."""

    code = "INVALID_WORKFLOW"

    def __init__(self, diagnostics: Sequence[Diagnostic], path: str, text: str) -> None:
        errors = [d for d in diagnostics if d.severity.value == "error"]
        count = f"{len(errors)} error{'s' if len(errors) != 1 else ''}"
        super().__init__(
            f"{path} has {count}",
            not_done="nothing was started",
            next_command=shlex.join(["npa", "workflow", _next_word(errors), path]),
        )
        self.diagnostics = tuple(diagnostics)
        self.text = text


def _next_word(errors: Sequence[Diagnostic]) -> str:
    """With a wrong `--var` alone the file is fine: what can be set is what to look at."""
    return "describe" if all(d.path == "--var" for d in errors) else "validate-spec"


@dataclass(frozen=True)
class Prepared:
    """A request that makes sense: everything that is needed to seal and to drive it."""

    request: Request
    workflow: Workflow
    graph: Graph
    context: Context
    policy: Policy
    diagnostics: tuple[Diagnostic, ...]
    tree: SourceTree | None
    schemas: Mapping[str, PayloadSchema] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    """What the file says for the overridden keys: it gives their types in NPA_PARAMS."""

    def new_walk(self) -> Walk:
        return Walk(self.graph, self.context)

    def downstream(self, names: Iterable[str]) -> frozenset[str]:
        """States that may run after any of `names`; a looped state comes after itself."""
        states, ways = self.graph.states, self._after
        reached: set[int] = set()
        stack = [w for n in names for w in ways[self.graph.index[n] + len(states)]]
        while stack:
            at = stack.pop()
            if at not in reached:
                reached.add(at)
                stack.extend(ways[at])
        return frozenset(states[i].name for i in reached if i < len(states))

    @cached_property
    def _after(self) -> tuple[tuple[int, ...], ...]:
        """What may come next, over two points a state: its entry i and its exit i + len(states)."""
        graph, exit_of = self.graph, len(self.graph.states)
        after: list[set[int]] = [set() for _ in range(2 * exit_of)]
        ways = graph.ways_out()
        for i, state in enumerate(graph.states):
            out = i + exit_of
            after[out].update(ways[i])
            members = graph.members(i)
            if not members:
                after[i].add(out)
            firsts = members[:1] if state.sequence else members
            lasts = members[-1:] if state.sequence else members
            after[i].update(firsts)
            if state.sequence:
                for one, two in pairwise(members):
                    after[one + exit_of].add(two)
            for last in lasts:
                after[last + exit_of].add(out)
            if state.loop is not None:
                after[out].add(i)
        return tuple(tuple(sorted(s)) for s in after)

    def parts(self, target: Mapping[str, str]) -> dict[str, object]:
        """The named parts of the seal. `target` is the engine's and the store's identity."""
        return {
            "workflow": self._workflow_digest,
            "config": digest_of(self.context.config),
            "tools": digest_of(self._tools()),
            "plan": PLAN_VERSION,
            "source": self.tree.digest if self.tree is not None else "none",
            "target": dict(target),
            "policy": self.policy.sealed(),
        }

    def _tools(self) -> object:
        """Tools and, if outputs are validated, by which schemas."""
        documents = {name: schema.document for name, schema in self.schemas.items()}
        return (self.context.tools, documents) if documents else self.context.tools

    @cached_property
    def _workflow_digest(self) -> str:
        """What the file means, not how it is written: no positions, no description."""
        said = asdict(self.workflow)
        del said["positions"], said["description"]
        return digest_of(said)

    def seal(self, target: Mapping[str, str]) -> str:
        return seal_of(self.parts(target))


def prepare(
    request: Request,
    tools: Tools,
    *,
    environment: Mapping[str, str] | None = None,
    with_schemas: bool = True,
    loaded: Loaded | None = None,
) -> Prepared:
    """Load, check, resolve and fingerprint. Raises InvalidWorkflow or UsageError.

    Without `with_schemas` the files of payload schemas are not looked for (to cancel, they need
    not be there any more). `loaded`: what came of the same file with these tools and overrides a
    moment ago; it counts only if its text is the request's.
    """
    text = workflow_text(request.spec_text, request.spec_path)
    if loaded is None or loaded.source.text != text:
        loaded = load_text(
            text, filename=request.spec_path, tools=tools, overrides=request.overrides
        )
    if loaded.workflow is None:
        raise InvalidWorkflow(loaded.diagnostics, request.spec_path, request.spec_text)
    workflow = loaded.workflow
    context = make_context(workflow, run_id=request.run_id, run_uri=request.run_uri, tools=tools)
    tree = scan(Path(request.source), environment=environment) if request.source else None
    return Prepared(
        request=request,
        workflow=workflow,
        graph=compile_graph(workflow),
        context=context,
        policy=request.policy_of(),
        diagnostics=loaded.diagnostics,
        tree=tree,
        schemas=schemas_of(workflow, tools, Path(request.spec_path).parent) if with_schemas else {},
        defaults=declared(loaded.source.value, request.overrides),
    )


def present(request: Request) -> Request:
    """The same request with the file as it is now; as it was, if the file is gone."""
    path = Path(request.spec_path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        source = request.source if Path(request.source or "/").is_dir() else ""
        return replace(request, source=source)
    return replace(request, spec_text=text)


def run_root(workflow: Workflow, run_id: str, tools: Tools, *, store: str, default: str) -> str:
    """Where a run is kept: the store that was asked for, the file's own bucket, or the home."""
    if store:
        root = store if store.endswith("/") else f"{store}/"
        return f"{root}{run_id}/"
    context = make_context(workflow, run_id=run_id, run_uri=default, tools=tools)
    bucket = context.config.get("bucket", "")
    if not isinstance(bucket, str) or is_placeholder(bucket):
        return default
    return f"s3://{bucket}/{str(context.run['prefix']).strip('/')}/"


def is_placeholder(bucket: str) -> bool:
    return bucket in PLACEHOLDER_BUCKETS or "<" in bucket or ">" in bucket
