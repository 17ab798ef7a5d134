"""Resuming runs what is needed and nothing else, whatever the driver was doing when it died."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from behaviour.conftest import TRACE, WAIT, Machine, chain, group, spec
from chaos.server import s3_process
from chaos.world import living
from npa.orchestration.journal import entries as e
from npa.orchestration.journal.chain import key_of
from npa.orchestration.journal.entries import Cause
from npa.orchestration.local import layout
from npa.orchestration.state import Lifecycle
from s3server import options_for

FAIL_ONCE = 'test -e "$WORK/fixed" || exit 3'


def kill(driver: Any) -> None:
    driver.kill()
    driver.wait()


def leave_ready(machine: Machine, run_id: str = "r1") -> None:
    """Wait until every open job is noted in the journal with its ID."""

    def noted() -> bool:
        live = machine.state(run_id).live.values()
        return bool(live) and all(attempt.native_id for attempt in live)

    machine.until(noted, "the launches to be written down")


@pytest.mark.req("D-01", "E-01", "E-05")
def test_from_every_point_of_its_journal_a_run_ends_the_same_and_runs_nothing_twice(
    machine: Machine,
) -> None:
    """A crash after each frame, an old copy of the state, a lost tail: jobs are adopted by name."""
    text = chain(a=TRACE, b=TRACE, c=TRACE)
    assert machine.said(machine.submit(text)).code == 0
    journal = machine.home / "runs" / "r1" / "npa-workflow" / "journal"
    frames = sorted(journal.iterdir())
    assert len(frames) > 4
    for keep in range(len(frames) - 1, 0, -1):
        for frame in sorted(journal.iterdir())[keep:]:
            frame.unlink()
        said = machine.npa("workflow", "resume", "r1")
        assert said.code == 0, f"from {keep} frames: {said.err}"
        state = machine.state()
        assert state.lifecycle is Lifecycle.COMPLETED
        assert {len(wave.attempts) for wave in state.waves.values()} == {1}
        assert machine.traces() == ["a", "b", "c"], f"from {keep} frames"


def test_a_job_that_ended_while_nobody_watched_is_not_run_again(machine: Machine) -> None:
    driver = machine.submit(chain(a=f"{TRACE}; {WAIT}", b=TRACE))
    machine.until_running("a")
    kill(driver)
    machine.go()
    machine.until(lambda: not machine.tasks(), "a to end")
    assert machine.npa("workflow", "resume", "r1").code == 0
    assert machine.traces() == ["a", "b"]


@pytest.mark.req("E-05")
def test_a_job_whose_record_is_gone_counts_by_its_outputs(machine: Machine) -> None:
    """All that the engine knew of a success vanished; no relaunch, for the output is valid."""
    text = spec(
        "a",
        {
            "a": {
                "run": {"shell": f'{TRACE}; {WAIT}; echo x > "${{NPA_RUN_URI#file://}}out.txt"'},
                "outputs": [{"uri": "{{run.uri}}out.txt"}],
                "retry": {"payload": 0, "backoffSeconds": 0},
                "next": "b",
            },
            "b": {"run": {"shell": TRACE}, "terminal": True},
        },
    )
    driver = machine.submit(text)
    machine.until_running("a")
    leave_ready(machine)
    kill(driver)
    machine.go()
    machine.until(lambda: not machine.tasks(), "a to end")
    machine.until(lambda: _record(machine, "a"), "its record")
    shutil.rmtree(machine.home / "jobs" / "r1")
    said = machine.npa("workflow", "resume", "r1")
    assert said.code == 0, said.err
    assert machine.traces() == ["a", "b"]


def _record(machine: Machine, path: str) -> bool:
    attempt = machine.state().latest[path]
    return (machine.home / "jobs" / "r1" / attempt.name / layout.RECORD).exists()


@pytest.mark.req("D-05", "E-01")
def test_fifty_live_jobs_are_adopted_by_the_next_driver(machine: Machine) -> None:
    text = group({f"m{n}": f"{TRACE}; {WAIT}" for n in range(50)}, cpus=0.01)
    driver = machine.submit(text)
    machine.until(lambda: len(machine.traces()) == 50, "all to run")
    leave_ready(machine)
    kill(driver)
    machine.go()
    assert machine.npa("workflow", "resume", "r1").code == 0
    assert sorted(machine.traces()) == sorted([*(f"all/m{n}" for n in range(50)), "end"])
    assert {a.cause for a in machine.state().attempts.values()} == {Cause.FIRST}


def test_members_that_had_not_started_are_run_and_the_join_sees_all(machine: Machine) -> None:
    """Two of five done, one runs, two wait for room; the driver dies."""
    members = {f"m{n}": f'{TRACE}; touch "$WORK/out-{n}"' for n in range(5)}
    members["m2"] = f'{TRACE}; {WAIT}; touch "$WORK/out-2"'
    text = group(members, end=f'{TRACE}; ls "$WORK" | grep -c out- > "$WORK/joined"')
    driver = machine.submit(text.replace('"parallel":', '"maxConcurrency": 1, "parallel":'))
    machine.until_running("all/m2")
    assert machine.traces() == ["all/m0", "all/m1", "all/m2"]
    kill(driver)
    machine.go()
    assert machine.npa("workflow", "resume", "r1").code == 0
    assert machine.traces() == [f"all/m{n}" for n in range(5)] + ["end"]
    assert machine.traces("joined") == ["5"]


def test_what_follows_a_failed_step_waits_for_its_new_attempt(machine: Machine) -> None:
    slow = f'{FAIL_ONCE}; sleep 0.3; echo "$NPA_WORKFLOW_PATH-end" >> "$WORK/trace"'
    assert machine.said(machine.submit(chain(a=TRACE, b=f"{TRACE}; {slow}", c=TRACE, d=TRACE))).code
    assert machine.traces() == ["a", "b"]
    (machine.work / "fixed").touch()
    assert machine.npa("workflow", "resume", "r1").code == 0
    assert machine.traces() == ["a", "b", "b", "b-end", "c", "d"]


def test_a_failure_inside_a_loop_inside_a_group_reruns_only_that_step(machine: Machine) -> None:
    decide = 'printf \'{"decision": "%s"}\' {word} > "${NPA_DECISION_URI#file://}"'
    word = "$(test {{loop.refine}} = 2 && echo promote_checkpoint || echo loop_back)"
    text = spec(
        "all",
        {
            "all": {"parallel": ["branch", "other"], "next": "end"},
            "branch": {"sequence": ["refine", "after"]},
            "refine": {
                "loop": {"max": 3, "until": "promote_checkpoint"},
                "sequence": ["work", "gate"],
            },
            "work": {
                "run": {"shell": f"{TRACE}; test {{{{loop.refine}}}} = 1 || {{ {FAIL_ONCE}; }}"}
            },
            "gate": {
                "writesDecision": True,
                "run": {"shell": f"{TRACE}; {decide.replace('{word}', word)}"},
                "outputs": [
                    {"uri": "{{run.uri}}gate-{{loop.refine}}.json", "schema": "decision.v1"}
                ],
            },
            "after": {"run": {"shell": TRACE}},
            "other": {"run": {"shell": TRACE}},
            "end": {"run": {"shell": TRACE}, "terminal": True},
        },
    )
    first = machine.said(machine.submit(text))
    assert first.code == 1, first.err
    before = Counter(machine.traces())
    (machine.work / "fixed").touch()
    said = machine.npa("workflow", "resume", "r1")
    assert said.code == 0, said.err
    again = Counter(machine.traces()) - before
    failed = [path for path in before if path.endswith("refine[2]/work")]
    assert len(failed) == 1
    assert {path for path in again if path in before} == set(failed)
    assert machine.traces()[-1] == "end"


def test_a_step_that_succeeded_on_its_retry_is_not_run_again(machine: Machine) -> None:
    flaky = f'{TRACE}; test -e "$WORK/seen" || {{ touch "$WORK/seen"; exit 1; }}'
    text = chain({"retry": {"payload": 1, "backoffSeconds": 0}}, a=flaky, b=f"{TRACE}; {FAIL_ONCE}")
    assert machine.said(machine.submit(text)).code == 1
    assert machine.traces() == ["a", "a", "b", "b"]
    (machine.work / "fixed").touch()
    assert machine.npa("workflow", "resume", "r1").code == 0
    assert machine.traces() == ["a", "a", "b", "b", "b"]


@pytest.mark.req("F-03")
def test_a_reservation_without_a_launch_is_sealed_by_a_cancel(machine: Machine) -> None:
    """Between two attempts nothing runs; after the cancel nothing starts, and resume refuses."""
    slow = {"retry": {"payload": 1, "backoffSeconds": 300}}
    driver = machine.submit(chain(slow, a=f"{TRACE}; exit 1"))
    machine.until(lambda: len(machine.state().attempts) == 2, "the second attempt to be reserved")
    kill(driver)
    assert machine.npa("workflow", "cancel", "r1").code == 0
    assert machine.state().lifecycle is Lifecycle.CANCELLED
    refused = machine.npa("workflow", "resume", "r1")
    assert refused.code == 1
    assert "was cancelled" in refused.err
    assert machine.traces() == ["a"]


@pytest.mark.req("D-04", "D-05")
def test_a_job_that_another_identity_answers_for_is_ambiguous_and_left_alone(
    machine: Machine,
) -> None:
    driver = machine.submit(chain(a=f"{TRACE}; {WAIT}"))
    machine.until_running("a")
    leave_ready(machine)
    kill(driver)
    attempt = machine.state().latest["a"]
    claim = machine.home / "jobs" / "r1" / attempt.name / layout.CLAIM
    own = claim.readlink()
    pid, ticks, boot = attempt.native_id.split("@")
    claim.unlink()
    claim.symlink_to(layout.claim_text(layout.SHIM, f"{pid}@{int(ticks) - 1}@{boot}"))
    try:
        status = machine.npa("workflow", "status", "r1")
        assert status.code == 2
        assert "ambiguous, 2 jobs" in status.err
        resumed = machine.npa("workflow", "resume", "r1")
        assert resumed.code == 10
        assert "AMBIGUOUS" in resumed.out
        assert machine.tasks()
    finally:
        claim.unlink()
        claim.symlink_to(own)
    machine.go()
    assert machine.npa("workflow", "resume", "r1").code == 0
    assert machine.traces() == ["a"]


@pytest.mark.req("A-07", "A-09")
def test_another_store_endpoint_at_resume_is_refused_and_changes_nothing(machine: Machine) -> None:
    with s3_process() as server:
        store = f"{server.uri}moved/"
        machine.env |= server.environment
        machine.options = options_for(server.door.endpoint)
        driver = machine.submit(chain(a=f"{TRACE}; {WAIT}", b=TRACE), "--store", store)
        machine.until_running("a")
        kill(driver)
        frames = len(machine.frames(store=store))
        other = {"AWS_ENDPOINT_URL": f"http://localhost:{server.door.port}"}
        refused = machine.npa("workflow", "resume", "r1", env=other)
        assert refused.code == 12, refused.err
        assert "target" in refused.err
        assert len(machine.frames(store=store)) == frames
        machine.go()
        assert machine.npa("workflow", "resume", "r1").code == 0
    assert machine.traces() == ["a", "b"]


def test_a_signpost_that_a_kill_left_torn_is_put_up_again(machine: Machine) -> None:
    """The file that maps a run's name to its store was half written when its submit was killed."""
    with s3_process() as server:
        machine.env |= server.environment
        signpost = machine.home / "index" / "r1.json"
        signpost.parent.mkdir(parents=True, mode=0o700)
        machine.home.chmod(0o700)
        signpost.write_text('{"run_id": "r1", "run_')
        machine.go()
        said = machine.said(machine.submit(chain(a=TRACE), "--store", f"{server.uri}torn/"))
        assert said.code == 0, said.err
        assert json.loads(signpost.read_text())["run_uri"] == f"{server.uri}torn/r1/"
        assert machine.npa("workflow", "status", "r1").code == 0


def test_a_job_that_a_resume_finds_in_its_setup_is_adopted(machine: Machine) -> None:
    text = spec(
        "a", {"a": {"run": {"setup": f"{TRACE}; {WAIT}", "shell": TRACE}, "terminal": True}}
    )
    driver = machine.submit(text)
    machine.until_running("a")
    kill(driver)
    machine.go()
    assert machine.npa("workflow", "resume", "r1").code == 0
    assert machine.traces() == ["a", "a"]  # setup and run, once each


def test_a_rank_that_dies_ends_its_gang_and_a_retry_starts_all_ranks_anew(
    machine: Machine,
) -> None:
    text = spec(
        "a",
        {
            "a": {
                "resources": "pair",
                "multiNodeMode": "sharded",
                "retry": {"payload": 1, "backoffSeconds": 0},
                "run": {"shell": f'{TRACE}; echo "$$ $SKYPILOT_NODE_RANK" >> "$WORK/pids"; {WAIT}'},
                "terminal": True,
            }
        },
    ).replace("initial:", "resources: {pair: {num_nodes: 2, cpus: 0.1}}\ninitial:")
    driver = machine.submit(text)
    machine.until(lambda: len(machine.traces("pids")) == 4, "both ranks")
    words = machine.traces("pids")
    pid_of = dict(zip(words[1::2], words[0::2], strict=True))
    os.kill(int(pid_of["1"]), signal.SIGKILL)
    machine.until(lambda: len(machine.traces("pids")) == 8, "both ranks of the second attempt")
    machine.go()
    said = machine.said(driver)
    assert said.code == 0, said.err
    first = machine.state().waves["a"].attempts[0].end
    assert first is not None
    assert (first.members["a"].rank, first.members["a"].signal) == (1, signal.SIGKILL)


@pytest.mark.req("D-01")
@pytest.mark.parametrize("kept", ["the job's folder", "nothing of the job"])
def test_a_loss_of_power_that_takes_the_newest_frame_takes_its_job_too(
    machine: Machine, kept: str
) -> None:
    """The name of a frame is made durable while its jobs start: what if it never was?"""
    driver = machine.submit(chain(a=f"{TRACE}; {WAIT}", b=TRACE))
    machine.until_running("a")
    kill(driver)
    for pid in living(str(machine.home)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    machine.until(lambda: not living(str(machine.home)), "everything to be gone")
    frames = machine.frames()
    launched = next(f.n for f in frames for x in f.entries if isinstance(x, e.Intent))
    for frame in frames[launched - 1 :]:
        (machine.home / "runs" / "r1" / key_of(frame.n)).unlink()
    if kept == "nothing of the job":
        shutil.rmtree(machine.home / "jobs" / "r1")
    machine.go()
    resumed = machine.npa("workflow", "resume", "r1")
    assert resumed.code == 0, resumed
    assert machine.traces() == ["a", "a", "b"]
    ends = [x for f in machine.frames() for x in f.entries if isinstance(x, e.Ended)]
    lost = [x for x in ends if x.result is not e.Result.SUCCEEDED]
    assert [x.code for x in lost] == (["SHIM_LOST"] if kept == "the job's folder" else [])
