#!/usr/bin/env python3
"""Commit workflow files while holding the lock that all who commit them take.

    scripts/commit_workflows.py -m "Lower the learning rate" workflows/testing/bdd100k-pipeline.yaml

Only the named files are committed, whatever else is staged. The lock is released when this program
ends, however it ends. Exits with 75 when another one holds it for longer than `--wait-seconds`.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

LOCK = Path("/tmp/npa-commit-lock/workflows-skypilot")  # noqa: S108 - agreed among all checkouts
POLL_SECONDS = 0.1
WORKFLOWS = (".yaml", ".yml", ".py", ".md")  # what a pipeline is made of
REFUSED, BUSY, USAGE = 1, 75, 64


class Refused(Exception):
    """Nothing was committed; the argument says why, the second one is the exit code."""


@contextmanager
def held(lock: Path, wait_seconds: float) -> Iterator[None]:
    """The lock, exclusively. Raises Refused when it is somebody else's or stays taken."""
    folder = lock.parent
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        _ours(os.lstat(folder), folder, stat.S_ISDIR)
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Refused(f"{lock} cannot be used as a lock: {error.strerror}", REFUSED) from error
    try:
        _ours(os.fstat(fd), lock, stat.S_ISREG)
        _take(fd, lock, wait_seconds)
        yield
    finally:
        os.close(fd)


def _ours(status: os.stat_result, path: Path, kind: Callable[[int], bool]) -> None:
    if not kind(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise Refused(f"{path} is not yours alone, so it is not used as a lock", REFUSED)


def _take(fd: int, lock: Path, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Refused(f"{lock} is held by another commit; try again later", BUSY) from None
            time.sleep(POLL_SECONDS)
        else:
            return


def commit(root: Path, message: str, paths: Sequence[str]) -> None:
    """Commit exactly `paths`, below `root`. Raises Refused."""
    for path in paths:
        real = (root / path).resolve()
        if not real.is_relative_to(root.resolve()) or not real.is_file():
            raise Refused(f"{path} is no file of {root}", USAGE)
        if real.suffix not in WORKFLOWS:
            raise Refused(f"{path} is no workflow file ({', '.join(WORKFLOWS)})", USAGE)
    for words in (["add", "--"], ["commit", "-m", message, "--"]):
        done = subprocess.run(["git", "-C", str(root), *words, *paths], check=False)
        if done.returncode:
            raise Refused(f"`git {words[0]}` failed", REFUSED)


def main(argv: Sequence[str] | None = None, lock: Path = LOCK) -> int:
    parser = argparse.ArgumentParser(description="Commit workflow files under their lock.")
    parser.add_argument("-m", "--message", required=True)
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="top of the worktree")
    parser.add_argument("--wait-seconds", type=float, default=60.0)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="relative to the root")
    options = parser.parse_args(argv)
    try:
        with held(lock, options.wait_seconds):
            commit(options.root, options.message, options.paths)
    except Refused as refusal:
        message, code = refusal.args
        print(f"error: {message}\nnot done: nothing was committed", file=sys.stderr)
        return int(code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
