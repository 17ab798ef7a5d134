"""Render a job for SkyPilot: a header and one task document a step. Pure; no clock, no I/O.

What comes out depends on the job, the catalogue and the options, and on nothing else, so the same
run renders to the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from npa.catalog.loader import Catalog
from npa.orchestration.engine import Finding, Job, Task
from npa.orchestration.skypilot.options import RenderOptions
from npa.orchestration.skypilot.render_environment import render_environment, render_secrets
from npa.orchestration.skypilot.render_errors import RenderError, check_placeholders
from npa.orchestration.skypilot.render_images import Image, requires_baked, select_image
from npa.orchestration.skypilot.render_licence import needs_isaac_licence
from npa.orchestration.skypilot.render_package import is_missing, package_for, package_need
from npa.orchestration.skypilot.render_resources import (
    mounts_cache,
    render_config,
    render_resources,
)
from npa.orchestration.skypilot.render_scripts import render_run, render_setup
from npa.orchestration.skypilot.render_text import documents_text
from npa.workflow.step import Step

JOB_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]{0,58}[A-Za-z0-9])?")
"""Letters, digits, `-`, `_`: what job groups and clusters of SkyPilot 0.12.2 both accept."""
_TASK_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
_TASK_NAME_MAX = 63
GROUP_MAX = 64


@dataclass(frozen=True)
class Rendered:
    """One managed job as SkyPilot takes it.

    `documents` are the header and the tasks; `task_names` maps step paths to task names;
    `findings` is what the user should know, `blocking` ones forbid a launch.
    """

    name: str
    documents: tuple[Mapping[str, Any], ...]
    task_names: Mapping[str, str]
    secrets: tuple[str, ...]
    findings: tuple[Finding, ...]

    @cached_property
    def text(self) -> str:
        """The documents as YAML."""
        return documents_text(self.documents)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of `text`: the identity of the rendered job."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def render_job(job: Job, catalog: Catalog, options: RenderOptions) -> Rendered:
    """Render one task, or the members of a group, as one managed job.

    Raises RenderError for what cannot be rendered: no command, an unknown preamble, an image
    without a digest where one is demanded, a placeholder left over, a name that SkyPilot refuses.
    """
    if not JOB_NAME.fullmatch(job.name):
        raise RenderError(f"'{job.name}' is no name for a job of SkyPilot")
    if not 1 <= len(job.tasks) <= GROUP_MAX:
        raise RenderError(f"a job has 1 to {GROUP_MAX} tasks, not {len(job.tasks)}")
    names = task_names([task.step for task in job.tasks])
    execution = "parallel" if len(job.tasks) > 1 else "serial"
    documents: list[Mapping[str, Any]] = [{"name": job.name, "execution": execution}]
    secrets: dict[str, None] = {}
    findings: list[Finding] = []
    for task in job.tasks:
        document = _task(task, job.key, names[task.step.path], catalog, options, findings)
        check_placeholders(document, task.step.path)
        secrets |= dict.fromkeys(n for n, v in document.get("secrets", {}).items() if v is None)
        documents.append(document)
    return Rendered(job.name, tuple(documents), names, tuple(secrets), tuple(findings))


def task_names(steps: Sequence[Step]) -> dict[str, str]:
    """A task name for each step path: unique, valid, and close to the state's name."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for step in steps:
        plain = re.sub(r"[^A-Za-z0-9_]+", "-", step.path).strip("-_")
        name = step.state if step.state == step.path else plain
        if not _TASK_NAME.fullmatch(name) or name.lower() in taken:
            digest = hashlib.sha256(step.path.encode()).hexdigest()[:10]
            kept = plain[: _TASK_NAME_MAX - 13].strip("-_")
            name = f"t-{kept}-{digest}" if kept else f"t-{digest}"
        names[step.path] = name
        taken.add(name.lower())
    return names


def _task(
    task: Task,
    key: str,
    name: str,
    catalog: Catalog,
    options: RenderOptions,
    findings: list[Finding],
) -> dict[str, Any]:
    step = task.step
    entry = catalog.entry(step.command.tool_ref) if step.command.tool_ref else None
    image = select_image(step, entry, catalog.images, options)
    isaac = needs_isaac_licence(step, entry, image)
    need = package_need(step, entry)
    package = package_for(need, options)
    document: dict[str, Any] = {
        "name": name,
        "resources": render_resources(step.profile, image.reference, options, step.path),
        "envs": render_environment(
            task,
            entry,
            image,
            options,
            key=key,
            package=package,
            isaac=isaac,
            cache=mounts_cache(step.profile, options),
        ),
        "run": render_run(step, entry),
    }
    if step.profile.num_nodes > 1:
        document["num_nodes"] = step.profile.num_nodes
    if config := render_config(step.profile, options):
        document["config"] = config
    document["setup"] = render_setup(step, entry, isaac=isaac, programs_uri=options.programs_uri)
    if secrets := render_secrets(task, options, image):
        document["secrets"] = secrets
    missing = is_missing(need, bool(image.reference), package)
    findings += _findings(step, image, options, isaac=isaac, missing=missing)
    return document


def _findings(
    step: Step, image: Image, options: RenderOptions, *, isaac: bool, missing: bool
) -> list[Finding]:
    found = []
    if isaac and not options.accept_eula:
        found.append(
            Finding(
                "ISAAC_LICENCE",
                step.path,
                "this step runs Isaac, and its licence was declined",
                "submit without `--no-accept-eula`, or leave the step out",
                blocking=True,
            )
        )
    if missing:
        found.append(
            Finding(
                "PACKAGE_MISSING",
                step.path,
                "the command uses `npa`, which neither an image nor a staged package brings",
                "stage the package, or name an image that has it with `--image`",
                blocking=True,
            )
        )
    if image.untagged and image.reference not in options.digests:
        found.append(
            Finding(
                "IMAGE_TAG_UNKNOWN",
                step.path,
                f"the tag of image '{image.reference}' is not known here",
                f"name the image: `--image {step.command.tool_ref or '*'}=REFERENCE`",
                blocking=False,
            )
        )
    if image.reference and not image.public and image.host not in options.private_hosts:
        found.append(
            Finding(
                "REGISTRY_CREDENTIALS",
                step.path,
                f"no Docker credentials are known for '{image.host}'",
                "give credentials for exactly this host if the registry is private",
                blocking=False,
            )
        )
    if options.package is not None and not options.package.proven:
        found.append(
            Finding(
                "SOURCE_UNPROVEN",
                step.path,
                f"the package at '{options.package.uri}' was set by hand and has no provenance",
                "let the submit stage it, so that its fingerprint is recorded",
                blocking=False,
            )
        )
    if requires_baked(step) and not str(step.config.get("source_sha") or ""):
        found.append(
            Finding(
                "SOURCE_COMMIT_MISSING",
                step.path,
                "`config.source_sha` is empty, so the image's commit cannot be compared",
                "set it to the commit from which the image was built",
                blocking=False,
            )
        )
    return found
