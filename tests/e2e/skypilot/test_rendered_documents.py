"""Rendered documents in SkyPilot's own hands: its schema, its tasks, its pipelines and job groups.

Needs an environment that `npa skypilot bootstrap` (or the bed) made, and no server: one process of
it reads all documents.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import generated
from e2e.bed.places import BED_JSON, ENVIRONMENT
from npa.catalog.loader import Catalog
from npa.errors import NpaError
from npa.orchestration import claims
from npa.orchestration.skypilot import staging
from npa.orchestration.skypilot.installer import VERSION
from npa.orchestration.skypilot.options import RenderOptions
from npa.orchestration.skypilot.render import Rendered
from npa.orchestration.skypilot.render_plan import render_plan
from npa.orchestration.skypilot.resolve import installed_version
from npa.orchestration.taskenv import JobSettings
from npa.target.secret import Secret
from npa.workflow.context import make_context
from npa.workflow.graph import compile_graph
from npa.workflow.load import load_text
from npa.workflow.plan import make_plan

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PUBLIC = Path(os.environ.get("NPA_COMPAT_SPECS") or ROOT.parent / "shared/specs")
CATALOG = Catalog.built_in()
RUN_URI = "s3://b/runs/r-1/"
PINNED = {"*": "cr.example.org/all@sha256:" + "0" * 64}
SEEDS = 40


@dataclass(frozen=True)
class Answer:
    problems: list[str]
    tasks: list[str]
    nodes: list[int]
    group: bool


@pytest.fixture(scope="module")
def interpreter() -> Path:
    """SkyPilot's isolated Python: of NPA_SKYPILOT_BIN, of the bed that is up, or of one before."""
    named = os.environ.get("NPA_SKYPILOT_BIN", "")
    if not named and BED_JSON.exists():
        named = str(json.loads(BED_JSON.read_text())["sky_bin"])
    folder = Path(named).parent if named else ENVIRONMENT / "current/bin"
    python = folder.resolve() / "python"
    if not python.exists() or installed_version(python.parent.parent) != VERSION:
        pytest.skip(f"there is no environment with SkyPilot {VERSION}: `npa skypilot bootstrap`")
    return python


def ask(interpreter: Path, home: Path, jobs: Iterable[Rendered]) -> dict[str, Answer]:
    """What SkyPilot makes of the documents, by the jobs' names."""
    tables = home / ".sky/catalogs/v8/common"
    tables.mkdir(parents=True)
    for table in (ROOT / "tests/e2e/bed/catalog").glob("*.csv"):
        shutil.copy(table, tables)  # else names of accelerators are looked up on the Internet
    lines = [
        json.dumps({"name": job.name, "text": job.text, "secrets": dict.fromkeys(job.secrets, "x")})
        for job in jobs
    ]
    done = subprocess.run(
        [interpreter, HERE / "load_documents.py"],
        input="\n".join(lines),
        env={
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        },
        cwd=home,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: dict[str, Answer] = {}
    for line in done.stdout.splitlines():
        fields: dict[str, Any] = json.loads(line)
        name = str(fields.pop("name"))
        answers[name] = Answer(**fields)
    return answers


def rendered(
    text: str, options: RenderOptions, run_id: str, tools: Catalog = CATALOG
) -> Iterator[Rendered]:
    """The jobs of the longer plan; none where a generated file was refused."""
    loaded = load_text(text, filename="w.yaml", tools=tools)
    if loaded.workflow is None:
        return
    context = make_context(loaded.workflow, run_id=run_id, run_uri=RUN_URI, tools=tools)
    plan = make_plan(compile_graph(loaded.workflow), context, "loop_back")
    settings = JobSettings(
        run_id,
        RUN_URI,
        loaded.workflow.name,
        workdir="",
        env={"AWS_ENDPOINT_URL": "https://s3.example.org"},
        secrets={"AWS_SECRET_ACCESS_KEY": Secret("x")},
        named_secrets={"HF_TOKEN": Secret("x")},
    )
    yield from render_plan(plan.batches, settings, tools, options).jobs


def complain(jobs: Iterable[tuple[str, Rendered]], answers: Mapping[str, Answer]) -> list[str]:
    """One line for each thing that is not as it ought to be."""
    wrong = []
    for origin, job in jobs:
        answer = answers[job.name]
        tasks = job.documents[1:]
        wrong += [f"{origin}: {job.name}: {problem}" for problem in answer.problems]
        if answer.tasks != [task["name"] for task in tasks]:
            wrong.append(f"{origin}: {job.name}: tasks {answer.tasks}")
        if answer.nodes != [task.get("num_nodes", 1) for task in tasks]:
            wrong.append(f"{origin}: {job.name}: nodes {answer.nodes}")
        if answer.group != (len(tasks) > 1):
            wrong.append(f"{origin}: {job.name}: a job group: {answer.group}")
    return wrong


def options(**more: Any) -> RenderOptions:
    return RenderOptions(
        programs_uri=RUN_URI + staging.PROGRAMS_FOLDER,
        own_package=staging.own_staged(RUN_URI),
        claims_uri=RUN_URI + claims.FOLDER,
        **more,
    )


@pytest.mark.req("B-01")
@pytest.mark.parametrize("infra", ["", "k8s/context", "slurm/bed"])
def test_every_file_renders_to_documents_that_skypilot_takes(
    interpreter: Path, tmp_path: Path, infra: str
) -> None:
    own_tools = Catalog.load(ROOT / "workflows/testing/bdd100k-catalog.yaml")
    ours = [*(ROOT / "examples").rglob("*.yaml"), *(ROOT / "workflows").rglob("*-pipeline.yaml")]
    files = [(file, own_tools) for file in sorted(ours)]
    files += [(file, CATALOG) for file in sorted(PUBLIC.glob("*.yaml"))]
    given = options(infra=infra, images=PINNED)
    jobs = [
        (str(file), job)
        for number, (file, tools) in enumerate(files)
        for job in rendered(file.read_text(), given, f"r-{number}", tools)
    ]
    assert [file for file, _ in files if str(file) not in dict(jobs)] == []
    answers = ask(interpreter, tmp_path, [job for _, job in jobs])
    assert complain(jobs, answers) == []


@pytest.mark.req("B-01")
def test_generated_workflows_render_to_documents_that_skypilot_takes(
    interpreter: Path, tmp_path: Path
) -> None:
    jobs: list[tuple[str, Rendered]] = []
    for seed in range(SEEDS):
        draw = random.Random(seed)
        text, drawn = generated.workflow(draw), generated.options(draw)
        try:
            jobs += [(f"seed {seed}", job) for job in rendered(text, drawn, f"r-{seed}")]
        except NpaError:
            continue  # refused with a reason, which other tests look at
    assert sum(len(job.documents) > 2 for _, job in jobs) >= 5
    answers = ask(interpreter, tmp_path, [job for _, job in jobs])
    assert complain(jobs, answers) == []


def test_what_skypilot_does_not_take_is_told(interpreter: Path, tmp_path: Path) -> None:
    """The net has no hole: a wrong field, a wrong resource, a doubled name."""
    (good,) = rendered(
        "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nstates:\n"
        "  a: {run: {argv: ['true']}, terminal: true}\n",
        options(),
        "r",
    )
    header, task = good.documents
    spoiled = {
        "field": ({**header, "name": "field"}, {**task, "bogus": 1}),
        "resource": ({**header, "name": "resource"}, {**task, "resources": {"cpus": "many"}}),
        "group": ({"name": "group", "execution": "parallel"}, task, task),
    }
    bad = [Rendered(name, documents, {}, (), ()) for name, documents in spoiled.items()]
    answers = ask(interpreter, tmp_path, bad)
    assert {name: bool(answer.problems) for name, answer in answers.items()} == {
        "field": True,
        "resource": True,
        "group": True,
    }
