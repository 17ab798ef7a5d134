"""Making steps and rendering them, for the tests of the SkyPilot renderer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from npa.catalog.loader import Catalog
from npa.orchestration.engine import Job, Task
from npa.orchestration.skypilot.options import RenderOptions
from npa.orchestration.skypilot.render import Rendered, render_job
from npa.target.secret import Secret
from npa.workflow.profile import parse_profile
from npa.workflow.step import Command, Step

CATALOG = Catalog.built_in()
KEY = "ab" * 32
DIGEST = "sha256:" + "0" * 64
PLAIN = RenderOptions()


def step(
    path: str = "train",
    *,
    tool: str = "",
    argv: tuple[str, ...] = ("python", "train.py"),
    script: str = "",
    setup: str = "",
    profile: Mapping[str, object] | None = None,
    config: Mapping[str, object] | None = None,
) -> Step:
    given = {"cloud": "kubernetes"} if profile is None else profile
    return Step(
        path=path,
        state=path.rpartition("/")[2].partition("[")[0],
        command=Command(argv=() if script else argv, shell=script, setup=setup, tool_ref=tool),
        profile=parse_profile("p", given),
        config=config or {},
    )


def render(
    *steps: Step,
    options: RenderOptions = PLAIN,
    env: Mapping[str, str] | None = None,
    secrets: tuple[str, ...] = (),
    name: str = "run-train-abc",
) -> Rendered:
    tasks = tuple(Task(one, env or {}, {n: Secret("canary") for n in secrets}) for one in steps)
    return render_job(Job(name, KEY, tasks), CATALOG, options)


def only(*steps: Step, **words: Any) -> Mapping[str, Any]:
    """The document of the one task, read back from the text."""
    _, document = yaml.safe_load_all(render(*steps, **words).text)
    assert isinstance(document, dict)
    return document
