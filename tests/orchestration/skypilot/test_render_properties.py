"""Any workflow either has diagnostics, or plans and renders to documents that SkyPilot takes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npa.catalog.loader import Catalog
from npa.errors import UsageError
from npa.orchestration.engine import Job, Task
from npa.orchestration.skypilot.options import RenderOptions, StagedSource
from npa.orchestration.skypilot.render import render_job, task_names
from npa.orchestration.skypilot.render_errors import RenderError
from npa.orchestration.skypilot.render_plan import RenderedPlan, render_plan
from npa.orchestration.taskenv import JobSettings
from npa.workflow.context import make_context
from npa.workflow.graph import compile_graph
from npa.workflow.load import load_text
from npa.workflow.plan import make_plan
from npa.workflow.step import Command, Step

CATALOG = Catalog.built_in()
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
OPTIONS = RenderOptions(
    source=StagedSource("s3://b/s.tar.gz", "0" * 64, "1" * 64), claims_uri="s3://b/c/"
)

PLAIN = [
    "a b",
    "$'\"",
    "{x}",
    "\\;|&",
    "é\u2028",
    "\n\t-",
    ": #",
    "{{config.x}}",
    "{{{{",
    "{{run.id}}",
]
PLAIN += ["a", "a", "$(id)", "yes", "1"]
BAD_NAMES = ["x y", "s" * 64, "ä"]
words = st.sampled_from(PLAIN)
values = words.filter(lambda word: "{{" not in word) | st.integers(0, 99) | st.booleans()
names = st.sampled_from(["a", "b", "c", "d", "a-b", "A", "9", "a_b", "s" * 63])
seldom = st.integers(0, 11).map(lambda n: n == 0)


@st.composite
def leaves(draw: st.DrawFn) -> dict[str, Any]:
    state: dict[str, Any] = {"resources": "p"}
    if draw(st.booleans()):
        state["run"] = {"argv": draw(st.lists(words, min_size=1, max_size=3))}
    else:
        state["run"] = {"shell": draw(words)}
    if draw(st.booleans()):
        state["env"] = {"E": "${HOME}" if draw(seldom) else draw(words)}
    if draw(st.booleans()):
        state["outputs"] = [{"uri": "s3://b/{{run.id}}/" + draw(st.sampled_from("xyz"))}]
    if draw(st.integers(0, 3)) == 0:
        state["loop"] = {"max": 0 if draw(seldom) else draw(st.integers(1, 3))}
    return state


@st.composite
def workflows(draw: st.DrawFn) -> str:
    members = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    if draw(seldom):
        members[0] = draw(st.sampled_from(BAD_NAMES))
    states: dict[str, Any] = {name: draw(leaves()) for name in members}
    shape = draw(st.sampled_from(["chain", "sequence", "parallel"]))
    if shape == "chain":
        for before, after in pairwise(members):
            states[before]["next"] = after
        states[members[-1]]["terminal"] = True
        initial = members[0]
    else:
        states["group"] = {shape: members, "next": "end"}
        if shape == "sequence" and draw(st.booleans()):
            states["group"]["loop"] = {"max": draw(st.integers(1, 3))}
        states["end"] = {"run": {"argv": ["true"]}, "terminal": True}
        initial = "group"
    profile = {
        "cloud": draw(st.sampled_from(["kubernetes", "aws", ""])),
        "cpus": "x" if draw(seldom) else draw(st.sampled_from([1, "4+", 0.5])),
        "image": "a b" if draw(seldom) else draw(st.sampled_from(["", "tool://sonic"])),
        "kubernetes": {"pod_config": {"a": draw(values)}},
    }
    return json.dumps(
        {
            "apiVersion": "npa.workflow/v0.0.1",
            "kind": "Workflow",
            "metadata": {"name": "w"},
            "config": {"x": draw(values), "y": draw(values)},
            "resources": {"p": profile},
            "initial": initial,
            "states": states,
        }
    )


def render(text: str) -> RenderedPlan | None:
    """The plan's rendering; None when the file has errors."""
    loaded = load_text(text, filename="w.yaml", tools=CATALOG)
    if loaded.workflow is None:
        assert loaded.errors
        return None
    context = make_context(loaded.workflow, run_id="r-1", run_uri="s3://b/r/", tools=CATALOG)
    plan = make_plan(compile_graph(loaded.workflow), context, "loop_back")
    return render_plan(plan.batches, JobSettings("r-1", "s3://b/r/", "w", ""), CATALOG, OPTIONS)


def leftovers(value: object) -> list[str]:
    text = json.dumps(value, ensure_ascii=False)
    return re.findall(r"\$\{[A-Za-z_]\w*\}|\{\{", text)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workflows())
def test_a_workflow_has_errors_or_renders_to_sound_documents(text: str) -> None:
    try:
        rendered = render(text)
    except (RenderError, UsageError) as error:
        assert error.message  # noqa: PT017 - a refusal with a reason is a sound answer
        return
    if rendered is None:
        return
    jobs = [job.name for job in rendered.jobs]
    assert len(set(jobs)) == len(jobs)
    for job in rendered.jobs:
        header, *tasks = yaml.load_all(job.text, Loader=yaml.CSafeLoader)
        assert [header, *tasks] == [dict(document) for document in job.documents]
        assert header["execution"] == ("parallel" if len(tasks) > 1 else "serial")
        assert NAME.fullmatch(header["name"])
        assert len(header["name"]) <= 60
        assert len({task["name"].lower() for task in tasks}) == len(tasks)
        for task in tasks:
            assert NAME.fullmatch(task["name"])
            assert len(task["name"]) <= 63
            plain = {key: value for key, value in task.items() if key not in ("run", "setup")}
            assert leftovers(plain) == []
            assert not any(name.startswith("SKYPILOT_") for name in task["envs"])


def run_words(task: Mapping[str, Any]) -> list[str]:
    """What the last line of `run` says to the shell, by a real parser."""
    import shlex

    head = task["run"].rindex("NPA_MODEL_CACHE_DIR")
    return shlex.split(task["run"][task["run"].index("\n", head) + 1 :])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), min_size=1))
def test_every_argument_reaches_the_shell_as_it_is(argv: list[str]) -> None:
    step = Step("s", "s", Command(argv=("echo", *argv)))
    job = render_job(Job("run-s-k", "k", (Task(step),)), CATALOG, RenderOptions())
    _, task = yaml.load_all(job.text, Loader=yaml.CSafeLoader)
    assert run_words(task) == ["echo", *argv]


@given(st.lists(st.text(min_size=1), min_size=1, max_size=20, unique=True))
def test_task_names_are_unique_and_valid_for_any_paths(paths: list[str]) -> None:
    steps = [Step(path, path.rpartition("/")[2], Command(argv=("true",))) for path in paths]
    given_names = task_names(steps)
    assert given_names.keys() == set(paths)
    assert len({name.lower() for name in given_names.values()}) == len(paths)
    assert all(NAME.fullmatch(name) and len(name) <= 63 for name in given_names.values())
