"""Committing workflow files: one at a time, exactly the named ones, by a lock of one owner."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "commit_workflows.py"
RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); lock = sys.argv.pop(1); import pathlib; \
import commit_workflows as c; sys.exit(c.main(lock=pathlib.Path(lock)))"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "workflows").mkdir(parents=True)
    git(root, "init", "-q")
    git(root, "config", "user.name", "tester")
    git(root, "config", "user.email", "tester@example.org")
    for name in ("a.yaml", "b.yaml", "notes.bin"):
        (root / "workflows" / name).write_text("x: 1\n")
    return root


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "workflows-skypilot"


def git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *words], check=True, capture_output=True, text=True
    )
    return done.stdout


def commit(
    root: Path, lock: Path, *words: str, wait_seconds: float = 30
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-c", RUN, str(SCRIPT.parent), str(lock)),
            *("--root", str(root), "-m", "Say", f"--wait-seconds={wait_seconds}"),
            *words,
        ],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def taken(lock: Path) -> Iterator[None]:
    """Somebody else holds the lock."""
    lock.parent.mkdir(0o700)
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    yield
    os.close(fd)


@pytest.mark.req("G-04")
def test_exactly_the_named_files_are_committed(repository: Path, lock: Path) -> None:
    git(repository, "add", "workflows/b.yaml")
    done = commit(repository, lock, "workflows/a.yaml")
    assert done.returncode == 0, done.stderr
    assert git(repository, "show", "--name-only", "--format=%s").split() == [
        "Say",
        "workflows/a.yaml",
    ]
    assert git(repository, "diff", "--cached", "--name-only").split() == ["workflows/b.yaml"]


@pytest.mark.req("G-04")
def test_the_lock_is_for_its_owner_alone(repository: Path, lock: Path) -> None:
    commit(repository, lock, "workflows/a.yaml")
    assert stat.S_IMODE(lock.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600


@pytest.mark.req("G-04")
def test_the_lock_is_held_while_git_commits(repository: Path, lock: Path) -> None:
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nif flock -n {lock} true; then touch {repository}/free; fi\n")
    hook.chmod(0o700)
    assert commit(repository, lock, "workflows/a.yaml").returncode == 0
    assert not (repository / "free").exists()
    assert subprocess.run(["flock", "-n", str(lock), "true"], check=False).returncode == 0


@pytest.mark.req("G-04")
@pytest.mark.usefixtures("taken")
def test_nothing_is_committed_while_another_holds_it(repository: Path, lock: Path) -> None:
    done = commit(repository, lock, "workflows/a.yaml", wait_seconds=0)
    assert done.returncode == 75
    assert "nothing was committed" in done.stderr
    assert git(repository, "status", "--porcelain").split() == ["??", "workflows/"]


@pytest.mark.req("G-04")
def test_a_lock_that_others_can_reach_is_refused(repository: Path, lock: Path) -> None:
    lock.parent.mkdir(0o777)
    lock.parent.chmod(0o777)
    done = commit(repository, lock, "workflows/a.yaml")
    assert done.returncode == 1
    assert "not yours alone" in done.stderr


def test_a_link_in_place_of_the_lock_is_not_followed(
    repository: Path, lock: Path, tmp_path: Path
) -> None:
    lock.parent.mkdir(0o700)
    lock.symlink_to(tmp_path / "elsewhere")
    done = commit(repository, lock, "workflows/a.yaml")
    assert done.returncode == 1
    assert "cannot be used as a lock" in done.stderr
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("path", ["workflows/notes.bin", "workflows/absent.yaml", "../x.yaml"])
def test_what_is_no_workflow_file_of_this_tree_is_refused(
    repository: Path, lock: Path, path: str
) -> None:
    (repository.parent / "x.yaml").write_text("x: 1\n")
    done = commit(repository, lock, path)
    assert done.returncode == 64
    assert git(repository, "status", "--porcelain").split() == ["??", "workflows/"]
