"""Inputs that other engines accept although they are wrong: each has its diagnostic and its place.

Line 1 of a text is line 3 of its file. An override (`--var`) has no place.
"""

from __future__ import annotations

import pytest

from npa.workflow.graph import compile_graph
from npa.workflow.plan import UnknownAssumption, make_plan
from npa.workflow.walk import make_context
from workflow.judged import load, workflow_of
from workflow.toolbox import SAMPLE_TOOLS

Found = tuple[str, int, int, str]  # code, line, column, message

ROWS: dict[str, tuple[tuple[str, ...], list[Found]]] = {
    "unknown key at the top": (
        (
            "stats: 1",
            "states: {a: {run: {shell: x}, terminal: true}}",
        ),
        [("NPA010", 3, 1, "unknown key 'stats' in the file")],
    ),
    "unknown key in a state": (
        (
            "states:",
            "  a: {run: {shell: x}, retires: 3, terminal: true}",
        ),
        [("NPA010", 4, 24, "unknown key 'retires' in a state")],
    ),
    "unknown key in a profile": (
        (
            "resources:",
            "  default: {cpu: 1}",
            "states: {a: {run: {shell: x}, terminal: true}}",
        ),
        [("NPA010", 4, 13, "unknown key 'cpu' in a resource profile")],
    ),
    "misspelt namespace": (
        (
            "config: {x: 1}",
            "states:",
            "  a: {run: {shell: 'echo {{confg.x}}'}, terminal: true}",
        ),
        [("NPA061", 5, 26, "unknown token scope 'confg'")],
    ),
    "config cycle": (
        (
            "config: {x: '{{config.y}}', y: '{{config.x}}'}",
            "states: {a: {run: {shell: x}, terminal: true}}",
        ),
        [("NPA064", 3, 13, "config refers to itself: x -> y -> x")],
    ),
    "next to nowhere": (
        (
            "states:",
            "  a: {run: {shell: x}, next: bb}",
            "  b: {run: {shell: x}, terminal: true}",
        ),
        [("NPA023", 4, 30, "unknown state 'bb' in `next`")],
    ),
    "unreachable state": (
        (
            "states:",
            "  a: {run: {shell: x}, terminal: true}",
            "  b: {run: {shell: x}, terminal: true}",
        ),
        [("NPA042", 5, 3, "state 'b' is never reached")],
    ),
    "unreachable terminal": (
        (
            "states:",
            "  a: {sequence: [b], next: c}",
            "  b: {run: {shell: x}, terminal: true}",
            "  c: {run: {shell: x}}",
        ),
        [
            (
                "NPA039",
                5,
                24,
                "'b' is a member of a group, so `terminal` does not end the workflow",
            ),
            ("NPA041", 5, 34, "no terminal state can be reached from 'a'"),
            ("NPA043", 6, 3, "the run would end at 'c' without a terminal state"),
        ],
    ),
    "dead end": (
        (
            "states:",
            "  a:",
            "    run: {shell: x}",
            "    transitions: [{when: promote_checkpoint, goto: c}, {when: loop_back, goto: b}]",
            "  b: {run: {shell: x}}",
            "  c: {run: {shell: x}, terminal: true}",
        ),
        [("NPA043", 7, 3, "the run would end at 'b' without a terminal state")],
    ),
    "duplicate key": (
        (
            "states:",
            "  a: {run: {shell: x}, terminal: true}",
            "  a: {run: {shell: x}, terminal: true}",
        ),
        [("NPA004", 5, 3, "key 'a' stands twice in this mapping")],
    ),
    "outputs as strings": (
        (
            "states:",
            "  a: {run: {shell: x}, outputs: ['s3://b/o'], terminal: true}",
        ),
        [("NPA011", 4, 34, "`outputs[0]` must be a mapping, not text 's3://b/o'")],
    ),
    "terminal as text": (
        (
            "states:",
            "  a: {run: {shell: x}, terminal: 'false'}",
        ),
        [("NPA011", 4, 34, "`terminal` must be `true` or `false`, not text 'false'")],
    ),
    "sequence as text": (
        (
            "states:",
            "  a: {sequence: 'abc', terminal: true}",
        ),
        [("NPA011", 4, 17, "`sequence` must be a list, not text 'abc'")],
    ),
    "argv as text": (
        (
            "states:",
            "  a: {run: {argv: echo hi}, terminal: true}",
        ),
        [("NPA011", 4, 19, "`argv` must be a list, not text 'echo hi'")],
    ),
    "shell and argv": (
        (
            "states:",
            "  a: {run: {shell: x, argv: [x]}, terminal: true}",
        ),
        [("NPA031", 4, 13, "`run` of 'a' has both `argv` and `shell`")],
    ),
    "toolRef and run": (
        (
            "states:",
            "  a: {toolRef: demo.plain, run: {shell: x}, terminal: true}",
        ),
        [("NPA031", 4, 28, "state 'a' has both `toolRef` and `run`")],
    ),
    "transitions on a group": (
        (
            "states:",
            "  a: {sequence: [b], transitions: [{goto: c}], next: c}",
            "  b: {run: {shell: x}}",
            "  c: {run: {shell: x}, terminal: true}",
        ),
        [("NPA045", 4, 22, "transitions of 'a' can never fire: a group passes on by `next` alone")],
    ),
    "transitions on a member": (
        (
            "states:",
            "  a: {sequence: [b], next: c}",
            "  b: {run: {shell: x}, transitions: [{goto: c}]}",
            "  c: {run: {shell: x}, terminal: true}",
        ),
        [("NPA045", 5, 24, "transitions of 'b' can never fire: its group decides what follows")],
    ),
    "writesDecision without effect": (
        (
            "states:",
            "  a: {run: {shell: x}, writesDecision: true, terminal: true}",
        ),
        [("NPA046", 4, 24, "nothing reads the decision of 'a'")],
    ),
    "until on a leaf loop": (
        (
            "states:",
            "  a: {run: {shell: x}, loop: {max: 2, until: done}, terminal: true}",
        ),
        [("NPA013", 4, 46, "`until` cannot be text 'done'")],
    ),
    "next of a member": (
        (
            "states:",
            "  a: {sequence: [b, d], next: c}",
            "  b: {run: {shell: x}, next: c}",
            "  d: {run: {shell: x}}",
            "  c: {run: {shell: x}, terminal: true}",
        ),
        [("NPA038", 5, 24, "'b' is a member of a group, so its `next` would not be followed")],
    ),
    "terminal of a member": (
        (
            "states:",
            "  a: {sequence: [b], next: c}",
            "  b: {run: {shell: x}, terminal: true}",
            "  c: {run: {shell: x}, terminal: true}",
        ),
        [("NPA039", 5, 24, "'b' is a member of a group, so `terminal` does not end the workflow")],
    ),
    "unknown override": (
        (
            "config: {lr: 1}",
            "states: {a: {run: {shell: x}, terminal: true}}",
        ),
        [("NPA020", 0, 0, "unknown config key 'lrr' in `--var`")],
    ),
    "state name": (
        (
            "states:",
            "  a b: {run: {shell: x}, terminal: true}",
        ),
        [("NPA017", 4, 3, "state name 'a b' is not 1 to 63 letters, digits, `-` and `_`")],
    ),
    "workflow name": (
        (
            "metadata: {name: ../x}",
            "states: {a: {run: {shell: x}, terminal: true}}",
        ),
        [("NPA018", 3, 18, "workflow name '../x' is not 1 to 63 letters, digits, `-` and `_`")],
    ),
}
OVERRIDES = {"unknown override": {"lrr": "2"}}


@pytest.mark.parametrize("name", ROWS)
def test_what_is_wrong_is_told_at_its_place(name: str) -> None:
    lines, expected = ROWS[name]
    loaded = load("\n".join(lines), overrides=OVERRIDES.get(name))
    assert [(d.code, d.line, d.column, d.message) for d in loaded.diagnostics] == expected


def test_a_deep_chain_of_config_is_resolved_to_its_end() -> None:
    links = "".join(f"  k{n}: '{{{{config.k{n + 1}}}}}'\n" for n in range(30))
    text = f"config:\n{links}  k30: end\nstates:\n  a: {{run: {{argv: [x]}}, terminal: true}}\n"
    context = make_context(workflow_of(text), run_id="r", run_uri="file:///r/", tools=SAMPLE_TOOLS)
    assert context.config["k0"] == "end"


def test_an_assumed_decision_that_nobody_knows_is_refused() -> None:
    workflow = workflow_of(
        "states:\n"
        "  a: {run: {argv: [x]}, transitions: [{when: promote_checkpoint, goto: b}], next: b}\n"
        "  b: {run: {argv: [x]}, terminal: true}\n"
    )
    context = make_context(workflow, run_id="r", run_uri="file:///r/", tools=SAMPLE_TOOLS)
    with pytest.raises(UnknownAssumption, match="prommote"):
        make_plan(compile_graph(workflow), context, "prommote")
