"""Sessions that end: a check that only looks, and a smoke whose workload must be proven gone.

    <parent>/cluster-validation/<scope>/scope.lock
    <parent>/cluster-validation/<scope>/current.json     which session, in which phase
    <parent>/cluster-validation/<scope>/session-<hex>/   the session itself

A scope is one kubeconfig with one context. A check reports success only after its server has
stopped. A smoke that is not proven gone keeps its session and its name, and stops every check of
that scope until it is taken up again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from msgspec import Struct

from npa.errors import EngineError
from npa.orchestration.skypilot.record import write_private
from npa.orchestration.skypilot.refusals import Refusal, refuse
from npa.orchestration.skypilot.session import Session, require_linux
from npa.orchestration.skypilot.spec import SessionSpec, make_folder

MakeSpec = Callable[[Path], SessionSpec]


class Phase(Enum):
    CHECKING = "checking"
    SMOKE_PENDING = "smoke_pending"  # a workload may exist
    COMPLETE = "complete"


class Current(Struct, frozen=True):
    session: str
    phase: Phase
    smoke_name: str = ""


def scope_folder(parent: Path, kubeconfig: Path | None, context: str) -> Path:
    """The folder of one kubeconfig with one context."""
    scope = hashlib.sha256(f"{kubeconfig or ''}\0{context}".encode()).hexdigest()[:24]
    return parent / "cluster-validation" / scope


def read_current(scope: Path) -> Current | None:
    """What the scope is in the middle of; None if it never was used. Raises EngineError."""
    path = scope / "current.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Current(document["session"], Phase(document["phase"]), document["smoke_name"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise refuse(Refusal.RECORD, f"{path} cannot be read ({type(error).__name__})") from error


@contextmanager
def check_session(scope: Path, make_spec: MakeSpec) -> Iterator[Session]:
    """A started session for looking. It is stopped on the way out, whatever happened inside.

    Raises EngineError if a smoke of this scope is not proven gone, and if the session's server
    cannot be proven stopped: then nothing that was seen counts as success.
    """
    require_linux()
    make_folder(scope)
    with _locked(scope):
        _refuse_pending(scope)
        name = f"session-{secrets.token_hex(16)}"
        session = Session(make_spec(scope / name))
        _write(scope, Current(name, Phase.CHECKING))
        try:
            session.start()
            yield session
        finally:
            _stop(scope, name, session)
        _write(scope, Current(name, Phase.COMPLETE))
        shutil.rmtree(scope / name, ignore_errors=True)


class Smoke(Struct):
    """A smoke under way. `resumed`: a workload of that name may exist from an earlier process."""

    session: Session
    name: str
    resumed: bool
    _gone: bool = False

    def proven_gone(self) -> None:
        """To be said only when the workload was proven absent: without it the session is kept."""
        self._gone = True

    @property
    def gone(self) -> bool:
        return self._gone


@contextmanager
def smoke_session(scope: Path, make_spec: MakeSpec, name: str) -> Iterator[Smoke]:
    """One session for credential check, discovery, launch and removal of workload `name`.

    An earlier smoke of that name is taken up in its own session; one of another name is refused.
    Raises EngineError (SESSION_PENDING_SMOKE) if the workload is not proven gone in the end.
    """
    require_linux()
    make_folder(scope)
    with _locked(scope):
        current = read_current(scope)
        resumed = current is not None and current.phase is Phase.SMOKE_PENDING
        if resumed and current is not None and current.smoke_name != name:
            raise refuse(Refusal.PENDING, f"the smoke {current.smoke_name} is not proven gone")
        if current is not None and resumed:
            folder = current.session
        else:
            folder = f"session-{secrets.token_hex(16)}"
        session = Session(make_spec(scope / folder))
        # Before anything is launched: from now on a workload may exist.
        _write(scope, Current(folder, Phase.SMOKE_PENDING, name))
        session.start()
        smoke = Smoke(session, name, resumed)
        yield smoke
        if not smoke.gone:
            raise refuse(
                Refusal.PENDING,
                f"the workload {name} was not proven gone",
                not_done=f"its session is kept in {scope / folder}",
            )
        _stop(scope, folder, session)
        _write(scope, Current(folder, Phase.COMPLETE))
        shutil.rmtree(scope / folder, ignore_errors=True)


def _refuse_pending(scope: Path) -> None:
    current = read_current(scope)
    if current is not None and current.phase is Phase.SMOKE_PENDING:
        raise refuse(Refusal.PENDING, f"the smoke {current.smoke_name} is not proven gone")


def _stop(scope: Path, folder: str, session: Session) -> None:
    try:
        session.stop()
    except EngineError as error:
        error.not_done = f"the private session in {scope / folder} is not proven stopped"
        raise


def _write(scope: Path, current: Current) -> None:
    document = {
        "session": current.session,
        "phase": current.phase.value,
        "smoke_name": current.smoke_name,
    }
    write_private(scope / "current.json", json.dumps(document, sort_keys=True).encode())


@contextmanager
def _locked(scope: Path) -> Iterator[None]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(scope / "scope.lock", flags, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise refuse(Refusal.LOCKED, "another check of this cluster is at work") from None
        yield
    finally:
        os.close(handle)
