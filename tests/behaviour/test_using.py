"""What people type, and what they see: plans, names, branches, sweeps, logs of what waits."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from behaviour.conftest import TRACE, WAIT, Machine, chain, group, spec
from npa.orchestration.state import Lifecycle

NO_NETWORK = """
import socket
def refuse(*args, **kwargs):
    raise AssertionError("a connection was tried")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
"""


def test_a_shape_that_can_never_run_is_refused_before_anything_starts(machine: Machine) -> None:
    text = chain({"resources": "big", "multiNodeMode": "sharded"}, a=TRACE).replace(
        "initial:", "resources: {big: {accelerators: 'H100:8', num_nodes: 4}}\ninitial:"
    )
    said = machine.said(machine.submit(text))
    assert said.code == 1
    assert "asks for 4 ranks with H100:8" in said.err
    assert "nothing was started" in said.err
    assert machine.npa("workflow", "list", "--json").document == []


@pytest.mark.parametrize("command", ["validate-spec", "plan-spec", "graph"])
def test_a_file_is_checked_planned_and_drawn_without_a_network(
    machine: Machine, command: str
) -> None:
    folder = machine.root / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(NO_NETWORK)
    example = Path(__file__).parents[2] / "examples" / "digits" / "pipeline.yaml"
    said = machine.npa("workflow", command, example, env={"PYTHONPATH": str(folder)})
    assert said.code == 0, said.err


def test_the_other_branch_is_shown_as_skipped_and_the_plan_shows_both(machine: Machine) -> None:
    decide = 'printf \'{"decision": "loop_back"}\' > "${NPA_DECISION_URI#file://}"'
    text = spec(
        "gate",
        {
            "gate": {
                "writesDecision": True,
                "run": {"shell": f"{TRACE}; {decide}"},
                "outputs": [{"uri": "{{run.uri}}decision.json", "schema": "decision.v1"}],
                "transitions": [
                    {"when": "promote_checkpoint", "goto": "good"},
                    {"when": "loop_back", "goto": "bad"},
                ],
            },
            "good": {"run": {"shell": TRACE}, "next": "after"},
            "after": {"run": {"shell": TRACE}, "terminal": True},
            "bad": {"run": {"shell": TRACE}, "terminal": True},
        },
    )
    said = machine.said(machine.submit(text, "--json"))
    assert (said.code, said.document["terminal"]) == (0, "bad")
    assert machine.traces() == ["gate", "bad"]
    status = machine.npa("workflow", "status", "r1", "--json").document
    assert status["skipped"] == ["good", "after"]
    assert "skipped" in machine.npa("workflow", "status", "r1").out
    planned = machine.npa("workflow", "plan-spec", machine.root / "project" / "pipeline.yaml")
    assert all(name in planned.out for name in ("good", "after", "bad"))


def test_long_names_that_differ_at_the_end_are_kept_apart(machine: Machine) -> None:
    stem = "s" * 62
    names = [f"{stem}{end}" for end in "ab"]
    text = group(dict.fromkeys(names, TRACE)).replace("{name: t}", f"{{name: {'w' * 63}}}")
    assert machine.said(machine.submit(text, run_id="r" * 96)).code == 0
    assert sorted(machine.traces()) == sorted([*(f"all/{name}" for name in names), "end"])
    jobs = [attempt.name for attempt in machine.state("r" * 96).attempts.values()]
    assert len(set(jobs)) == 3
    assert max(map(len, jobs)) <= 60


def test_a_sweep_of_a_hundred_is_one_run_with_one_progress_and_one_cancel(
    machine: Machine,
) -> None:
    members = {f"m{n}": f"{TRACE}; " + ("exit 0" if n < 37 else "sleep 300") for n in range(100)}
    window = '"parallelMode": "window", "maxConcurrency": 64, "parallel":'
    driver = machine.submit(group(members, cpus=0.01).replace('"parallel":', window))

    def counts() -> dict[str, int]:
        found: dict[str, int] = machine.npa("workflow", "status", "r1", "--json").document["counts"]
        return found

    machine.until(lambda: len(machine.traces()) == 100, "all to run")
    machine.until(lambda: counts() == {"succeeded": 37, "running": 63}, "37 of 100")
    assert len(machine.npa("workflow", "list", "--json").document) == 1
    assert machine.npa("workflow", "cancel", "r1").code == 0
    machine.said(driver)
    assert machine.state().lifecycle is Lifecycle.CANCELLED
    assert machine.tasks() == {}
    assert counts() == {"succeeded": 37, "cancelled": 63}


def test_logs_of_a_step_that_waits_return_at_once(machine: Machine) -> None:
    """A retry that is put off has no log yet; asking for it is no reason to wait."""
    slow = {"retry": {"payload": 1, "backoffSeconds": 300}}
    machine.submit(chain(slow, a=f"{TRACE}; echo before; exit 1"))
    machine.until(lambda: len(machine.state().attempts) == 2, "the second attempt to be reserved")
    begun = time.monotonic()
    said = machine.npa("workflow", "logs", "r1", "a", "--no-follow")
    assert time.monotonic() - begun < 60
    assert said.code == 0
    assert "no log" in said.err


def test_logs_of_a_running_step_stream_whole_lines_of_any_kind(machine: Machine) -> None:
    """A line of 300 KB and a progress bar arrive while the step goes on, and its end ends them."""
    program = (
        "import sys, os, time\n"
        "sys.stdout.write('x' * 300000 + chr(10) + chr(13).join(map(str, range(100))))\n"
        "sys.stdout.flush()\n"
        "while not os.path.exists(os.environ['WORK'] + '/go'): time.sleep(0.02)\n"
        "print('end')\n"
    )
    state = {"run": {"argv": [sys.executable, "-c", program]}, "terminal": True}
    driver = machine.submit(spec("a", {"a": state}))
    machine.until(lambda: any(a.native_id for a in machine.state().live.values()), "a to run")
    follower = machine.start("workflow", "logs", "r1", "a", "--follow")
    data = b""
    wanted = "x" * 300000 + "\n" + "\r".join(map(str, range(100)))
    while len(data) < len(wanted):
        data += os.read(follower.stdout.fileno(), 1 << 16)
    assert follower.poll() is None
    machine.go()
    rest = follower.stdout.read()
    assert data.decode() + rest == wanted + "end\n"
    assert follower.wait() == 0
    assert machine.said(driver).code == 0


def test_logs_of_a_whole_run_show_every_step(machine: Machine) -> None:
    assert machine.said(machine.submit(chain(a="echo one", b="echo two", c="echo three"))).code == 0
    assert machine.npa("workflow", "logs", "r1").out == "one\ntwo\nthree\n"
    assert machine.npa("workflow", "logs", "r1", "b", "--tail", "1").out == "two\n"


def test_what_a_step_left_behind_is_ended_and_told_and_the_run_stays_succeeded(
    machine: Machine,
) -> None:
    daemon = "(setsid sh -c 'echo $$ > \"$WORK/pid\"; exec sleep 300' &) ; "
    wait = 'while ! test -s "$WORK/pid"; do sleep 0.01; done'
    said = machine.said(machine.submit(chain(a=f"{TRACE}; {daemon}{wait}", b=TRACE)))
    assert said.code == 0, said.err
    assert machine.traces() == ["a", "b"]
    assert machine.tasks() == {}
    status = machine.npa("workflow", "status", "r1", "--json").document
    assert status["status"] == "SUCCEEDED"
    left = status["steps"][0]["leftovers"]
    assert any(machine.traces("pid")[0] in text for text in left)


def test_two_runs_of_one_home_do_not_touch_each_other(machine: Machine) -> None:
    one = machine.submit(chain(a=f"{TRACE}; {WAIT}"), run_id="one")
    two = machine.submit(chain(a=f"{TRACE}; {WAIT}"), run_id="two")
    machine.until(lambda: machine.traces() == ["a", "a"], "both to run")
    assert machine.npa("workflow", "cancel", "one").code == 0
    assert machine.said(one).code == 1
    machine.go()
    assert machine.said(two).code == 0
    words = [r["status"] for r in json.loads(machine.npa("workflow", "list", "--json").out)]
    assert sorted(words) == ["CANCELLED", "SUCCEEDED"]


@pytest.mark.req("E-02")
def test_a_step_that_was_killed_from_outside_says_by_which_signal(machine: Machine) -> None:
    driver = machine.submit(chain(a=f'echo $$ > "$WORK/pid"; {TRACE}; sleep 300'))
    machine.until_running("a")
    os.kill(int(machine.traces("pid")[0]), signal.SIGKILL)
    assert machine.said(driver).code == 1
    (step,) = machine.npa("workflow", "status", "r1", "--json").document["steps"]
    assert (step["code"], step["klass"], step["signal"]) == ("PAYLOAD_SIGNAL", "payload", 9)
