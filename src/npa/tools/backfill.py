"""Backfill several columns of a table, one after another, with the tool's own command.

    python3 -m npa.tools.backfill --udfs a,b -- npa workbench lancedb backfill --table t …

Runs the command once a name with `--udf NAME` appended, and stops at the first that fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence

from npa.errors import UsageError
from npa.tools.task import Task, run_tool


def main(
    argv: Sequence[str],
    task: Task,  # noqa: ARG001 - every tool is called alike
    *,
    call: Callable[[Sequence[str]], int] = subprocess.call,
) -> int:
    parser = argparse.ArgumentParser(prog="npa.tools.backfill", allow_abbrev=False)
    parser.add_argument("--udfs", required=True, help="names, with commas between")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    names = [name.strip() for name in options.udfs.split(",") if name.strip()]
    if not names:
        raise UsageError(
            "no column is named",
            hint="set `config.cpu_udfs` to the names of the functions, with commas between",
        )
    for name in names:
        print(f"backfill {name}", flush=True)  # noqa: T201 - the task's log
        code = call([*options.command, "--udf", name])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
