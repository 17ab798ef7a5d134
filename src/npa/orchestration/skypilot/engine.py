"""The SkyPilot engine: launch, observe, cancel through one owned API session.

A launch is a transaction: lock on its key, look for its exact name, POST once, then look again by
name and ID before control returns. Whatever is not seen is unavailable and never absent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, assert_never

from msgspec.structs import replace

from npa.errors import EngineError
from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable
from npa.orchestration.engine import (
    CancelReply,
    CancelRequested,
    CancelUnknown,
    Evidence,
    ExactJob,
    Finding,
    Job,
    JobRef,
    JobStatus,
    Launched,
    LaunchRefused,
    LaunchReply,
    LaunchUnknown,
    Phase,
    Room,
    RoomKind,
)
from npa.orchestration.skypilot.client import Answer, BridgeClient, Broken, Refused, Reply
from npa.orchestration.skypilot.controller import START_SECONDS_MAX, StoppedController
from npa.orchestration.skypilot.installer import VERSION
from npa.orchestration.skypilot.jobqueue import (
    CALL_SECONDS_MAX,
    CONTROLLER_NOT_UP,
    Clock,
    Queue,
)
from npa.orchestration.skypilot.launch_refused import refused
from npa.orchestration.skypilot.launches import Launches, Reached, Trace
from npa.orchestration.skypilot.ownership import Owned
from npa.orchestration.skypilot.refusals import Refusal
from npa.orchestration.skypilot.rows import SOURCE, Snapshot, job_status
from npa.workflow.step import Step

LAUNCH_SECONDS_MAX = 180.0  # for the server to work through the launch request
POST_SECONDS_MAX = 120.0  # for the bridge to make the POST; afterwards it refuses to
SEEN_SECONDS_MAX = 60.0  # for its row to appear in the queue
PROOF_SECONDS_MAX = 120.0  # how long a look at a job may be acted on
RESTART_GAP_SECONDS = 30.0
LAUNCH_WINDOW_SECONDS = POST_SECONDS_MAX + LAUNCH_SECONDS_MAX


class Rendering(Protocol):
    """One job as SkyPilot takes it: YAML, step path -> task name, secrets left out of it."""

    @property
    def text(self) -> str: ...

    @property
    def task_names(self) -> Mapping[str, str]: ...

    @property
    def secrets(self) -> tuple[str, ...]: ...


class ApiSession(Protocol):
    """What the engine needs of a session (npa.orchestration.skypilot.session.Session)."""

    def start(self) -> Owned: ...

    def prove(self) -> Owned: ...


@dataclass(slots=True)
class SkyPilotEngine:
    """Implements npa.orchestration.engine.Engine. `infra` is what tasks ask for, for preflight.

    `verdict_on` (launch key, job ID) says why a job ended before its payload, if it is known.
    `controller_stops`: the jobs controller is a machine of its own, which may be stopped.
    """

    session: ApiSession
    bridge: BridgeClient
    launches: Launches
    render: Callable[[Job], Rendering]
    facts: Mapping[str, str]
    infra: tuple[str, ...] = ()
    before_controller: Callable[[], Evidence | None] = lambda: None
    verdict_on: Callable[[str, str], Evidence | None] = lambda _key, _native_id: None
    clock: Clock = field(default_factory=Clock)
    name: str = "skypilot"
    launches_groups: bool = True
    controller_stops: bool = False
    launch_window_seconds: float = LAUNCH_WINDOW_SECONDS
    jobs_end_with_host: bool = False
    _queue: Queue = field(init=False)
    _stopped: StoppedController = field(init=False)
    _endpoint: str = ""
    _bound_to: str = ""
    _restarted: float = float("-inf")
    _missing: dict[str, float] = field(default_factory=dict)
    _first_seen: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._queue = Queue(self._ask_queue, lambda: self.bridge.restart(), self.clock)
        self._stopped = StoppedController(self._call, self.clock)
        if self.controller_stops:  # a launch may have to wait for its start
            self.launch_window_seconds += START_SECONDS_MAX

    @property
    def target(self) -> Mapping[str, str]:
        return {"engine": self.name, **self.facts}

    # -- before anything is launched ------------------------------------------------------------

    def preflight(self, steps: Sequence[Step]) -> tuple[Finding, ...]:  # noqa: ARG002
        """Start the session and see that what the tasks ask for is enabled."""
        try:
            self._use(self.session.start())
        except EngineError as error:
            return (Finding(error.code, "", error.message, error.hint, blocking=True),)
        hello = self._call("hello", 60.0)
        if isinstance(hello, Answer) and hello.value.get("version") != VERSION:
            said = f"the bridge runs SkyPilot {hello.value.get('version')}, not {VERSION}"
            return (Finding("SKYPILOT_VERSION", "", said, "`npa skypilot bootstrap`", True),)
        clouds = sorted({infra.partition("/")[0] for infra in self.infra})
        reply = self._call("check", 240.0, infra=clouds)
        match reply:
            case Answer(value=value):
                return self._not_enabled(value)
            case Refused(code=code, message=message):
                said = f"SkyPilot's check failed ({code}): {message[:300]}"
            case Broken(cause=cause, detail=detail):
                said = f"SkyPilot's check gave no answer ({cause}): {detail}"
            case _:
                assert_never(reply)
        remedy = "`npa skypilot status` and the session's `bridge.log` say more"
        return (Finding("SKYPILOT_CHECK", "", said, remedy, blocking=True),)

    def _not_enabled(self, value: Mapping[str, object]) -> tuple[Finding, ...]:
        names = cloud_names(value.get("enabled"))
        wanted = {infra.partition("/")[0].lower() for infra in self.infra}
        wanted = {"kubernetes" if name == "k8s" else name for name in wanted}
        return tuple(
            Finding(
                "INFRA_NOT_ENABLED",
                "",
                f"SkyPilot cannot use {name}",
                f"`npa skypilot verify` says why {name} is not enabled",
                blocking=True,
            )
            for name in sorted(wanted - names)
        )

    def room(self, steps: Sequence[Step]) -> Room:  # noqa: ARG002
        """SkyPilot has a queue of its own. Only a stopped controller is waited for, so that no
        launch is on its way for as long as a machine takes to start."""
        if not self.controller_stops:
            return Room(RoomKind.FITS)
        try:
            self._use(self._living())
        except EngineError:  # the launch says why
            return Room(RoomKind.FITS)
        if not self._starts_again(self._queue.snapshot()):
            return Room(RoomKind.FITS)
        return Room(RoomKind.BUSY, "the jobs controller was stopped and is being started again")

    # -- launching ------------------------------------------------------------------------------

    def launch(self, job: Job) -> LaunchReply:
        """One POST at most. Raises EngineError if nothing was sent and a person has to act."""
        rendering = self.render(job)
        values = {k: s for task in job.tasks for k, s in task.secrets.items()}
        missing = [name for name in rendering.secrets if name not in values]
        if missing:
            return LaunchRefused(Evidence("MISSING_SECRET", self.name, hint=", ".join(missing)))
        with self.launches.locked(job.key):
            owned = self.session.start()
            self._use(owned)
            known = self._known(job)
            if known is not None:
                return known
            waits = self.before_controller()
            if waits is not None:
                return LaunchRefused(waits)
            digest = hashlib.sha256(rendering.text.encode()).hexdigest()
            paths = {task: path for path, task in rendering.task_names.items()}
            if len(paths) == 1:  # SkyPilot gives the one task of a job the name of the job
                paths |= dict.fromkeys([job.name], *paths.values())
            not_after = self.clock.now() + POST_SECONDS_MAX
            rows = self.launches.prepare(job.key, job.name, digest, paths, not_after)
            reply = self._call(
                "launch",
                LAUNCH_SECONDS_MAX,
                name=job.name,
                documents=rendering.text,
                secrets={name: values[name].reveal() for name in rendering.secrets},
                observation=str(rows),
                not_after=not_after,
                seconds_max=LAUNCH_SECONDS_MAX - 10.0,
            )
            return self._settle(job, reply)

    def _known(self, job: Job) -> LaunchReply | None:
        """What an earlier try left: a job to adopt, or a reason not to POST. None: go on."""
        began = self.clock.monotonic()
        deadline = began + SEEN_SECONDS_MAX
        while True:
            seen = self._queue.snapshot()
            if self._starts_again(seen):
                deadline = began + START_SECONDS_MAX
            match seen:
                case Found(value=snapshot):
                    break
                case Unavailable(cause=cause) if cause == CONTROLLER_NOT_UP:
                    if self._controller_absent():
                        return None
                case Unavailable() | Absent() | Ambiguous():
                    pass
                case _:
                    assert_never(seen)
            if self.clock.monotonic() > deadline:
                return LaunchUnknown("queue", "the queue did not answer, so nothing was launched")
        ids = snapshot.ids_of(job.name)
        if len(ids) > 1:
            return LaunchUnknown("ambiguous", f"jobs {ids} have this name")
        if ids:
            return Launched(str(ids[0]), "adopted")
        reached = self.launches.trace(job.key).reached
        if reached in (Reached.POSTING, Reached.ACCEPTED, Reached.ENDED):
            return LaunchUnknown("posted_before", "an earlier try may still arrive")
        return None

    def _starts_again(self, seen: Observation[Snapshot]) -> bool:
        """Is the controller stopped? Then it is started again, without waiting for it."""
        stopped = self._stopped.seen(seen)
        if stopped:
            self._stopped.start()
        return stopped

    def _controller_absent(self) -> bool:
        reply = self._call("controller", 60.0, consolidated=False)
        return isinstance(reply, Answer) and reply.value.get("state") == "absent"

    def _settle(self, job: Job, reply: Reply) -> LaunchReply:
        """Reconcile by exact name and ID before control returns."""
        if isinstance(reply, Broken):
            self.bridge.restart()  # from here on it cannot get any further
        trace = self.launches.trace(job.key)
        if trace.reached is Reached.PREPARED and not isinstance(reply, Answer):
            return refused(reply)
        told, answered_at = trace.job_ids, self.clock.now()
        deadline = self.clock.monotonic() + SEEN_SECONDS_MAX
        while True:
            seen = self._queue.snapshot(not_before=answered_at)
            if isinstance(seen, Found):
                ids = seen.value.ids_of(job.name)
                if len(ids) > 1 or (ids and told and ids != told):
                    return LaunchUnknown("ambiguous", f"jobs {ids} have the name, {told} was told")
                if ids:
                    return Launched(str(ids[0]), "reconciled" if told else "found")
            if self.clock.monotonic() > deadline:
                break
            self.clock.sleep(1.0)
        if trace.reached is Reached.ENDED and not told and isinstance(reply, Refused):
            return refused(reply)  # the server worked it off, failed, and left no row
        return LaunchUnknown("not_seen", f"the launch got as far as {trace.reached.value}")

    # -- looking --------------------------------------------------------------------------------

    def observe(self, refs: Sequence[JobRef]) -> Mapping[str, Observation[JobStatus]]:
        """One call for all of them. A server that is gone is started again, and so is a jobs
        controller that is stopped: what became of its jobs is on its disk."""
        return self._look(refs, self._living, self._starts_again)

    def glance(self, refs: Sequence[JobRef]) -> Mapping[str, Observation[JobStatus]]:
        """The same look through a server that lives; without one, nothing can be seen."""
        return self._look(refs, self.session.prove, lambda _seen: None)

    def _look(
        self,
        refs: Sequence[JobRef],
        server: Callable[[], Owned],
        afterwards: Callable[[Observation[Snapshot]], object],
    ) -> Mapping[str, Observation[JobStatus]]:
        if not refs:
            return {}
        try:
            self._use(server())
        except EngineError as error:
            gone = Unavailable(error.code, error.message, SOURCE, self.clock.now())
            return {ref.name: gone for ref in refs}
        seen = self._queue.snapshot(eager=bool(self._missing))
        afterwards(seen)
        match seen:
            case Found(value=snapshot):
                return {ref.name: self._one(ref, snapshot) for ref in refs}
            case Unavailable() | Absent() | Ambiguous():
                return {ref.name: self._unseen(seen) for ref in refs}
            case _:
                assert_never(seen)

    @staticmethod
    def _unseen(seen: Unavailable | Absent | Ambiguous) -> Unavailable:
        if isinstance(seen, Unavailable):
            return seen
        return Unavailable("queue", "the queue as a whole is never absent", SOURCE, seen.as_of)

    def _one(self, ref: JobRef, snapshot: Snapshot) -> Observation[JobStatus]:
        ids = snapshot.ids_of(ref.name)
        wanted = int(ref.native_id) if ref.native_id else None
        if wanted is not None and snapshot.of_id(wanted) and wanted not in ids:
            named = snapshot.of_id(wanted)[0].job_name
            return Ambiguous((f"{wanted} is {named}", *map(str, ids)), SOURCE, snapshot.as_of)
        if len(ids) > 1 or (ids and wanted is not None and ids != (wanted,)):
            return Ambiguous(tuple(map(str, ids)), SOURCE, snapshot.as_of)
        if not ids:
            return self._not_there(ref, snapshot)
        self._missing.pop(ref.name, None)
        first = self._first_seen.setdefault(ids[0], snapshot.as_of)
        posted = self.launches.trace(ref.key).at or first
        status = job_status(
            snapshot.of_id(ids[0]),
            self.launches.paths(ref.key),
            self._bound_to,
            snapshot.as_of,
            min(first, posted),
        )
        return Found(self._explained(ref, status), SOURCE, snapshot.as_of)

    def _explained(self, ref: JobRef, status: JobStatus) -> JobStatus:
        """With the reason of a job that ended before its payload in place of the payload's."""
        failed = [m for m in status.members if m.phase is Phase.FAILED]
        if not status.settled or not failed or status.phase is not Phase.FAILED:
            return status
        verdict = self.verdict_on(ref.key, status.exact.native_id)
        if verdict is None:
            return status
        members = tuple(
            replace(m, evidence=(verdict,)) if m in failed else m for m in status.members
        )
        return replace(status, members=members)

    def _not_there(self, ref: JobRef, snapshot: Snapshot) -> Observation[JobStatus]:
        """Absent needs two complete looks that do not show it: one may be stale."""
        first = self._missing.setdefault(ref.name, snapshot.as_of)
        if first == snapshot.as_of:
            return Unavailable("absent_once", "not there at one look", SOURCE, snapshot.as_of)
        trace = self.launches.trace(ref.key)
        late = trace.late_possible(self.clock.now()) and not self._worked_off(trace)
        proof = f"two complete queues of {snapshot.total} jobs; launch {trace.reached.value}"
        return Absent(proof, SOURCE, snapshot.as_of, late_possible=late)

    def _worked_off(self, trace: Trace) -> bool:
        """Is the server done with the request of that launch, whatever came of it?"""
        if trace.reached is not Reached.ACCEPTED:
            return False
        reply = self._call("request", 30.0, request_id=trace.request_id)
        match reply:
            case Answer(value=value):
                return value.get("status") in ("SUCCEEDED", "FAILED", "CANCELLED")
            case Refused(code=code):
                # A server forgets its requests when it starts, and does not run them again.
                return code == "request_unknown"
            case Broken():
                return False
            case _:
                assert_never(reply)

    # -- cancelling -----------------------------------------------------------------------------

    def cancel(self, exact: ExactJob) -> CancelReply:
        """Ask for the end of one exact job, seen shortly before through this very session."""
        try:
            self._use(self._living())
        except EngineError as error:
            return CancelUnknown(error.code, error.message)
        if exact.bound_to != self._bound_to:
            return CancelUnknown("proof", "the job was seen through another API server")
        if self.clock.now() - exact.seen_at > PROOF_SECONDS_MAX:
            return CancelUnknown("proof", "the look at the job is too old to act on")
        seen = self._queue.snapshot()
        if self._starts_again(seen):
            return CancelUnknown("controller", "the jobs controller is being started again")
        if not isinstance(seen, Found):
            return CancelUnknown("queue", "the job cannot be seen now")
        rows = seen.value.of_id(int(exact.native_id))
        if not rows or rows[0].job_name != exact.name:
            return CancelUnknown("proof", f"job {exact.native_id} is not {exact.name}")
        reply = self._call("cancel", 90.0, job_ids=[int(exact.native_id)])
        match reply:
            case Answer():
                return CancelRequested()
            case Refused(code=code, message=message):
                return CancelUnknown(code, message[:300])
            case Broken(cause=cause, detail=detail):
                return CancelUnknown(cause, detail)
            case _:
                assert_never(reply)

    def wait(self, seconds: float) -> None:
        self.clock.sleep(max(0.0, seconds))

    def close(self) -> None:
        self.bridge.close()

    # -- the session and its bridge -------------------------------------------------------------

    def _living(self) -> Owned:
        """The proven server; one that is gone is started again, not more often than every 30 s."""
        try:
            return self.session.prove()
        except EngineError as error:
            since = self.clock.monotonic() - self._restarted
            if error.code != Refusal.NOT_RUNNING.value or since < RESTART_GAP_SECONDS:
                raise
            self._restarted = self.clock.monotonic()
            return self.session.start()

    def _use(self, owned: Owned) -> None:
        if self._endpoint not in ("", owned.endpoint):
            self.bridge.restart()  # it talks to a port that is not ours any more
        self._endpoint, self._bound_to = owned.endpoint, owned.bound_to

    def _ask_queue(self) -> Reply:
        return self._call("queue", CALL_SECONDS_MAX, seconds_max=CALL_SECONDS_MAX - 10.0)

    def _call(self, op: str, seconds: float, **fields: object) -> Reply:
        return self.bridge.call(op, seconds, **fields)


def cloud_names(enabled: object) -> set[str]:
    """Names in SkyPilot's answer to a check: workspace -> cloud -> capabilities."""
    workspaces = enabled.values() if isinstance(enabled, dict) else ()
    return {str(cloud).lower() for clouds in workspaces for cloud in clouds}
