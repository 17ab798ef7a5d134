"""Record an outcome: what was decided, and the report that it rests on.

    python3 -m npa.tools.report --outcome rejected --decision URI --evidence URI [--output URI]

The report goes to every output that the state declares as an object, and to `--output` if there is
none; it is printed in any case.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from npa.errors import UsageError
from npa.tools.task import Task, run_tool


def main(argv: Sequence[str], task: Task) -> int:
    parser = argparse.ArgumentParser(prog="npa.tools.report", allow_abbrev=False)
    parser.add_argument("--outcome", required=True)
    parser.add_argument("--decision", required=True)
    parser.add_argument("--evidence", required=True, help="a report, or the prefix that holds it")
    parser.add_argument("--output", default="")
    options = parser.parse_args(argv)
    below = [uri for uri in task.inputs if uri.startswith(options.evidence)]
    evidence = task.find_json(below if options.evidence.endswith("/") else [options.evidence])
    report = {
        "outcome": options.outcome,
        "state": task.name,
        "run_id": task.run_id,
        "decision": task.read_json(options.decision),
        "decision_uri": options.decision,
        "evidence": evidence,
    }
    print(json.dumps(report, indent=2, sort_keys=True))  # noqa: T201 - the task's log
    places = [uri for uri in task.outputs if not uri.endswith("/")] or [options.output]
    if places == [""]:
        raise UsageError("there is no place for the report", hint="declare it under `outputs`")
    for uri in places:
        task.write_json(uri, report)
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
