"""Every extension of the language, run for real on this machine: docs/pipelines.md by behaviour."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from npa.errors import UsageError
from npa.orchestration import payloads
from npa.orchestration.driver import Ending
from npa.orchestration.journal.entries import Cause, MemberEnd
from npa.orchestration.skypilot import submit_workflow
from npa.orchestration.state import RunState
from runs_harness import HEAD, Bench

TRACE = 'echo "$NPA_WORKFLOW_PATH" >> "$WORK/trace"'
MET = 'for _ in $(seq 2000); do test -e "$WORK/{0}" && exit 0; sleep 0.02; done; exit 9'
"""Shell that ends well once another step has made the file, and badly when it never comes."""


def member(state: RunState, path: str) -> MemberEnd:
    end = state.latest[path].end
    assert end is not None
    return end.members[path]


def put(name: str, value: object) -> str:
    """Shell that writes `value` as the run's artifact `name`."""
    return f"echo '{json.dumps(value)}' > out; npa artifact put out {{{{run.uri}}}}{name}"


# -- attempts ----------------------------------------------------------------------------------


@pytest.mark.req("B-01")
def test_retry_pays_for_a_failure_of_the_program(bench: Bench) -> None:
    outcome, state = bench.run(
        """
initial: a
states:
  a:
    retry: {payload: 1, backoffSeconds: 0.01}
    run: {shell: 'echo $NPA_WORKFLOW_ATTEMPT >> "$WORK/trace"; test $NPA_WORKFLOW_ATTEMPT = 2'}
    terminal: true
"""
    )
    assert outcome.ending is Ending.COMPLETED
    assert bench.traces() == ["1", "2"]
    assert state.latest["a"].cause is Cause.RETRY


@pytest.mark.req("B-01")
def test_retry_is_finite(bench: Bench) -> None:
    outcome, _ = bench.run(
        f"""
initial: a
states:
  a:
    retry: {{payload: 2, backoffSeconds: 0.01}}
    run: {{shell: '{TRACE}; exit 1'}}
    terminal: true
"""
    )
    assert outcome.ending is Ending.FAILED
    assert bench.traces() == ["a", "a", "a"]


@pytest.mark.req("B-01")
def test_an_attempt_ends_at_its_deadline(bench: Bench) -> None:
    outcome, state = bench.run(
        """
config: {deadline: 0.3}
initial: a
states:
  a:
    timeoutSeconds: "{{config.deadline}}"
    run: {shell: 'sleep 600'}
    terminal: true
"""
    )
    assert outcome.ending is Ending.FAILED
    assert state.failure is not None
    assert (state.failure.code, state.failure.path) == ("DEADLINE", "a")


@pytest.mark.req("E-05")
def test_the_successor_of_a_lost_attempt_is_told_where_to_go_on(bench: Bench) -> None:
    """The first attempt kills the process that watches over it: the machine is at fault."""
    outcome, state = bench.run(
        """
initial: a
states:
  a:
    checkpoint: {uri: "{{run.uri}}checkpoints/", loader: mytool}
    run:
      shell: |
        echo "${NPA_CHECKPOINT_URI:-none} ${NPA_CHECKPOINT_LOADER:-none}" >> "$WORK/trace"
        if test $NPA_WORKFLOW_ATTEMPT = 1; then kill -9 $PPID; sleep 600; fi
        echo done > out
        npa artifact put out "{{run.uri}}a.txt"
    outputs:
      - uri: "{{run.uri}}a.txt"
    terminal: true
"""
    )
    assert outcome.ending is Ending.COMPLETED
    assert state.latest["a"].cause is Cause.RECOVERY
    root = state.request["run_uri"]
    assert bench.traces() == ["none", "none", f"{root}checkpoints/", "mytool"]


@pytest.mark.req("E-05")
def test_a_retry_of_the_program_s_own_failure_starts_afresh(bench: Bench) -> None:
    bench.run(
        """
initial: a
states:
  a:
    checkpoint: {uri: "{{run.uri}}checkpoints/", loader: mytool}
    retry: {payload: 1, backoffSeconds: 0.01}
    run: {shell: 'echo ${NPA_CHECKPOINT_URI:-none} >> "$WORK/trace"; exit 1'}
    terminal: true
"""
    )
    assert bench.traces() == ["none", "none"]


# -- what a task gets --------------------------------------------------------------------------


@pytest.mark.req("B-01")
def test_env_is_text_with_tokens(bench: Bench) -> None:
    outcome, _ = bench.run(
        """
config: {rate: 0.5}
initial: a
states:
  a:
    env: {RATE: "{{config.rate}}", NOTE: "two words"}
    run: {shell: 'echo "$RATE|$NOTE" > "$WORK/trace"'}
    terminal: true
"""
    )
    assert outcome.ending is Ending.COMPLETED
    assert (bench.work / "trace").read_text() == "0.5|two words\n"


@pytest.mark.req("B-01", "A-11")
def test_a_secret_reaches_only_the_state_that_names_it(tmp_path: Path, own_home: Path) -> None:
    spec = tmp_path / "project" / "pipeline.yaml"
    spec.parent.mkdir()
    spec.write_text(
        HEAD
        + """
initial: a
states:
  a:
    secrets: [CANARY]
    run: {shell: 'test "$(echo "$CANARY" | rev)" = nwad-ta-sgnis'}
    next: b
  b:
    run: {shell: 'test -z "${CANARY-}"'}
    terminal: true
"""
    )
    result = submit_workflow(
        spec, engine="local", environ={**os.environ, "CANARY": "sings-at-dawn"}
    )
    assert result.succeeded, result.error
    kept = [path for path in own_home.rglob("*") if path.is_file()]
    assert [path for path in kept if b"sings-at-dawn" in path.read_bytes()] == []


# -- fan-out -----------------------------------------------------------------------------------


@pytest.mark.req("B-01")
def test_foreach_over_items_of_the_file(bench: Bench) -> None:
    outcome, state = bench.run(
        f"""
config: {{middle: two words}}
initial: a
states:
  a:
    foreach: {{items: [one, "{{{{config.middle}}}}", 3], as: shard}}
    run: {{shell: 'echo "{{{{item.shard}}}}" > "$WORK/{{{{item.shard}}}}"; {TRACE}'}}
    next: b
  b: {{run: {{shell: '{TRACE}'}}, terminal: true}}
"""
    )
    assert outcome.ending is Ending.COMPLETED
    assert sorted(p.name for p in bench.work.iterdir()) == ["3", "one", "trace", "two words"]
    assert set(state.latest) == {"a[one]", "a[two-words]", "a[3]", "b"}
    assert bench.traces()[-1] == "b"


@pytest.mark.req("B-01")
@pytest.mark.parametrize("manifest", [["x", "y"], {"items": ["x", "y"], "made_by": "a step"}])
def test_foreach_over_a_manifest_that_an_earlier_step_wrote(bench: Bench, manifest: object) -> None:
    outcome, state = bench.run(
        f"""
initial: list
states:
  list:
    run:
      shell: |
        {put("items.json", manifest)}
    outputs: [{{uri: "{{{{run.uri}}}}items.json"}}]
    next: each
  each:
    foreach: {{uri: "{{{{state.list.uri}}}}"}}
    run: {{shell: 'echo {{{{item.item}}}} >> "$WORK/trace"'}}
    terminal: true
"""
    )
    assert outcome.ending is Ending.COMPLETED
    assert set(state.latest) == {"list", "each[x]", "each[y]"}
    assert sorted(bench.traces()) == ["x", "y"]


@pytest.mark.req("B-01")
def test_branches_of_several_steps_run_beside_each_other(bench: Bench) -> None:
    """The second step of one branch and the first of the other wait for each other's file."""
    outcome, _ = bench.run(
        f"""
initial: all
states:
  all: {{parallel: [left, right], next: end}}
  left: {{sequence: [l1, l2]}}
  right: {{sequence: [r1, r2]}}
  l1: {{run: {{shell: '{TRACE}'}}}}
  l2: {{run: {{shell: '{TRACE}; touch "$WORK/left"'}}}}
  r1: {{run: {{shell: '{TRACE}; {MET.format("left")}'}}}}
  r2: {{run: {{shell: '{TRACE}'}}}}
  end: {{run: {{shell: '{TRACE}'}}, terminal: true}}
"""
    )
    assert outcome.ending is Ending.COMPLETED
    ran = [path.rpartition("/")[2] for path in bench.traces()]
    assert sorted(ran) == ["end", "l1", "l2", "r1", "r2"]
    assert ran.index("l1") < ran.index("l2")
    assert ran.index("l2") < ran.index("r2")
    assert ran[-1] == "end"


@pytest.mark.req("B-03")
def test_a_window_starts_the_next_member_when_one_ends(bench: Bench) -> None:
    """`b` ends only once `c` has run: two at a time, and `c` takes the place of `a`."""
    outcome, _ = bench.run(
        f"""
initial: all
states:
  all: {{parallel: [a, b, c], parallelMode: window, maxConcurrency: 2, next: end}}
  a: {{run: {{shell: 'true'}}}}
  b: {{run: {{shell: '{MET.format("third")}'}}}}
  c: {{run: {{shell: 'touch "$WORK/third"'}}}}
  end: {{run: {{shell: '{TRACE}'}}, terminal: true}}
"""
    )
    assert outcome.ending is Ending.COMPLETED
    assert bench.traces() == ["end"]


# -- gates -------------------------------------------------------------------------------------


@pytest.mark.req("B-01")
@pytest.mark.parametrize(("measured", "reached"), [(0.91, "good"), (0.89, "bad"), (0.9, "good")])
def test_a_gate_on_a_transition_decides_from_the_measured_number(
    bench: Bench, measured: float, reached: str
) -> None:
    outcome, state = bench.run(
        f"""
config: {{wanted: 0.9}}
initial: measure
states:
  measure:
    run:
      shell: |
        {put("report.json", {"metrics": [{"accuracy": measured}]})}
    outputs: [{{uri: "{{{{run.uri}}}}report.json"}}]
    transitions:
      - goto: good
        gate: {{uri: "{{{{run.uri}}}}report.json", path: metrics.0.accuracy, op: ">=",
               value: "{{{{config.wanted}}}}"}}
    next: bad
  good: {{run: {{shell: 'true'}}, terminal: true}}
  bad: {{run: {{shell: 'true'}}, terminal: true}}
"""
    )
    assert outcome.ending is Ending.COMPLETED
    assert state.terminal == reached
    (seen,) = [entry.seen for entry in state.decisions.values()]
    assert seen == f"metrics.0.accuracy = {measured}; asked >= 0.9"


@pytest.mark.req("B-01")
def test_a_gate_on_until_ends_the_loop_at_the_first_iteration_that_passes(bench: Bench) -> None:
    outcome, _ = bench.run(
        f"""
initial: refine
states:
  refine:
    loop:
      max: 5
      until:
        gate: {{uri: "{{{{run.uri}}}}{{{{loop.refine}}}}.json", path: score, op: ">", value: 2}}
    sequence: [train]
    next: end
  train:
    run:
      shell: |
        {TRACE}
        echo '{{"score": {{{{loop.refine}}}}}}' > out
        npa artifact put out "{{{{run.uri}}}}{{{{loop.refine}}}}.json"
    outputs: [{{uri: "{{{{run.uri}}}}{{{{loop.refine}}}}.json"}}]
  end: {{run: {{shell: '{TRACE}'}}, terminal: true}}
"""
    )
    assert outcome.ending is Ending.COMPLETED
    assert bench.traces() == ["refine[1]/train", "refine[2]/train", "refine[3]/train", "end"]


@pytest.mark.req("B-01")
def test_a_gate_without_a_number_fails_the_run_and_guesses_nothing(bench: Bench) -> None:
    outcome, state = bench.run(
        f"""
initial: measure
states:
  measure:
    run:
      shell: |
        {put("report.json", {"accuracy": "high"})}
    outputs: [{{uri: "{{{{run.uri}}}}report.json"}}]
    transitions:
      - goto: good
        gate: {{uri: "{{{{run.uri}}}}report.json", path: accuracy, op: ">=", value: 0.9}}
    next: bad
  good: {{run: {{shell: '{TRACE}'}}, terminal: true}}
  bad: {{run: {{shell: '{TRACE}'}}, terminal: true}}
"""
    )
    assert outcome.ending is Ending.FAILED
    assert state.failure is not None
    assert state.failure.code == "DECISION_MALFORMED"
    assert bench.traces() == []


# -- payloads ----------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "required": ["accuracy"],
    "properties": {"accuracy": {"type": "number", "minimum": 0, "maximum": 1}},
}


def measuring(written: object, label: str = "report.schema.json") -> str:
    return f"""
initial: measure
states:
  measure:
    run:
      shell: |
        {put("report.json", written)}
    outputs: [{{uri: "{{{{run.uri}}}}report.json", schema: {label}}}]
    next: after
  after: {{run: {{shell: '{TRACE}'}}, terminal: true}}
"""


def beside(bench: Bench, schema: object = SCHEMA) -> None:
    folder = bench.root / "project"
    folder.mkdir(exist_ok=True)
    (folder / "report.schema.json").write_text(json.dumps(schema))


@pytest.mark.req("B-01", "E-05")
def test_a_payload_that_satisfies_its_schema_succeeds(bench: Bench) -> None:
    beside(bench)
    outcome, _ = bench.run(measuring({"accuracy": 0.5}))
    assert outcome.ending is Ending.COMPLETED
    assert bench.traces() == ["after"]


@pytest.mark.req("B-01", "E-05")
@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({"accuracy": 1.5}, "`accuracy` is 1.5, above 1"),
        ({"accuracy": "high"}, '`accuracy` is "high", not of type number'),
        ({}, "the document has no 'accuracy'"),
        ([1], "the document is [1], not of type object"),
    ],
)
def test_a_payload_that_does_not_fails_the_step_and_says_why(
    bench: Bench, written: object, why: str
) -> None:
    beside(bench)
    outcome, state = bench.run(measuring(written))
    assert outcome.ending is Ending.FAILED
    assert state.failure is not None
    assert (state.failure.code, state.failure.path) == ("DECLARED_OUTPUT_INVALID", "measure")
    (said,) = member(state, "measure").invalid
    assert said.endswith(f"report.json: {why}")
    assert bench.traces() == []


def test_a_retry_may_write_a_payload_that_is_right(bench: Bench) -> None:
    beside(bench)
    text = measuring({"accuracy": 0.5}).replace(
        "    run:\n", "    retry: {payload: 1, backoffSeconds: 0.01}\n    run:\n", 1
    )
    text = text.replace("0.5}'", "0.'$((7 - NPA_WORKFLOW_ATTEMPT * 2))'}'", 1)
    schema = {**SCHEMA, "properties": {"accuracy": {"type": "number", "maximum": 0.4}}}
    beside(bench, schema)
    outcome, state = bench.run(text)
    assert outcome.ending is Ending.COMPLETED
    assert state.latest["measure"].number == 2


@pytest.mark.req("A-07")
def test_the_schema_is_part_of_the_seal(bench: Bench) -> None:
    beside(bench)
    run = bench.submit(measuring({"accuracy": 0.5}))
    before = run.state.parts
    beside(bench, {**SCHEMA, "minProperties": 1})
    outcome, state = bench.drive()
    assert outcome.ending is Ending.HELD
    assert state.parts == before
    assert bench.traces() == []


def test_a_run_can_be_cancelled_when_the_schema_file_is_gone(bench: Bench) -> None:
    from npa.orchestration import runs
    from npa.orchestration.decide import Goal

    beside(bench)
    run = bench.submit(measuring({"accuracy": 0.5}))
    (bench.root / "project" / "report.schema.json").unlink()
    runs.request_cancel(run, "", "somebody")
    outcome, _ = bench.drive(goal=Goal.CANCELLED)
    assert outcome.ending is Ending.CANCELLED


def test_a_plain_label_stays_a_label(bench: Bench) -> None:
    outcome, _ = bench.run(measuring({"anything": True}, label="report.v1"))
    assert outcome.ending is Ending.COMPLETED


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "objekt"}, "objekt"),
        ({"minimun": 1}, "`minimun` is not checked here"),
        ([], "neither a mapping nor a boolean"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_before_the_run(
    bench: Bench, schema: object, message: str
) -> None:
    beside(bench, schema)
    with pytest.raises(UsageError, match=message):
        bench.submit(measuring({}))
    assert not bench.home.runs.exists()


def test_a_schema_file_that_is_not_there_is_refused_before_the_run(bench: Bench) -> None:
    with pytest.raises(UsageError, match=r"report\.schema\.json"):
        bench.submit(measuring({}))


def test_a_prefix_has_no_one_payload(bench: Bench) -> None:
    beside(bench)
    text = measuring({}).replace('report.json", schema', 'reports/", schema')
    with pytest.raises(UsageError, match="no one payload"):
        bench.submit(text)


def test_a_payload_that_is_too_large_is_not_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payloads, "PAYLOAD_BYTES_MAX", 10)
    beside(bench)
    outcome, state = bench.run(measuring({"accuracy": 0.5}))
    assert outcome.ending is Ending.FAILED
    assert "at most 10 are validated" in member(state, "measure").invalid[0]


def test_a_catalogue_registers_a_schema(bench: Bench) -> None:
    catalogue = bench.root / "tools.yaml"
    catalogue.write_text(
        "catalogue: npa.catalog/v1\n"
        f"schemas:\n  report.v1: {json.dumps(SCHEMA)}\n"
        "tools:\n  own.tool: {command: ['true']}\n"
    )
    spec = bench.write(measuring({"accuracy": 2}, label="report.v1"))
    environ = {**os.environ, "WORK": str(bench.work)}
    result = submit_workflow(
        spec, engine="local", catalogs=[catalogue], env=["WORK"], environ=environ
    )
    assert (result.status, result.error_code) == ("failed", "DECLARED_OUTPUT_INVALID")
    assert result.steps == {"measure": "failed"}
