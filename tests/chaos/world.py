"""One home and one run under attack: real drivers, and what is seen of them from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from npa.observation import Found
from npa.orchestration.journal.chain import Journal
from npa.orchestration.journal.frame import Frame
from npa.orchestration.registry import default_run_uri
from npa.storage import StoreOptions, open_store
from npa.target.home import Home

DRIVER_SECONDS_MAX = 120.0
GONE_SECONDS_MAX = 10.0
POLL_SECONDS = 0.0005


@dataclass
class World:
    """A run of `spec` with all that belongs to it below `root`.

    `env` is added to the drivers' environment, `store` is `--store`, `options` open it from here.
    """

    root: Path
    spec: Path
    run_id: str
    env: Mapping[str, str] = field(default_factory=dict)
    store: str = ""
    options: StoreOptions = field(default_factory=StoreOptions)
    submit_options: tuple[str, ...] = ()
    drivers: int = 0

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.home = Home(self.root / "home").make()
        self.trace = self.root / "trace"

    # -- places ------------------------------------------------------------------------------------

    @property
    def run_uri(self) -> str:
        if self.store:
            return f"{self.store}{self.run_id}/"
        return default_run_uri(self.home, self.run_id)

    @property
    def jobs(self) -> Path:
        return self.home.jobs / self.run_id

    def frames(self) -> tuple[Frame, ...]:
        """The whole journal, its chain verified. Raises JournalCorrupt and StorageError."""
        return Journal(open_store(self.run_uri, self.options), time.time).read()

    def keep_journal(self) -> None:
        """Copy what stands in the journal into a file beside the drivers' logs, as it is."""
        store = open_store(self.run_uri, self.options)
        listed = store.list("npa-workflow/journal")
        with (self.root / "journal.jsonl").open("wb") as sink:
            for info in listed.value if isinstance(listed, Found) else ():
                blob = store.get(info.key)
                sink.write(blob.value.data + b"\n" if isinstance(blob, Found) else b"?\n")

    def lines(self) -> list[list[str]]:
        """The trace: `[begin|end, path, attempt ID, rank]` a line, in the order of the writes."""
        return [line.split() for line in _text(self.trace).splitlines()]

    # -- drivers -----------------------------------------------------------------------------------

    def submit(self) -> Driver:
        words = ["submit", str(self.spec), "--run-id", self.run_id, "--engine", "local"]
        store = ["--store", self.store] if self.store else []
        return self.npa(*words, *store, *self.submit_options, "--env", "CHAOS_TRACE")

    def resume(self) -> Driver:
        return self.npa("resume", self.run_id)

    def npa(self, *words: str) -> Driver:
        """Start `npa workflow <words>`; what it says lies in `<root>/drivers/`."""
        self.drivers += 1
        log = self.root / "drivers" / f"{self.drivers:03d}-{words[0]}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "npa.cli.main", "workflow", *words],
                cwd=self.root,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )
        return Driver(process, log)

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.root),
            "NPA_CONFIG_DIR": str(self.home.path),
            "CHAOS_TRACE": str(self.trace),
            "NO_COLOR": "1",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            **self.env,
        }

    # -- processes ---------------------------------------------------------------------------------

    def tasks(self) -> dict[int, str]:
        """Living processes of the run's tasks, by the mark that each of them carries."""
        return living(f"\0NPA_WORKFLOW_RUN_ID={self.run_id}\0", environment_only=True)

    def helpers(self) -> dict[int, str]:
        """Zygotes and shims of this home; tasks and drivers carry its path, too."""
        return living(str(self.home.path))

    def kill_all(self) -> None:
        """End whatever is left, whatever it is (only after a check has told of it)."""
        for pid in {**self.tasks(), **self.helpers()}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@dataclass
class Driver:
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        return _text(self.log)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> bool:
        """SIGKILL; True if it was alive to be killed."""
        self.process.kill()
        return self.process.wait() == -signal.SIGKILL

    def end(self) -> int:
        """Wait for its exit code. A driver that hangs is killed, and that is an AssertionError."""
        try:
            return self.process.wait(DRIVER_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"driver hung for {DRIVER_SECONDS_MAX} s: {self.said}") from None


def living(mark: str, *, environment_only: bool = False) -> dict[int, str]:
    """Processes (not zombies, not this one) with `mark` in their environment or command line."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        command = _bytes(f"{entry.path}/cmdline")
        seen = b"\0" + _bytes(f"{entry.path}/environ") + (b"" if environment_only else command)
        if command and mark.encode() in seen:
            found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")[:120]
    return found


def until(condition: Callable[[], bool], seconds: float = GONE_SECONDS_MAX) -> bool:
    """Wait for a condition; False if it did not come in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
