"""Load, plan and render public pipelines, and print one line a file: `compat_report.py [FOLDER]`.

The folder is the argument, else NPA_COMPAT_SPECS. Exits 1 if a file has an error that it should not
have. Images that a file demands with a digest are given, as `--image` would.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from npa.catalog.loader import Catalog
from npa.errors import NpaError
from npa.orchestration import claims
from npa.orchestration.skypilot import staging
from npa.orchestration.skypilot.options import RenderOptions
from npa.orchestration.skypilot.render_plan import render_plan
from npa.orchestration.taskenv import JobSettings
from npa.workflow.context import make_context
from npa.workflow.graph import compile_graph
from npa.workflow.load import load_file
from npa.workflow.plan import make_plan

DECISIONS = ("loop_back", "promote_checkpoint")
RUN_URI = "s3://example-bucket/runs/report/"
# As a run renders: the programs of all tasks lie in the run's store, and so does our package.
STAGED = RenderOptions(
    programs_uri=RUN_URI + staging.PROGRAMS_FOLDER,
    claims_uri=RUN_URI + claims.FOLDER,
    own_package=staging.own_staged(RUN_URI),
)
PINNED = replace(STAGED, images={"*": "registry.example.org/pinned@sha256:" + "0" * 64})
HEAD = ("file", "states", "steps back/promote", "warnings", "jobs", "documents", "bytes", "notes")


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one file; `error` is empty when all went well."""

    file: str
    states: int = 0
    steps: tuple[int, ...] = ()
    warnings: int = 0
    jobs: int = 0
    documents: int = 0
    size: int = 0
    pinned: bool = False
    notes: tuple[str, ...] = ()
    error: str = ""

    def cells(self) -> tuple[str, ...]:
        steps = "/".join(map(str, self.steps))
        notes = [*self.notes, *(["needs --image"] if self.pinned else [])]
        counts = (self.warnings, self.jobs, self.documents, self.size)
        said = self.error or ", ".join(notes)
        return (self.file, str(self.states), steps, *map(str, counts), said)


def report(file: Path, catalog: Catalog) -> Row:
    """Take one file through load, both plans and both renderings; documents are of the first."""
    loaded = load_file(file, tools=catalog)
    if loaded.workflow is None:
        first = loaded.errors[0]
        return Row(file.name, error=f"{first.line}: {first.message}")
    graph = compile_graph(loaded.workflow)
    context = make_context(loaded.workflow, run_id="report", run_uri=RUN_URI, tools=catalog)
    settings = JobSettings("report", RUN_URI, loaded.workflow.name, workdir="")
    pinned = False
    rendered, steps = [], []
    try:
        for decision in DECISIONS:
            plan = make_plan(graph, context, decision)
            steps.append(len(plan.steps))
            try:
                rendered.append(render_plan(plan.batches, settings, catalog, STAGED))
            except NpaError as error:
                if error.code != "IMAGE_NOT_PINNED":
                    raise
                pinned = True
                rendered.append(render_plan(plan.batches, settings, catalog, PINNED))
    except NpaError as error:
        return Row(file.name, len(loaded.workflow.states), tuple(steps), error=error.message)
    jobs = rendered[0].jobs
    return Row(
        file=file.name,
        states=len(loaded.workflow.states),
        steps=tuple(steps),
        warnings=len(loaded.diagnostics),
        jobs=len(jobs),
        documents=sum(len(job.documents) for job in jobs),
        size=len(rendered[0].text.encode()),
        pinned=pinned,
        notes=tuple(sorted({finding.code for one in rendered for finding in one.findings})),
    )


def main(words: list[str]) -> int:
    folder = Path(words[0] if words else os.environ.get("NPA_COMPAT_SPECS", "../shared/specs"))
    files = sorted(folder.glob("*.yaml"))
    if not files:
        print(f"there are no pipelines in '{folder}'", file=sys.stderr)
        return 2
    catalog = Catalog.built_in()
    rows = [report(file, catalog) for file in files]
    table = [HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[n]) for line in table) for n in range(len(HEAD) - 1)]
    for line in table:
        print("  ".join([*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[-1]]))
    broken = sum(bool(row.error) for row in rows)
    print(f"{len(rows)} files, {broken} with an error, {sum(row.pinned for row in rows)} pinned")
    tasks = sum(row.documents - row.jobs for row in rows)
    size, states = sum(row.size for row in rows), sum(row.states for row in rows)
    print(
        f"{states} states, {sum(row.steps[0] for row in rows if row.steps)} steps, "
        f"{sum(row.warnings for row in rows)} warnings, {tasks} tasks in "
        f"{sum(row.jobs for row in rows)} jobs, {size:,} bytes: {size // max(tasks, 1):,} a task"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
