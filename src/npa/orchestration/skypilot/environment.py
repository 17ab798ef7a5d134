"""SkyPilot's own virtual environment: made, checked and removed as a transaction.

    <path>/.npa-skypilot          says that the folder is ours; without it nothing is touched
    <path>/envs/<id>/             an environment, built in its final place
    <path>/envs/<id>/.npa-ok      written last: what was installed and what it said of itself
    <path>/current -> envs/<id>   the one in use; replaced by one atomic rename

A crash at any point leaves `current` as it was. What a crash left behind has no `.npa-ok`, or is
not current, and goes with the next bootstrap, unless a process still runs from it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from npa.errors import EngineError
from npa.orchestration.skypilot.installer import VERSION, Installer, lock_digest

OWNER = ".npa-skypilot"
OK = ".npa-ok"
SCHEMA = "npa.skypilot.environment.v1"


class Installed(Struct, frozen=True):
    """A complete environment. `digest` is that of the lock it was made from."""

    folder: Path
    version: str
    api_version: str
    kubernetes_client: str
    digest: str
    python: str
    installed_at: float

    @property
    def sky_bin(self) -> Path:
        return self.folder / "bin" / "sky"

    @property
    def up_to_date(self) -> bool:
        return self.version == VERSION and self.digest == lock_digest()


class Bootstrapped(Struct, frozen=True):
    installed: Installed
    sky_bin: Path  # through `current`, so that it stays true after the next bootstrap
    reused: bool


def status(path: Path) -> Installed | None:
    """The environment in use under `path`, or None if there is none that was finished."""
    if not _is_ours(path):
        return None
    current = path / "current"
    return _read_ok(current.resolve()) if current.is_symlink() else None


def stable_bin(path: Path) -> Path:
    """The path to put into NPA_SKYPILOT_BIN: it survives the next bootstrap."""
    return path / "current" / "bin" / "sky"


def bootstrap(
    path: Path,
    *,
    python: Path,
    installer: Installer,
    protected: tuple[Path, ...],
    fresh: bool = False,
) -> Bootstrapped:
    """Create or reuse the environment under `path`.

    `protected` are folders that may not be used (home, our own environment). With `fresh` a new
    one is made even if the present one fits. Raises EngineError; the present one then stays.
    """
    _refuse_path(path, protected)
    _take_ownership(path)
    with _locked(path):
        present = status(path)
        if present is not None and present.up_to_date and not fresh:
            return Bootstrapped(present, stable_bin(path), reused=True)
        _sweep(path, keep=present)
        installed = _build(path, python, installer)
        _point_at(path, installed.folder)
        _sweep(path, keep=installed)
    return Bootstrapped(installed, stable_bin(path), reused=False)


def verify(path: Path, installer: Installer) -> Installed:
    """Probe the environment in use. Raises EngineError with the way out."""
    present = status(path)
    if present is None:
        raise EngineError(
            f"there is no SkyPilot environment at {path}",
            next_command="npa skypilot bootstrap",
            code="SKYPILOT_ABSENT",
        )
    installer.probe(present.folder)
    return present


def uninstall(path: Path) -> bool:
    """Remove what `bootstrap` made. False if there was nothing. Raises EngineError."""
    if not path.exists() and not path.is_symlink():
        return False
    if not _is_ours(path):
        raise _foreign(path)
    with _locked(path):
        users = _users_of(path)
        if users:
            raise EngineError(
                f"process {users[0]} still runs from {path}",
                not_done="nothing was removed",
                hint="finish or cancel the runs that use it: their API servers run from there",
                code="SKYPILOT_IN_USE",
            )
        # `current` goes first: from then on nothing half removed can be mistaken for a whole one.
        (path / "current").unlink(missing_ok=True)
        shutil.rmtree(path / "envs", ignore_errors=True)
        for name in (".lock", OWNER):
            (path / name).unlink(missing_ok=True)
    try:
        path.rmdir()
    except OSError as error:
        raise EngineError(
            f"{path} holds something that is not ours, so the folder stays",
            code="SKYPILOT_FOREIGN_PATH",
        ) from error
    return True


# -- ownership of the folder -------------------------------------------------------------------


def _refuse_path(path: Path, protected: tuple[Path, ...]) -> None:
    if not path.is_absolute():
        raise EngineError(f"{path} is not an absolute path", code="SKYPILOT_FOREIGN_PATH")
    if path.is_symlink():
        raise EngineError(
            f"{path} is a symbolic link",
            not_done="nothing was installed",
            hint="name the folder itself",
            code="SKYPILOT_FOREIGN_PATH",
        )
    real = path.resolve()
    for folder in (Path("/"), Path(sys.prefix).resolve(), *(p.resolve() for p in protected)):
        if real == folder or real in folder.parents:
            raise EngineError(
                f"{path} is, or holds, {folder}",
                not_done="nothing was installed",
                hint="name a folder of its own, e.g. with `--path`",
                code="SKYPILOT_FOREIGN_PATH",
            )
    if Path(sys.prefix).resolve() in real.parents:
        raise EngineError(
            f"{path} lies inside npa's own environment",
            not_done="nothing was installed",
            code="SKYPILOT_FOREIGN_PATH",
        )


def _is_ours(path: Path) -> bool:
    marker = path / OWNER
    try:
        seen = marker.lstat()
        document = json.loads(marker.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return seen.st_uid == os.geteuid() and document == {"schema": SCHEMA}


def _take_ownership(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _is_ours(path):
        return
    if any(entry.name != f"{OWNER}.new" for entry in path.iterdir()):
        raise _foreign(path)
    _write(path / OWNER, {"schema": SCHEMA})


def _foreign(path: Path) -> EngineError:
    return EngineError(
        f"{path} was not made by `npa skypilot bootstrap`",
        not_done="nothing was changed",
        hint="name another folder with `--path`, or empty this one yourself",
        code="SKYPILOT_FOREIGN_PATH",
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EngineError(
                f"another bootstrap is at work in {path}",
                not_done="nothing was changed",
                hint="wait for it to end",
                code="SKYPILOT_LOCKED",
            ) from None
        yield
    finally:
        os.close(handle)


# -- the transaction ---------------------------------------------------------------------------


def _build(path: Path, python: Path, installer: Installer) -> Installed:
    envs = path / "envs"
    envs.mkdir(mode=0o700, exist_ok=True)
    folder = envs / f"{VERSION}-{secrets.token_hex(4)}"
    try:
        installer.install(python, folder)
        probe = installer.probe(folder)
        _write(
            folder / OK,
            {
                "schema": SCHEMA,
                "version": probe.version,
                "api_version": probe.api_version,
                "kubernetes_client": probe.kubernetes_client,
                "lock_sha256": lock_digest(),
                "python": str(python),
                "installed_at": round(time.time(), 3),
            },
        )
    except EngineError as error:
        shutil.rmtree(folder, ignore_errors=True)
        error.not_done = error.not_done or "nothing was changed: the present environment stays"
        raise
    installed = _read_ok(folder)
    if installed is None:
        raise EngineError(
            "the marker of the new environment is unreadable", code="SKYPILOT_BOOTSTRAP"
        )
    return installed


def _point_at(path: Path, folder: Path) -> None:
    staged = path / "current.new"
    staged.unlink(missing_ok=True)
    staged.symlink_to(Path("envs") / folder.name)
    staged.replace(path / "current")
    _sync(path)


def _sweep(path: Path, keep: Installed | None) -> None:
    """Remove environments that are not in use: leftovers of a crash, and replaced ones."""
    envs = path / "envs"
    if not envs.is_dir():
        return
    for entry in envs.iterdir():
        if keep is not None and entry == keep.folder:
            continue
        if entry.is_dir() and not entry.is_symlink():
            if not _users_of(entry):
                shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _users_of(folder: Path) -> list[int]:
    """Processes whose command line begins with an interpreter in `folder` (Linux; else none)."""
    prefix = os.fsencode(folder.resolve()) + b"/"
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            argv = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(prefix) for word in argv[:2]):
            found.append(int(entry.name))
    return sorted(found)


def _read_ok(folder: Path) -> Installed | None:
    try:
        document = json.loads((folder / OK).read_text(encoding="utf-8"))
        return Installed(
            folder=folder,
            version=str(document["version"]),
            api_version=str(document["api_version"]),
            kubernetes_client=str(document["kubernetes_client"]),
            digest=str(document["lock_sha256"]),
            python=str(document["python"]),
            installed_at=float(document["installed_at"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, document: Mapping[str, object]) -> None:
    """A small file that is there whole or not at all, on disk when this returns."""
    staged = path.with_name(path.name + ".new")
    with staged.open("w", encoding="utf-8") as file:
        json.dump(document, file, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    staged.chmod(0o600)
    staged.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
