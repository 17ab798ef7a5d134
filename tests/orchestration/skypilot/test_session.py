"""An API server is ours only if /proc says so; every refusal says how to get out of it."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from changed import replace
from npa.errors import EngineError
from npa.observation import Found, Unavailable
from npa.orchestration.skypilot import ownership, ports, procfs, record
from npa.orchestration.skypilot import session as session_module
from npa.orchestration.skypilot.record import Kind, State
from npa.orchestration.skypilot.refusals import WAY_OUT, Refusal
from npa.orchestration.skypilot.session import Limits, Session, _ask_health
from npa.orchestration.skypilot.spec import MARKER, SessionSpec, server_environment
from npa.target.secret import Secret
from orchestration.skypilot.standin_server import make_interpreter

pytestmark = pytest.mark.skipif(not procfs.supported(), reason="ownership is read from /proc")

LIMITS = Limits(lock=0.3, start=20.0, graceful_stop=5.0, kill=5.0, poll=0.02)
Make = Callable[..., Session]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Sessions over the stand-in server; whatever they started is ended afterwards."""
    made: list[Path] = []

    def build(name: str = "one", how: str = "", **more: object) -> Session:
        environment = tmp_path / f"env-{name}"
        interpreter = environment / "bin/python"
        if not interpreter.exists():
            make_interpreter(environment, how)
        root = tmp_path / name
        made.append(root)
        spec = SessionSpec(
            root=root,
            kind=Kind.RUN,
            interpreter=interpreter,
            env={"PATH": os.environ["PATH"]},
            **more,  # type: ignore[arg-type]
        )
        return Session(spec, LIMITS)

    yield build
    for root in made:
        present = None
        with suppress(EngineError):  # a test may have torn it, and then cleans up itself
            present = record.load(root)
        for process in ownership.sight(present).all if present else ():
            os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while session_module._STARTED:
        session_module._collect()
        assert time.monotonic() < deadline


def refusal(act: Callable[[], object]) -> EngineError:
    with pytest.raises(EngineError) as caught:
        act()
    assert caught.value.hint, "a refusal without a way out"
    return caught.value


def record_of(session: Session) -> record.Record:
    present = record.load(session.spec.root)
    assert present is not None
    return present


class Crash(BaseException):
    """The driver dies."""


def crashed(session: Session, at: str) -> Session:
    """A session whose driver died at that step of its start."""

    def crash(step: str) -> None:
        if step == at:
            raise Crash

    session.on_step = crash
    with pytest.raises(Crash):
        session.start()
    return session


def kill(process: procfs.Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while procfs.same(*process.key):
        assert time.monotonic() < deadline


@pytest.mark.req("A-04")
def test_a_session_starts_is_proven_and_stops(make: Make) -> None:
    session = make()
    owned = session.start()
    assert isinstance(session.health(), Found)
    assert session.prove().process == owned.process
    assert session.stop() is True
    assert not procfs.same(*owned.process.key)
    assert session.stop() is False
    assert refusal(session.prove).code == "SESSION_NOT_RUNNING"


@pytest.mark.req("A-04")
def test_a_second_start_takes_up_the_living_server(make: Make) -> None:
    first = make().start()
    assert make().start().process == first.process


@pytest.mark.req("A-04")
def test_two_sessions_live_side_by_side(make: Make) -> None:
    one, two = make("one"), make("two")
    first, second = one.start(), two.start()
    assert first.endpoint != second.endpoint
    records = [record.load(s.spec.root) for s in (one, two)]
    assert len({r.user_id for r in records if r}) == 2
    one.stop()
    assert two.prove().process == second.process


@pytest.mark.req("A-03")
def test_elsewhere_than_linux_it_refuses_before_it_makes_anything(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make()
    monkeypatch.setattr(procfs, "supported", lambda: False)
    for act in (session.start, session.prove, session.stop):
        assert refusal(act).code == "SESSION_PLATFORM"
    assert not session.spec.root.exists()


@pytest.mark.req("A-04")
def test_a_driver_that_dies_before_it_noted_the_process_is_followed(make: Make) -> None:
    session = crashed(make(), "spawned")
    left = record_of(session)
    assert (left.state, left.pid) == (State.STARTING, 0)
    owned = make().start()  # another driver: it finds the process by the session's marker
    assert isinstance(make().health(), Found)
    assert len(ownership.sight(left).leaders) == 1
    assert owned.process in ownership.sight(left).leaders


@pytest.mark.req("A-04")
def test_driver_and_server_both_die_and_the_next_driver_starts_anew(make: Make) -> None:
    session = crashed(make(), "spawned")
    left = record_of(session)
    for process in ownership.sight(left).all:
        kill(process)
    assert isinstance(make().start(), ownership.Owned)
    assert len(ownership.sight(left).leaders) == 1


@pytest.mark.req("A-11")
def test_a_session_shows_nothing_of_the_callers_environment(make: Make) -> None:
    session = make()
    session.spec = replace(session.spec, env={"TOKEN": "canary-99"})
    assert "canary-99" not in repr(session)


@pytest.mark.req("A-04")
def test_a_driver_that_dies_before_it_started_anything_leaves_no_debt(make: Make) -> None:
    crashed(make(), "recorded")
    assert isinstance(make().start(), ownership.Owned)


@pytest.mark.req("A-04")
def test_a_server_that_died_is_replaced_and_its_orphans_are_ended(make: Make) -> None:
    session = make()
    first = session.start()
    orphans = [p for p in first.members if p != first.process]
    assert orphans
    kill(first.process)
    assert refusal(session.prove).code == "SESSION_NOT_RUNNING"
    second = make().start()
    assert second.process != first.process
    assert second.endpoint == first.endpoint
    assert not any(procfs.same(*p.key) for p in orphans)


@pytest.mark.req("A-04")
def test_controllers_outlive_a_dead_server_and_end_with_the_session(make: Make) -> None:
    session = make(how="controller")
    first = session.start()
    present = record_of(session)
    deadline = time.monotonic() + 5
    while not (controllers := ownership.sight(present).controllers):
        assert time.monotonic() < deadline
    kill(first.process)
    make().start()
    assert procfs.same(*controllers[0].key)
    make().stop()
    assert not ownership.sight(present).all


def test_a_stop_may_leave_the_controllers_to_their_jobs(make: Make) -> None:
    session = make(how="controller")
    session.start()
    present = record_of(session)
    session.stop(controllers=False)
    left = ownership.sight(present)
    assert left.controllers
    assert not left.leaders
    assert not left.workers


@pytest.mark.req("A-04")
def test_a_process_without_the_marker_is_never_taken_for_the_server(make: Make) -> None:
    """PID and ticks are right, and yet it is not ours: nothing is signalled."""
    session = make()
    session.start()
    session.stop()
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        seen = procfs.look(stranger.pid)
        present = record_of(session)
        assert seen is not None
        lying = present.become(State.READY, pid=seen.pid, start_ticks=seen.start_ticks)
        record.save(session.spec.root, lying)
        for act in (session.prove, session.start, session.stop):
            assert refusal(act).code == "SESSION_UNPROVEN"
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.req("A-04")
def test_a_pid_used_again_is_not_the_server(make: Make) -> None:
    session = make()
    owned = session.start()
    present = record_of(session)
    record.save(session.spec.root, replace(present, start_ticks=present.start_ticks + 1))
    assert refusal(session.prove).code == "SESSION_AMBIGUOUS"
    assert procfs.same(*owned.process.key)


@pytest.mark.req("A-04")
def test_two_servers_of_one_session_are_ambiguous(make: Make) -> None:
    session = make()
    session.start()
    present = record_of(session)
    port = str(ports.choose().api)
    twin = subprocess.Popen(
        [present.interpreter, "-m", "sky.server.server", "--host", "127.0.0.1", "--port", port],
        env=server_environment(session.spec, present),
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 5
        while len(ownership.sight(present).leaders) < 2:
            assert time.monotonic() < deadline
        for act in (session.prove, session.start, session.stop):
            assert refusal(act).code == "SESSION_AMBIGUOUS"
    finally:
        twin.kill()
        twin.wait()


@pytest.mark.req("A-04")
def test_a_port_taken_by_a_stranger_is_not_used(make: Make) -> None:
    """Without controllers that know the old port, another one is taken."""
    session = make()
    first = session.start()
    session.stop()
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", int(first.endpoint.rsplit(":", 1)[1])))
        stranger.listen()
        second = make().start()
    assert second.endpoint != first.endpoint


@pytest.mark.req("A-04")
def test_a_stranger_that_answers_on_our_port_is_refused(make: Make) -> None:
    session = make(how="controller")
    first = session.start()
    kill(first.process)
    handler = http.server.SimpleHTTPRequestHandler
    address = ("127.0.0.1", int(first.endpoint.rsplit(":", 1)[1]))
    stranger = http.server.ThreadingHTTPServer(address, handler)
    threading.Thread(target=stranger.serve_forever, daemon=True).start()
    try:
        # Its controllers live on and know this port, so no other one will do.
        assert refusal(make().start).code == "SESSION_PORT"
    finally:
        stranger.shutdown()
        stranger.server_close()


@pytest.mark.req("A-04")
def test_a_session_of_another_network_namespace_is_refused(make: Make) -> None:
    session = make()
    session.start()
    present = record_of(session)
    record.save(session.spec.root, replace(present, namespace="net:[1]"))
    assert refusal(session.prove).code == "SESSION_NAMESPACE"
    record.save(session.spec.root, present)


def test_a_session_of_an_earlier_boot_starts_anew(make: Make) -> None:
    session = make()
    session.start()
    present = record_of(session)
    session.stop()
    record.save(session.spec.root, replace(present, boot="another boot"))
    assert isinstance(make().start(), ownership.Owned)


@pytest.mark.parametrize(
    ("how", "said"), [("die", "ended by itself"), ("hang", "not ready"), ("old", "not ready")]
)
def test_a_server_that_does_not_come_up_leaves_nothing(make: Make, how: str, said: str) -> None:
    session = make(how=how)
    session.limits = replace(LIMITS, start=1.0)
    error = refusal(session.start)
    assert error.code == "SESSION_START"
    assert said in error.message
    present = record_of(session)
    assert not ownership.sight(present).all


def test_a_server_open_to_the_network_is_refused(make: Make) -> None:
    assert refusal(make(how="open").start).code == "SESSION_UNPROVEN"


def test_a_server_that_is_not_reached_is_unavailable_and_not_absent() -> None:
    closed = f"http://127.0.0.1:{ports.choose().api}"
    said = _ask_health(closed, 1.0, 0.0)
    assert isinstance(said, Unavailable)
    assert said.cause == "unreachable"


@pytest.mark.req("A-09")
def test_another_principal_or_configuration_is_refused_and_named(make: Make) -> None:
    make(public={"AWS_ACCESS_KEY_ID": "key-1"}).start()
    error = refusal(make(public={"AWS_ACCESS_KEY_ID": "key-2"}).start)
    assert error.code == "SESSION_IDENTITY"
    assert "AWS_ACCESS_KEY_ID" in error.message
    error = refusal(make(sky_config={"a": 1}, public={"AWS_ACCESS_KEY_ID": "key-1"}).start)
    assert "sky_config" in error.message


@pytest.mark.req("A-09")
def test_a_refreshed_secret_of_the_same_principal_is_no_change(make: Make) -> None:
    public = {"AWS_ACCESS_KEY_ID": "key-1"}
    first = make(public=public, secrets={"AWS_SECRET_ACCESS_KEY": Secret("old")}).start()
    again = make(public=public, secrets={"AWS_SECRET_ACCESS_KEY": Secret("new")})
    assert again.start().process == first.process


def test_a_stop_is_possible_whatever_changed(make: Make) -> None:
    make(public={"AWS_ACCESS_KEY_ID": "key-1"}).start()
    assert make(public={"AWS_ACCESS_KEY_ID": "key-2"}).stop() is True


@pytest.mark.req("A-11")
def test_secrets_are_in_the_servers_environment_and_nowhere_else(make: Make) -> None:
    canary = "canary-7d1f0c"
    session = make(secrets={"AWS_SECRET_ACCESS_KEY": Secret(canary)})
    owned = session.start()
    assert procfs.has_variable(owned.process.pid, "AWS_SECRET_ACCESS_KEY", canary)
    assert canary not in " ".join(procfs.command_line(owned.process.pid))
    for path in session.spec.root.rglob("*"):
        if path.is_file():
            assert canary.encode() not in path.read_bytes(), path


@pytest.mark.req("A-11")
def test_only_listed_variables_of_the_caller_reach_the_server(make: Make) -> None:
    session = make()
    stray = {"SKYPILOT_DEBUG": "1", "KUBECONFIG": "/tmp/other", "PATH": "/usr/bin:/bin"}
    session.spec = replace(session.spec, env=stray)
    owned = session.start()
    names = {
        word.split(b"=")[0].decode()
        for word in Path(f"/proc/{owned.process.pid}/environ").read_bytes().split(b"\0")
    }
    assert "SKYPILOT_DEBUG" not in names
    assert "KUBECONFIG" not in names
    assert {"HOME", MARKER, "SKYPILOT_API_SERVER_ENDPOINT"} <= names


@pytest.mark.parametrize(
    "more",
    [
        {"sky_config": {"db": "postgresql://x"}},
        {"sky_config": {"api_server": {"endpoint": "http://x"}}},
        {"public": {"SKYPILOT_USER_ID": "x"}},
        {"secrets": {"PYTHONPATH": Secret("x")}},
    ],
)
def test_settings_that_move_the_state_elsewhere_are_refused(
    make: Make, more: dict[str, object]
) -> None:
    session = make(**more)
    assert refusal(session.start).code == "SESSION_CONFIG"
    assert not session.spec.root.exists()


def test_a_held_lock_is_waited_for_and_then_refused(make: Make) -> None:
    session = make()
    session.start()
    with session._locked():
        assert refusal(make().start).code == "SESSION_LOCKED"


def test_a_folder_that_others_can_read_is_refused(make: Make) -> None:
    session = make()
    session.spec.root.mkdir(mode=0o755)
    session.spec.root.chmod(0o755)
    assert refusal(session.start).code == "SESSION_FOLDER"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "npa.skypilot.session.v9"}'])
def test_a_torn_record_is_never_read_as_no_session(make: Make, text: str) -> None:
    session = make()
    owned = session.start()
    (session.spec.root / record.NAME).write_text(text)
    for act in (session.start, session.prove, session.stop):
        assert refusal(act).code == "SESSION_RECORD"
    os.kill(owned.process.pid, signal.SIGKILL)
    for process in owned.members:
        if procfs.same(*process.key):
            os.kill(process.pid, signal.SIGKILL)


def test_the_files_of_a_session_are_private(make: Make) -> None:
    session = make()
    session.start()
    for name in ("session.json", "session.lock", "server.log", "binding.key"):
        assert (session.spec.root / name).stat().st_mode & 0o077 == 0
    plugins = json.loads((session.spec.server_folder / "plugins.yaml").read_text())
    assert plugins == {"plugins": [{"class": "npa_skypilot_plugin.OwnedServer"}]}


def test_every_refusal_has_its_way_out() -> None:
    assert set(WAY_OUT) == set(Refusal)
    assert all(len(text) > 20 for text in WAY_OUT.values())
