"""Looking at a run never disturbs it, however often and at whatever moment it is done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from behaviour.conftest import TRACE, WAIT, Machine, chain, group
from npa.orchestration.state import Lifecycle

STEPS = 200
LOOKER = """
import sys
from typing import Any
from pathlib import Path
from npa.cli.look import look, open_for_reading
from npa.cli.logs import reading
from npa.cli.output import Output
from npa.errors import RunError
from npa.orchestration.engine import JobRef

looks = unsettled = 0
while not Path(sys.argv[1]).exists():
    try:
        host, run = open_for_reading("r1")
    except RunError:
        continue
    view = look(host, run)
    looks += 1
    unsettled += any(step.live == "absent" for step in view.steps)
    with reading(host, run) as reader:
        for attempt in run.state.open_attempts():
            reader.streams(JobRef(attempt.name, attempt.key, attempt.native_id))
print(looks, unsettled)
"""


@pytest.mark.req("F-01")
def test_a_look_in_a_tight_loop_never_disturbs_the_launches_of_a_fan(machine: Machine) -> None:
    """Before looks were kept apart, one of them sealed a job between its folder and its claim."""
    members = {f"s{number}": TRACE for number in range(STEPS)}
    driver = machine.submit(
        group(members), "--no-stage-src", "--max-infrastructure-recoveries", "0"
    )
    over = machine.root / "over"
    looker = subprocess.Popen(
        [sys.executable, "-c", LOOKER, str(over)],
        env=machine.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said = machine.said(driver)
    finally:
        over.touch()
        counted = looker.communicate()[0].split()
    assert said.code == 0, said.err
    assert looker.returncode == 0
    assert int(counted[0]) > 5
    state = machine.state()
    assert state.lifecycle is Lifecycle.COMPLETED
    assert {len(wave.attempts) for wave in state.waves.values()} == {1}
    assert len(machine.traces()) == STEPS + 1


def test_status_and_logs_answer_while_everything_runs(machine: Machine) -> None:
    driver = machine.submit(chain(a=f"{TRACE}; echo hello; {WAIT}", b=TRACE))
    machine.until_running("a")
    status = machine.npa("workflow", "status", "r1", "--json")
    assert status.code == 0
    assert status.document["status"] == "RUNNING"
    assert status.document["workflow_lifecycle"]["driver_liveness"] == "alive"
    assert status.document["steps"][0]["live"] == "running"
    assert machine.npa("workflow", "logs", "r1", "a").out == "hello\n"
    assert machine.npa("workflow", "artifacts", "r1").code == 0
    assert [r["status"] for r in json.loads(machine.npa("workflow", "list", "--json").out)] == [
        "RUNNING"
    ]
    machine.go()
    assert machine.said(driver).code == 0
    assert machine.traces() == ["a", "b"]


@pytest.mark.req("F-01")
def test_status_after_a_crash_leaves_everything_to_the_next_driver(machine: Machine) -> None:
    """The driver and a shim are dead: status tells of the orphans and touches none of them."""
    once = {"retry": {"payload": 0, "backoffSeconds": 0}}
    driver = machine.submit(chain(once, a=f'{TRACE}; echo $$ > "$WORK/pid"; {WAIT}'))
    machine.until(lambda: bool(machine.traces("pid")), "the step to run")
    machine.until(lambda: bool(next(iter(machine.state().live.values())).native_id), "its launch")
    driver.kill()
    shim = int(next(iter(machine.state().live.values())).native_id.split("@")[0])
    os.kill(shim, signal.SIGKILL)
    orphan = int(machine.traces("pid")[0])
    for _ in range(2):
        status = machine.npa("workflow", "status", "r1", "--json")
        step = status.document["steps"][0]
        assert "its shim is gone" in step["reason"]
        assert status.document["workflow_lifecycle"]["driver_liveness"] == "dead"
        assert orphan in machine.tasks()
    machine.go()
    machine.until(lambda: not machine.tasks(), "the orphans to end by themselves")
    assert machine.npa("workflow", "resume", "r1").code == 0
    assert machine.traces() == ["a", "a"]  # lost once, and paid for by the recovery budget


def test_a_step_that_ended_while_nobody_drove_is_timed_by_its_own_end(machine: Machine) -> None:
    driver = machine.submit(chain(a=f"{TRACE}; {WAIT}", b=TRACE))
    machine.until_running("a")
    driver.kill()
    driver.wait()
    machine.go()

    def seen() -> dict[str, Any]:
        step: dict[str, Any] = machine.npa("workflow", "status", "r1", "--json").document["steps"][
            0
        ]
        return step

    machine.until(lambda: seen()["live"] == "succeeded", "the job to end")
    ended = seen()["ended_at"]
    assert ended
    assert seen()["ended_at"] == ended
