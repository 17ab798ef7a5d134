"""Generated workflows of every construct: refused with a reason, or rendered to sound documents."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import generated
from npa.errors import UsageError
from npa.orchestration.skypilot.options import RenderOptions
from npa.orchestration.skypilot.render_plan import RenderedPlan, render_plan
from npa.orchestration.taskenv import JobSettings
from npa.workflow.context import make_context
from npa.workflow.graph import compile_graph
from npa.workflow.load import load_text
from npa.workflow.plan import make_plan

CATALOG = generated.CATALOG
JOB_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]{0,58}[A-Za-z0-9])?")
TASK_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
LEFT_OVER = re.compile(r"\$\{[A-Za-z_]\w*\}|\{\{")


def drawn(seed: int) -> tuple[str, RenderOptions]:
    draw = random.Random(seed)
    return generated.workflow(draw), generated.options(draw)


def rendered(text: str, options: RenderOptions, decision: str) -> RenderedPlan | None:
    """The plan's documents; None where the loader or the renderer refused, and said why."""
    loaded = load_text(text, filename="w.yaml", tools=CATALOG)
    if loaded.workflow is None:
        assert loaded.errors
        assert all(item.message and item.line for item in loaded.errors)
        return None
    context = make_context(loaded.workflow, run_id="r-1", run_uri="s3://b/r/", tools=CATALOG)
    plan = make_plan(compile_graph(loaded.workflow), context, decision)
    run = JobSettings("r-1", "s3://b/r/", "generated", "")
    try:
        return render_plan(plan.batches, run, CATALOG, options)
    except UsageError as error:
        assert error.message  # noqa: PT017 - a refusal with a reason is a sound answer
        return None


def check(plan: RenderedPlan) -> None:
    names = [job.name for job in plan.jobs]
    assert len(set(names)) == len(names)
    for job in plan.jobs:
        header, *tasks = yaml.load_all(job.text, Loader=yaml.CSafeLoader)
        assert [header, *tasks] == [dict(document) for document in job.documents]
        assert JOB_NAME.fullmatch(header["name"])
        assert header["execution"] == ("parallel" if len(tasks) > 1 else "serial")
        taken = [task["name"].lower() for task in tasks]
        assert len(set(taken)) == len(taken)
        for task in tasks:
            assert TASK_NAME.fullmatch(task["name"])
            plain = {key: value for key, value in task.items() if key not in ("run", "setup")}
            assert LEFT_OVER.findall(str(plain)) == []
            assert "{{" not in task["run"]
            assert not set(task.get("secrets", {})) & set(task["envs"])


@pytest.mark.req("B-01")
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["loop_back", "promote_checkpoint"]))
def test_a_generated_workflow_has_diagnostics_or_renders_to_sound_documents(
    seed: int, decision: str
) -> None:
    plan = rendered(*drawn(seed), decision)
    if plan is not None:
        check(plan)


def test_the_generator_reaches_every_construct_and_most_of_it_renders() -> None:
    """Without this, the property could hold because nothing interesting was drawn."""
    seen: Counter[str] = Counter()
    for seed in range(150):
        text, options = drawn(seed)
        plan = rendered(text, options, "loop_back")
        seen["refused" if plan is None else "rendered"] += 1
        if plan is not None:
            seen.update(features(text, plan))
    assert seen["rendered"] > 90
    assert seen["refused"] > 5
    assert set(CONSTRUCTS) - set(seen) == set()
    assert {"gang", "group", "own setup", "secrets", "pod config", "cache", "image"} <= set(seen)
    assert {"model server", "isaac", "requirements", "docker login", "staged"} <= set(seen)


CONSTRUCTS = (
    "sequence", "parallel", "parallelMode", "maxConcurrency", "parallelCount", "loop", "until",
    "gate", "transitions", "when", "if", "foreach", "retry", "timeoutSeconds", "secrets", "env",
    "trigger", "checkpoint", "params", "outputs", "inputs", "multiNodeMode", "toolRef", "setup",
)  # fmt: skip


def features(text: str, plan: RenderedPlan) -> Iterator[str]:
    yield from (key for key in CONSTRUCTS if re.search(rf"^[\s-]*{key}:", text, re.M))
    for job in plan.jobs:
        if len(job.documents) > 2:
            yield "group"
        for task in job.documents[1:]:
            yield from (name for name, there in _of_task(task).items() if there)


def _of_task(task: Mapping[str, Any]) -> Mapping[str, bool]:
    return {
        "gang": task.get("num_nodes", 1) > 1,
        "own setup": "# The step's own setup." in task["setup"],
        "secrets": "HF_TOKEN" in task.get("secrets", {}),
        "docker login": "SKYPILOT_DOCKER_SERVER" in task.get("secrets", {}),
        "pod config": "config" in task,
        "cache": "NPA_MODEL_CACHE_DIR" in task["envs"],
        "image": "image_id" in task["resources"],
        "model server": "NPA_VLM_MODEL=" in task["run"],
        "isaac": "NPA_LICENCE=isaac" in task["setup"],
        "requirements": "NPA_REQUIREMENTS=" in task["setup"],
        "staged": 'npa_store.py" bring' in task["setup"],
    }
