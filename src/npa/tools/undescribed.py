"""Stand in for a tool whose public command is not described: say so, and fail before any work.

python3 -m npa.tools.undescribed NAME
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from npa.errors import UsageError
from npa.tools.task import Task, run_tool


def main(argv: Sequence[str], task: Task) -> int:  # noqa: ARG001 - every tool is called alike
    raise UsageError(
        f"what `{argv[0] if argv else 'this tool'}` does is not described in public",
        hint="give the state a `run` block with the command that you want, or a tool of your own "
        "catalogue",
    )


if __name__ == "__main__":
    sys.exit(run_tool(main))
