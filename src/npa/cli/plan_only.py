"""`submit --plan-only`: what would be submitted, in one line each, and the documents on request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npa.cli.output import Output
from npa.cli.spec import plural
from npa.errors import UsageError

if TYPE_CHECKING:
    from npa.orchestration.engine import Finding
    from npa.orchestration.prepare import Prepared
    from npa.orchestration.runs import Host
    from npa.orchestration.skypilot.render import Rendered
    from npa.orchestration.skypilot.render_plan import RenderedPlan
    from npa.workflow.plan import Plan

STDOUT = "-"
IMAGE_WIDTH = 48  # of the column; the document has the whole reference
_IMAGE = "docker:"


def show_plan(output: Output, host: Host, prepared: Prepared, documents: str) -> None:
    """The public shape of a plan that is not submitted. Only `documents` is written, if a folder.

    `documents` is "" for a summary, `-` for the documents alone, else a new folder for them.
    Raises UsageError.
    """
    from npa.orchestration.hosts import missing, rendered
    from npa.orchestration.submission import findings
    from npa.workflow.plan import default_assumption, make_plan

    by_skypilot = prepared.request.engine == "skypilot"
    _refuse_documents(documents, output, by_skypilot=by_skypilot)
    assume = prepared.policy.assume_decision or default_assumption(prepared.graph, prepared.context)
    plan = make_plan(prepared.graph, prepared.context, assume)
    found = missing(host, prepared) if by_skypilot else findings(host, prepared)
    made = rendered(host, prepared)
    output.document(_document(prepared, plan, found, made.text if made else ""))
    if made is not None and documents == STDOUT:
        output.text(made.text)
    elif made is not None and documents:
        for path in _write(made, Path(documents)):
            output.line(str(path))
    else:
        _summarise(output, plan, made)
    _tell(output, plan, made, found)
    if made is not None and not documents:
        output.hint(
            "`--documents -` prints the document of each job, `--documents FOLDER` writes it"
        )


def _refuse_documents(documents: str, output: Output, *, by_skypilot: bool) -> None:
    if not documents:
        return
    if not by_skypilot:
        raise UsageError(
            "engine `local` has no documents to show",
            not_done="nothing was planned",
            hint="`--documents` is for `--engine skypilot`",
        )
    if output.as_json:
        raise UsageError(
            "`--json` prints one document, which has them all as `skypilot_yaml`",
            not_done="nothing was planned",
            hint="leave out `--documents`, or `--json`",
        )


def _write(made: RenderedPlan, folder: Path) -> Sequence[Path]:
    """One file a job, in a folder that is not there or empty. Raises UsageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(
                f"`{folder}` is not empty",
                not_done="nothing was written",
                hint="name a new folder with `--documents`",
            )
        digits = len(str(len(made.jobs)))
        paths = [folder / f"{n:0{digits}}-{job.name}.yaml" for n, job in enumerate(made.jobs, 1)]
        for path, job in zip(paths, made.jobs, strict=True):
            path.write_text(job.text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"`{folder}` cannot be written: {error.strerror}", not_done="nothing was submitted"
        ) from error
    return paths


def _summarise(output: Output, plan: Plan, made: RenderedPlan | None) -> None:
    from npa.cli.plan import show_steps

    if made is None:
        show_steps(output, plan.steps)
        return
    rows = [row for number, job in enumerate(made.jobs, 1) for row in _rows(number, job)]
    output.table(("JOB", "STEP", "RESOURCES", "WHERE", "IMAGE"), rows)


def _rows(number: int, job: Rendered) -> list[tuple[str, str, str, str, str]]:
    """A row for each task of a job; those of one job have its number."""
    tasks = {str(document["name"]): document for document in job.documents[1:]}
    rows = []
    for path, name in job.task_names.items():
        resources: Mapping[str, Any] = tasks[name].get("resources") or {}
        image = str(resources.get("image_id", "")).removeprefix(_IMAGE)
        rows.append(
            (
                str(number),
                path,
                _resources(resources, int(tasks[name].get("num_nodes") or 1)),
                _where(resources),
                _shortened(image) or "-",
            )
        )
    return rows


def _resources(resources: Mapping[str, Any], nodes: int) -> str:
    """`2 nodes of H100:8, 4+ CPUs, 16 GB`; what has no unit is named by its key."""
    units = {
        "accelerators": "{}",
        "cpus": "{} CPUs",
        "memory": "{} GB",
        "ephemeral_storage": "{} GB of disk",
    }
    elsewhere = ("infra", "cloud", "region", "image_id")
    parts = [
        units.get(key, f"{key} {{}}").format(
            value if isinstance(value, str | int | float) else json.dumps(value, default=str)
        )
        for key, value in resources.items()
        if key not in elsewhere
    ]
    text = ", ".join(parts) or "the default"
    return f"{nodes} nodes of {text}" if nodes > 1 else text


def _where(resources: Mapping[str, Any]) -> str:
    place = str(resources.get("infra") or resources.get("cloud") or "not named")
    region = resources.get("region")
    return f"{place}, {region}" if region else place


def _shortened(text: str) -> str:
    """The start and the end, where a reference has its registry and its tag."""
    if len(text) <= IMAGE_WIDTH:
        return text
    half = (IMAGE_WIDTH - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def _tell(output: Output, plan: Plan, made: RenderedPlan | None, found: Sequence[Finding]) -> None:
    """On stderr: what stands in the way, with its way out."""
    from npa.orchestration.submission import finding_text

    for finding in found:
        output.warning(finding_text(finding))
    steps = plural(len(plan.steps), "step")
    jobs = f" in {plural(len(made.jobs), 'job')}" if made is not None else ""
    blocking = sum(finding.blocking for finding in found)
    refused = f"; a submit is refused, for {plural(blocking, 'reason')}" if blocking else ""
    output.note(f"planned {steps}{jobs}; nothing was submitted{refused}")


def _document(
    prepared: Prepared, plan: Plan, found: Sequence[Finding], documents: str
) -> dict[str, object]:
    from npa.workflow.plan import plan_json

    request = prepared.request
    blocked = any(finding.blocking for finding in found)
    infra = {"infra": request.engine_options.get("infra", "")}
    return {
        "status": "PLANNED",
        "lifecycle_state": "PLAN_ONLY",
        "submission_state": "NOT_SUBMITTED",
        "submission_receipt": None,
        "run_id": request.run_id,
        "run_prefix_uri": request.run_uri,
        "workflow": prepared.workflow.name,
        "engine": request.engine,
        "steps": len(plan.steps),
        "secret_env_hints": list(request.secrets),
        "source": _source(prepared),
        "preflight": {
            "decision": "blocked" if blocked else "ready",
            "checks": [
                {
                    "code": finding.code,
                    "path": finding.path,
                    "message": finding.message,
                    "remedy": finding.remedy,
                    "blocking": finding.blocking,
                }
                for finding in found
            ],
        },
        "infrastructure": {
            "engine": request.engine,
            **(infra if request.engine == "skypilot" else {}),
        },
        "plan": plan_json(plan, prepared.context),
        "skypilot_yaml": documents,
    }


def _source(prepared: Prepared) -> dict[str, object]:
    tree = prepared.tree
    if tree is None:
        return {"status": "none", "uri": ""}
    return {
        "status": "pinned",
        "uri": "",
        "fingerprint": tree.digest,
        "files": len(tree.files),
        "commit": tree.commit,
        "dirty": tree.dirty,
    }
