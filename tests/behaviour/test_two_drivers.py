"""Two drivers of one run: one goes on, the other stops, says so, and changes nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from behaviour.conftest import TRACE, WAIT, Machine, chain
from behaviour.doors import Turnstile
from chaos.server import Server, s3_process
from npa.orchestration.journal.chain import Journal
from npa.orchestration.journal.entries import DriverEntry
from npa.orchestration.registry import default_run_uri
from npa.orchestration.state import Lifecycle
from npa.storage import open_store
from npa.target.home import Home

TWO = chain(a=f"{TRACE}; {WAIT}", b=TRACE)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_process() as made:
        yield made


@pytest.mark.req("D-01", "E-01")
def test_of_two_resumes_that_are_both_past_the_read_exactly_one_continues(
    machine: Machine, server: Server
) -> None:
    turnstile = Turnstile(server.target, 2)
    store = f"{server.uri}two/"
    machine.env |= {**server.environment, "AWS_ENDPOINT_URL": turnstile.endpoint}
    machine.options = server.options
    try:
        driver = machine.submit(TWO, "--store", store)
        machine.until_running("a")
        driver.kill()
        driver.wait()
        turnstile.armed = True
        both = [machine.start("workflow", "resume", "r1") for _ in range(2)]
        machine.until(lambda: not turnstile.armed, "both to write their lease")
        machine.until(lambda: any(one.poll() is not None for one in both), "one to stop")
        machine.go()
        said = [machine.said(one) for one in both]
    finally:
        turnstile.shut()
    codes = sorted(one.code for one in said)
    assert codes == [0, 11], said
    loser = next(one for one in said if one.code == 11)
    assert "is driven by process" in loser.err
    assert "which is alive" in loser.err
    assert machine.traces() == ["a", "b"]
    assert machine.state(store=store).lifecycle is Lifecycle.COMPLETED


@pytest.mark.req("D-01")
def test_many_resumes_at_once_make_one_driver(machine: Machine) -> None:
    driver = machine.submit(TWO)
    machine.until_running("a")
    driver.kill()
    driver.wait()
    many = [machine.start("workflow", "resume", "r1") for _ in range(5)]
    machine.until(lambda: sum(one.poll() is not None for one in many) == 4, "four to stop")
    machine.go()
    said = [machine.said(one) for one in many]
    assert sorted(one.code for one in said) == [0, 11, 11, 11, 11], said
    assert machine.traces() == ["a", "b"]


def test_a_resume_beside_a_living_driver_is_refused_with_a_clear_message(machine: Machine) -> None:
    driver = machine.submit(TWO)
    machine.until_running("a")
    said = machine.npa("workflow", "resume", "r1")
    assert said.code == 11
    assert f"driven by process {driver.pid}" in said.err
    assert "nothing was changed" in said.err
    assert _leases(machine) == [driver.pid]
    machine.go()
    assert machine.said(driver).code == 0
    assert machine.traces() == ["a", "b"]


def test_a_paused_driver_is_alive_and_keeps_its_run(machine: Machine) -> None:
    driver = machine.submit(TWO)
    machine.until_running("a")
    os.kill(driver.pid, signal.SIGSTOP)
    assert machine.npa("workflow", "resume", "r1").code == 11
    os.kill(driver.pid, signal.SIGCONT)
    machine.go()
    assert machine.said(driver).code == 0
    assert machine.traces() == ["a", "b"]


@pytest.mark.req("D-01")
def test_a_driver_on_this_machine_that_lives_cannot_be_taken_over(machine: Machine) -> None:
    """`--take-over` is for drivers that cannot be seen from here; this one can be."""
    driver = machine.submit(TWO)
    machine.until_running("a")
    said = machine.npa("workflow", "resume", "r1", "--take-over")
    assert said.code == 11
    assert _leases(machine) == [driver.pid]
    machine.go()
    assert machine.said(driver).code == 0


@pytest.mark.req("D-01")
def test_a_driver_whose_run_was_taken_by_another_stops_and_touches_nothing(
    machine: Machine,
) -> None:
    """It sleeps while another lease is written; when it wakes, its epoch is old."""
    driver = machine.submit(TWO)
    machine.until_running("a")
    os.kill(driver.pid, signal.SIGSTOP)
    journal = Journal(open_store(default_run_uri(Home(machine.home), "r1")), time.time)
    journal.read()
    try:
        entry = DriverEntry("another-host", "another-boot", 1, 1, "complete")
        journal.append([entry], epoch=len(machine.frames()) + 1)
    finally:
        os.kill(driver.pid, signal.SIGCONT)
    old = machine.said(driver)
    assert old.code == 11
    assert "another driver has taken the run over" in old.out
    assert machine.traces() == ["a"]
    refused = machine.npa("workflow", "resume", "r1")
    assert refused.code == 11
    assert "another-host" in refused.err
    machine.go()
    assert machine.npa("workflow", "resume", "r1", "--take-over").code == 0
    assert machine.traces() == ["a", "b"]


def _leases(machine: Machine) -> list[int]:
    entries = (entry for frame in machine.frames() for entry in frame.entries)
    return [entry.pid for entry in entries if isinstance(entry, DriverEntry)]
