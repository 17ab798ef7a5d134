"""Whole runs by the command line on a real SkyPilot: their journal and artifacts lie in S3."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from npa.observation import Found
from npa.orchestration.skypilot import record
from npa.orchestration.skypilot.record import State
from s3server import S3

pytestmark = pytest.mark.e2e

HEAD = "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nmetadata: {name: bed}\n"
HEAD += "resources:\n  one: {cpus: 1}\n  two: {cpus: 1, num_nodes: 2}\n"
# Nothing can be installed on the bed's nodes: the payload reaches S3 with the task's own helper.
PUT = """\
import os, sys
sys.path.insert(0, os.path.expanduser("~/.npa-task"))
import task
verb, uri, *words = sys.argv[1:]
if verb == "get":
    sys.stdout.buffer.write(task.get(uri))
else:
    task.create(uri, " ".join(words).encode())
"""
CHAIN = """\
initial: first
states:
  first:
    resources: one
    run:
      shell: |
        python3 store.py put "{{run.uri}}first.txt" "hello from $NPA_WORKFLOW_STATE"
        echo "first wrote"
    outputs: [{uri: "{{run.uri}}first.txt"}]
    next: second
  second:
    resources: one
    run:
      shell: |
        word=$(python3 store.py get "{{run.uri}}first.txt")
        python3 store.py put "{{run.uri}}second.txt" "$word, and from $NPA_WORKFLOW_STATE"
    inputs: [{uri: "{{run.uri}}first.txt"}]
    outputs: [{uri: "{{run.uri}}second.txt"}]
    terminal: true
"""
GANG = """\
initial: gang
states:
  gang:
    resources: two
    multiNodeMode: sharded
    run:
      shell: |
        set -eu
        test "$SKYPILOT_NUM_NODES" = 2
        test "$(echo "$SKYPILOT_NODE_IPS" | wc -l)" = 2
        python3 store.py put "{{run.uri}}rank-$SKYPILOT_NODE_RANK.txt" "$(hostname)"
    outputs: [{uri: "{{run.uri}}rank-0.txt"}, {uri: "{{run.uri}}rank-1.txt"}]
    terminal: true
"""
# A second run of the payload fails: its object can be created once.
SLOW = """\
initial: slow
states:
  slow:
    resources: one
    run:
      shell: |
        set -eu
        python3 store.py put "{{run.uri}}began.txt" "$NPA_WORKFLOW_ATTEMPT_ID"
        sleep SECONDS
        python3 store.py put "{{run.uri}}ended.txt" done
    outputs: [{uri: "{{run.uri}}ended.txt"}]
    terminal: true
"""


@dataclass
class Bench:
    """A home, a pipeline's folder and a bucket, and the command line over them."""

    folder: Path
    s3: S3
    bed: Mapping[str, Any]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ},
            **self.s3.environment,
            "HOME": str(self.folder),
            "NPA_SKYPILOT_BIN": self.bed["sky_bin"],
        }

    def session(self, run_id: str) -> Path:
        return self.folder / ".npa/skypilot/sessions" / run_id

    def submit(self, run_id: str, text: str) -> subprocess.Popen[str]:
        """Start `submit` of a pipeline in the background."""
        pipeline = self.folder / run_id
        pipeline.mkdir()
        (pipeline / "pipeline.yaml").write_text(HEAD + text)
        (pipeline / "store.py").write_text(PUT)
        # SkyPilot's tables of accelerators come from the internet otherwise.
        session = self.session(run_id)
        catalog = session / "home/.sky/catalogs/v8/common"
        catalog.mkdir(parents=True)
        session.chmod(0o700)
        for table in Path(self.bed["catalog"]).glob("*.csv"):
            shutil.copy(table, catalog)
        return self.npa(
            *("workflow", "submit", str(pipeline / "pipeline.yaml"), "--engine", "skypilot"),
            *("--infra", self.bed["infra"], "--slurm-config", self.bed["slurm_ssh_config"]),
            *("--store", f"{self.s3.uri}runs/", "--run-id", run_id, "--json"),
        )

    def npa(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "npa.cli.main", *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def ask(self, *words: str) -> dict[str, Any]:
        out, err = self.npa(*words).communicate(timeout=240)
        assert out, err
        document: dict[str, Any] = json.loads(out)
        return document

    def text(self, run_id: str, name: str) -> str:
        seen = self.s3.store(f"runs/{run_id}/").get(name)
        return seen.value.data.decode() if isinstance(seen, Found) else ""

    def until(self, what: Callable[[], bool], seconds: float = 420.0) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, "it did not come"
            time.sleep(0.5)

    def stopped(self, run_id: str) -> bool:
        present = record.load(self.session(run_id))
        return present is not None and present.state is State.STOPPED


@pytest.fixture
def bench(tmp_path: Path, s3: S3, bed: Mapping[str, Any]) -> Iterator[Bench]:
    made = Bench(tmp_path, s3, bed)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
            process.communicate()
    for session in (tmp_path / ".npa/skypilot/sessions").glob("*"):
        stop_session(session, bed)


def stop_session(root: Path, bed: Mapping[str, Any]) -> None:
    """Whatever a failed test left: the server and its controllers."""
    from npa.orchestration.skypilot.record import Kind
    from npa.orchestration.skypilot.session import Session
    from npa.orchestration.skypilot.spec import SessionSpec

    interpreter = Path(bed["sky_bin"]).parent.resolve() / "python"
    Session(SessionSpec(root=root, kind=Kind.RUN, interpreter=interpreter, env={})).stop()


def ended(process: subprocess.Popen[str], seconds: float = 540.0) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


@pytest.mark.req("A-04", "B-10")
def test_a_chain_hands_artifacts_over_s3_and_leaves_no_server(bench: Bench) -> None:
    code, out, err = ended(bench.submit("chain", CHAIN))
    assert code == 0, err
    assert json.loads(out)["status"] == "succeeded"
    assert bench.text("chain", "second.txt") == "hello from first, and from second"
    assert bench.stopped("chain")
    log, _ = bench.npa("workflow", "logs", "chain", "first").communicate(timeout=60)
    assert "first wrote" in log
    assert bench.ask("workflow", "status", "chain", "--json")["status"] == "SUCCEEDED"
    assert bench.stopped("chain")


@pytest.mark.req("B-04")
def test_the_ranks_of_a_gang_see_each_other(bench: Bench) -> None:
    code, _, err = ended(bench.submit("gang", GANG))
    assert code == 0, err
    assert len({bench.text("gang", f"rank-{rank}.txt") for rank in (0, 1)} - {""}) == 2


@pytest.mark.req("E-01", "F-01")
def test_a_killed_driver_is_replaced_and_the_payload_runs_once(bench: Bench) -> None:
    driver = bench.submit("killed", SLOW.replace("SECONDS", "40"))
    bench.until(lambda: bool(bench.text("killed", "began.txt")))
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    seen = bench.ask("workflow", "status", "killed", "--json")
    assert (seen["status"], seen["live_verified"]) == ("RUNNING", True)
    code, _, err = ended(bench.npa("workflow", "resume", "killed"))
    assert code == 0, err
    assert bench.text("killed", "ended.txt") == "done"
    assert bench.stopped("killed")


@pytest.mark.req("E-04", "F-03")
def test_a_run_cancelled_in_mid_wave_is_seen_to_end(bench: Bench) -> None:
    driver = bench.submit("ended", SLOW.replace("SECONDS", "900"))
    bench.until(lambda: bool(bench.text("ended", "began.txt")))
    told = bench.ask("workflow", "cancel", "ended", "--reason", "enough", "--json")
    assert (told["outcome"], told["verification"]) == ("cancelled", "verified")
    assert [job["ended"] for job in told["jobs"]] == [True]
    code, _, _ = ended(driver, 60)
    assert code == 1
    assert bench.text("ended", "ended.txt") == ""
    assert bench.stopped("ended")
