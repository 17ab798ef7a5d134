"""A quick pipeline of every shape, whose stages count themselves and whose result is a hash of all.

A chain, a bounded group, a loop that a measured decision ends, a gang of two ranks, a report. Each
attempt appends `begin <path> <attempt id> <rank>` and `end ...` to the trace, in one write each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

EXECUTIONS = 14  # ranks of steps: 2 + 5 + 2 x 2 + 2 + 1

HEAD = """apiVersion: npa.workflow/v0.0.1
kind: Workflow
metadata: {name: synthetic}
config: {pace: "1"}
resources:
  pair: {num_nodes: 2}
initial: ingest
states:
"""

LEAF = """  {name}:
    run: {{argv: [python, step.py]}}
    retry: {{payload: 3, backoffSeconds: 0}}
    params: {{seconds: "{seconds}"}}
    inputs: [{inputs}]
    outputs: [{{uri: "{{{{run.uri}}}}out/{out}.json", schema: value.v1}}]
{rest}"""

LOOP = """  refine:
    loop: {max: 3, until: promote_checkpoint}
    sequence: [work, gate]
    next: pair
"""

STEP = '''\
"""One step: note that it runs, think for a while, write the hash of its inputs and its path."""

import hashlib
import json
import os
import time

from npa.stage import Stage


def note(word: str) -> None:
    env = os.environ
    words = [word, env["NPA_WORKFLOW_PATH"], env["NPA_WORKFLOW_ATTEMPT_ID"]]
    line = " ".join([*words, env["SKYPILOT_NODE_RANK"]]) + "\\n"
    fd = os.open(env["CHAOS_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, line.encode())
    os.close(fd)


note("begin")
stage = Stage.from_env()
time.sleep(float(stage.params["seconds"]) * float(stage.params["pace"]))
values = [one.read_json()["value"] for one in stage.inputs]
value = hashlib.sha256(json.dumps([stage.path, *values]).encode()).hexdigest()
if stage.decision_uri:
    round_ = int(stage.params["round"])
    word = "promote_checkpoint" if round_ >= 2 else "loop_back_to_inner_loop"
    stage.decide(word, value=value, round=round_)
elif stage.rank == 0:
    stage.outputs[0].write_json({"value": value})
note("end")
'''


def _leaf(name: str, seconds: float, inputs: tuple[str, ...], rest: str, out: str = "") -> str:
    uris = ", ".join(
        f'{{uri: "{{{{run.uri}}}}out/{one}.json", schema: value.v1}}' for one in inputs
    )
    return LEAF.format(name=name, seconds=seconds, inputs=uris, out=out or name, rest=rest)


def text() -> str:
    members = [f"m{number}" for number in range(5)]
    work = "work-{{loop.refine}}"
    gate = _leaf("gate", 0.02, (work,), "    writesDecision: true\n", "gate-{{loop.refine}}")
    gate = gate.replace('seconds: "0.02"', 'seconds: "0.02", round: "{{loop.refine}}"')
    gate = gate.replace(
        '.json", schema: value.v1}]\n    writes', '.json", schema: npa.decision.v1}]\n    writes'
    )
    return HEAD + "".join(
        [
            _leaf("ingest", 0.05, (), "    next: clean\n"),
            _leaf("clean", 0.02, ("ingest",), "    next: fan\n"),
            f"  fan: {{parallel: [{', '.join(members)}], maxConcurrency: 3, next: refine}}\n",
            *(_leaf(name, 0.02 + 0.04 * n, ("clean",), "") for n, name in enumerate(members)),
            LOOP,
            _leaf("work", 0.1, tuple(members), "", work),
            gate,
            _leaf("pair", 0.1, (work,), "    resources: pair\n    multiNodeMode: sharded\n")
            + "    next: report\n",
            _leaf("report", 0.02, ("pair", *members), "    terminal: true\n"),
        ]
    )


def write(folder: Path) -> Path:
    """The pipeline with its step, in a folder of its own; the path of the file."""
    folder.mkdir(parents=True)
    (folder / "step.py").write_text(STEP)
    spec = folder / "pipeline.yaml"
    spec.write_text(text())
    return spec


def essence(result: Mapping[str, object]) -> dict[str, object]:
    """What must repeat: each value and each decision; who wrote them may differ."""
    kept = ("value", "decision", "round")
    return {
        name: {key: body[key] for key in kept if key in body}
        for name, body in result.items()
        if isinstance(body, dict)
    }
