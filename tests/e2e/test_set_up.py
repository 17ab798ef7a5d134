"""The two commands of the README set up a fresh clone and run the example, without a terminal."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import snippets

SET_UP_SECONDS_MAX = 1200.0
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.mark.e2e
def test_a_fresh_clone_is_set_up_and_runs_the_example(tmp_path: Path, own_home: Path) -> None:
    clone = tmp_path / "npa"
    subprocess.run(["git", "clone", "-q", str(snippets.ROOT), str(clone)], check=True)
    # Only the system's own tools: an environment around this test must not help.
    hidden = ("VIRTUAL_ENV", "PYTHONPATH", "NPA_CONFIG_DIR")
    environ = {name: value for name, value in os.environ.items() if name not in hidden}
    environ["PATH"] = SYSTEM_PATH
    count = snippets.run_page(
        clone / "README.md", clone, e2e=True, environ=environ, seconds_max=SET_UP_SECONDS_MAX
    )
    assert count == 1
    assert list((own_home / ".npa" / "runs").glob("digits-*/artifacts/report/report.html"))
    quick = subprocess.run(["make", "-q", ".venv/.demo"], cwd=clone, env=environ, check=False)
    assert quick.returncode == 0, "a second set-up would do work again"
