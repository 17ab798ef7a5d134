"""The floor: a bare loop that starts `/bin/sh -c true` for each step, and nothing else.

usage: floor.py chain|fan STEPS [JOURNAL]
With JOURNAL each step also writes two lines to that file and makes each durable (fsync): what any
engine pays that promises to remember what it started.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def main(shape: str, steps: int, journal: str = "") -> None:
    file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if journal else -1

    def note(text: str) -> None:
        if journal:
            os.write(file, text.encode())
            os.fsync(file)

    def step(number: int) -> None:
        note(f"start {number}\n")
        code = subprocess.run(["/bin/sh", "-c", "true"]).returncode
        note(f"end {number} {code}\n")

    if shape == "chain":
        for number in range(steps):
            step(number)
    else:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(step, range(steps)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
