"""The static plan: what a run would do, found by walking with assumed answers.

With an assumption a plan is one path: its batches in order. Without one, and where a decision is
needed, the plan is a tree that shows every way on (`PlanTree`). Ways that meet again are drawn
once: two walks with the same open paths go on alike.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from npa.errors import UsageError
from npa.workflow.asks import AskDecision, AskItems, Batch, BatchKind, Ended
from npa.workflow.context import Context
from npa.workflow.decisions import (
    DECISIONS,
    GATE_NONE,
    LOOP_BACK,
    PROMOTE,
    gate_answer,
    normalise_decision,
)
from npa.workflow.graph import Graph
from npa.workflow.step import Step
from npa.workflow.walk import Walk

INDENT_MAX = 40  # levels of indented text
PLAN_STEPS_MAX = 50_000  # steps of one plan or tree; a loop with a wild `max` must not fill memory


class PlanTooLarge(UsageError):
    """The plan has more than PLAN_STEPS_MAX steps."""

    code = "PLAN_TOO_LARGE"


class UnknownAssumption(UsageError):
    """The assumed decision is none of the closed set."""

    code = "UNKNOWN_ASSUMPTION"


class Answer(Struct, frozen=True):
    """A decision that the plan assumed: the question's key, the answer, where a run reads it."""

    key: str
    answer: str
    writer: str
    uris: tuple[str, ...]


class Unexpanded(Struct, frozen=True):
    """A fan-out whose items only a run can know; the plan shows one step at `path`."""

    path: str
    uri: str
    max_items: int


class Plan(Struct, frozen=True):
    """One path through the workflow. `assume` is "" when nothing had to be assumed."""

    workflow: str
    api_version: str
    run_id: str
    initial: str
    assume: str
    batches: tuple[Batch, ...]
    answers: tuple[Answer, ...]
    unexpanded: tuple[Unexpanded, ...]
    ended: Ended

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for batch in self.batches for step in batch.steps)


class PlanNode(Struct, frozen=True):
    """A stretch without decisions, then a question with its ways on, or the end.

    `ways` pairs each answer with the index of the node that it leads to. A node that several ways
    lead to is resolved as the first of them found it.
    """

    batches: tuple[Batch, ...]
    unexpanded: tuple[Unexpanded, ...] = ()
    question: AskDecision | None = None
    ways: tuple[tuple[str, int], ...] = ()
    ended: Ended | None = None


class PlanTree(Struct, frozen=True):
    """Every path at once; node 0 is the start."""

    nodes: tuple[PlanNode, ...]

    @property
    def decides(self) -> bool:
        """Is there more than one path?"""
        return len(self.nodes) > 1


def default_assumption(graph: Graph, context: Context) -> str:
    """The public default: `config.plan_assume_decision`, else `loop_back` if anything branches.

    "" when no state has transitions; every loop then runs its full budget.
    """
    configured = context.config.get("plan_assume_decision")
    if isinstance(configured, str) and configured.strip():
        return parse_assumption(configured)
    return LOOP_BACK if any(state.transitions for state in graph.states) else ""


def parse_assumption(text: str) -> str:
    """A spelling of the closed set, normalised. Raises UnknownAssumption for anything else."""
    value = normalise_decision(text.strip())
    if value not in DECISIONS:
        raise UnknownAssumption(
            f"'{text}' is not a decision",
            hint="the decisions are `promote_checkpoint` and `loop_back`",
        )
    return value


def make_plan(graph: Graph, context: Context, assume: str = "") -> Plan:
    """The plan under an assumption ("": every loop runs its full budget, branches go back).

    Raises UnknownAssumption and PlanTooLarge.
    """
    assumed = parse_assumption(assume) if assume else ""
    walk = Walk(graph, context)
    stretch = _Stretch()
    answers: list[Answer] = []
    while True:
        stretch.run(walk)
        question = _first_question(walk)
        if question is None:
            break
        answer = _assumed_answer(graph, question, assumed or LOOP_BACK)
        answers.append(Answer(question.key, answer, question.writer, question.uris))
        walk.decided(question.key, answer)
    return Plan(
        workflow=graph.workflow.name,
        api_version=graph.workflow.api_version,
        run_id=context.run_id,
        initial=graph.workflow.initial,
        assume=assumed,
        batches=tuple(stretch.batches),
        answers=tuple(answers),
        unexpanded=tuple(stretch.unexpanded),
        ended=walk.ended or Ended("", "nothing is left to do"),
    )


def make_plan_tree(graph: Graph, context: Context) -> PlanTree:
    """Every path through the workflow. Raises PlanTooLarge."""
    nodes: list[PlanNode | None] = []
    known: dict[tuple[str, ...], int] = {}
    waiting: deque[tuple[int, Walk]] = deque()
    steps = 0

    def node_at(walk: Walk) -> int:
        key = walk.position() if walk.ended is None else (walk.ended.terminal, walk.ended.reason)
        if key not in known:
            known[key] = len(nodes)
            nodes.append(None)
            waiting.append((known[key], walk))
        return known[key]

    node_at(Walk(graph, context))
    while waiting:
        index, walk = waiting.popleft()
        stretch = _Stretch(steps)
        stretch.run(walk)
        steps = stretch.steps
        question = _first_question(walk)
        ways: list[tuple[str, int]] = []
        for answer in question.options if question else ():
            branch = walk.copy()
            branch.decided(question.key if question else "", answer)
            ways.append((answer, node_at(branch)))
        nodes[index] = PlanNode(
            batches=tuple(stretch.batches),
            unexpanded=tuple(stretch.unexpanded),
            question=question,
            ways=tuple(ways),
            ended=walk.ended,
        )
    return PlanTree(tuple(node for node in nodes if node is not None))


class _Stretch:
    """Runs a walk until only decisions are open, and remembers what ran."""

    def __init__(self, steps: int = 0) -> None:
        self.batches: list[Batch] = []
        self.unexpanded: list[Unexpanded] = []
        self.steps = steps

    def run(self, walk: Walk) -> None:
        waiting = deque(walk.frontier())
        walk.take_new()
        while waiting:
            ask = waiting.popleft()
            if isinstance(ask, Batch):
                self.steps += len(ask.steps)
                if self.steps > PLAN_STEPS_MAX:
                    raise PlanTooLarge(
                        f"the plan has more than {PLAN_STEPS_MAX} steps",
                        hint="lower `loop.max`, or split the workflow",
                    )
                self.batches.append(ask)
                for step in ask.steps:
                    walk.finished(step.path)
            elif isinstance(ask, AskItems):
                path = f"{ask.key.removesuffix('?items')}[*]"
                self.unexpanded.append(Unexpanded(path, ask.uri, ask.max_items))
                walk.expand_unknown(ask.key)
            waiting.extend(walk.take_new())


def _first_question(walk: Walk) -> AskDecision | None:
    return next((ask for ask in walk.frontier() if isinstance(ask, AskDecision)), None)


def _assumed_answer(graph: Graph, question: AskDecision, assume: str) -> str:
    """The answer to a question under an assumption; gates hold when promotion is assumed."""
    if not question.gates:
        return assume
    if assume == PROMOTE:
        return gate_answer(0)
    name, _, word = question.key.rpartition("?")
    if word == "until":
        return GATE_NONE
    state = graph.states[graph.index[name]]
    open_end = state.next or any(t.gate is None for t in state.transitions)
    return GATE_NONE if open_end else gate_answer(len(question.gates) - 1)


# The public JSON shapes.


def plan_json(plan: Plan, context: Context, tree: PlanTree | None = None) -> dict[str, object]:
    """`plan-spec --json`: the public shape, with our keys added (path, iterations, decisions…)."""
    stand_ins = {item.path for item in plan.unexpanded}
    document: dict[str, object] = {
        "workflow": plan.workflow,
        "api_version": plan.api_version,
        "initial": plan.initial,
        "assume_decision": plan.assume,
        "run_id": plan.run_id,
        "steps": [_step_json(step, step.path in stand_ins) for step in plan.steps],
        "decisions": [
            {"key": a.key, "answer": a.answer, "writer": a.writer, "uris": list(a.uris)}
            for a in plan.answers
        ],
        "unexpanded": [_unexpanded_json(item) for item in plan.unexpanded],
        "ends": _ended_json(plan.ended),
    }
    if bucket_is_placeholder(context):
        document["bucket_is_placeholder"] = True
    if tree is not None:
        document["paths"] = tree_json(tree)
    return document


def bucket_is_placeholder(context: Context) -> bool:
    """Is `config.bucket` one of the public placeholders (false when there is none)?"""
    bucket = context.config.get("bucket")
    if not isinstance(bucket, str):
        return False
    words = ("", "example-bucket", "your-bucket", "my-bucket")
    return bucket in words or "<" in bucket or ">" in bucket


def waves_json(plan: Plan) -> dict[str, object]:
    """`plan-spec --waves --json`: consecutive batches of one group are one wave; index from 1."""
    folded: list[list[Batch]] = []
    for batch in plan.batches:
        before = folded[-1][-1] if folded else None
        if before is not None and batch.group and _same_wave(before, batch):
            folded[-1].append(batch)
        else:
            folded.append([batch])
    waves = [_wave_json(number, batches) for number, batches in enumerate(folded, 1)]
    return {
        "workflow": plan.workflow,
        "run_id": plan.run_id,
        "assume_decision": plan.assume,
        "wave_count": len(waves),
        "parallel_waves": sum(wave["kind"] == "parallel" for wave in waves),
        "waves": waves,
        "ends": _ended_json(plan.ended),
    }


def _same_wave(before: Batch, batch: Batch) -> bool:
    return batch.kind is before.kind and batch.group == before.group


def _wave_json(index: int, batches: list[Batch]) -> dict[str, object]:
    first = batches[0]
    parallel = first.kind is not BatchKind.SERIAL
    group = first.steps[0].group if parallel else ""
    return {
        "index": index,
        "kind": "parallel" if parallel else "serial",
        "mode": first.kind.value,
        "group": group,
        "path": first.group or first.steps[0].path,
        "name": group or first.steps[0].state,
        "max_concurrency": first.max_concurrency,
        "batches": len(batches),
        "steps": [
            {
                "path": step.path,
                "state": step.state,
                "iteration": step.iteration,
                "tool_ref": step.command.tool_ref,
                "resources": step.profile.name,
                "outputs": [artifact.uri for artifact in step.outputs],
            }
            for batch in batches
            for step in batch.steps
        ],
    }


def _step_json(step: Step, unexpanded: bool) -> dict[str, object]:
    document: dict[str, object] = {
        "path": step.path,
        "state": step.state,
        "iteration": step.iteration,
        "iterations": [{"loop": name, "number": number} for name, number in step.iterations],
        "loop_label": step.loop_label,
        "group": step.group,
        "argv": list(step.command.argv),
        "shell": step.command.shell,
        "tool_ref": step.command.tool_ref,
        "resources": step.profile.name,
        "resources_profile": dict(step.profile.raw),
        "inputs": [{"uri": a.uri, "schema": a.schema} for a in step.inputs],
        "outputs": [{"uri": a.uri, "schema": a.schema} for a in step.outputs],
    }
    if unexpanded:
        document["unexpanded"] = True
    return document


def _unexpanded_json(item: Unexpanded) -> dict[str, object]:
    return {"path": item.path, "uri": item.uri, "max_items": item.max_items}


def _ended_json(ended: Ended) -> dict[str, object]:
    return {"terminal": ended.terminal, "reason": ended.reason}


def tree_json(tree: PlanTree) -> list[dict[str, object]]:
    """The tree as a list of nodes; `ways` name the nodes that follow by their index."""
    return [
        {
            "node": index,
            "steps": [step.path for batch in node.batches for step in batch.steps],
            "unexpanded": [_unexpanded_json(item) for item in node.unexpanded],
            "question": node.question.key if node.question else "",
            "uris": list(node.question.uris) if node.question else [],
            "ways": [{"answer": answer, "node": target} for answer, target in node.ways],
            "ends": _ended_json(node.ended) if node.ended else None,
        }
        for index, node in enumerate(tree.nodes)
    ]


def tree_lines(tree: PlanTree) -> list[str]:
    """The tree as indented text; a node met again is named, not repeated.

    What follows the last answer of a loop's question stays at its level, so that many iterations
    do not march off to the right.
    """
    lines: list[str] = []
    shown: set[int] = set()
    stack: list[tuple[int, int, str]] = [(0, 0, "")]
    while stack:
        index, depth, heading = stack.pop()
        node = tree.nodes[index]
        indent = _indent(depth)
        lines.extend([heading] if heading else ())
        if index in shown:
            first = next((s.path for b in node.batches for s in b.steps), "")
            lines.append(f"{indent}goes on at {first or _end_text(node)}, as above")
            continue
        shown.add(index)
        lines.extend(f"{indent}{step.path}" for batch in node.batches for step in batch.steps)
        if node.question is not None:
            where = f" ({', '.join(node.question.uris)})" if node.question.uris else ""
            lines.append(f"{indent}? {node.question.key}{where}")
        if node.ended is not None:
            lines.append(f"{indent}{_end_text(node)}")
        flat = node.question is not None and node.question.key.endswith("?until")
        for place, (way, target) in reversed(list(enumerate(node.ways, 1))):
            deeper = not (flat and place == len(node.ways))
            stack.append((target, depth + deeper, f"{indent}- {way}:"))
    return lines


def _indent(depth: int) -> str:
    return "  " * min(depth, INDENT_MAX)


def _end_text(node: PlanNode) -> str:
    if node.ended is None:
        return f"? {node.question.key}" if node.question else ""
    return node.ended.reason or f"end at '{node.ended.terminal}'"
