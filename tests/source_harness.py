"""Folders and repositories with source in them; the fixtures are in `orchestration/conftest.py`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from npa.orchestration import source

IDENTITY = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *IDENTITY, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"content of {name}\n")


def names(tree: source.SourceTree) -> list[str]:
    return [file.path for file in tree.files]
