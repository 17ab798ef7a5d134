"""Runs by the command line to which something happens: cancelled, killed, doubled by hand."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.skypilot.bench import Bench, ended
from e2e.skypilot.looks import assert_looks_agree, sky_interpreter
from npa.orchestration.journal import entries as e
from npa.orchestration.skypilot.record import Kind
from npa.orchestration.skypilot.spec import SessionSpec

pytestmark = pytest.mark.e2e

LOOKS = 5
SLOW_GROUP = """\
initial: all
states:
  all: {parallel: [one, two], terminal: true}
  one: &slow
    resources: one
    run:
      shell: |
        set -eu
        echo "$NPA_WORKFLOW_STATE is at work"
        python3 store.py put "began-$NPA_WORKFLOW_STATE.txt" began
        sleep 900
        python3 store.py put "ended-$NPA_WORKFLOW_STATE.txt" ended
  two: *slow
"""
# A second run of a payload fails: its object can be created once.
CHAIN = """\
initial: first
states:
  first:
    resources: one
    run: &step
      shell: |
        set -eu
        python3 store.py put "began-$NPA_WORKFLOW_STATE.txt" began
        sleep 20
        python3 store.py put "$NPA_WORKFLOW_STATE.txt" "$(
          python3 store.py get first.txt || true) $NPA_WORKFLOW_STATE"
    outputs: [{uri: "{{run.uri}}first.txt"}]
    next: second
  second:
    resources: one
    run: *step
    inputs: [{uri: "{{run.uri}}first.txt"}]
    outputs: [{uri: "{{run.uri}}second.txt"}]
    terminal: true
"""
SLOW = """\
initial: slow
states:
  slow:
    resources: one
    run: {shell: "python3 store.py put began.txt began && sleep 900"}
    terminal: true
"""


@pytest.mark.req("E-04", "F-01", "F-03", "F-06")
def test_a_run_cancelled_in_mid_wave_is_seen_to_end_and_frees_its_nodes(
    bench: Bench, record_property: Callable[[str, object], None]
) -> None:
    driver = bench.submit("cancelled", SLOW_GROUP)
    began = ("began-one.txt", "began-two.txt")
    bench.until(lambda: all(bench.text("cancelled", name) for name in began), driver)
    assert len(bench.allocations("cancelled")) == 2
    root, interpreter = bench.session("cancelled"), sky_interpreter(bench.bed)
    assert_looks_agree(SessionSpec(root=root, kind=Kind.RUN, interpreter=interpreter, env={}))
    assert "one is at work" in bench.log("cancelled", "all/one")  # while it is
    code, seen = bench.ask("status", "cancelled", "--cached")
    assert (code, seen["verification"]) == (0, "cached")
    assert [step["live"] for step in seen["steps"]] == [""] * 2
    record_property("measured", latency(bench, "cancelled"))
    code, told = bench.ask("cancel", "cancelled", "--reason", "enough")
    assert (code, told["outcome"], told["verification"]) == (0, "cancelled", "verified")
    assert [job["ended"] for job in told["jobs"]] == [True]
    assert bench.statuses("cancelled") == [("CANCELLED", "DONE")] * 2
    assert bench.allocations("cancelled") == []
    assert ended(driver, 60)[0] == 1
    assert bench.text("cancelled", "ended-one.txt") + bench.text("cancelled", "ended-two.txt") == ""
    bench.assert_nothing_is_left("cancelled")


def latency(bench: Bench, run_id: str) -> str:
    """How long a status of a live run takes, beside SkyPilot's own command for the same question
    to the same server. Turn by turn, so that the machine's other work hits both."""

    def seconds(ask: Callable[[], object]) -> float:
        began = time.monotonic()
        ask()
        return time.monotonic() - began

    def status() -> None:
        code, seen = bench.ask("status", run_id)
        assert (code, seen["verification"]) == (0, "found")
        assert [step["live"] for step in seen["steps"]] == ["running"] * 2

    def own() -> None:
        assert "RUNNING" in bench.sky(run_id, "jobs", "queue")

    took = [(seconds(status), seconds(own)) for _ in range(LOOKS)]
    ours, theirs = (statistics.median(column) for column in zip(*took, strict=True))
    return (
        f"status of a live run: {ours:.2f} s, `sky jobs queue`: {theirs:.2f} s, "
        f"ratio {ours / theirs:.2f} (medians of {LOOKS}: "
        + ", ".join(f"{mine:.2f}/{other:.2f}" for mine, other in took)
        + ")"
    )


@pytest.mark.req("A-04", "B-10", "D-02", "D-05", "D-06", "E-01", "F-01", "F-06")
def test_a_chain_outlives_its_bridge_its_server_and_two_drivers(bench: Bench) -> None:
    driver = bench.submit("chain", CHAIN)

    # The reply of the first launch is lost: the bridge dies between its POST and the answer.
    launches = bench.session("chain") / "launches"
    bench.until(lambda: b'"posting"' in rows_of(launches), driver, pause=0.001)
    os.kill(bench.bridge("chain"), signal.SIGKILL)
    (first,) = launches.glob("*.rows")
    assert b'"result"' not in first.read_bytes()

    # The server is killed while the first step runs; the driver starts another one.
    bench.until(lambda: bench.text("chain", "began-first.txt"), driver)
    before = bench.server("chain")
    os.kill(before.pid, signal.SIGKILL)
    bench.until(lambda: bench.text("chain", "first.txt"), driver)

    # The driver is killed while the second job is PENDING, in the middle of its launch.
    bench.until(lambda: bench.statuses("chain")[1:], driver, pause=0.01)
    bench.kill(driver)
    assert bench.statuses("chain")[1][0] in ("PENDING", "STARTING")
    assert bench.server("chain").pid != before.pid
    driver = bench.npa("workflow", "resume", "chain", "--json")

    # The next one is killed while that job is RUNNING, and the server with it.
    bench.until(lambda: bench.text("chain", "began-second.txt"), driver)
    bench.kill(driver)
    os.kill(bench.server("chain").pid, signal.SIGKILL)
    asked = time.time()
    code, seen = bench.ask("status", "chain")
    assert (code, seen["status"]) == (2, "RUNNING")
    assert (seen["verification"], seen["live_verified"]) == ("unavailable", False)
    lifecycle = seen["workflow_lifecycle"]
    assert (lifecycle["driver_liveness"], lifecycle["source"]) == ("dead", "journal")
    assert lifecycle["created_at"] < lifecycle["updated_at"] < asked <= seen["as_of"]
    steps = {step["path"]: (step["recorded"], step["live"]) for step in seen["steps"]}
    assert steps["first"] == ("succeeded", "")
    assert steps["second"][1] == "unavailable"

    code, _, err = ended(bench.npa("workflow", "resume", "chain", "--json"))
    assert code == 0, err
    assert bench.text("chain", "second.txt").split() == ["first", "second"]
    # Two jobs, each launched once by one intent, and none of them by two drivers.
    assert [(row.job_id, row.status, row.recoveries) for row in bench.rows("chain")] == [
        (1, "SUCCEEDED", 0),
        (2, "SUCCEEDED", 0),
    ]
    journal = bench.entries("chain")
    intents = [entry.key for entry in journal if isinstance(entry, e.Intent)]
    assert len(intents) == len(set(intents)) == 2
    outcomes = [entry for entry in journal if isinstance(entry, e.Outcome)]
    assert [(entry.native_id, entry.adopted) for entry in outcomes] == [("1", False), ("2", True)]
    assert len([entry for entry in journal if isinstance(entry, e.DriverEntry)]) == 3
    bench.assert_nothing_is_left("chain")
    assert bench.log("chain", "second") is not None


def rows_of(launches: Path) -> bytes:
    return b"".join(path.read_bytes() for path in launches.glob("*.rows"))


@pytest.mark.req("D-04", "F-02", "F-03", "F-06")
def test_a_second_job_of_the_same_name_is_reported_and_nothing_is_done_to_either(
    bench: Bench,
) -> None:
    driver = bench.submit("twice", SLOW)
    bench.until(lambda: bench.text("twice", "began.txt"), driver)
    (row,) = bench.rows("twice")
    by_hand = ("jobs", "launch", "--yes", "--async", "--infra", "slurm/bed", "--name", row.job)
    bench.sky("twice", *by_hand, "sleep 900")
    code, _, _ = ended(driver)
    assert code == 10
    assert {found.job for found in bench.rows("twice")} == {row.job}
    code, seen = bench.ask("status", "twice")
    assert (code, seen["verification_status"]) == (2, "EVIDENCE_INCONSISTENT")
    assert [step["live"] for step in seen["steps"]] == ["ambiguous"]
    assert [hold["code"] for hold in seen["holds"]] == ["AMBIGUOUS"]
    assert "2 jobs: 1, 2" in seen["problems"][0]

    code, told = bench.ask("cancel", "twice")
    assert (code, told["verification"]) == (2, "unverified")
    assert bench.statuses("twice")[0] == ("RUNNING", "ALIVE")  # doubt cancels nothing
    assert not [
        entry
        for entry in bench.entries("twice")
        if isinstance(entry, e.Intent) and entry.verb is e.Verb.CANCEL
    ]

    # A person removes both, by their IDs, and vouches for it.
    bench.sky("twice", "jobs", "cancel", "--yes", "1", "2")
    bench.until(lambda: bench.statuses("twice") == [("CANCELLED", "DONE")] * 2, None)
    code, told = bench.ask("cancel", "twice", "--gone", row.job)
    assert (code, told["verification"]) == (0, "verified")
    bench.assert_nothing_is_left("twice")
