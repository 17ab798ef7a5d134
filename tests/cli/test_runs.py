"""Runs on this machine from the command line: begun, watched, failed, resumed, cancelled."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_harness import Golden, Run
from cli_specs import FAILS_AT_SECOND, HEAD, LATER, TWO_STEPS, WAITS, write
from npa.cli.new import TEMPLATES
from npa.cli.output import Output

DEADLINE_SECONDS = 60.0


def in_folder(tmp_path: Path, text: str) -> Path:
    """A pipeline in a folder of its own: what else the test writes is no part of its source."""
    return "pipe" / write(tmp_path / "pipe", text)


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Path]:
    """A pipeline that waits for the file `go`; it is let go at the end, whatever happens."""
    yield in_folder(tmp_path, WAITS)
    (tmp_path / "go").touch()


def until(npa: Run, run_id: str, word: str) -> None:
    """Wait until the run's steps are at `word`."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        seen = json.loads(npa("workflow", "status", run_id, "--json").stdout)
        if word in seen.get("counts", ()):  # an error document before the run has begun
            return
    raise AssertionError(f"{run_id} did not come to {word}")


def test_a_run_and_how_it_is_looked_at(golden: Golden, tmp_path: Path) -> None:
    spec = in_folder(tmp_path, TWO_STEPS)
    golden("run", "run", spec, "--run-id", "r1", "--var", "word=good day")
    golden("status-succeeded", "workflow", "status", "r1")
    golden("status-succeeded-json", "workflow", "status", "r1", "--json")
    golden("status-watch-succeeded", "workflow", "status", "r1", "--watch")
    golden("logs-all", "workflow", "logs", "r1")
    golden("logs-tail", "workflow", "logs", "r1", "second", "--tail", "1")
    golden("logs-follow-ended", "workflow", "logs", "r1", "second", "--follow")
    golden("logs-unknown-step", "workflow", "logs", "r1", "secnd")
    golden("artifacts", "workflow", "artifacts", "r1")
    golden("artifacts-json", "workflow", "artifacts", "r1", "--json")
    golden("list", "workflow", "list")
    golden("list-json", "workflow", "list", "--json")
    golden("run-exists", "run", spec, "--run-id", "r1")
    golden("resume-complete", "workflow", "resume", "r1")
    golden("cancel-over", "workflow", "cancel", "r1")


def test_submit_prints_one_document(golden: Golden, tmp_path: Path) -> None:
    spec = in_folder(tmp_path, TWO_STEPS)
    golden("submit-json", "workflow", "submit", spec, "--run-id", "r1", "--json")


def test_a_plan_is_not_submitted(golden: Golden, npa: Run, tmp_path: Path) -> None:
    spec = in_folder(tmp_path, TWO_STEPS)
    golden("submit-plan-only", "workflow", "submit", spec, "--run-id", "r1", "--plan-only")
    document = golden(
        "submit-plan-only-json",
        *("workflow", "submit", spec, "--run-id", "r1", "--plan-only", "--json"),
    )
    assert json.loads(document.stdout)["submission_state"] == "NOT_SUBMITTED"
    assert npa("workflow", "list", "--json").stdout == "[]\n"


def test_a_failure_shows_the_last_lines_and_a_way_on(golden: Golden, tmp_path: Path) -> None:
    spec = in_folder(tmp_path, FAILS_AT_SECOND)
    golden("run-fails", "run", spec, "--run-id", "r1")
    golden("status-failed", "workflow", "status", "r1")


def test_a_mended_run_goes_on_only_when_the_change_is_accepted(
    golden: Golden, tmp_path: Path
) -> None:
    spec = in_folder(tmp_path, FAILS_AT_SECOND)
    golden("run-fails", "run", spec, "--run-id", "r1")
    in_folder(tmp_path, TWO_STEPS)
    golden("resume-changed", "workflow", "resume", "r1")
    golden("status-failed", "workflow", "status", "r1")
    golden("resume-accepted", "workflow", "resume", "r1", "--accept-changes", "mended the input")
    golden("status-mended", "workflow", "status", "r1")


def test_retries_are_told(golden: Golden, tmp_path: Path) -> None:
    spec = in_folder(tmp_path, FAILS_AT_SECOND + "    retry: {payload: 1, backoffSeconds: 0}\n")
    golden("run-retries", "run", spec, "--run-id", "r1")


def test_a_state_runs_again_with_all_that_depends_on_it(npa: Run, tmp_path: Path) -> None:
    spec = in_folder(tmp_path, TWO_STEPS)
    npa("run", spec, "--run-id", "r1")
    result = npa("workflow", "resume", "r1", "--from", "second", "--json")
    attempts = {step["path"]: step["attempt"] for step in json.loads(result.stdout)["steps"]}
    assert attempts == {"first": 1, "second": 2}


def test_an_unknown_run(golden: Golden) -> None:
    for command in ("status", "logs", "artifacts", "cancel", "resume"):
        golden(f"unknown-run-{command}", "workflow", command, "nope")


PREFIX_COMMANDS = [
    ("status",),
    ("status", "--watch"),
    ("logs",),
    ("artifacts",),
    ("resume",),
    ("cancel",),
]


def test_the_unique_start_of_an_id_names_the_run_in_every_command(npa: Run, tmp_path: Path) -> None:
    spec = in_folder(tmp_path, TWO_STEPS)
    npa("run", spec, "--run-id", "fit-one")
    npa("run", spec, "--run-id", "other")
    for command in PREFIX_COMMANDS:
        short = npa("workflow", command[0], "fi", *command[1:])
        whole = npa("workflow", command[0], "fit-one", *command[1:])
        assert (short.code, short.stdout) == (whole.code, whole.stdout) != (1, "")


@pytest.mark.parametrize("command", PREFIX_COMMANDS, ids="-".join)
def test_a_start_of_several_ids_lists_them_and_is_a_usage_error(
    npa: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    npa("run", in_folder(tmp_path, TWO_STEPS), "--run-id", "fit-one")
    npa("run", in_folder(tmp_path, FAILS_AT_SECOND), "--run-id", "fit-two")
    said = npa("workflow", command[0], "fit", *command[1:])
    assert (said.code, said.stdout) == (64, "")
    assert "2 runs begin with `fit`" in said.stderr
    assert re.search(r"(?m)^  fit-two  FAILED  begun \d.* s ago$", said.stderr)
    assert re.search(r"(?m)^  fit-one  SUCCEEDED  begun \d.* s ago$", said.stderr)
    document = json.loads(npa("workflow", "status", "fit", "--json").stdout)
    assert (document["code"], document["exit_code"]) == ("RUN_AMBIGUOUS", 64)


def test_a_whole_id_is_meant_even_if_others_begin_with_it(npa: Run, tmp_path: Path) -> None:
    spec = in_folder(tmp_path, TWO_STEPS)
    npa("run", spec, "--run-id", "fit")
    npa("run", spec, "--run-id", "fit-two")
    assert npa("workflow", "status", "fit", "--json").code == 0


@pytest.mark.parametrize("run_id", ["", "../x", "a b", "x" * 97])
def test_an_empty_or_unsafe_run_id_is_refused_at_the_door(
    npa: Run, tmp_path: Path, run_id: str
) -> None:
    result = npa("run", in_folder(tmp_path, TWO_STEPS), "--run-id", run_id)
    assert result.code == 64
    assert "cannot be a run ID" in result.stderr
    assert npa("workflow", "list", "--json").stdout == "[]\n"


def test_a_file_with_errors_starts_nothing(golden: Golden, npa: Run, tmp_path: Path) -> None:
    golden("run-wrong", "run", in_folder(tmp_path, TWO_STEPS.replace("next:", "nxt:")))
    assert npa("workflow", "list", "--json").stdout == "[]\n"


def test_a_secret_that_is_not_set_starts_nothing(golden: Golden, npa: Run, tmp_path: Path) -> None:
    spec = in_folder(tmp_path, TWO_STEPS)
    golden("run-no-secret", "run", spec, "--run-id", "r1", "--secret-env", "NO_SUCH_TOKEN")
    golden("run-no-variable", "run", spec, "--run-id", "r1", "--env", "NO_SUCH_NAME")
    assert npa("workflow", "list", "--json").stdout == "[]\n"


def test_a_detached_run_is_watched_cancelled_and_not_resumed(
    golden: Golden, npa: Run, tmp_path: Path, waiting: Path
) -> None:
    golden(
        "run-detached", "run", waiting, "--run-id", "r1", "--detach", "--var", f"folder={tmp_path}"
    )
    until(npa, "r1", "running")
    golden("status-running", "workflow", "status", "r1")
    golden("resume-driven", "workflow", "resume", "r1")
    golden("cancel", "workflow", "cancel", "r1", "--reason", "budget")
    golden("status-cancelled", "workflow", "status", "r1")
    golden("cancel-again", "workflow", "cancel", "r1")
    golden("resume-cancelled", "workflow", "resume", "r1")


def test_a_detached_run_goes_on_to_its_end(npa: Run, tmp_path: Path, waiting: Path) -> None:
    begun = npa(
        *("run", waiting, "--run-id", "r1", "--detach", "--json", "--var", f"folder={tmp_path}")
    )
    assert json.loads(begun.stdout)["status"] == "submitted"
    assert npa("workflow", "logs", "r1", "--no-follow").code == 0
    (tmp_path / "go").touch()
    assert npa("workflow", "status", "r1", "--watch", "--interval", "0.1").code == 0
    assert npa("workflow", "logs", "r1").stdout == "waiting\n"


def follower(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    """A command that goes on by itself until the run does not."""
    return subprocess.Popen(
        [sys.executable, "-m", "npa.cli.main", "workflow", *words],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def first_line(process: subprocess.Popen[str], *, of_stderr: bool = False) -> str:
    stream = process.stderr if of_stderr else process.stdout
    assert stream is not None
    return stream.readline()


def test_logs_follow_steps_and_attempts_that_start_later(
    npa: Run, tmp_path: Path, waiting: Path
) -> None:
    text = WAITS.replace("    terminal: true\n", "    next: later\n") + LATER
    write(tmp_path / "pipe", text)
    npa("run", waiting, "--run-id", "r1", "--detach", "--var", f"folder={tmp_path}")
    process = follower(tmp_path, "logs", "r1", "--follow")
    assert first_line(process) == "waiting\n"
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, out) == (0, "attempt 1\nattempt 2\n")
    assert "==> later, attempt 2, rank 0 <==" in err


def test_logs_follow_ends_when_the_driver_is_dead_and_says_what_comes_next(
    npa: Run, tmp_path: Path, waiting: Path
) -> None:
    driver = foreground(tmp_path, waiting)
    until(npa, "r1", "running")
    process = follower(tmp_path, "logs", "r1", "--follow")
    assert first_line(process) == "waiting\n"
    driver.kill()
    driver.wait()
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 3
    assert "the driver of r1 is dead" in err
    assert "`npa workflow resume r1`" in err
    npa("workflow", "cancel", "r1")


def test_a_look_at_a_run_that_nobody_drives_ends_with_3_and_says_resume(
    npa: Run, tmp_path: Path, waiting: Path
) -> None:
    driver = foreground(tmp_path, waiting)
    until(npa, "r1", "running")
    watch = follower(tmp_path, "status", "r1", "--watch", "--interval", "0.1")
    first_line(watch, of_stderr=True)
    driver.kill()
    driver.wait()
    _, err = watch.communicate(timeout=DEADLINE_SECONDS)
    assert watch.returncode == 3
    for said in (err, npa("workflow", "status", "r1", "--watch").stderr):
        assert "the driver of r1 is dead" in said
        assert "`npa workflow resume r1` goes on with it" in said
    assert npa("workflow", "status", "r1").code == 3
    assert npa("workflow", "status", "r1", "--json").code == 3
    (tmp_path / "go").touch()
    assert npa("workflow", "resume", "r1").code == 0
    assert npa("workflow", "status", "r1", "--watch").code == 0


def test_a_watch_tells_each_step_by_name_and_time(npa: Run, tmp_path: Path, waiting: Path) -> None:
    npa("run", waiting, "--run-id", "r1", "--detach", "--var", f"folder={tmp_path}")
    until(npa, "r1", "running")
    process = follower(tmp_path, "status", "r1", "--watch", "--interval", "0.1")
    first_line(process, of_stderr=True)
    (tmp_path / "go").touch()
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert re.search(r"(?m)^\d\d:\d\d:\d\d  succeeded  wait  \d", err)


def test_status_says_what_is_to_come(npa: Run, tmp_path: Path, waiting: Path) -> None:
    text = WAITS.replace("    terminal: true\n", "    next: later\n") + LATER
    write(tmp_path / "pipe", text)
    npa("run", waiting, "--run-id", "r1", "--detach", "--var", f"folder={tmp_path}")
    until(npa, "r1", "running")
    said = npa("workflow", "status", "r1").stdout
    assert "steps      0 of 2 done" in said
    assert re.search(r"(?m)^later +planned$", said)
    waits = npa("workflow", "logs", "r1", "later")
    assert (waits.code, waits.stderr) == (0, "later has not started yet\n")
    npa("workflow", "cancel", "r1")


def test_earlier_attempts_are_named_and_can_be_shown(golden: Golden, tmp_path: Path) -> None:
    spec = in_folder(tmp_path, HEAD + "metadata: {name: two}\ninitial: later\nstates:\n" + LATER)
    golden("run-second-attempt", "run", spec, "--run-id", "r1")
    golden("logs-latest-attempt", "workflow", "logs", "r1", "later")
    golden("logs-attempt-1", "workflow", "logs", "r1", "later", "--attempt", "1")
    golden("logs-attempt-all", "workflow", "logs", "r1", "--attempt", "all")
    golden("logs-no-such-attempt", "workflow", "logs", "r1", "later", "--attempt", "3")
    golden("logs-no-attempt", "workflow", "logs", "r1", "--attempt", "last")


def test_cancel_of_a_run_without_a_driver_is_done_here(
    npa: Run, golden: Golden, tmp_path: Path, waiting: Path
) -> None:
    driver = foreground(tmp_path, waiting)
    until(npa, "r1", "running")
    driver.kill()
    driver.wait()
    result = npa("workflow", "cancel", "r1", "--json")
    assert json.loads(result.stdout)["outcome"] == "cancelled"
    assert result.code == 0


def test_a_killed_driver_is_picked_up_where_it_stopped(
    npa: Run, tmp_path: Path, waiting: Path
) -> None:
    driver = foreground(tmp_path, waiting)
    until(npa, "r1", "running")
    driver.kill()
    driver.wait()
    assert "`npa workflow resume r1`" in npa("workflow", "status", "r1").stderr
    (tmp_path / "go").touch()
    result = npa("workflow", "resume", "r1", "--json")
    document = json.loads(result.stdout)
    assert (document["status"], document["steps"][0]["attempt"]) == ("succeeded", 1)


def test_ctrl_c_cancels_the_run(npa: Run, tmp_path: Path, waiting: Path) -> None:
    driver = foreground(tmp_path, waiting)
    until(npa, "r1", "running")
    driver.send_signal(signal.SIGINT)
    assert driver.wait(DEADLINE_SECONDS) == 130
    assert npa("workflow", "status", "r1").stdout.split()[1] == "CANCELLED"


def test_sigterm_leaves_the_run_for_a_later_driver(npa: Run, tmp_path: Path, waiting: Path) -> None:
    driver = foreground(tmp_path, waiting)
    until(npa, "r1", "running")
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(DEADLINE_SECONDS) == 130
    (tmp_path / "go").touch()
    assert npa("workflow", "resume", "r1").code == 0


def test_two_drivers_of_one_run_one_is_refused(npa: Run, tmp_path: Path, waiting: Path) -> None:
    driver = foreground(tmp_path, waiting)
    until(npa, "r1", "running")
    assert npa("workflow", "resume", "r1").code == 11
    threading.Timer(0, (tmp_path / "go").touch).start()
    assert driver.wait(DEADLINE_SECONDS) == 0


@pytest.mark.parametrize("template", TEMPLATES)
def test_each_template_runs_on_this_machine(npa: Run, tmp_path: Path, template: str) -> None:
    (tmp_path / "pipe").mkdir()
    spec = f"pipe/{template}.yaml"
    npa("workflow", "new", template, "-o", spec)
    result = npa("run", spec, "--run-id", template)
    assert result.code == 0, result.stderr
    assert f"{template} succeeded" in result.stdout


WIDE = (
    HEAD
    + """metadata: {name: wide}
initial: wide
states:
  wide:
    run:
      shell: |
        printf '\\033]0;mine\\a\\n'
        head -c 300000 /dev/zero | tr '\\0' x
        printf '\\nend\\n'
    terminal: true
"""
)


def test_a_line_without_end_is_bounded_by_tail_and_whole_otherwise(
    npa: Run, tmp_path: Path
) -> None:
    npa("run", in_folder(tmp_path, WIDE), "--run-id", "r1")
    last = npa("workflow", "logs", "r1", "--tail", "2")
    assert last.stdout == "x" * 8192 + "\nend\n"
    assert "1 line of wide cut at 8192 bytes" in last.stderr
    command = re.search(r"`npa (.*) > FILE` has it whole", last.stderr)
    assert command is not None
    assert npa(*command[1].split()).stdout == "\x1b]0;mine\a\n" + "x" * 300000 + "\nend\n"


def test_a_terminal_gets_no_command_of_a_log_and_a_pipe_gets_all(
    npa: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npa("run", in_folder(tmp_path, WIDE), "--run-id", "r1")
    monkeypatch.setattr(Output, "stdout_is_terminal", True)
    for follow in ("--follow", "--no-follow"):
        said = npa("workflow", "logs", "r1", follow)
        assert said.stdout == "^[]0;mine^G\n" + "x" * 8192 + "\nend\n"
        assert "`npa workflow logs r1 wide --attempt 1 --rank 0 > FILE`" in said.stderr


def test_a_group_or_a_loop_names_all_that_ran_in_it(npa: Run, tmp_path: Path) -> None:
    (tmp_path / "pipe").mkdir()
    npa("workflow", "new", "loop", "-o", "pipe/loop.yaml")
    npa("run", "pipe/loop.yaml", "--run-id", "r1", "--var", "rounds_max=2")
    titles = re.compile(r"(?m)^==> (.*), rank 0 <==$")
    for stage, paths in (
        ("refine", ["refine[1]/train", "refine[1]/grade", "refine[2]/train", "refine[2]/grade"]),
        ("refine[2]", ["refine[2]/train", "refine[2]/grade"]),
        ("refine/grade", ["refine[1]/grade", "refine[2]/grade"]),
        ("grade", ["refine[1]/grade", "refine[2]/grade"]),
    ):
        said = npa("workflow", "logs", "r1", stage)
        assert (said.code, titles.findall(said.stderr)) == (0, paths)
        assert said.stdout.count('"error"') == sum(path.endswith("grade") for path in paths)
        listed = json.loads(npa("workflow", "artifacts", "r1", "--stage", stage, "--json").stdout)
        assert [one["step"] for one in listed["artifacts"]] == paths
    for command in (("logs", "r1", "refin"), ("artifacts", "r1", "--stage", "refin")):
        wrong = npa("workflow", *command)
        assert (wrong.code, "did you mean 'refine'" in wrong.stderr) == (64, True)


@pytest.mark.parametrize(
    ("template", "error_max", "ends", "rounds"),
    [
        ("gate", "0.05", "publish", 0),
        ("gate", "0.001", "reject", 0),
        ("loop", "0.05", "publish", 2),
    ],
)
def test_the_templates_with_a_gate_decide_by_a_number_of_an_artifact(
    npa: Run, tmp_path: Path, template: str, error_max: str, ends: str, rounds: int
) -> None:
    (tmp_path / "pipe").mkdir()
    npa("workflow", "new", template, "-o", f"pipe/{template}.yaml")
    words = ("--run-id", "r1", "--var", f"error_max={error_max}", "--json")
    document = json.loads(npa("run", f"pipe/{template}.yaml", *words).stdout)
    assert (document["status"], document["terminal"]) == ("succeeded", ends)
    assert len(document["decisions"]) == (rounds or 1)
    for decision in document["decisions"].values():
        report = json.loads(Path(decision["uri"].removeprefix("file://")).read_text())
        assert f"error = {report['error']}" in decision["seen"]
        met = report["error"] <= float(error_max)
        assert (decision["value"] != "gate:none") == met


def foreground(tmp_path: Path, spec: Path) -> subprocess.Popen[bytes]:
    """A driver in a process of its own, to be killed or signalled."""
    words = ["run", str(spec), "--run-id", "r1", "--var", f"folder={tmp_path}"]
    return subprocess.Popen(
        [sys.executable, "-m", "npa.cli.main", *words],
        cwd=tmp_path,
        env=os.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.req("A-11")
def test_a_secret_reaches_the_tasks_and_nothing_that_is_kept(
    npa: Run, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The pipeline itself must not hold the value, or finding it would prove nothing.
    text = TWO_STEPS.replace("echo second;", "case $A_TOKEN in canary-*) echo has it;; esac;")
    monkeypatch.setenv("A_TOKEN", "canary-7f3a")
    spec = in_folder(tmp_path, text)
    result = npa("run", spec, "--run-id", "r1", "--secret-env", "A_TOKEN")
    assert result.code == 0, result.stderr
    assert npa("workflow", "logs", "r1", "second", "--tail", "2").stdout.startswith("has it")
    kept = [path for path in own_home.rglob("*") if path.is_file()]
    assert len(kept) > 5
    assert [path for path in kept if b"canary-7f3a" in path.read_bytes()] == []


def test_a_secret_that_a_state_names_reaches_only_that_state(
    npa: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "canary-7f3a")
    shown = TWO_STEPS.replace("cat word.txt", "echo ${A_TOKEN:+set}")
    text = shown.replace("echo second;", "echo ${A_TOKEN:+set};") + "    secrets: [A_TOKEN]\n"
    npa("run", in_folder(tmp_path, text), "--run-id", "r1")
    assert npa("workflow", "logs", "r1", "first").stdout == "\n"
    assert npa("workflow", "logs", "r1", "second").stdout == "set\nlast\n"


def test_output_may_go_to_a_file_beside_the_pipeline(tmp_path: Path) -> None:
    in_folder(tmp_path, TWO_STEPS)
    log = tmp_path / "pipe" / "run.log"
    with log.open("w") as file:
        subprocess.run(
            [sys.executable, "-m", "npa.cli.main", "run", "p.yaml", "--run-id", "r1"],
            cwd=tmp_path / "pipe",
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            check=True,
        )
    assert "r1 succeeded" in log.read_text()
