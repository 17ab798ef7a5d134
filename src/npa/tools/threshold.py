"""Decide from one measured number: compare it with a threshold and write the decision.

    python3 -m npa.tools.threshold --report URI --path metrics.accuracy --op '>=' \\
        --threshold 0.95 --decision URI

The number stands at exactly that dotted path of a JSON artifact (`a.0.b` goes into a list). A path
that is missing, or holds anything but a finite number, fails the step: nothing is ever assumed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import operator
import sys
from collections.abc import Mapping, Sequence

from npa.errors import UsageError
from npa.storage.transfer import present
from npa.tools.task import Task, run_tool

HOLDS, FAILS = "promote_checkpoint", "loop_back_to_inner_loop"
_OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def main(argv: Sequence[str], task: Task) -> int:
    parser = argparse.ArgumentParser(prog="npa.tools.threshold", allow_abbrev=False)
    parser.add_argument("--report", required=True, help="URI of the JSON artifact")
    parser.add_argument("--path", required=True, help="dotted path of the number in it")
    parser.add_argument("--op", choices=sorted(_OPERATORS), required=True)
    parser.add_argument("--threshold", type=_finite, required=True)
    parser.add_argument("--decision", required=True, help="URI to write the decision to")
    options = parser.parse_args(argv)
    data = present(task.stores.get(options.report), options.report).data
    measured = number_at(data, options.path, options.report)
    holds = _OPERATORS[options.op](measured, options.threshold)
    task.write_json(
        options.decision,
        {
            "decision": HOLDS if holds else FAILS,
            "measured": measured,
            "path": options.path,
            "op": options.op,
            "threshold": options.threshold,
            "holds": holds,
            "report": options.report,
            "report_sha256": hashlib.sha256(data).hexdigest(),
        },
    )
    verdict = "holds" if holds else "does not hold"
    print(f"{options.path} = {measured!r} {options.op} {options.threshold!r}: {verdict}")  # noqa: T201
    return 0


def number_at(data: bytes, path: str, uri: str) -> float:
    """The finite number at the dotted `path`. Raises UsageError."""
    try:
        value = json.loads(data)
    except ValueError as error:
        raise UsageError(f"'{uri}' is not valid JSON") from error
    walked: list[str] = []
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise UsageError(f"'{uri}' has no `{path}`", hint=_what_is_there(value, walked))
        walked.append(part)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"`{path}` of '{uri}' is not a finite number")
    return value


def _what_is_there(value: object, walked: Sequence[str]) -> str:
    place = f"`{'.'.join(walked)}`" if walked else "the document"
    if isinstance(value, Mapping):
        keys = ", ".join(f"`{key}`" for key in list(value)[:20])
        return f"{place} has {keys or 'no keys'}"
    if isinstance(value, list):
        return f"{place} is a list of {len(value)}"
    return f"{place} is no mapping"


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError("must be a finite number")
    return number


if __name__ == "__main__":
    sys.exit(run_tool(main))
