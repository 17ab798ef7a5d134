"""The plain look at a queue and SkyPilot's own, side by side."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npa.orchestration.skypilot import record
from npa.orchestration.skypilot.client import Answer
from npa.orchestration.skypilot.connect import bridge_of
from npa.orchestration.skypilot.plain_api import QUEUE_FIELDS
from npa.orchestration.skypilot.rows import Snapshot, parse
from npa.orchestration.skypilot.spec import SessionSpec, client_environment

TRIES = 10  # a job may move between two looks
# The queue by SkyPilot's own client, with its own decoding.
OWN = """
import json, sys
import sky
from sky import jobs
fields = json.loads(sys.argv[1])
records, total, _, _ = sky.get(
    jobs.queue_v2(refresh=False, skip_finished=False, all_users=False, fields=fields)
)
rows = []
for record in records:
    row = record if isinstance(record, dict) else record.model_dump()
    row = {name: row.get(name) for name in fields}
    row["status"] = getattr(row["status"], "value", row["status"])
    rows.append(row)
print("answer " + json.dumps({"rows": rows, "total": total}))
"""


def sky_interpreter(bed: Mapping[str, Any]) -> Path:
    return Path(bed["sky_bin"]).parent.resolve() / "python"


def own_look(spec: SessionSpec) -> Snapshot:
    present = record.load(spec.root)
    assert present is not None
    done = subprocess.run(
        [str(spec.interpreter), "-I", "-c", OWN, json.dumps(QUEUE_FIELDS)],
        env=client_environment(spec, present),
        cwd=spec.home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith("answer ")]
    assert len(answers) == 1, done.stdout + done.stderr
    return parse(json.loads(answers[0].removeprefix("answer ")), as_of=0.0)


def plain_look(spec: SessionSpec) -> Snapshot:
    bridge = bridge_of(spec)
    try:
        reply = bridge.call("queue", 120.0)
    finally:
        bridge.close()
    assert isinstance(reply, Answer), reply
    return parse(reply.value, as_of=0.0)


def assert_looks_agree(spec: SessionSpec) -> Snapshot:
    """A plain look between two equal ones of SkyPilot's client says the same, in every field."""
    before = own_look(spec)
    for _ in range(TRIES):
        plain, after = plain_look(spec), own_look(spec)
        if before == after:
            assert plain == after
            return plain
        before = after
    raise AssertionError("no two looks in a row were equal")
