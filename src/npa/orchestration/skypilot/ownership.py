"""Is that API server ours? Answered from /proc before each use, and believed for one act only."""

from __future__ import annotations

from msgspec import Struct, field

from npa.orchestration.skypilot import procfs
from npa.orchestration.skypilot.procfs import Process
from npa.orchestration.skypilot.record import Record
from npa.orchestration.skypilot.refusals import Refusal, refuse
from npa.orchestration.skypilot.spec import MARKER

SERVER_MODULE = "sky.server.server"
CONTROLLER_MODULE = "sky.jobs.controller"


class Sighting(Struct, frozen=True):
    """All processes that belong to a session.

    `leaders` are API servers. `workers` share the session of a leader, living or dead.
    `controllers` are sessions of their own and outlive the server. `others` carry the marker too.
    """

    leaders: tuple[Process, ...] = ()
    workers: tuple[Process, ...] = ()
    controllers: tuple[Process, ...] = ()
    others: tuple[Process, ...] = ()

    @property
    def all(self) -> tuple[Process, ...]:
        return (*self.leaders, *self.workers, *self.controllers, *self.others)


class Owned(Struct, frozen=True):
    """Proof that one exact server was ours at one moment. Never stored."""

    endpoint: str
    marker: str
    process: Process
    boot: str
    members: tuple[Process, ...] = field(default=())

    @property
    def bound_to(self) -> str:
        """What a proof about a job seen through this server holds for."""
        return f"{self.boot}/{self.marker}/{self.process.pid}.{self.process.start_ticks}"


def sight(record: Record) -> Sighting:
    """Find the session's processes: whoever carries the marker, and whoever shares its session.

    A worker may have overwritten its own environment (setproctitle). It is still ours: the server
    leads a session of its own, so every session with a marked member was begun by our server.
    """
    everyone = {process.pid: process for process in procfs.mine()}
    marked = {p for p in everyone if procfs.has_variable(p, MARKER, record.marker)}
    sessions = {everyone[pid].sid for pid in marked}
    leaders, workers, controllers, others = [], [], [], []
    for process in sorted(everyone.values(), key=lambda p: p.pid):
        if process.pid not in marked and process.sid not in sessions:
            continue
        argv = procfs.command_line(process.pid)
        if SERVER_MODULE in argv and process.sid == process.pid:
            leaders.append(process)
        elif CONTROLLER_MODULE in " ".join(argv):
            controllers.append(process)
        elif process.sid in {record.pid, *(leader.pid for leader in leaders)}:
            workers.append(process)
        else:
            others.append(process)
    return Sighting(tuple(leaders), tuple(workers), tuple(controllers), tuple(others))


def prove(record: Record) -> Owned | None:
    """The living server, proven; None if none lives. Raises EngineError if it cannot be proven."""
    if record.boot != procfs.boot_id():
        return None  # the host was booted since: none of its processes can live
    if record.namespace != procfs.network_namespace():
        raise refuse(
            Refusal.NAMESPACE, "the session was started in another network namespace", not_done=""
        )
    seen = sight(record)
    if len(seen.leaders) > 1:
        pids = ", ".join(str(process.pid) for process in seen.leaders)
        raise refuse(Refusal.AMBIGUOUS, f"processes {pids} all answer to one session")
    if not seen.leaders:
        _refuse_impostor(record)
        return None
    leader = seen.leaders[0]
    _prove_leader(record, leader)
    members = tuple(process for process in seen.all if process.sid == leader.pid)
    return Owned(record.endpoint, record.marker, leader, record.boot, members)


def _refuse_impostor(record: Record) -> None:
    """No marked server lives: then the recorded process may not live either."""
    if record.pid and procfs.same(record.pid, record.start_ticks):
        raise refuse(Refusal.UNPROVEN, f"process {record.pid} does not carry the session's marker")


def _prove_leader(record: Record, leader: Process) -> None:
    if record.pid and leader.key != (record.pid, record.start_ticks):
        raise refuse(
            Refusal.AMBIGUOUS, f"process {leader.pid} answers for recorded process {record.pid}"
        )
    argv = procfs.command_line(leader.pid)
    if not argv or argv[0] != record.interpreter:
        raise refuse(Refusal.UNPROVEN, f"process {leader.pid} runs another interpreter")
    if procfs.network_namespace(leader.pid) != record.namespace:
        raise refuse(Refusal.NAMESPACE, f"process {leader.pid} is in another network namespace")


def prove_socket(record: Record, owned: Owned) -> bool:
    """Does the proven server hold the one listener on its port? Raises if a stranger does."""
    listening = procfs.listening_inodes(record.ports.api)
    if not listening:
        return False
    held = frozenset().union(*(procfs.socket_inodes(p.pid) for p in owned.members))
    strangers = listening - held
    if strangers:
        raise refuse(
            Refusal.PORT, f"port {record.ports.api} is held by a process that is not the session's"
        )
    if not procfs.loopback_only(record.ports.api):
        raise refuse(Refusal.UNPROVEN, f"port {record.ports.api} is open beyond 127.0.0.1")
    return True
