"""An owned SkyPilot API server: started, proven before each use, stopped by proof.

The server is a process of ours in a session of its own, with its own home, state, port and user
hash. No server that cannot be proven to be that one is used, changed or stopped, and `sky api stop`
is never called: it ends the first server of the machine, whoever's it is.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from msgspec import Struct, field

from npa.observation import Found, Observation, Unavailable
from npa.orchestration.skypilot import ownership, ports, procfs, record
from npa.orchestration.skypilot.binding import Fingerprint, changed, identity
from npa.orchestration.skypilot.installer import VERSION
from npa.orchestration.skypilot.ownership import Owned, Sighting
from npa.orchestration.skypilot.procfs import Process
from npa.orchestration.skypilot.record import Record, State
from npa.orchestration.skypilot.refusals import Refusal, refuse
from npa.orchestration.skypilot.spec import (
    SessionSpec,
    make_folder,
    refuse_unowned_state,
    server_argv,
    server_environment,
    write_home,
)

SOURCE = "skypilot-api"
# Servers outlive the session object that started them, and may outlive this process. While it
# lives it has to collect them, or a stopped server stays as a zombie.
_STARTED: dict[int, subprocess.Popen[bytes]] = {}


class Limits(Struct, frozen=True):
    """How long a session waits, in seconds."""

    lock: float = 30.0
    start: float = 120.0
    graceful_stop: float = 15.0  # running requests may end by themselves
    kill: float = 10.0
    poll: float = 0.1
    health: float = 10.0


class Session(Struct):
    """One session's folder and server. Make it with a spec; it starts nothing by itself."""

    spec: SessionSpec
    limits: Limits = field(default_factory=Limits)
    on_step: Callable[[str], None] = lambda _: None  # named points of a start, for tests of crashes

    # -- use -----------------------------------------------------------------------------------

    def start(self) -> Owned:
        """Start the server, or take up the living one, and prove it. Raises EngineError."""
        require_linux()
        refuse_unowned_state(self.spec)
        make_folder(self.spec.root)
        with self._locked():
            present = self._bound(record.load(self.spec.root) or self._new())
            owned = ownership.prove(present)
            if owned is None:
                return self._launch(present)
            return self._ready(present, owned)

    def prove(self) -> Owned:
        """The living server, proven for one use. Raises EngineError if there is none."""
        require_linux()
        present = record.load(self.spec.root)
        if present is None or present.state in (State.INTENT, State.STOPPED):
            raise refuse(Refusal.NOT_RUNNING, f"no API server is running for {self.spec.root}")
        self._bound(present)
        owned = ownership.prove(present)
        if owned is None or not ownership.prove_socket(present, owned):
            raise refuse(Refusal.NOT_RUNNING, f"the API server of {self.spec.root} is gone")
        return owned

    def health(self) -> Observation[str]:
        """What the proven server says of itself: Found("healthy"), or why not."""
        now = time.time()
        owned = self.prove()
        return _ask_health(owned.endpoint, self.limits.health, now)

    def stop(self, *, controllers: bool = True) -> bool:
        """Stop the server, and its jobs controllers, by proof. False if nothing was running.

        The identity is not compared: whoever may sign for the folder may stop what runs from it.
        Raises EngineError (SESSION_STOP) if something of it is still there in the end.
        """
        require_linux()
        if not self.spec.root.exists():
            return False
        with self._locked():
            present = record.load(self.spec.root)
            if present is None:
                return False
            ownership.prove(present)
            seen = ownership.sight(present)
            wanted = seen.all if controllers else (*seen.leaders, *seen.workers)
            self._end(present, seen, controllers=controllers)
            left = [p for p in wanted if procfs.same(*p.key)]
            if left:
                raise refuse(
                    Refusal.STOP,
                    f"{', '.join(str(p.pid) for p in left)} did not end",
                    not_done="the session is not stopped",
                )
            record.save(self.spec.root, present.become(State.STOPPED))
            return bool(wanted)

    # -- the record ----------------------------------------------------------------------------

    def _new(self) -> Record:
        fresh = Record(
            kind=self.spec.kind,
            state=State.INTENT,
            marker=secrets.token_hex(16),
            user_id=self.spec.user_id,
            interpreter=str(self.spec.interpreter),
            ports=ports.choose(),
            boot=procfs.boot_id(),
            namespace=procfs.network_namespace(),
        )
        fresh = replace(fresh, identity=self._identity(fresh))
        record.save(self.spec.root, fresh)
        return fresh

    def _bound(self, present: Record) -> Record:
        """The record, if it is bound to what we are now. Raises EngineError (SESSION_IDENTITY)."""
        if present.interpreter != str(self.spec.interpreter):
            raise refuse(Refusal.INTERPRETER, f"the session was started with {present.interpreter}")
        differing = changed(present.identity, self._identity(present))
        if differing:
            raise refuse(
                Refusal.IDENTITY, f"the session was started with another {', '.join(differing)}"
            )
        return present

    def _identity(self, present: Record) -> dict[str, str]:
        spec = self.spec
        env = dict(spec.public) | {name: s.reveal() for name, s in spec.secrets.items()}
        text = spec.kubeconfig.read_text(encoding="utf-8") if spec.kubeconfig is not None else ""
        return identity(
            interpreter=present.interpreter,
            user_id=present.user_id,
            sky_config=spec.sky_config,
            env=env,
            kubeconfig=text,
            context=spec.context,
            fingerprint=Fingerprint(self._key()),
        )

    def _key(self) -> bytes:
        path = self.spec.root / "binding.key"
        with suppress(FileNotFoundError):
            return path.read_bytes()
        key = secrets.token_bytes(32)
        record.write_private(path, key)
        return key

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = self.spec.root / "session.lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + self.limits.lock
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise refuse(Refusal.LOCKED, f"{path} is held") from None
                    time.sleep(self.limits.poll)
            yield
        finally:
            os.close(handle)

    # -- starting ------------------------------------------------------------------------------

    def _launch(self, present: Record) -> Owned:
        seen = ownership.sight(present)
        # Orphans of a server that died: they hold its request database.
        self._kill((*seen.workers, *seen.others))
        if not ports.is_free(present.ports.api):
            if seen.controllers:  # they know the old endpoint
                raise refuse(Refusal.PORT, f"port {present.ports.api} was taken in the meantime")
            present = replace(present, ports=ports.choose())
        present = replace(
            present.become(State.STARTING),
            boot=procfs.boot_id(),
            namespace=procfs.network_namespace(),
        )
        write_home(self.spec, present)
        record.save(self.spec.root, present)  # before the act: a crash after it can be found
        self.on_step("recorded")
        pid = self._spawn(present)
        self.on_step("spawned")
        process = procfs.look(pid)
        if process is not None:
            present = present.become(
                State.STARTING, pid=process.pid, start_ticks=process.start_ticks
            )
            record.save(self.spec.root, present)
        return self._await_ready(present)

    def _spawn(self, present: Record) -> int:
        log = os.open(
            self.spec.root / "server.log",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
        )
        try:
            # In the home: the server makes a folder named `~` where it is started.
            child = subprocess.Popen(
                server_argv(self.spec, present),
                env=server_environment(self.spec, present),
                cwd=self.spec.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)
        _STARTED[child.pid] = child
        return child.pid

    def _ready(self, present: Record, owned: Owned) -> Owned:
        """A living server: healthy now, or still starting (another driver died on its way)."""
        process = owned.process
        present = present.become(present.state, pid=process.pid, start_ticks=process.start_ticks)
        return self._await_ready(present)

    def _await_ready(self, present: Record) -> Owned:
        deadline = time.monotonic() + self.limits.start
        while True:
            owned = ownership.prove(present)
            if owned is None:
                self._end(present, ownership.sight(present), controllers=False)
                raise refuse(Refusal.START, f"the API server ended by itself: {self._last_line()}")
            if ownership.prove_socket(present, owned):
                said = _ask_health(owned.endpoint, self.limits.health, time.time())
                if isinstance(said, Found):
                    key = owned.process
                    ready = present.become(State.READY, pid=key.pid, start_ticks=key.start_ticks)
                    record.save(self.spec.root, ready)
                    return ownership.prove(ready) or owned
            if time.monotonic() > deadline:
                self._end(present, ownership.sight(present), controllers=False)
                raise refuse(
                    Refusal.START, f"the API server was not ready after {self.limits.start:.0f} s"
                )
            time.sleep(self.limits.poll)

    def _last_line(self) -> str:
        with suppress(OSError):
            text = (self.spec.root / "server.log").read_text(encoding="utf-8", errors="replace")
            lines = [line for line in text.splitlines() if line.strip()]
            return lines[-1][:200] if lines else "its log is empty"
        return "it has no log"

    # -- stopping ------------------------------------------------------------------------------

    def _end(self, present: Record, seen: Sighting, *, controllers: bool) -> None:
        for leader in seen.leaders:
            _signal(leader, signal.SIGTERM)
        self._gone(seen.leaders, self.limits.graceful_stop)
        again = ownership.sight(present)
        rest = [*seen.leaders, *seen.workers, *again.leaders, *again.workers]
        if controllers:
            # They end by TERM, and with them the processes that they started.
            for process in (*seen.controllers, *again.controllers):
                _signal(process, signal.SIGTERM)
            self._gone((*seen.controllers, *again.controllers), self.limits.kill)
            again = ownership.sight(present)
            rest += [*again.all, *seen.controllers, *seen.others]
        self._kill(rest)

    def _kill(self, processes: Iterable[Process]) -> None:
        targets = tuple(processes)
        for process in targets:
            _signal(process, signal.SIGKILL)
        self._gone(targets, self.limits.kill)

    def _gone(self, processes: Iterable[Process], seconds: float) -> bool:
        targets = tuple(processes)
        deadline = time.monotonic() + seconds
        while any(procfs.same(*process.key) for process in targets):
            if time.monotonic() > deadline:
                return False
            time.sleep(self.limits.poll)
        _collect()
        return True


def require_linux() -> None:
    """Ownership is read from /proc, so live work needs it. Raises before anything is made."""
    if not procfs.supported():
        raise refuse(
            Refusal.PLATFORM,
            "an API server can only be owned on Linux with /proc",
            not_done="no folder was made and nothing was started",
        )


def _collect() -> None:
    for pid, child in list(_STARTED.items()):
        if child.poll() is not None:
            del _STARTED[pid]


def _signal(process: Process, number: signal.Signals) -> None:
    """Signal this very process: by a handle, so that a PID used again is never hit."""
    try:
        handle = os.pidfd_open(process.pid)
    except (ProcessLookupError, PermissionError):
        return
    try:
        if procfs.same(*process.key):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def _ask_health(endpoint: str, seconds: float, now: float) -> Observation[str]:
    host, _, port = endpoint.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=seconds)
    try:
        connection.request("GET", "/api/health")
        reply = connection.getresponse()
        body = json.loads(reply.read())
        status, version = str(body["status"]), str(body["version"])
    except (OSError, http.client.HTTPException) as error:
        return Unavailable("unreachable", type(error).__name__, SOURCE, now)
    except (ValueError, KeyError, TypeError) as error:
        return Unavailable("schema", type(error).__name__, SOURCE, now)
    finally:
        connection.close()
    if status != "healthy" or version != VERSION:
        return Unavailable("unhealthy", f"{status}, version {version}", SOURCE, now)
    return Found("healthy", SOURCE, now)
