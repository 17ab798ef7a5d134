"""Write a decision: from a number that an earlier step measured, or one that the file configures.

    python3 -m npa.tools.decide measured --output URI --field success_rate --op '>=' --value 0.85
    python3 -m npa.tools.decide configured --output URI --decision promote_checkpoint

A measured decision looks for the field in the JSON objects among the state's declared inputs (or
at `--input`), and records the number, where it stood and what it was compared with. It never
decides without a measurement: a missing field fails the step.
"""

from __future__ import annotations

import argparse
import math
import operator
import sys
from collections.abc import Iterator, Mapping, Sequence

from npa.errors import UsageError
from npa.tools.task import Task, run_tool

PROMOTE = "promote_checkpoint"
LOOP_BACK = "loop_back_to_inner_loop"
_SPELLINGS = {"promote": PROMOTE, PROMOTE: PROMOTE, "loop_back": LOOP_BACK, LOOP_BACK: LOOP_BACK}
_OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_SECTIONS = ("", "metrics.", "summary.", "aggregate.", "results.")
"""Where evaluation reports put their numbers; the top of the document comes first."""


def main(argv: Sequence[str], task: Task) -> int:
    options = _parser().parse_args(argv)
    if options.mode == "configured":
        decision = _SPELLINGS.get(options.decision, options.decision)
        task.write_json(options.output, {"decision": decision, "source": "configured"})
        return 0
    sources = task.find_json([options.input] if options.input else task.inputs)
    if not sources:
        raise UsageError(
            "there is no JSON report to decide from",
            hint="declare the report that the evaluation wrote as an input of this state",
        )
    fields = [options.prefer, *options.field] if options.prefer else options.field
    uri, field, value = _find(sources, fields)
    holds = _OPERATORS[options.op](value, options.value)
    task.write_json(
        options.output,
        {
            "decision": PROMOTE if holds else LOOP_BACK,
            "source": uri,
            "field": field,
            "measured": value,
            "op": options.op,
            "threshold": options.value,
        },
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="npa.tools.decide", allow_abbrev=False)
    modes = parser.add_subparsers(dest="mode", required=True)
    measured = modes.add_parser("measured", allow_abbrev=False)
    measured.add_argument("--output", required=True)
    measured.add_argument("--input", default="")
    measured.add_argument("--field", action="append", required=True)
    measured.add_argument("--prefer", default="", help="a field that is tried first")
    measured.add_argument("--op", choices=sorted(_OPERATORS), required=True)
    measured.add_argument("--value", type=float, required=True)
    configured = modes.add_parser("configured", allow_abbrev=False)
    configured.add_argument("--output", required=True)
    configured.add_argument("--decision", required=True)
    return parser


def _find(
    sources: Mapping[str, Mapping[str, object]], fields: Sequence[str]
) -> tuple[str, str, float]:
    """The first field that some report has. `1-name` is the complement of a rate."""
    for wanted in fields:
        name = wanted.removeprefix("1-")
        for uri, report in sources.items():
            for section in _SECTIONS:
                value = _number(report, section + name)
                if value is not None:
                    return uri, section + name, 1 - value if wanted.startswith("1-") else value
    known = ", ".join(f"`{name}`" for report in sources.values() for name in _numbers(report))
    wanted_names = ", ".join(f"`{field}`" for field in fields)
    raise UsageError(
        f"none of {wanted_names} is a number in {', '.join(sources)}",
        hint=f"numbers there: {known or 'none'}; name one as `config.decision_field`",
    )


def _number(report: Mapping[str, object], path: str) -> float | None:
    value: object = report
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _numbers(report: Mapping[str, object]) -> Iterator[str]:
    for section in _SECTIONS:
        part = report.get(section.rstrip(".")) if section else report
        if isinstance(part, Mapping):
            yield from (section + name for name in part if _number(report, section + name))


if __name__ == "__main__":
    sys.exit(run_tool(main))
