"""The workflows that are run, small enough to be enumerated; real texts through the real loader."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from changed import replace
from npa.orchestration.policy import Policy
from npa.orchestration.prepare import Prepared, Request, prepare
from npa.workflow.tools import Tool
from simulation.engine import LocalLikeEngine, Maker, QueueEngine
from simulation.store import ROOT

HEAD = "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nmetadata: {name: sim}\n"
TARGET = {"engine": "sim"}
POLICY = Policy(
    recoveries=1,
    backoff_seconds=2.0,
    skew_seconds=2.0,
    cancel_patience_seconds=20.0,
    cancel_repeat_seconds=6.0,
    odd_patience_seconds=20.0,
    head_poll_seconds=5.0,
    preflight_fresh_seconds=30.0,
)


class NoTools:
    """The tools seam, empty."""

    def get(self, ref: str) -> Tool | None:
        return None

    def names(self) -> tuple[str, ...]:
        return ()


def _content(path: str, uri: str) -> bytes:
    return f"{path} wrote {uri}".encode()


@dataclass(frozen=True)
class Scenario:
    """`needs`: for a step path, the paths that must have ended well before its payload starts.

    `cancel_after`: a person cancels once that many payloads have started (0: never).
    """

    name: str
    text: str
    steps: tuple[str, ...]  # every path that a good run goes through
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    policy: Policy = POLICY
    engine: Maker = QueueEngine
    content: Callable[[str, str], bytes] = _content
    cancel_after: int = 0
    natures: tuple[str, ...] = ()  # of the first launches, whatever the plan says

    @cached_property
    def prepared(self) -> Prepared:
        request = Request(
            spec_path="sim.yaml", spec_text=HEAD + self.text, run_id="r", run_uri=ROOT
        )
        return prepare(request, NoTools())


def step(name: str, tail: str, outputs: int = 1, extra: str = "") -> str:
    uris = ", ".join(f"{{uri: '{{{{run.uri}}}}{name}/{i}'}}" for i in range(outputs))
    return f"  {name}: {{run: {{shell: 'true'}}, outputs: [{uris}]{extra}{tail}}}\n"


SINGLE = Scenario(
    "single",
    "initial: a\nstates:\n" + step("a", ", terminal: true", outputs=2),
    ("a",),
)
CHAIN = Scenario(
    "chain",
    "initial: a\nstates:\n"
    + step("a", ", next: b")
    + step("b", ", next: c")
    + step("c", ", terminal: true"),
    ("a", "b", "c"),
    needs={"b": ("a",), "c": ("b",)},
)


def _parallel(name: str, mode: str) -> Scenario:
    members = ("all/m1", "all/m2", "all/m3")
    return Scenario(
        name,
        "initial: all\nstates:\n"
        f"  all: {{parallel: [m1, m2, m3], maxConcurrency: 2, parallelMode: {mode}, next: join}}\n"
        + "".join(step(m, "") for m in ("m1", "m2", "m3"))
        + step("join", ", terminal: true"),
        (*members, "join"),
        needs={"join": members},
    )


GROUP = _parallel("group", "group")
WINDOW = _parallel("window", "window")


def _decision(path: str, uri: str) -> bytes:
    """The gate sends back once, then promotes."""
    if "gate" not in path:
        return _content(path, uri)
    return json.dumps({"decision": "loop_back" if "[1]" in path else "promote"}).encode()


LOOP = Scenario(
    "loop",
    "initial: refine\nstates:\n"
    "  refine: {loop: {max: 2, until: promote_checkpoint}, sequence: [work, gate], next: end}\n"
    "  work: {run: {shell: 'true'}, outputs: [{uri: '{{run.uri}}work/{{loop.refine}}'}]}\n"
    "  gate: {writesDecision: true, run: {shell: 'true'},"
    " outputs: [{uri: '{{run.uri}}gate/{{loop.refine}}.json', schema: decision.v1}]}\n"
    + step("end", ", terminal: true"),
    ("refine[1]/work", "refine[1]/gate", "refine[2]/work", "refine[2]/gate", "end"),
    needs={
        "refine[1]/gate": ("refine[1]/work",),
        "refine[2]/work": ("refine[1]/gate",),
        "refine[2]/gate": ("refine[2]/work",),
        "end": ("refine[2]/gate",),
    },
    content=_decision,
)
BRANCH = Scenario(
    "branch",
    "initial: gate\nstates:\n"
    "  gate: {writesDecision: true, run: {shell: 'true'},"
    " outputs: [{uri: '{{run.uri}}gate.json', schema: decision.v1}],"
    " transitions: [{when: promote_checkpoint, goto: good}, {when: loop_back, goto: bad}]}\n"
    + step("good", ", terminal: true")
    + step("bad", ", terminal: true"),
    ("gate", "good"),
    needs={"good": ("gate",)},
    content=_decision,
)
GANG = Scenario(
    "gang",
    "resources: {two: {num_nodes: 2}}\ninitial: a\nstates:\n"
    "  a: {run: {shell: 'echo $SKYPILOT_NODE_RANK'}, resources: two, multiNodeMode: sharded,"
    " outputs: [{uri: '{{run.uri}}a/'}], terminal: true}\n",
    ("a",),
)
RETRY = Scenario(
    "retry",
    "initial: a\nstates:\n"
    + step("a", ", next: b", extra=", retry: {payload: 1, backoffSeconds: 1}")
    + step("b", ", terminal: true"),
    ("a", "b"),
    needs={"b": ("a",)},
    policy=replace(POLICY, retries=1),
    natures=("exit", "preempted"),
)
# A failed attempt leaves outputs behind, and the next one is preempted before it writes any.
LEFTOVERS = replace(RETRY, name="leftovers", natures=("exit-late", "preempted"))
# Every attempt is preempted: the budget of recoveries must end it.
UNLUCKY = replace(SINGLE, name="unlucky", natures=("preempted",) * 5)
# The first launch leaves a row that no controller ever takes up.
PHANTOM = replace(SINGLE, name="phantom", natures=("phantom",))
CANCELLED = Scenario(
    "cancelled",
    "initial: all\nstates:\n"
    "  all: {parallel: [m1, m2], next: join}\n"
    + "".join(step(m, "") for m in ("m1", "m2"))
    + step("join", ", terminal: true"),
    ("all/m1", "all/m2", "join"),
    needs={"join": ("all/m1", "all/m2")},
    cancel_after=1,
)
DEADLINE = replace(SINGLE, name="deadline", policy=replace(POLICY, max_wait_seconds=12.0))
LOCAL = replace(SINGLE, name="local", engine=LocalLikeEngine)
LOCAL_WINDOW = replace(WINDOW, name="local-window", engine=LocalLikeEngine)

ALL: tuple[Scenario, ...] = (
    SINGLE,
    CHAIN,
    GROUP,
    WINDOW,
    LOOP,
    BRANCH,
    GANG,
    RETRY,
    LEFTOVERS,
    UNLUCKY,
    PHANTOM,
    CANCELLED,
    DEADLINE,
    LOCAL,
    LOCAL_WINDOW,
)
SMALLEST = (SINGLE, LOCAL, GANG)
BY_NAME = {s.name: s for s in ALL}
