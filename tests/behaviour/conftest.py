"""A machine for behaviours: real `npa` processes over one home, and the rule that none outlives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chaos.world import living
from chaos.world import until as came
from npa.orchestration.journal.chain import Journal
from npa.orchestration.journal.frame import Frame
from npa.orchestration.registry import default_run_uri
from npa.orchestration.state import RunState, fold
from npa.storage import StoreOptions, open_store
from npa.target.home import Home

DEADLINE_SECONDS = 60.0
HEAD = "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nmetadata: {name: t}\n"
TRACE = 'echo "$NPA_WORKFLOW_PATH" >> "$WORK/trace"'
WAIT = 'while ! test -e "$WORK/go"; do sleep 0.02; done'
"""Shell of a step that goes on once the test makes the file `go`."""


def chain(_more: Mapping[str, object] | None = None, **shells: str) -> str:
    """States that follow one another, by name; `_more` is added to each of them."""
    names = list(shells)
    states = {
        name: {
            "run": {"shell": shells[name]},
            **({"next": after} if after else {"terminal": True}),
            **(_more or {}),
        }
        for name, after in zip(names, [*names[1:], ""], strict=True)
    }
    return spec(names[0], states)


def group(members: Mapping[str, str], end: str = TRACE, cpus: float = 0.0) -> str:
    """A parallel group `all` of steps, each asking for `cpus`, joined by the last state `end`."""
    tiny = {"resources": "tiny"} if cpus else {}
    states = {
        "all": {"parallel": list(members), "next": "end"},
        **{name: {"run": {"shell": shell}, **tiny} for name, shell in members.items()},
        "end": {"run": {"shell": end}, "terminal": True},
    }
    text = spec("all", states)
    profile = f"resources: {{tiny: {{cpus: {cpus}}}}}\ninitial:"
    return text.replace("initial:", profile, 1) if cpus else text


def spec(initial: str, states: Mapping[str, object]) -> str:
    """A whole file; JSON is YAML."""
    return f"{HEAD}initial: {initial}\nstates: {json.dumps(states)}\n"


@dataclass(frozen=True)
class Said:
    """What one command came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass
class Machine:
    """A home with a project folder; `work` is $WORK of every step."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    options: StoreOptions = field(default_factory=StoreOptions)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.work.mkdir(parents=True)

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def home(self) -> Path:
        return self.root / "home"

    def write(self, text: str, name: str = "pipeline.yaml") -> Path:
        path = self.root / "project" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text if text.startswith("apiVersion") else HEAD + text)
        return path

    def start(
        self, *words: str | Path, env: Mapping[str, str] | None = None, **options: Any
    ) -> Any:
        """Begin `npa <words>` as a process of its own."""
        process = subprocess.Popen(
            [sys.executable, "-m", "npa.cli.main", *map(str, words)],
            cwd=self.root,
            env=self.environment(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self.started.append(process)
        return process

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        base = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root),
            "NPA_CONFIG_DIR": str(self.home),
            "WORK": str(self.work),
            "COLUMNS": "100",
            "NO_COLOR": "1",
        }
        return {**base, **self.env, **(more or {})}

    def npa(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Said:
        return self.said(self.start(*words, env=env))

    def said(self, process: Any) -> Said:
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
        return Said(process.returncode, out, err)

    def submit(self, text: str, *words: str, run_id: str = "r1") -> Any:
        """Begin a foreground driver for `text`."""
        return self.start("run", self.write(text), "--run-id", run_id, "--env", "WORK", *words)

    def traces(self, name: str = "trace") -> list[str]:
        """What the steps wrote to $WORK/<name>: their own count."""
        path = self.work / name
        return path.read_text().split() if path.exists() else []

    def go(self) -> None:
        (self.work / "go").touch()

    def frames(self, run_id: str = "r1", store: str = "") -> tuple[Frame, ...]:
        """The run's journal, verified."""
        uri = f"{store}{run_id}/" if store else default_run_uri(Home(self.home), run_id)
        return Journal(open_store(uri, self.options), time.time).read()

    def state(self, run_id: str = "r1", store: str = "") -> RunState:
        return fold(self.frames(run_id, store))

    def tasks(self) -> dict[int, str]:
        """Living processes of tasks of any run of this home."""
        mine = living(str(self.home))
        marked = living("\0NPA_WORKFLOW_RUN_ID=", environment_only=True)
        return {pid: text for pid, text in mine.items() if pid in marked}

    def until(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        assert came(condition, DEADLINE_SECONDS), f"waited in vain for {what}"

    def until_running(self, path: str) -> None:
        """Wait until a step has written to the trace."""
        self.until(lambda: path in self.traces(), f"{path} to run")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "machine")
    yield made
    made.go()
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    end = time.monotonic() + 15
    while (left := living(str(made.root))) and time.monotonic() < end:
        time.sleep(0.02)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"processes outlived the test: {left}"
