"""Whole runs on the embedded engine: what ran is counted by the stages themselves."""

from __future__ import annotations

import json

import pytest

from npa.errors import RunError, UsageError
from npa.orchestration import runs
from npa.orchestration.decide import Goal
from npa.orchestration.driver import Ending, Snapshot
from npa.orchestration.engine import Phase
from npa.orchestration.journal.entries import Cause, Result
from npa.orchestration.local.inventory import Inventory
from npa.orchestration.state import Lifecycle
from runs_harness import Bench

TRACE = 'echo "$NPA_WORKFLOW_PATH" >> "$WORK/trace"'

CHAIN = f"""
initial: a
states:
  a: {{run: {{shell: '{TRACE}'}}, next: b}}
  b: {{run: {{shell: '{TRACE}'}}, next: c}}
  c: {{run: {{shell: '{TRACE}'}}, terminal: true}}
"""


def test_a_chain_runs_in_order_once(bench: Bench) -> None:
    outcome, state = bench.run(CHAIN)
    assert outcome.ending is Ending.COMPLETED
    assert state.terminal == "c"
    assert bench.traces() == ["a", "b", "c"]


def test_a_failed_step_ends_the_run_and_names_exit_code_and_log_line(bench: Bench) -> None:
    outcome, state = bench.run(
        f"""
initial: a
states:
  a: {{run: {{shell: '{TRACE}'}}, next: b}}
  b: {{run: {{shell: 'echo one; echo broken >&2; exit 3'}}, next: c}}
  c: {{run: {{shell: '{TRACE}'}}, terminal: true}}
"""
    )
    assert outcome.ending is Ending.FAILED
    assert state.failure is not None
    assert (state.failure.code, state.failure.path) == ("PAYLOAD_EXIT_NONZERO", "b")
    end = state.latest["b"].end
    assert end is not None
    assert (end.members["b"].exit_code, end.members["b"].log_line) == (3, 2)
    assert bench.traces() == ["a"]


def test_resume_after_a_failure_reruns_only_what_is_needed(bench: Bench) -> None:
    text = f"""
initial: a
states:
  a: {{run: {{shell: '{TRACE}'}}, next: b}}
  b: {{run: {{shell: '{TRACE}; test -e "$WORK/fixed"'}}, next: c}}
  c: {{run: {{shell: '{TRACE}'}}, terminal: true}}
"""
    outcome, _ = bench.run(text)
    assert outcome.ending is Ending.FAILED
    (bench.work / "fixed").touch()
    run = runs.open_run(bench.host, "r1")
    assert runs.reopen(bench.host, run, reason="fixed the disk")
    outcome, state = bench.drive()
    assert outcome.ending is Ending.COMPLETED
    assert bench.traces() == ["a", "b", "b", "c"]
    assert state.latest["b"].cause is Cause.OPERATOR


@pytest.mark.req("A-07")
def test_a_changed_stage_is_refused_until_the_change_is_accepted(bench: Bench) -> None:
    broken = f"""
initial: a
states:
  a: {{run: {{shell: '{TRACE}'}}, next: b}}
  b: {{run: {{shell: 'exit 1'}}, next: c}}
  c: {{run: {{shell: '{TRACE}'}}, terminal: true}}
"""
    bench.run(broken)
    bench.write(broken.replace("exit 1", TRACE))
    run = runs.open_run(bench.host, "r1")
    runs.reopen(bench.host, run, reason="resume")
    outcome, _ = bench.drive()
    assert outcome.ending is Ending.HELD
    assert outcome.holds[""].code == "IDENTITY"
    assert bench.traces() == ["a"]
    run = runs.open_run(bench.host, "r1")
    assert runs.reopen(bench.host, run, reason="fixed b", accept_changes=True)
    outcome, _ = bench.drive()
    assert outcome.ending is Ending.COMPLETED
    assert bench.traces() == ["a", "b", "c"]


@pytest.mark.req("A-07", "B-10")
def test_an_edit_of_a_script_during_a_run_does_not_reach_it(bench: Bench) -> None:
    text = """
initial: a
states:
  a: {run: {argv: [sh, step.sh]}, next: b}
  b: {run: {argv: [sh, step.sh]}, terminal: true}
"""
    bench.write(text)
    script = bench.root / "project" / "step.sh"
    script.write_text('echo old >> "$WORK/trace"\n')
    bench.submit(text, source=True)

    def edit(snapshot: Snapshot) -> None:
        if "a" in snapshot.state.latest:
            script.write_text('echo new >> "$WORK/trace"\n')

    outcome, _ = bench.drive(observer=edit)
    assert outcome.ending is Ending.COMPLETED
    assert bench.traces() == ["old", "old"]


def test_a_failed_member_is_retried_alone(bench: Bench) -> None:
    members = ", ".join(f"m{i}" for i in range(10))
    states = "\n".join(f"  m{i}: {{run: {{shell: '{TRACE}'}}}}" for i in range(10) if i != 4)
    once = "test -e $WORK/seen || { touch $WORK/seen; exit 1; }"
    flaky = f"  m4: {{run: {{shell: '{TRACE}; {once}'}}}}"
    outcome, state = bench.run(
        f"""
initial: all
states:
  all: {{parallel: [{members}], next: join}}
{states}
{flaky}
  join: {{run: {{shell: '{TRACE}'}}, terminal: true}}
""",
        policy={"retries": 1},
    )
    assert outcome.ending is Ending.COMPLETED
    ran = bench.traces()
    assert len(ran) == 12
    assert ran.count("all/m4") == 2
    assert ran[-1] == "join"
    assert state.latest["all/m4"].cause is Cause.RETRY


def test_a_retry_budget_is_finite_and_a_states_own_budget_overrides_it(bench: Bench) -> None:
    outcome, state = bench.run(
        f"""
initial: a
states:
  a:
    retry: {{payload: 2, backoffSeconds: 0}}
    run: {{shell: '{TRACE}; exit 9'}}
    terminal: true
"""
    )
    assert outcome.ending is Ending.FAILED
    assert bench.traces() == ["a", "a", "a"]
    assert [a.number for a in state.waves["a"].attempts] == [1, 2, 3]


GATE = """
config: {limit: 2}
initial: refine
states:
  refine:
    loop: {max: 3, until: promote_checkpoint}
    sequence: [work, gate]
    next: route
  work: {run: {shell: 'echo "$NPA_WORKFLOW_PATH" >> "$WORK/trace"'}}
  gate:
    writesDecision: true
    run:
      argv: [python, gate.py]
    params: {n: "{{loop.refine}}"}
    outputs: [{uri: "{{run.uri}}gate/{{loop.refine}}.json", schema: decision.v1}]
  route:
    run: {shell: 'true'}
    transitions:
      - {when: promote_checkpoint, goto: good}
      - {when: loop_back, goto: bad}
    outputs: []
    params: {decision_uri: "{{run.uri}}gate/final.json"}
  good: {run: {shell: 'true'}, terminal: true}
  bad: {run: {shell: 'true'}, terminal: true}
"""
GATE_SCRIPT = """
import json
from npa.stage import Stage
stage = Stage.from_env()
n, limit = int(stage.params["n"]), int(stage.params["limit"])
word = "promote_checkpoint" if n >= limit else "loop_back"
stage.decide(word, n=n)
stage.outputs[0].join("../final.json") if False else None
from pathlib import Path
target = Path(stage.outputs[0].local_path()).parent / "final.json"
target.write_text(json.dumps({"decision": word}))
"""


@pytest.mark.parametrize(("limit", "rounds", "terminal"), [("2", 2, "good"), ("9", 3, "bad")])
def test_a_loop_ends_early_by_the_measured_decision_or_runs_its_budget(
    bench: Bench, limit: str, rounds: int, terminal: str
) -> None:
    bench.write(GATE)
    (bench.root / "project" / "gate.py").write_text(GATE_SCRIPT)
    outcome, state = bench.run(GATE, overrides={"limit": limit}, source=True)
    assert outcome.ending is Ending.COMPLETED
    assert bench.traces() == [f"refine[{i}]/work" for i in range(1, rounds + 1)]
    assert state.terminal == terminal


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "DECISION_MISSING"),
        ("not json", "DECISION_MALFORMED"),
        ("[]", "DECISION_MALFORMED"),
        ('{"verdict": "promote"}', "DECISION_MALFORMED"),
        ('{"decision": 1}', "DECISION_MALFORMED"),
    ],
)
def test_a_decision_that_cannot_be_used_fails_the_run_with_the_reason(
    bench: Bench, content: str, code: str
) -> None:
    uri = (bench.work / "decision.json").as_uri()
    if content:
        (bench.work / "decision.json").write_text(content)
    outcome, state = bench.run(
        f"""
config: {{decision_uri: "{uri}"}}
initial: route
states:
  route:
    run: {{shell: 'true'}}
    transitions: [{{when: promote_checkpoint, goto: good}}, {{when: loop_back, goto: bad}}]
  good: {{run: {{shell: 'true'}}, terminal: true}}
  bad: {{run: {{shell: 'true'}}, terminal: true}}
"""
    )
    assert outcome.ending is Ending.FAILED
    assert state.failure is not None
    assert state.failure.code == code
    assert "good" not in state.latest
    assert "bad" not in state.latest


def test_a_decision_outside_the_closed_set_fails_the_run(bench: Bench) -> None:
    (bench.work / "d.json").write_text(json.dumps({"decision": "escalate"}))
    outcome, state = bench.run(
        f"""
config: {{decision_uri: "{(bench.work / "d.json").as_uri()}"}}
initial: route
states:
  route:
    run: {{shell: 'true'}}
    transitions: [{{when: promote_checkpoint, goto: good}}, {{when: loop_back, goto: bad}}]
  good: {{run: {{shell: 'true'}}, terminal: true}}
  bad: {{run: {{shell: 'true'}}, terminal: true}}
"""
    )
    assert outcome.ending is Ending.FAILED
    assert state.failure is not None
    assert "escalate" in state.failure.reason


OUTPUT = """
initial: a
states:
  a:
    run: {{shell: '{command}'}}
    outputs: [{{uri: "{{{{run.uri}}}}out.txt"}}, {{uri: "{{{{run.uri}}}}folder/"}}]
    terminal: true
"""


@pytest.mark.parametrize(
    ("command", "ending"),
    [
        ('cd "${NPA_RUN_URI#file://}"; echo x > out.txt; mkdir folder; echo y > folder/y', "ok"),
        ('cd "${NPA_RUN_URI#file://}"; echo x > out.txt', "missing"),
        ('cd "${NPA_RUN_URI#file://}"; : > out.txt; mkdir folder; echo y > folder/y', "missing"),
        ("true", "missing"),
    ],
    ids=["whole", "half", "empty file", "none"],
)
def test_success_is_proven_by_the_declared_outputs(bench: Bench, command: str, ending: str) -> None:
    outcome, state = bench.run(OUTPUT.format(command=command))
    end = state.latest["a"].end
    assert end is not None
    member = end.members["a"]
    if ending == "ok":
        assert outcome.ending is Ending.COMPLETED
        assert len(member.outputs) == 2
    else:
        assert outcome.ending is Ending.FAILED
        assert member.code == "DECLARED_OUTPUT_MISSING"
        assert member.missing


def test_the_deadline_of_a_state_ends_it_with_its_children(bench: Bench) -> None:
    outcome, state = bench.run(
        """
initial: a
states:
  a: {run: {shell: 'sleep 600 & sleep 600'}, timeoutSeconds: 0.3, terminal: true}
"""
    )
    assert outcome.ending is Ending.FAILED
    assert state.failure is not None
    assert state.failure.code == "DEADLINE"
    end = state.latest["a"].end
    assert end is not None
    assert end.provider == Phase.CANCELLED.value


@pytest.mark.req("F-03")
def test_a_cancel_while_a_step_runs_is_verified_and_nothing_starts_after_it(
    bench: Bench,
) -> None:
    bench.submit(
        f"""
initial: a
states:
  a: {{run: {{shell: '{TRACE}; sleep 600'}}, next: b}}
  b: {{run: {{shell: '{TRACE}'}}, terminal: true}}
"""
    )

    def cancel(snapshot: Snapshot) -> None:
        if bench.traces() and snapshot.state.cancel is None:
            other = runs.open_run(bench.host, "r1")
            runs.request_cancel(other, "enough", "someone")

    outcome, state = bench.drive(observer=cancel)
    assert outcome.ending is Ending.CANCELLED
    assert bench.traces() == ["a"]
    end = state.latest["a"].end
    assert end is not None
    assert end.result is Result.CANCELLED
    assert state.cancel is not None
    assert state.cancel.reason == "enough"


def test_a_cancelled_run_is_not_resumed_by_accident(bench: Bench) -> None:
    bench.submit(CHAIN)
    run = runs.open_run(bench.host, "r1")
    assert runs.request_cancel(run, "budget", "someone")
    assert not runs.request_cancel(run, "again", "someone")
    outcome, _ = bench.drive(goal=Goal.CANCELLED)
    assert outcome.ending is Ending.CANCELLED
    outcome, state = bench.drive()
    assert outcome.ending is Ending.CANCELLED
    assert bench.traces() == []
    assert state.lifecycle is Lifecycle.CANCELLED


@pytest.mark.req("E-05")
def test_a_finished_step_whose_output_is_gone_runs_again_with_what_follows_it(
    bench: Bench,
) -> None:
    text = f"""
initial: a
states:
  a:
    run: {{shell: '{TRACE}; echo x > "$WORK/a.out"'}}
    outputs: [{{uri: "{(bench.work / "a.out").as_uri()}"}}]
    next: b
  b: {{run: {{shell: '{TRACE}'}}, next: c}}
  c: {{run: {{shell: '{TRACE}; test -e "$WORK/fixed"'}}, terminal: true}}
"""
    bench.run(text)
    (bench.work / "a.out").unlink()
    (bench.work / "fixed").touch()
    runs.reopen(bench.host, runs.open_run(bench.host, "r1"), reason="again")
    outcome, _ = bench.drive()
    assert outcome.ending is Ending.COMPLETED
    assert bench.traces() == ["a", "b", "c", "a", "b", "c"]


def test_resume_from_a_state_runs_it_and_what_depends_on_it(bench: Bench) -> None:
    outcome, _ = bench.run(CHAIN)
    assert outcome.ending is Ending.COMPLETED
    run = runs.open_run(bench.host, "r1")
    assert runs.reopen(bench.host, run, reason="redo", from_states=["b"])
    outcome, _ = bench.drive()
    assert outcome.ending is Ending.COMPLETED
    assert bench.traces() == ["a", "b", "c", "b", "c"]
    with pytest.raises(UsageError, match="no state"):
        runs.reopen(bench.host, runs.open_run(bench.host, "r1"), reason="x", from_states=["zzz"])


def test_a_run_id_is_used_once(bench: Bench) -> None:
    bench.submit(CHAIN)
    with pytest.raises(UsageError, match="exists already"):
        bench.submit(CHAIN)


@pytest.mark.parametrize("run_id", ["", "../up", ".hidden", "a b", "x" * 97, "-dash"])
def test_a_run_id_that_is_none_is_refused_at_the_door(bench: Bench, run_id: str) -> None:
    with pytest.raises(UsageError, match="run ID"):
        bench.submit(CHAIN, run_id=run_id)
    assert not (bench.home.path / "index").exists()


def test_an_unknown_run_is_said_to_be_unknown(bench: Bench) -> None:
    with pytest.raises(RunError, match="no run"):
        runs.open_run(bench.host, "nothing-here")


def test_a_gang_runs_as_ranks_and_names_the_rank_that_failed(bench: Bench) -> None:
    bench.inventory = Inventory(cpus=8, memory_gib=8)
    outcome, state = bench.run(
        """
resources:
  gang: {num_nodes: 3, cpus: 1}
initial: a
states:
  a:
    resources: gang
    multiNodeMode: sharded
    run:
      shell: |
        echo "$SKYPILOT_NODE_RANK/$SKYPILOT_NUM_NODES" >> "$WORK/ranks"
        test $SKYPILOT_NODE_RANK != 1
    terminal: true
"""
    )
    assert outcome.ending is Ending.FAILED
    end = state.latest["a"].end
    assert end is not None
    assert end.members["a"].rank == 1
    assert set(bench.traces("ranks")) <= {"0/3", "1/3", "2/3"}


def test_a_window_keeps_its_bound(bench: Bench) -> None:
    bench.inventory = Inventory(cpus=64, memory_gib=8)
    count = 'ls "$WORK/now" | wc -l >> "$WORK/seen"'
    members = "\n".join(
        f'  m{i}: {{run: {{shell: \'mkdir -p "$WORK/now"; touch "$WORK/now/{i}"; {count};'
        f' rm "$WORK/now/{i}"\'}}}}'
        for i in range(12)
    )
    outcome, _ = bench.run(
        f"""
initial: all
states:
  all:
    parallel: [{", ".join(f"m{i}" for i in range(12))}]
    parallelMode: window
    maxConcurrency: 3
    next: end
{members}
  end: {{run: {{shell: 'true'}}, terminal: true}}
"""
    )
    assert outcome.ending is Ending.COMPLETED
    assert max(int(x) for x in bench.traces("seen")) <= 3


def test_a_run_leaves_only_private_files(bench: Bench) -> None:
    bench.run(CHAIN)
    for path in bench.home.path.rglob("*"):
        mode = path.lstat().st_mode & 0o777
        if not path.is_symlink():
            assert not mode & 0o077, f"{path}: {oct(mode)}"


def test_an_override_reaches_the_step_with_the_type_of_its_default(bench: Bench) -> None:
    text = """
config: {nap: 0.2, rounds: 2, fast: false, name: x}
states:
  a:
    params: {rounds: 5}
    run: {shell: 'echo "$NPA_PARAMS" > "$WORK/params"; echo "{{config.nap}}" > "$WORK/text"'}
    terminal: true
"""
    overrides = {"nap": "4", "rounds": "7", "fast": "true", "name": "8"}
    outcome, _ = bench.run(text, overrides=overrides)
    assert outcome.ending is Ending.COMPLETED
    assert json.loads((bench.work / "params").read_text()) == {
        "nap": 4.0, "rounds": 5, "fast": True, "name": "8",
    }  # fmt: skip
    assert (bench.work / "text").read_text() == "4\n"
