"""What tests of the local engine share: jobs in one line, waiting, and a head count."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from npa.observation import Found
from npa.orchestration.engine import ExactJob, Job, JobRef, JobStatus, Launched, Task
from npa.orchestration.local.engine import LocalEngine
from npa.workflow.step import Command, Profile, Step

DEADLINE_SECONDS = 30.0


def step(
    name: str,
    shell: str = "",
    *,
    argv: tuple[str, ...] = (),
    setup: str = "",
    profile: Profile | None = None,
) -> Step:
    command = Command(argv=argv, shell=shell, setup=setup)
    return Step(name, name, command, profile or Profile())


def job(
    name: str,
    shell: str = "",
    *,
    argv: tuple[str, ...] = (),
    setup: str = "",
    ranks: int = 1,
    grace: float = 5.0,
    workdir: Path | str = "",
    profile: Profile | None = None,
    **env: str,
) -> Job:
    one = step(name, shell, argv=argv, setup=setup, profile=profile or Profile(num_nodes=ranks))
    return Job(name, f"key-{name}", (Task(one, env),), str(workdir), grace)


def ref(of: Job, native_id: str = "") -> JobRef:
    return JobRef(of.name, of.key, native_id)


def status(engine: LocalEngine, of: Job) -> JobStatus:
    seen = engine.observe([ref(of)])[of.name]
    assert isinstance(seen, Found), seen
    return seen.value


def until(condition: Callable[[], bool], what: str = "the condition") -> None:
    """Wait for a condition of another process; the deadline only bounds a broken test."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.005)


def settled(engine: LocalEngine, of: Job) -> JobStatus:
    """Drive `observe` and `wait` as a driver does, until the job is over."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not (seen := status(engine, of)).settled:
        assert time.monotonic() < end, f"{of.name} is not over: {seen}"
        engine.wait(1.0)
    return seen


def exact(engine: LocalEngine, of: Job) -> ExactJob:
    return status(engine, of).exact


def shim_pid(seen: JobStatus) -> int:
    return int(seen.exact.native_id.split("@")[0])


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def living(marker: str) -> dict[int, str]:
    """Processes (zombies apart) whose environment or command line holds `marker`."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environ = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if command and marker.encode() in environ + command:
            found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def counted(name: str, home: Path, then: str = "true", **more: object) -> Job:
    return job(name, f"echo {name} >> {home}/runs; {then}", **more)  # type: ignore[arg-type]


def launched_and_settled(engine: LocalEngine, one: Job) -> JobStatus:
    assert isinstance(engine.launch(one), Launched)
    return settled(engine, one)
