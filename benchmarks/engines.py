"""How each engine is started for one shape: npa, the floors, the peers in their environments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import shapes
from measure import clean_environment

HERE = Path(__file__).parent
INSTALL_SECONDS_MAX = 600


@dataclass(frozen=True, slots=True)
class Call:
    """One prepared command, to be run in `cwd`."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Engine:
    """`prepare(folder, shape, steps)` writes what the engine needs into an empty folder."""

    name: str
    a_step_is: str
    prepare: Callable[[Path, str, int], Call]


class Missing(Exception):
    """An engine that cannot run here, and why."""


def npa_command() -> str:
    """The `npa` of the interpreter that runs this benchmark.

    Raises: Missing, if it is not installed.
    """
    beside = Path(sys.executable).parent / "npa"
    if not beside.exists():
        raise Missing("`npa` is not installed beside this interpreter")
    return str(beside)


def npa(cache: Path) -> Engine:
    command = npa_command()

    def prepare(folder: Path, shape: str, steps: int) -> Call:
        (folder / "flow").mkdir()
        (folder / "flow" / "flow.yaml").write_text(shapes.npa(shape, steps))
        argv = (command, "workbench", "workflow", "submit", "flow/flow.yaml", "--engine", "local")
        return Call(argv, npa_environment(folder / "home", cache))

    return Engine("npa, local engine", "child + durable journal", prepare)


def npa_environment(home: Path, cache: Path) -> dict[str, str]:
    """A home of its own, and bytecode kept out of the source tree."""
    return {"NPA_CONFIG_DIR": str(home), "PYTHONPYCACHEPREFIX": str(cache / "bytecode")}


def floors() -> list[Engine]:
    def bare(_: Path, shape: str, steps: int) -> Call:
        return Call((sys.executable, str(HERE / "floor.py"), shape, str(steps)))

    def durable(folder: Path, shape: str, steps: int) -> Call:
        call = bare(folder, shape, steps)
        return Call((*call.argv, str(folder / "journal")))

    def make(folder: Path, shape: str, steps: int) -> Call:
        if shutil.which("make") is None:
            raise Missing("`make` is not installed")
        (folder / "Makefile").write_text(shapes.makefile(shape, steps))
        return Call(("make", "-s", f"-j{shapes.AT_ONCE}", "all"))

    return [
        Engine("make -j2", "child", make),
        Engine("bare Python loop", "child", bare),
        Engine("bare loop + 2 fsyncs", "child + durable lines", durable),
    ]


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    requirement: str
    a_step_is: str
    command: Callable[[Path, Path, str, int], Call]  # environment's bin, folder, shape, steps


def _settings(folder: Path, shape: str, steps: int) -> dict[str, str]:
    return {"SHAPE": shape, "STEPS": str(steps), "OUT": str(folder / "out")}


def _luigi(bin_: Path, folder: Path, shape: str, steps: int) -> Call:
    (folder / "out").mkdir()
    argv = (str(bin_ / "luigi"), "--module", "luigi_flow", "Everything", "--local-scheduler")
    env = {**_settings(folder, shape, steps), "PYTHONPATH": str(HERE / "peers")}
    return Call((*argv, "--workers", "1", "--log-level", "WARNING"), env)


def _doit(bin_: Path, folder: Path, shape: str, steps: int) -> Call:
    flow, store = str(HERE / "peers" / "doit_flow.py"), str(folder / "doit.db")
    workers = () if shape == "chain" else ("-n", str(shapes.AT_ONCE), "-P", "thread")
    argv = (str(bin_ / "doit"), "run", "-f", flow, "-d", str(folder), "--db-file", store, *workers)
    return Call(argv, _settings(folder, shape, steps))


def _snakemake(bin_: Path, folder: Path, shape: str, steps: int) -> Call:
    (folder / "Snakefile").write_text(shapes.snakefile(shape, steps))
    argv = (str(bin_ / "snakemake"), f"-c{shapes.AT_ONCE}", "-q", "all")
    return Call(argv, {"XDG_CACHE_HOME": str(folder / "cache")})


def _dagster(bin_: Path, folder: Path, shape: str, steps: int) -> Call:
    (folder / "home").mkdir()
    (folder / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    argv = (str(bin_ / "python"), str(HERE / "peers" / "dagster_flow.py"))
    return Call(argv, {**_settings(folder, shape, steps), "DAGSTER_HOME": str(folder / "home")})


def _prefect(bin_: Path, folder: Path, shape: str, steps: int) -> Call:
    quiet = {
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "DO_NOT_TRACK": "1",
    }
    env = {**_settings(folder, shape, steps), "PREFECT_HOME": str(folder / "home"), **quiet}
    return Call((str(bin_ / "python"), str(HERE / "peers" / "prefect_flow.py")), env)


PEERS = (
    Peer("doit", "doit==0.37.0", "child", _doit),
    Peer("luigi", "luigi==3.8.1", "child + file target", _luigi),
    Peer("snakemake", "snakemake==9.27.1", "shell + file target", _snakemake),
    Peer("dagster", "dagster==1.13.28", "child + SQLite events", _dagster),
    Peer("prefect", "prefect==3.9.1", "child + own server", _prefect),
)


def installed(peer: Peer, cache: Path) -> Engine:
    """The peer in its own environment below `cache`, installed and byte-compiled on first use.

    Raises: Missing, with the last line that the installer said.
    """
    home = cache / "peers" / peer.requirement
    ready = home / "ready"
    if not ready.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.parent.mkdir(parents=True, exist_ok=True)
        for argv in _installation(home, peer.requirement):
            _install(argv)
        ready.touch()

    def prepare(folder: Path, shape: str, steps: int) -> Call:
        return peer.command(home / "bin", folder, shape, steps)

    return Engine(peer.requirement.replace("==", " "), peer.a_step_is, prepare)


def _installation(home: Path, requirement: str) -> list[tuple[str, ...]]:
    python = str(home / "bin" / "python")
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        first: list[tuple[str, ...]] = [
            (sys.executable, "-m", "venv", str(home)),
            (python, "-m", "pip", "install", "-q", requirement),
        ]
    else:
        first = [
            (uv, "venv", "-q", "--python", sys.executable, str(home)),
            (uv, "pip", "install", "-q", "--python", python, requirement),
        ]
    return [*first, (python, "-m", "compileall", "-q", "-j2", str(home / "lib"))]


def _install(argv: tuple[str, ...]) -> None:
    try:
        done = subprocess.run(
            argv,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"installing took more than {INSTALL_SECONDS_MAX} s") from None
    # Some packages carry files that are no valid Python; compiling the rest is what counts.
    if done.returncode != 0 and "compileall" not in argv:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise Missing(f"not installable: {said[-1].strip()[:160] if said else 'no reason given'}")
