"""A node of its own for the programs of a task: a home, fake tools, an environment."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from changed import replace
from npa.catalog.loader import Catalog
from npa.orchestration.engine import Job, Task
from npa.orchestration.skypilot.options import RenderOptions, StagedSource
from npa.orchestration.skypilot.render import render_job
from npa.orchestration.skypilot.render_scripts import PROGRAMS, program_digest, script
from npa.orchestration.source import archive, scan
from npa.workflow.profile import parse_profile
from npa.workflow.step import Command, Step
from s3server import S3

SCRIPTS = resources.files("npa.orchestration.skypilot").joinpath("scripts")
SHELL_SCRIPTS = ("begin.sh", "setup.sh", "run.sh", "model_server.sh")
CATALOG = Catalog.built_in()
BASH = shutil.which("bash") or "bash"
PYTHON = sys.executable


@dataclass
class Node:
    """One node: a home, a PATH of fake tools before the system's, and an environment."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def programs_uri(self) -> str:
        """A folder with the programs of tasks, as a submit stages them."""
        folder = self.root / "programs"
        folder.mkdir(exist_ok=True)
        for name in PROGRAMS:
            (folder / program_digest(name)).write_text(script(name))
        return folder.as_uri() + "/"

    def tool(self, name: str, text: str) -> Path:
        path = self.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def run(
        self, program: str, env: Mapping[str, str], *, shell: str = BASH
    ) -> subprocess.CompletedProcess[str]:
        self.home.mkdir(exist_ok=True)
        script = self.root / f"program-{hashlib.sha256(program.encode()).hexdigest()[:8]}.sh"
        script.write_text(program)
        variables = {
            "HOME": str(self.home),
            "PATH": f"{self.root / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "NPA_RETRY_PAUSE_SECONDS": "0",
            "SKYPILOT_MANAGED_JOB_ID": "7",
            **self.env,
            **env,
        }
        return subprocess.run(
            [shell, str(script)],
            cwd=self.home,
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def launch(
    node: Node,
    *,
    argv: tuple[str, ...] = (),
    script: str = "",
    tool: str = "",
    options: RenderOptions | None = None,
    config: Mapping[str, object] | None = None,
    key: str = "k" * 64,
    shell: str = BASH,
    env: Mapping[str, str] | None = None,
    staged: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Render one step and run its two programs; the first that fails ends it.

    `staged`: the programs of all tasks come from a store, as in a run; else from the document.
    """
    step = Step(
        path="train",
        state="train",
        command=Command(argv=argv, shell=script, tool_ref=tool),
        profile=parse_profile("p", {}),
        config=config or {},
    )
    given = options or RenderOptions()
    if staged and not given.programs_uri:
        given = replace(given, programs_uri=node.programs_uri)
    rendered = render_job(Job("run-train-abc", key, (Task(step),)), CATALOG, given)
    _, document = rendered.documents
    variables = {**document["envs"], **(env or {})}
    done = node.run(document["setup"], variables, shell=shell)
    if done.returncode == 0:
        done = node.run(document["run"], variables, shell=shell)
    return done


def stage(s3: S3, folder: Path, name: str = "source.tar.gz") -> StagedSource:
    packed = archive(scan(folder))
    s3.store().put(name, packed.data)
    return StagedSource(s3.uri + name, packed.sha256, str(packed.manifest["fingerprint"]))
