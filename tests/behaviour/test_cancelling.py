"""Cancelling is true: whenever it comes, nothing of the run is left, and it says so once."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from behaviour.conftest import TRACE, WAIT, Machine, chain, group
from npa.orchestration.journal import entries as e
from npa.orchestration.local import procfs
from npa.orchestration.state import Lifecycle

TWO = chain(a=f"{TRACE}; {WAIT}", b=f"{TRACE}; sleep 300")
FOREVER = f"{TRACE}; sleep 300"


def waiting_shim(machine: Machine, driver: int) -> int:
    """The shim that stands ready for the next launch: it has no children and no claim yet."""
    claimed = {int(a.native_id.split("@")[0]) for a in machine.state().live.values() if a.native_id}
    for zygote in procfs.children(driver):
        for pid in procfs.children(zygote):
            seen = procfs.stat(pid)
            if pid not in claimed and seen is not None and seen.comm == "npa-shim":
                return pid
    return 0


@contextmanager
def next_launch_held(machine: Machine, driver: int) -> Iterator[int]:
    """Stop the shims that could take the next launch, and let the step before it end.

    One stands ready. That of the step goes on only under its folder's exclusive lock.
    """
    machine.until_running("a")
    machine.until(lambda: any(a.native_id for a in machine.state().live.values()), "a to be noted")
    machine.until(lambda: waiting_shim(machine, driver) > 0, "a shim to stand ready")
    shim = waiting_shim(machine, driver)
    os.kill(shim, signal.SIGSTOP)
    folder = os.open(machine.home / "jobs/r1" / machine.state().latest["a"].name, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_SH)
    try:
        machine.go()
        machine.until(lambda: "b" in machine.state().latest, "b to be reserved")
        machine.until(lambda: bool(machine.state().latest["b"].intended_at), "b to be intended")
        yield shim
    finally:
        os.close(folder)
        with suppress(ProcessLookupError):
            os.kill(shim, signal.SIGCONT)


def ended(machine: Machine) -> None:
    """The run is cancelled, once, and nothing of it lives."""
    state = machine.state()
    assert state.lifecycle is Lifecycle.CANCELLED
    assert not state.live
    kinds = [type(entry) for frame in machine.frames() for entry in frame.entries]
    assert kinds.count(e.RunCancelled) == 1
    assert machine.tasks() == {}


@pytest.mark.req("F-03")
def test_a_cancel_while_a_launch_is_in_flight_catches_the_job_that_comes_after_it(
    machine: Machine,
) -> None:
    driver = machine.submit(TWO)
    with next_launch_held(machine, driver.pid):
        cancel = machine.start("workflow", "cancel", "r1", "--reason", "budget")
        machine.until(lambda: machine.state().cancel is not None, "the wish to be written")
    said = machine.said(cancel)
    assert said.code == 0, said.err
    assert "is cancelled: nothing of it runs any more" in said.out
    assert machine.said(driver).code == 1
    ended(machine)
    state = machine.state()
    assert state.cancel is not None
    assert state.cancel.reason == "budget"


@pytest.mark.req("F-03", "D-06")
def test_a_launch_whose_driver_died_over_it_never_happens_after_the_cancel(
    machine: Machine,
) -> None:
    """The shim wakes up after the cancel was proven: it finds the seal and starts nothing."""
    driver = machine.submit(TWO)
    with next_launch_held(machine, driver.pid) as shim:
        driver.kill()
        driver.wait()
        said = machine.npa("workflow", "cancel", "r1")
    assert said.code == 0, said.err
    machine.until(lambda: procfs.stat(shim) is None, "the late shim to leave")
    ended(machine)
    assert machine.traces() == ["a"]
    assert machine.npa("workflow", "resume", "r1").code == 1


@pytest.mark.req("F-03")
@pytest.mark.parametrize("first", ["ctrl-c", "cancel"])
def test_ctrl_c_and_a_cancel_in_one_poll_are_one_decision(machine: Machine, first: str) -> None:
    driver = machine.submit(chain(a=FOREVER))
    machine.until_running("a")
    os.kill(driver.pid, signal.SIGSTOP)
    if first == "ctrl-c":
        os.kill(driver.pid, signal.SIGINT)
    cancel = machine.start("workflow", "cancel", "r1", "--reason", "budget")
    machine.until(lambda: machine.state().cancel is not None, "the wish to be written")
    if first == "cancel":
        os.kill(driver.pid, signal.SIGINT)
    os.kill(driver.pid, signal.SIGCONT)
    assert machine.said(driver).code == 130
    assert machine.said(cancel).code == 0
    ended(machine)


@pytest.mark.req("F-03")
def test_a_detached_run_is_cancelled_with_all_that_it_holds(machine: Machine) -> None:
    """Two ranks, a child in a session of its own: the driver, helpers and tasks are all gone."""
    text = chain(
        {"resources": "pair", "multiNodeMode": "sharded"},
        a=f"setsid sleep 300 & {TRACE}; sleep 300",
    ).replace("initial:", "resources: {pair: {num_nodes: 2}}\ninitial:")
    begun = machine.said(machine.submit(text, "--detach", "--json"))
    assert begun.code == 0, begun.err
    driver = begun.document["driver_pid"]
    machine.until(lambda: machine.traces() == ["a", "a"], "both ranks")
    said = machine.npa("workflow", "cancel", "r1", "--json")
    assert (said.code, said.document["outcome"]) == (0, "cancelled")
    assert said.document["verification"] == "verified"
    assert all(job["ended"] for job in said.document["jobs"])
    ended(machine)
    machine.until(lambda: procfs.stat(driver) is None, "the driver to leave")


@pytest.mark.req("F-03")
def test_a_group_of_many_is_cancelled_together(machine: Machine) -> None:
    """One wish, and every member is asked in the same tick."""
    driver = machine.submit(group({f"m{n}": FOREVER for n in range(20)}, cpus=0.01))
    machine.until(lambda: len(machine.traces()) == 20, "all members to run")
    assert machine.npa("workflow", "cancel", "r1").code == 0
    assert machine.said(driver).code == 1
    ended(machine)
    asked = [
        frame.n
        for frame in machine.frames()
        for entry in frame.entries
        if isinstance(entry, e.Intent) and entry.verb is e.Verb.CANCEL
    ]
    assert len(asked) == 20
    assert len(set(asked)) <= 2


def test_a_second_cancel_changes_nothing_and_ends_as_well(machine: Machine) -> None:
    driver = machine.submit(chain(a=FOREVER))
    machine.until_running("a")
    both = [machine.start("workflow", "cancel", "r1") for _ in range(2)]
    assert [machine.said(one).code for one in both] == [0, 0]
    machine.said(driver)
    ended(machine)
    assert machine.npa("workflow", "cancel", "r1").code == 0
    ended(machine)


def test_a_step_may_clean_up_when_it_is_cancelled(machine: Machine) -> None:
    """TERM first, then the grace: the trap of the step runs to its end."""
    trap = "trap 'sleep 0.1; echo cleaned > \"$WORK/clean\"; exit 0' TERM"
    driver = machine.submit(chain(a=f"{trap}; {TRACE}; while :; do sleep 0.05; done"))
    machine.until_running("a")
    assert machine.npa("workflow", "cancel", "r1").code == 0
    machine.said(driver)
    assert machine.traces("clean") == ["cleaned"]
    ended(machine)


@pytest.mark.req("F-03")
def test_a_reason_is_shown_by_status_and_in_its_document(machine: Machine) -> None:
    driver = machine.submit(chain(a=FOREVER))
    machine.until_running("a")
    machine.npa("workflow", "cancel", "r1", "--reason", "budget is spent")
    machine.said(driver)
    assert "budget is spent" in machine.npa("workflow", "status", "r1").out
    document = machine.npa("workflow", "status", "r1", "--json").document
    assert document["cancellation"]["reason"] == "budget is spent"
    assert document["cancellation"]["by"]


def test_a_detached_run_survives_its_terminal(machine: Machine) -> None:
    """The terminal closes: its session gets SIGHUP, and the run goes on."""
    spec = machine.write(chain(a=f"{TRACE}; {WAIT}", b=TRACE))
    script = (
        f"{sys.executable} -m npa.cli.main run {spec} --run-id r1 --env WORK --detach; sleep 300"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as a terminal starts it, even under nohup
        os.execve("/bin/sh", ["sh", "-c", script], machine.environment())  # noqa: S606
    machine.until_running("a")
    machine.until(lambda: machine.state().driver is not None, "the driver to begin")
    driver = machine.state().driver
    assert driver is not None
    os.read(terminal, 1 << 16)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    machine.go()
    assert machine.npa("workflow", "status", "r1", "--watch", "--interval", "0.1").code == 0
    assert machine.traces() == ["a", "b"]
    assert machine.state().lifecycle is Lifecycle.COMPLETED
    machine.until(lambda: procfs.stat(driver.pid) is None, "the driver to leave")


def test_a_closed_terminal_leaves_a_foreground_run_for_resume(machine: Machine) -> None:
    driver = machine.submit(chain(a=f"{TRACE}; {WAIT}", b=TRACE))
    machine.until_running("a")
    os.kill(driver.pid, signal.SIGHUP)
    said = machine.said(driver)
    assert said.code == 130
    assert "resume r1" in said.err
    assert machine.tasks()
    machine.go()
    assert machine.npa("workflow", "resume", "r1").code == 0
    assert machine.traces() == ["a", "b"]
