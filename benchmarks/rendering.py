"""In one process, after its imports: check and plan a file, then render the plan for SkyPilot.

usage: rendering.py FILE REPEATS
Prints one JSON object: the seconds of each repeat, and how much came out.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from npa.catalog.loader import Catalog
from npa.orchestration import claims
from npa.orchestration.skypilot import staging
from npa.orchestration.skypilot.options import RenderOptions
from npa.orchestration.skypilot.render_plan import RenderedPlan, render_plan
from npa.orchestration.taskenv import JobSettings
from npa.workflow.context import make_context
from npa.workflow.graph import compile_graph
from npa.workflow.load import load_text
from npa.workflow.plan import Plan, make_plan

T = TypeVar("T")
RUN_URI = "s3://bucket/runs/r/"


def main(file: str, repeats: int) -> None:
    text = Path(file).read_text(encoding="utf-8")
    catalog = Catalog.built_in()
    options = RenderOptions(
        images={"*": "cr.example.org/any@sha256:" + "0" * 64},
        programs_uri=RUN_URI + staging.PROGRAMS_FOLDER,
        claims_uri=RUN_URI + claims.FOLDER,
    )

    def plan() -> Plan:
        loaded = load_text(text, filename=file, tools=catalog)
        if loaded.workflow is None:
            raise SystemExit(f"{file}: {loaded.errors[0].message}")
        context = make_context(loaded.workflow, run_id="r", run_uri=RUN_URI, tools=catalog)
        return make_plan(compile_graph(loaded.workflow), context, "promote_checkpoint")

    def render() -> RenderedPlan:
        rendered = render_plan(
            made.batches, JobSettings("r", RUN_URI, "w", workdir=""), catalog, options
        )
        _ = rendered.text
        return rendered

    made, planned = timed(plan, repeats)
    rendered, seconds = timed(render, repeats)
    told = {
        "tasks": len(made.steps),
        "bytes": len(rendered.text.encode()),
        "plan_s": planned,
        "render_s": seconds,
    }
    print(json.dumps(told))


def timed(call: Callable[[], T], repeats: int) -> tuple[T, list[float]]:
    """The last answer, and what each took; the first is among them, with its cold caches."""
    seconds = []
    for _ in range(max(repeats, 1)):
        began = time.perf_counter()
        answer = call()
        seconds.append(round(time.perf_counter() - began, 5))
    return answer, seconds


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
