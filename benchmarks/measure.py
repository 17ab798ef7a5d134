"""Run one command and say what it cost: wall and CPU seconds, peak memory of its whole tree."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 0.05
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Cost:
    """`tree_mb` sums the resident memory of all processes (sampled; shared pages count for each),
    `largest_mb` is that of the largest single process, from the kernel; it is never below this
    program's own (some 16 MB), which the kernel counts until a child has become another program.
    MB is 10**6 bytes.
    """

    wall_s: float
    cpu_s: float
    tree_mb: float
    largest_mb: float
    problem: str = ""


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours without what would distort: no switch that forbids bytecode, no foreign npa settings."""
    unwanted = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONPATH", "NPA_CONFIG_DIR")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**kept, **(extra or {})}


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    log: Path,
    env: Mapping[str, str] | None = None,
    limit_s: float = 600.0,
) -> Cost:
    """One run. A failure or a timeout is a `Cost` with its `problem` named, never an exception."""
    with log.open("wb") as out:
        began = time.perf_counter()
        child = subprocess.Popen(
            argv,
            cwd=cwd,
            env=clean_environment(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        done, late = threading.Event(), threading.Event()
        peak = [0]

        def watch() -> None:
            end = time.monotonic() + limit_s
            while not done.wait(SAMPLE_SECONDS):
                peak[0] = max(peak[0], sum(map(_resident, _tree(child.pid))))
                if time.monotonic() > end and not late.is_set():
                    late.set()
                    _kill_group(child.pid)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        done.set()
        watcher.join()
        _kill_group(child.pid)  # what a peer may have left behind in its own group
    problem = ""
    if late.is_set():
        problem = f"stopped after {limit_s:g} s"
    elif child.returncode != 0:
        problem = f"exit {child.returncode}: {_last_line(log)}"
    largest = used.ru_maxrss * 1024 / 1e6
    return Cost(
        wall_s=wall,
        cpu_s=used.ru_utime + used.ru_stime,
        tree_mb=max(peak[0] / 1e6, largest),
        largest_mb=largest,
        problem=problem,
    )


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _tree(root: int) -> list[int]:
    waiting, found = [root], []
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        with suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                children = Path(f"/proc/{pid}/task/{task}/children").read_text()
                waiting += [int(child) for child in children.split()]
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith("hint:")]
    return telling[-1][:160] if telling else "no output"
