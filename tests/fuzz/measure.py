"""CPU time of inputs without instrumentation: `python -m fuzz.measure FOLDER`; 1 if one is slow."""

from __future__ import annotations

import sys
from pathlib import Path

from fuzz.examine import CPU_SECONDS_MAX, examine


def main(folder: Path) -> int:
    slow = 0
    for file in sorted(folder.iterdir()):
        seconds = examine(file.read_bytes())
        slow += seconds > CPU_SECONDS_MAX
        print(f"{seconds:6.2f} s  {file}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
