"""Folders that are moved away under a run, and drivers that stand still: nothing is made up."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from behaviour.conftest import TRACE, WAIT, Machine, chain

TWO = chain(a=f"{TRACE}; {WAIT}", b=TRACE)


def until_said(process: Any, text: str) -> None:
    """Read stderr up to the line with `text`; the end of the process fails the test."""
    for line in process.stderr:
        if text in line:
            return
    pytest.fail(f"the process ended without a word of {text}")


@pytest.mark.req("D-01")
def test_a_journal_that_is_moved_away_is_not_begun_anew(machine: Machine) -> None:
    driver = machine.submit(TWO)
    machine.until_running("a")
    run, away = machine.home / "runs" / "r1", machine.home / "elsewhere"
    run.rename(away)
    machine.go()
    until_said(driver, "folder_gone")
    assert not run.exists()
    away.rename(run)
    assert machine.said(driver).code == 0
    assert machine.traces() == ["a", "b"]
    assert machine.npa("workflow", "status", "r1").code == 0


def test_a_look_does_not_make_the_folder_of_the_jobs_again(machine: Machine) -> None:
    driver = machine.submit(TWO)
    machine.until_running("a")
    jobs, away = machine.home / "jobs" / "r1", machine.home / "elsewhere"
    jobs.rename(away)
    seen = machine.npa("workflow", "status", "r1", "--json")
    assert not jobs.exists()
    assert "failed" not in seen.out
    away.rename(jobs)
    machine.go()
    assert machine.said(driver).code == 0
    assert machine.traces() == ["a", "b"]


@pytest.mark.req("F-03")
def test_a_driver_that_is_stopped_by_a_signal_is_named_with_the_way_out(machine: Machine) -> None:
    driver = machine.submit(TWO)
    machine.until_running("a")
    os.kill(driver.pid, signal.SIGSTOP)
    try:
        resumed = machine.npa("workflow", "resume", "r1")
        cancelling = machine.start("workflow", "cancel", "r1")
        said = "".join(cancelling.stderr.readline() for _ in range(3))
    finally:
        os.kill(driver.pid, signal.SIGCONT)
    assert resumed.code == 11
    assert "which is stopped by a signal" in resumed.err
    assert f"kill -CONT {driver.pid}" in resumed.err
    assert f"process {driver.pid}, is stopped by a signal" in said
    assert machine.said(cancelling).code == 0
    assert machine.said(driver).code != 0


def test_an_altered_frame_is_named(machine: Machine) -> None:
    assert machine.said(machine.submit(chain(a=TRACE))).code == 0
    frame: Path = machine.home / "runs/r1/npa-workflow/journal/0000000003.json"
    frame.write_text(frame.read_text().replace('"at"', '"ta"'))
    seen = machine.npa("workflow", "resume", "r1")
    assert seen.code == 2, seen
    assert "journal/0000000003.json` is torn or foreign: no 'at'" in seen.err
    assert "put the run's journal back" in seen.err


def test_a_cancelled_run_goes_on_from_a_state_only_with_a_reason(machine: Machine) -> None:
    driver = machine.submit(TWO)
    machine.until_running("a")
    assert machine.npa("workflow", "cancel", "r1").code == 0
    machine.said(driver)
    refused = machine.npa("workflow", "resume", "r1", "--from", "a")
    assert refused.code != 0
    assert "--reopen REASON" in refused.err
    machine.go()
    assert machine.npa("workflow", "resume", "r1", "--from", "a", "--reopen", "again").code == 0
    assert machine.traces() == ["a", "a", "b"]


def test_a_step_of_a_group_is_not_a_state_and_the_state_is_named(machine: Machine) -> None:
    assert machine.said(machine.submit(chain(a=TRACE))).code == 0
    refused = machine.npa("workflow", "resume", "r1", "--from", "group/a[2]")
    assert "a state is named, not one step of it: `--from a`" in refused.err
    near = machine.npa("workflow", "resume", "r1", "--from", "aa")
    assert "did you mean 'a'?" in near.err
