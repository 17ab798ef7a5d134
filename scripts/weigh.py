"""Measures what a dependency costs: CPU ms of its import over a bare interpreter, MB on disk.

    python scripts/weigh.py pydantic click rich.console:rich

An argument is `module` or `module:distribution`. Best of seven, byte-compiled.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

PASSES = 7


def cpu_ms(code: str) -> float:
    """CPU time of one child interpreter in ms, best of several."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    best = float("inf")
    for _ in range(PASSES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, env=env)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best * 1000


def megabytes(name: str) -> float:
    files = distribution(name).files or []
    paths = [Path(str(file.locate())) for file in files if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def main() -> int:
    bare = cpu_ms("pass")
    for argument in sys.argv[1:]:
        module, _, name = argument.partition(":")
        cost = cpu_ms(f"import {module}") - bare
        print(f"{name or module:16} {cost:6.0f} ms {megabytes(name or module):8.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
