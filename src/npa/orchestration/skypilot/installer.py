"""Fill one fresh virtual environment with the locked SkyPilot, and prove that it starts."""

from __future__ import annotations

import importlib.resources
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from npa.errors import EngineError

VERSION = "0.12.2"
LOCK_NAME = f"requirements-skypilot-{VERSION}.txt"
PYTHONS = ((3, 11), (3, 12))  # for which the lock was resolved and tried
INSTALL_SECONDS_MAX = 1800.0
PROBE_SECONDS_MAX = 120.0

# Run by the new interpreter with -I and a home of its own. The server module is imported and asked
# for its health over ASGI: with a wrong fastapi it fails at import, though `import sky` works.
PROBE = """
import asyncio, json, importlib.metadata
import sky, sky.jobs
import kubernetes
from sky.server import server
sent = []
async def ask():
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
             "path": "/api/health", "raw_path": b"/api/health", "root_path": "", "scheme": "http",
             "query_string": b"", "headers": [(b"host", b"127.0.0.1")],
             "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}
    async def send(message):
        sent.append(message)
    await server.app(scope, receive, send)
asyncio.run(ask())
body = json.loads(b"".join(m.get("body", b"") for m in sent))
print("NPA-PROBE " + json.dumps({
    "version": sky.__version__, "server_version": body["version"], "status": body["status"],
    "api_version": body["api_version"], "commit": body["commit"],
    "kubernetes_client": importlib.metadata.version("kubernetes")}))
"""


def lock_text() -> str:
    """The hash-locked requirements that come with this package."""
    folder = importlib.resources.files("npa.orchestration.skypilot")
    return (folder / LOCK_NAME).read_text(encoding="utf-8")


def lock_digest() -> str:
    return sha256(lock_text().encode()).hexdigest()


class Probe(Struct, frozen=True):
    """What a started SkyPilot says of itself."""

    version: str
    api_version: str
    commit: str
    kubernetes_client: str


class Installer(Protocol):
    """The two slow steps of a bootstrap, so that its transaction can be tested without them."""

    def install(self, python: Path, folder: Path) -> None: ...

    def probe(self, folder: Path) -> Probe: ...


class RealInstaller(Struct, frozen=True):
    """Installs with `uv` if there is one, with `pip` otherwise.

    `env` is the caller's environment: it says how registries are reached, and nothing else of it
    is used (no PYTHONPATH, no VIRTUAL_ENV).
    """

    env: Mapping[str, str]

    def install(self, python: Path, folder: Path) -> None:
        """Make the environment and install the lock into it. Raises EngineError."""
        lock = folder.parent / f"{folder.name}.txt"
        lock.write_text(lock_text(), encoding="utf-8")
        try:
            uv = _uv(self.env)
            inner = folder / "bin" / "python"
            if uv:
                self._run([uv, "venv", "--quiet", "--python", str(python), str(folder)])
                common = [uv, "pip", "install", "--quiet", "--compile-bytecode"]
                self._run([*common, "--python", str(inner), "--require-hashes", "-r", str(lock)])
                return
            self._venv(python, folder)
            pip = self._pip(python, inner)
            self._run([*pip, "install", "--quiet", "--require-hashes", "-r", str(lock)])
        finally:
            lock.unlink(missing_ok=True)

    def _venv(self, python: Path, folder: Path) -> None:
        try:
            self._run([str(python), "-m", "venv", str(folder)])
        except EngineError:  # Debian without python3-venv: pip comes from outside
            self._run([str(python), "-m", "venv", "--clear", "--without-pip", str(folder)])

    def _pip(self, python: Path, inner: Path) -> list[str]:
        if (inner.parent / "pip").exists():
            return [str(inner), "-m", "pip"]
        for outer in (str(python), sys.executable):
            if (
                subprocess.run([outer, "-m", "pip", "--version"], capture_output=True).returncode
                == 0
            ):
                return [outer, "-m", "pip", "--python", str(inner)]
        raise EngineError(
            "there is neither `uv` nor `pip` to install SkyPilot with",
            hint="install pip first, on Debian `apt-get install python3-pip`",
            code="SKYPILOT_BOOTSTRAP",
        )

    def probe(self, folder: Path) -> Probe:
        """Import it, ask its server for its health, run its command. Raises EngineError."""
        home = folder.parent / f"{folder.name}.home"
        home.mkdir(mode=0o700)
        env = {
            "HOME": str(home),
            "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        }
        try:
            said = _call(
                [str(folder / "bin" / "python"), "-I", "-c", PROBE], env, PROBE_SECONDS_MAX
            )
            told = _call([str(folder / "bin" / "sky"), "--version"], env, PROBE_SECONDS_MAX)
        finally:
            shutil.rmtree(home, ignore_errors=True)
        lines = [line for line in said.splitlines() if line.startswith("NPA-PROBE ")]
        if len(lines) != 1:
            raise EngineError(
                "the new SkyPilot did not answer its probe", code="SKYPILOT_BOOTSTRAP"
            )
        facts = json.loads(lines[0].removeprefix("NPA-PROBE "))
        seen = {facts["version"], facts["server_version"], told.split()[-1] if told else ""}
        if seen != {VERSION} or facts["status"] != "healthy":
            raise EngineError(
                f"the new SkyPilot says {sorted(seen)} where {VERSION} is needed",
                code="SKYPILOT_BOOTSTRAP",
            )
        return Probe(
            facts["version"], facts["api_version"], facts["commit"], facts["kubernetes_client"]
        )

    def _run(self, argv: Sequence[str]) -> None:
        dropped = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")
        _call(argv, {k: v for k, v in self.env.items() if k not in dropped}, INSTALL_SECONDS_MAX)


def _uv(env: Mapping[str, str]) -> str:
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.exists() else shutil.which("uv", path=env.get("PATH", "")) or ""


def _call(argv: Sequence[str], env: Mapping[str, str], seconds_max: float) -> str:
    """Standard output of a child that must succeed. Raises EngineError with its last lines."""
    try:
        done = subprocess.run(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EngineError(
            f"`{Path(argv[0]).name}` did not end within {seconds_max:.0f} s",
            code="SKYPILOT_BOOTSTRAP",
        ) from None
    except OSError as error:
        raise EngineError(
            f"`{argv[0]}` cannot be run ({error.strerror})", code="SKYPILOT_BOOTSTRAP"
        ) from error
    if done.returncode:
        tail = " / ".join(done.stderr.strip().splitlines()[-3:])[:600]
        raise EngineError(
            f"`{Path(argv[0]).name} {argv[1] if len(argv) > 1 else ''}` failed "
            f"with exit code {done.returncode}",
            hint=tail,
            code="SKYPILOT_BOOTSTRAP",
        )
    return done.stdout


def find_python(explicit: str, env: Mapping[str, str]) -> Path:
    """The interpreter to build with: `explicit`, NPA_SKYPILOT_PYTHON, ours, then PATH.

    Raises EngineError if a named one, or none at all, is of a supported version.
    """
    named = explicit or env.get("NPA_SKYPILOT_PYTHON", "")
    if named:
        found = shutil.which(named, path=env.get("PATH", ""))
        if found and _version_of(found) in PYTHONS:
            return Path(found)
        raise EngineError(
            f"`{named}` is not a Python 3.11 or 3.12",
            not_done="nothing was installed",
            hint="SkyPilot's lock was resolved for these two",
            code="SKYPILOT_PYTHON",
        )
    if sys.version_info[:2] in PYTHONS:
        return Path(getattr(sys, "_base_executable", "") or sys.executable)
    for name in ("python3.12", "python3.11", "python3"):
        found = shutil.which(name, path=env.get("PATH", ""))
        if found and _version_of(found) in PYTHONS:
            return Path(found)
    raise EngineError(
        "no Python 3.11 or 3.12 was found",
        not_done="nothing was installed",
        hint="name one with `--python`",
        code="SKYPILOT_PYTHON",
    )


def _version_of(python: str) -> tuple[int, ...]:
    try:
        said = _call(
            [python, "-I", "-c", "import sys; print(*sys.version_info[:2])"],
            {"PATH": "/usr/bin:/bin"},
            20.0,
        )
    except EngineError:
        return ()
    return tuple(int(word) for word in said.split())
