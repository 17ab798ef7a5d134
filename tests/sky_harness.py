"""A SkyPilot that is none, behind the whole command line: stand-in server, stand-in bridge, S3.

`sky` is an environment that npa takes for SkyPilot 0.12.2. Its API server is a real process, found
and proven by /proc; its bridge answers from the world's file. With `ends` in the world (a status
word) each job that is looked at twice ends so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from npa.orchestration.skypilot import connect, jobqueue, ownership, procfs, record
from npa.orchestration.skypilot import session as session_module
from npa.orchestration.skypilot.record import Kind
from npa.orchestration.skypilot.spec import SessionSpec
from orchestration.skypilot.standin_server import make_interpreter
from s3server import S3

STANDIN = Path(__file__).parent / "orchestration/skypilot/standin_bridge.py"
WORLD = {"jobs": [], "faults": {}, "requests": {}, "posts": 0, "ends": "SUCCEEDED"}

STOP = session_module.Session.stop  # a test may have put a fault in its place


@dataclass(frozen=True)
class Sky:
    """The fake: its environment, its world and npa's home."""

    folder: Path
    home: Path
    s3: S3

    @property
    def world(self) -> Path:
        return self.folder / "world.json"

    def read(self) -> dict[str, Any]:
        return dict(json.loads(self.world.read_text()))

    def change(self, **more: Any) -> None:
        self.world.write_text(json.dumps(self.read() | more))

    def session(self, run_id: str) -> Path:
        return self.home / "skypilot/sessions" / run_id

    def living(self, root: Path) -> tuple[procfs.Process, ...]:
        """Processes of a session that live."""
        present = record.load(root)
        return ownership.sight(present).all if present else ()

    def words(self, run_id: str) -> tuple[str, ...]:
        """Options of a submit that goes to this fake."""
        store = f"{self.s3.uri}runs/"
        return ("--infra", "slurm/bed", "--store", store, "--run-id", run_id)


@pytest.fixture
def sky(tmp_path: Path, own_home: Path, s3: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sky]:
    if not procfs.supported():
        pytest.skip("an API server is owned by what /proc says")
    folder = tmp_path / "sky"
    interpreter = make_interpreter(folder)
    info = next(folder.glob("lib/python3*/site-packages")) / "skypilot-0.12.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: skypilot\nVersion: 0.12.2\n")
    bin_path = interpreter.with_name("sky")
    bin_path.write_text("#!/bin/sh\nexit 0\n")
    bin_path.chmod(0o755)
    made = Sky(folder, own_home / ".npa", s3)
    made.world.write_text(json.dumps(WORLD))
    bridge = folder / "bridge.py"
    bridge.write_text(
        f"import runpy, sys\nsys.argv.append({str(made.world)!r})\n"
        f"runpy.run_path({str(STANDIN)!r}, run_name='__main__')\n"
    )
    slurm = own_home / ".slurm/config"
    slurm.parent.mkdir()
    slurm.write_text("Host bed\n  HostName 127.0.0.1\n")
    monkeypatch.setattr(connect, "SCRIPT", bridge)
    monkeypatch.setattr(jobqueue, "GAP_SECONDS", 0.05)
    for name, value in {**s3.environment, "NPA_SKYPILOT_BIN": str(bin_path)}.items():
        monkeypatch.setenv(name, value)
    yield made
    for path in own_home.rglob(record.NAME):
        present = record.load(path.parent)
        if present is not None:
            spec = SessionSpec(path.parent, Kind.RUN, Path(present.interpreter), {})
            STOP(session_module.Session(spec))
    session_module._collect()
