"""What must hold of the loader for any bytes: a typed answer, in bounded time, with true places.

Used by the fuzzer (`python -m fuzz.campaign`) and by the tests of what it found.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from npa.catalog.loader import Catalog
from npa.errors import NpaError
from npa.orchestration import claims
from npa.orchestration.skypilot import staging
from npa.orchestration.skypilot.options import RenderOptions
from npa.orchestration.skypilot.render_plan import render_plan
from npa.orchestration.taskenv import JobSettings
from npa.workflow.context import make_context
from npa.workflow.describe import describe
from npa.workflow.diagnostics import render_github, render_sarif, render_text
from npa.workflow.drawing import draw, mermaid
from npa.workflow.graph import compile_graph
from npa.workflow.load import Loaded, load_file
from npa.workflow.meaning import Workflow
from npa.workflow.plan import make_plan

CPU_SECONDS_MAX = 2.0
"""Of load, check, both plans and rendering together, without instrumentation."""
RENDERED_STEPS_MAX = 100
RUN_URI = "s3://b/r/"
CATALOG = Catalog.built_in()
OPTIONS = RenderOptions(
    programs_uri=RUN_URI + staging.PROGRAMS_FOLDER, claims_uri=RUN_URI + claims.FOLDER
)


class Broken(AssertionError):
    """An answer that the loader must not give."""


def examine(data: bytes, folder: Path | None = None) -> float:
    """CPU seconds that the input took. Raises Broken, or whatever untyped the code raised.

    `folder` is where the input is written to be loaded; by default a new one each time.
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as made:
            return examine(data, Path(made))
    file = folder / "input.yaml"
    file.write_bytes(data)
    began = time.process_time()
    loaded = load_file(file, tools=CATALOG)
    _shown(loaded)
    if loaded.workflow is not None:
        _planned(loaded.workflow)
    return time.process_time() - began


def _shown(loaded: Loaded) -> None:
    """Diagnostics have places inside the file, and every format can say them."""
    lines = loaded.source.lines
    if (loaded.workflow is None) != bool(loaded.errors):
        raise Broken("a file is refused exactly when it has an error")
    for item in loaded.diagnostics:
        if not item.message or not item.code:
            raise Broken(f"it says nothing: {item}")
        if item.line and not _inside(lines, item.line, item.column, item.end_column):
            raise Broken(f"not a place of the file: {item}")
    for colour in (False, True):
        render_text(loaded.diagnostics, filename="f.yaml", lines=lines, colour=colour)
    render_github(loaded.diagnostics, filename="f.yaml")
    render_sarif(loaded.diagnostics, filename="f.yaml")


def _inside(lines: Sequence[str], line: int, column: int, end: int) -> bool:
    """The place after a line's last character is one of the file's: what is missing is told there.

    A key that is written over several lines ends in another line than it begins.
    """
    return 1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1 and column < end


def _planned(workflow: Workflow) -> None:
    """What passed the checks compiles, is drawn and planned; what is planned renders, typed."""
    describe(workflow, CATALOG)
    graph = compile_graph(workflow)
    mermaid(draw(graph))
    context = make_context(workflow, run_id="r-1", run_uri=RUN_URI, tools=CATALOG)
    settings = JobSettings("r-1", RUN_URI, workflow.name, workdir="")
    for decision in ("promote_checkpoint", "loop_back"):
        try:
            plan = make_plan(graph, context, decision)
            if len(plan.steps) <= RENDERED_STEPS_MAX:
                rendered = render_plan(plan.batches, settings, CATALOG, OPTIONS)
                _ = rendered.text
        except NpaError as error:
            if not error.message:
                raise Broken(f"it says nothing: {error!r}") from error
