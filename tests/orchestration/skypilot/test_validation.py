"""A check ends with its server stopped; a smoke that is not proven gone blocks what comes next."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from npa.errors import EngineError
from npa.orchestration.skypilot import ownership, procfs, record
from npa.orchestration.skypilot import session as session_module
from npa.orchestration.skypilot.record import Kind
from npa.orchestration.skypilot.session import Session
from npa.orchestration.skypilot.spec import SessionSpec
from npa.orchestration.skypilot.validation import (
    MakeSpec,
    Phase,
    check_session,
    read_current,
    scope_folder,
    smoke_session,
)
from orchestration.skypilot.standin_server import make_interpreter

pytestmark = pytest.mark.skipif(not procfs.supported(), reason="ownership is read from /proc")


@pytest.fixture
def make_spec(tmp_path: Path) -> Iterator[MakeSpec]:
    interpreter = make_interpreter(tmp_path / "env")
    roots: list[Path] = []

    def make(root: Path) -> SessionSpec:
        roots.append(root)
        return SessionSpec(root, Kind.CHECK, interpreter, {"PATH": os.environ["PATH"]})

    yield make
    for root in tuple(roots):
        if (root / record.NAME).exists():
            Session(make(root)).stop()
    session_module._collect()


def processes(session: Session) -> tuple[procfs.Process, ...]:
    present = record.load(session.spec.root)
    return ownership.sight(present).all if present else ()


@pytest.mark.req("A-05")
def test_a_check_has_stopped_its_server_when_it_is_over(
    tmp_path: Path, make_spec: MakeSpec
) -> None:
    with check_session(tmp_path / "scope", make_spec) as session:
        seen = processes(session)
        assert seen
    assert not any(procfs.same(*p.key) for p in seen)
    current = read_current(tmp_path / "scope")
    assert current is not None
    assert current.phase is Phase.COMPLETE
    assert not (tmp_path / "scope" / current.session).exists()


@pytest.mark.req("A-05")
def test_a_check_that_fails_inside_stops_its_server_all_the_same(
    tmp_path: Path, make_spec: MakeSpec
) -> None:
    seen: list[procfs.Process] = []

    def look_and_fail(session: Session) -> None:
        seen.extend(processes(session))
        raise RuntimeError("inside")

    with (
        pytest.raises(RuntimeError, match="inside"),
        check_session(tmp_path / "scope", make_spec) as session,
    ):
        look_and_fail(session)
    assert seen
    assert not any(procfs.same(*p.key) for p in seen)


@pytest.mark.req("A-05")
def test_without_proof_that_it_stopped_there_is_no_success(
    tmp_path: Path, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Session.stop

    def fail(*_: object, **__: object) -> bool:
        raise EngineError("it did not end", code="SESSION_STOP")

    monkeypatch.setattr(Session, "stop", fail)
    with pytest.raises(EngineError) as caught, check_session(tmp_path / "scope", make_spec):
        pass
    assert "session-" in caught.value.not_done
    current = read_current(tmp_path / "scope")
    assert current is not None
    assert current.phase is Phase.CHECKING
    monkeypatch.setattr(Session, "stop", stop)


@pytest.mark.req("A-06")
def test_a_smoke_that_is_proven_gone_leaves_nothing(tmp_path: Path, make_spec: MakeSpec) -> None:
    with smoke_session(tmp_path / "scope", make_spec, "a-sky-smoke") as smoke:
        assert not smoke.resumed
        seen = processes(smoke.session)
        smoke.proven_gone()
    assert not any(procfs.same(*p.key) for p in seen)
    current = read_current(tmp_path / "scope")
    assert current is not None
    assert current.phase is Phase.COMPLETE


@pytest.mark.req("A-06")
def test_a_smoke_without_proof_keeps_its_session_and_is_taken_up(
    tmp_path: Path, make_spec: MakeSpec
) -> None:
    scope = tmp_path / "scope"
    with (
        pytest.raises(EngineError) as caught,
        smoke_session(scope, make_spec, "a-sky-smoke") as smoke,
    ):
        first = smoke.session.prove()
    assert caught.value.code == "SESSION_PENDING_SMOKE"
    assert str(scope) in caught.value.not_done
    assert procfs.same(*first.process.key)
    with pytest.raises(EngineError, match="a-sky-smoke"), check_session(scope, make_spec):
        pass
    with (
        pytest.raises(EngineError, match="a-sky-smoke"),
        smoke_session(scope, make_spec, "b-sky-smoke"),
    ):
        pass
    with smoke_session(scope, make_spec, "a-sky-smoke") as smoke:
        assert smoke.resumed
        assert smoke.session.prove().process == first.process
        smoke.proven_gone()
    with check_session(scope, make_spec):
        pass


@pytest.mark.req("A-03")
def test_elsewhere_than_linux_nothing_is_made(
    tmp_path: Path, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "supported", lambda: False)
    with pytest.raises(EngineError), check_session(tmp_path / "scope", make_spec):
        pass
    assert not (tmp_path / "scope").exists()


def test_a_scope_is_one_kubeconfig_with_one_context(tmp_path: Path) -> None:
    one = scope_folder(tmp_path, Path("/k"), "a")
    assert one == scope_folder(tmp_path, Path("/k"), "a")
    assert (
        len({one, scope_folder(tmp_path, Path("/k"), "b"), scope_folder(tmp_path, None, "a")}) == 3
    )
