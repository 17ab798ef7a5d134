"""The two engines: one over a provider's queue, one over processes of this machine.

`QueueEngine` is what an adapter to SkyPilot is: it knows jobs by exact name and ID in a structured
queue, cannot exclude that a request arrives late, and launches a group as one job.
`LocalLikeEngine` holds a claim for each job: what is absent once can never appear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
    MemberStatus,
    Room,
    RoomKind,
)
from npa.workflow.step import Step
from simulation.faults import NATURES, Op
from simulation.provider import INACTIVE_SECONDS, Row
from simulation.world import JUMP_SECONDS, SLEEP_SECONDS, World

WINDOW_SECONDS = 6.0
SOURCE = "sim-queue"


def _word(seen: Observation[JobStatus]) -> str:
    if isinstance(seen, Found):
        return f"{seen.value.phase.value}{'' if seen.value.settled else ' unsettled'}"
    return type(seen).__name__.lower()


class QueueEngine:
    """`npa.orchestration.engine.Engine` over the simulated queue. One for each driver process."""

    name = "sim"
    launches_groups = True
    launch_window_seconds = WINDOW_SECONDS
    jobs_end_with_host = False

    def __init__(self, world: World) -> None:
        self._world = world
        self._me = f"process {world.process.pid}"
        self._process = world.process

    @property
    def target(self) -> Mapping[str, str]:
        return {"engine": self.name}

    def close(self) -> None:
        return None

    def room(self, steps: Sequence[Step]) -> Room:
        return Room(RoomKind.FITS)

    def preflight(self, steps: Sequence[Step]) -> tuple[Finding, ...]:
        fault = self._world.enter(Op.PREFLIGHT)
        self._world.watch.preflighted(self._world.mono, passed=not fault)
        if fault == "blocked":
            return (Finding("AUTHENTICATION", "", "the login is over", "log in again", True),)
        return ()

    # -- launch --------------------------------------------------------------------------------

    def launch(self, job: Job) -> LaunchReply:
        world = self._world
        fault = world.enter(Op.LAUNCH)
        world.watch.launching(self._process, job)
        reply = self._launch(job, fault)
        if isinstance(reply, Launched):
            self._process.accepted[job.key] = reply.native_id
        elif isinstance(reply, LaunchRefused):
            self._process.accepted[job.key] = "refused"
        return reply

    def _launch(self, job: Job, fault: str) -> LaunchReply:
        world, post = self._world, self._world.provider.post
        unknown = LaunchUnknown("timeout", "no reply")
        match fault:
            case "lost-request":
                return unknown
            case "lost-reply":
                post(job)
                return unknown
            case "late":
                world.provider.post_late(job)
                return unknown
            case "duplicate" | "duplicate-lost":
                first = post(job)
                post(job)
                return unknown if fault == "duplicate-lost" else Launched(str(first.id), SOURCE)
            case "phantom":
                post(job, "phantom")
                return unknown
            case "phantom-said":
                return Launched(str(post(job, "phantom").id), SOURCE)
            case "refused":
                return LaunchRefused(Evidence("CAPACITY_OR_QUOTA", SOURCE))
            case "refused-config":
                return LaunchRefused(Evidence("INVALID_ARGUMENT", SOURCE))
        nature = fault if fault in NATURES else world.next_nature()
        row = world.act(fault, lambda: post(job, nature))
        return Launched(str(row.id), SOURCE)

    # -- observe -------------------------------------------------------------------------------

    def observe(self, refs: Sequence[JobRef]) -> Mapping[str, Observation[JobStatus]]:
        world = self._world
        fault = world.enter(Op.OBSERVE)
        if world.is_down("queue", fault):
            answer = Unavailable("timeout", "", SOURCE, world.wall)
            seen: dict[str, Observation[JobStatus]] = {r.name: answer for r in refs}
        elif fault == "empty":
            seen = {r.name: self._absent(r) for r in refs}
        else:
            seen = {r.name: self._look(r) for r in refs}
        self._process.last.update(seen)
        world.watch.log.extend(f"saw {_word(seen[r.name])}" for r in refs)
        return seen

    def _absent(self, ref: JobRef) -> Absent:
        return Absent("complete queue", SOURCE, self._world.wall, late_possible=True)

    def _look(self, ref: JobRef) -> Observation[JobStatus]:
        rows = [r for r in self._world.provider.rows if r.name == ref.name and self._shown(r)]
        if not rows:
            return self._absent(ref)
        if len(rows) > 1:
            return Ambiguous(tuple(str(r.id) for r in rows), SOURCE, self._world.wall)
        return Found(self._status(rows[0]), SOURCE, self._world.wall)

    def _shown(self, row: Row) -> bool:
        if row.hidden:
            row.hidden -= 1
            return False
        return not row.gone

    def _status(self, row: Row) -> JobStatus:
        mute = not row.active and self._world.mono - row.born > INACTIVE_SECONDS
        members = tuple(
            MemberStatus(p.path, p.phase, p.evidence, ended_at=p.ended_at) for p in row.pods
        )
        return JobStatus(
            ExactJob(row.name, str(row.id), self._world.wall, self._me),
            row.phase,
            row.settled,
            members,
            observable=not mute,
            evidence=row.evidence,
        )

    # -- cancel, wait --------------------------------------------------------------------------

    def cancel(self, exact: ExactJob) -> CancelReply:
        world = self._world
        fault = world.enter(Op.CANCEL)
        assert exact.bound_to == self._me, "the proof of another process"
        world.watch.cancelling(self._process, exact)
        row = int(exact.native_id)
        if fault == "lost-request":
            return CancelUnknown("timeout", "no reply")
        how = fault if fault in ("ignored", "raced", "raced-bare") else ""
        world.act(fault, lambda: world.provider.cancel(row, how))
        if fault == "lost-reply":
            return CancelUnknown("timeout", "no reply")
        return CancelRequested()

    def wait(self, seconds: float) -> None:
        world = self._world
        assert seconds >= 0.0
        match world.enter(Op.WAIT):
            case "clock-forward":
                world.wall += JUMP_SECONDS
            case "clock-back":
                world.wall -= JUMP_SECONDS
            case "sleep":
                world.advance(SLEEP_SECONDS)
                world.person.waits_longer(SLEEP_SECONDS)
        world.advance(seconds)
        world.person.patience()


class LocalLikeEngine(QueueEngine):
    """Jobs under our own claim: a launch is known at once, and absence is for good."""

    name = "local"
    launches_groups = False
    launch_window_seconds = 0.0
    jobs_end_with_host = True

    def _launch(self, job: Job, fault: str) -> LaunchReply:
        sealed = self._world.provider.sealed
        known = [r for r in self._world.provider.rows if r.name == job.name]
        if job.key in sealed:
            return LaunchRefused(Evidence("LAUNCH_VERIFIED_ABSENT", SOURCE))
        if known:
            return Launched(str(known[0].id), SOURCE)
        if fault in ("lost-request", "late", "invisible"):
            return LaunchUnknown("no shim", "")
        if fault in ("duplicate", "duplicate-lost", "phantom", "phantom-said"):
            fault = "lost-reply"
        return super()._launch(job, fault)

    def _look(self, ref: JobRef) -> Observation[JobStatus]:
        seen = super()._look(ref)
        if isinstance(seen, Absent):
            self._world.provider.sealed.add(ref.key)
        return seen

    def observe(self, refs: Sequence[JobRef]) -> Mapping[str, Observation[JobStatus]]:
        world = self._world
        fault = world.enter(Op.OBSERVE)
        down = world.is_down("queue", "unavailable" if fault == "empty" else fault)
        answer = Unavailable("EIO", "", SOURCE, world.wall)
        seen: dict[str, Observation[JobStatus]] = {
            r.name: answer if down else self._look(r) for r in refs
        }
        self._process.last.update(seen)
        return seen

    def _absent(self, ref: JobRef) -> Absent:
        return Absent("sealed claim", SOURCE, self._world.wall)


Maker = Callable[[World], QueueEngine]
