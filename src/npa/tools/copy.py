"""Copy an artifact from any store to any store: one object, or everything below a prefix.

    python3 -m npa.tools.copy --source s3://bucket/data/ --target file:///scratch/data/

A source that is absent fails the step. A prefix is copied under the target prefix, names kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from npa.storage.transfer import Copied, copy
from npa.tools.task import Task, run_tool


def main(argv: Sequence[str], task: Task) -> int:
    parser = argparse.ArgumentParser(prog="npa.tools.copy", allow_abbrev=False)
    parser.add_argument("--source", required=True, help="an object, or a prefix (ends in /)")
    parser.add_argument("--target", required=True, help="an object, or a prefix (ends in /)")
    options = parser.parse_args(argv)
    done = copy(task.stores, options.source, options.target, _tell)
    print(f"copied {len(done)} objects, {sum(one.size for one in done)} bytes")  # noqa: T201
    return 0


def _tell(copied: Copied) -> None:
    print(f"{copied.source} -> {copied.target} ({copied.size} bytes)", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(run_tool(main))
