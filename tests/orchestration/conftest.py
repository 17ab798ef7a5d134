"""Fixtures of the tests of orchestration: a pipeline's folder, and one in a repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from source_harness import git, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "pipeline"
    made.mkdir()
    write(made, "pipeline.yaml", "stages/train.py")
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o755)
    return made


@pytest.fixture
def repository(folder: Path) -> Path:
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder
