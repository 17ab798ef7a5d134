"""A look at one job, from its folder and `/proc`. Every answer is an Observation.

no folder                      absent: the folder is made before anything else
folder, no claim               sealed here and now, then absent: a late shim finds the seal
claim, its shim at work        running: the shim holds the lock of the job's file
exit record                    what it says
claim, no shim, no record      lost: what lives of it is ended by proof, then a record is made
anything unreadable            unavailable

A driver's look acts (it seals, ends orphans, records a loss): only so can it be sure. A look for
people (`acts=False`) changes nothing, and says what may still come.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable
from npa.orchestration.engine import ExactJob, JobRef, JobStatus, MemberStatus, Phase
from npa.orchestration.local import layout, logs, procfs, records, verdict
from npa.orchestration.local.procfs import Identity
from npa.orchestration.local.records import Claim, JobFile

SOURCE = "local"

_CAUSES = {
    errno.EMFILE: "TOO_MANY_FILES",
    errno.ENFILE: "TOO_MANY_FILES",
    errno.EACCES: "PERMISSION",
    errno.EPERM: "PERMISSION",
    errno.EIO: "IO_ERROR",
    errno.ENOMEM: "NO_MEMORY",
    errno.ENOSPC: "NO_SPACE",
}


class _Orphans(Struct):
    """Processes of a lost job under our hands: since when, and who they were."""

    since: float
    seen: dict[tuple[int, int], str] = field(default_factory=dict)


class Observer:
    """Looks at jobs under one root. `me` is the observing process, written into seals.

    With `acts=False` no look creates, writes, signals or removes anything.
    """

    def __init__(
        self,
        root: Path,
        me: Identity,
        host: str,
        clock: Callable[[], float],
        *,
        acts: bool = True,
    ) -> None:
        self._acts = acts
        self._root = str(root)
        self._me = me
        self._host = host
        self._clock = clock
        self._orphans: dict[str, _Orphans] = {}
        self.bound_to = f"{host}/{me}"

    @property
    def has_orphans(self) -> bool:
        """True while processes of a lost job are being ended: look again soon."""
        return bool(self._orphans)

    def folder(self, name: str) -> str:
        return f"{self._root}/{name}"

    def look(self, ref: JobRef) -> Observation[JobStatus]:
        return self._answered(self._look, ref)

    def look_for_end(self, ref: JobRef, native_id: str) -> Observation[JobStatus]:
        """As `look`, for a job that our own launch saw claimed: its record alone says all."""
        return self._answered(lambda asked: self._end(asked, native_id) or self._look(asked), ref)

    def _answered(
        self, look: Callable[[JobRef], Observation[JobStatus]], ref: JobRef
    ) -> Observation[JobStatus]:
        try:
            return look(ref)
        except OSError as error:
            cause = _CAUSES.get(error.errno or 0, "UNREADABLE")
            return Unavailable(cause, str(error), SOURCE, self._clock())
        except ValueError as error:
            return Unavailable("GARBAGE", str(error), SOURCE, self._clock())

    def _end(self, ref: JobRef, native_id: str) -> Found[JobStatus] | None:
        if ref.native_id not in ("", native_id):
            return None
        folder = self.folder(ref.name)
        record = records.read_json(f"{folder}/{layout.RECORD}")
        if record is None or (record.get("key"), record.get("shim")) != (ref.key, native_id):
            return None
        exact = ExactJob(ref.name, native_id, self._clock(), self.bound_to)
        return self._found(self._status(exact, folder, record))

    def _look(self, ref: JobRef) -> Observation[JobStatus]:
        folder = self.folder(ref.name)
        claim = records.read_claim(folder)
        if claim is None:
            return self._unclaimed(ref, folder)
        if claim.kind == layout.SEAL:
            return self._absent(f"sealed by process {claim.who.pid} before any shim came")
        job = self._job_of(ref, folder, claim)
        if job is None:
            raise ValueError(f"{ref.name} has a claim and no {layout.JOB}")
        native = str(claim.who)
        if (ref.native_id and ref.native_id != native) or job.key != ref.key:
            return Ambiguous(
                (f"{job.key} {native}", f"{ref.key} {ref.native_id}"), SOURCE, self._clock()
            )
        exact = ExactJob(ref.name, native, self._clock(), self.bound_to)
        return self._claimed(exact, folder, job, claim)

    # -- nobody took it ---------------------------------------------------------------------

    def _unclaimed(self, ref: JobRef, folder: str) -> Observation[JobStatus]:
        if not os.path.isdir(folder):
            if not os.path.isdir(self._root):
                return self._unavailable("JOBS_FOLDER_GONE", f"'{self._root}' cannot be seen")
            return self._no_folder(ref)
        job = self._job_or_none(folder)
        if job is not None and job.boot != self._me.boot:
            return self._other_boot(ref, folder, job)
        if not self._acts:
            return self._absent("no shim has claimed the job yet", late_possible=True)
        if records.seal(folder, self._me):
            return self._absent("no shim had claimed the job, and now none can")
        return self._look(ref)  # somebody claimed it between our two looks

    def _job_or_none(self, folder: str) -> JobFile | None:
        """A half-written file of a driver that died is no job yet; nothing was sent."""
        try:
            return records.read_job(folder)
        except ValueError:
            return None

    def _no_folder(self, ref: JobRef) -> Observation[JobStatus]:
        """A job that once had a native ID existed; its folder was taken away under it."""
        if not ref.native_id:
            marker = f"{layout.MARKER}={ref.key}".encode()
            for one in procfs.processes_of(self._me, marker, self.folder(ref.name)):
                return self._unavailable("JOB_FOLDER_LOST", f"pid {one.pid} of the job still runs")
            return self._absent("the job's folder does not exist", late_possible=not self._acts)
        who = Identity.parse(ref.native_id)
        if who.boot != self._me.boot:
            return self._unavailable(
                "JOB_FOLDER_LOST", "it was launched under another boot or host"
            )
        if procfs.is_alive(who):
            return self._unavailable("JOB_FOLDER_LOST", f"its shim still runs as pid {who.pid}")
        exact = ExactJob(ref.name, ref.native_id, self._clock(), self.bound_to)
        job = JobFile(ref.name, ref.key, self._host, who.boot, self._clock(), 0.0, ())
        return self._lost(exact, self.folder(ref.name), job, Claim(layout.SHIM, who, 0.0))

    def _other_boot(self, ref: JobRef, folder: str, job: JobFile) -> Observation[JobStatus]:
        """The claim may have been lost with the power: absence cannot be proven any more."""
        if job.host != self._host:
            return self._elsewhere(job)
        exact = ExactJob(ref.name, ref.native_id or ref.name, self._clock(), self.bound_to)
        return self._over(exact, job, folder, "HOST_REBOOTED", ())

    # -- somebody took it -------------------------------------------------------------------

    def _job_of(self, ref: JobRef, folder: str, claim: Claim) -> JobFile | None:
        """A claim of another boot beside a torn job file: the power went before it was on disk."""
        same_boot = claim.who.boot == self._me.boot
        try:
            job = records.read_job(folder)
        except ValueError:
            if same_boot:
                raise
            job = None
        if job is not None or same_boot:
            return job
        return JobFile(ref.name, ref.key, self._host, claim.who.boot, claim.at, 0.0, ())

    def _claimed(
        self, exact: ExactJob, folder: str, job: JobFile, claim: Claim
    ) -> Observation[JobStatus]:
        same_boot = claim.who.boot == self._me.boot
        record = self._record(folder, same_boot=same_boot)
        if record is None and same_boot:
            if self._shim_at_work(claim.who, folder):
                return self._running(exact, folder, job, claim)
            record = self._record(folder, same_boot=same_boot)  # written as its last act
        if record is not None:
            return self._found(self._status(exact, folder, record))
        if not same_boot and job.host != self._host:
            return self._elsewhere(job)
        if not same_boot:
            return self._over(exact, job, folder, "HOST_REBOOTED", ())
        if procfs.is_alive(claim.who):
            return self._unavailable("RECORD_LOST", "its shim has gone on and left no record")
        return self._lost(exact, folder, job, claim)

    def _record(self, folder: str, *, same_boot: bool) -> dict[str, Any] | None:
        """A record torn by a power cut counts as none; torn in this boot it is garbage."""
        try:
            return records.read_json(f"{folder}/{layout.RECORD}")
        except ValueError:
            if same_boot:
                raise
            return None

    def _shim_at_work(self, who: Identity, folder: str) -> bool:
        """By the job's lock (a shim that lives may be at another job); without locks, by `/proc`.

        The lock also shows a shim of another pid namespace.
        """
        held = procfs.lock_held(f"{folder}/{layout.JOB}")
        return procfs.is_alive(who) if held is None else held

    def _running(
        self, exact: ExactJob, folder: str, job: JobFile, claim: Claim
    ) -> Found[JobStatus]:
        body = records.read_json(f"{folder}/{layout.PROGRESS}")
        members = (
            verdict.progress(body)
            if body
            else tuple(
                MemberStatus(
                    task.path, Phase.STARTING if task.setup else Phase.RUNNING, started_at=claim.at
                )
                for task in job.tasks
            )
        )
        live = [member.phase for member in members if not member.phase.terminal]
        phase = verdict.phase_of(live or [Phase.RUNNING])
        if os.path.exists(f"{folder}/{layout.CANCEL}"):
            phase = Phase.CANCELLING
        return self._found(JobStatus(exact, phase, False, members))

    def _status(self, exact: ExactJob, folder: str, record: dict[str, Any]) -> JobStatus:
        asked = os.path.exists(f"{folder}/{layout.CANCEL}")
        said = verdict.judge(record, asked=asked)
        members = tuple(self._with_lines(member, folder, record) for member in said.members)
        boot = self._me.boot
        alive = [pid for pid, ticks in said.alive if procfs.is_alive(Identity(pid, ticks, boot))]
        return JobStatus(
            exact,
            said.phase,
            settled=not alive,
            members=members,
            evidence=said.evidence,
            leftovers=said.leftovers,
            reason=f"pid {alive[0]} cannot be killed: it hangs in the kernel" if alive else "",
        )

    def _with_lines(
        self, member: MemberStatus, folder: str, record: dict[str, Any]
    ) -> MemberStatus:
        """Point evidence about a rank to the last line that it wrote, in logs not too long."""
        if member.phase is not Phase.FAILED or "lost" in record:
            return member
        files = verdict.logs_of(record, member.path)
        return replace(
            member,
            evidence=tuple(
                one
                if one.rank is None
                else replace(one, log_line=logs.last_line(f"{folder}/{files[one.rank]}"))
                for one in member.evidence
            ),
        )

    # -- the shim was lost ------------------------------------------------------------------

    def _lost(
        self, exact: ExactJob, folder: str, job: JobFile, claim: Claim
    ) -> Observation[JobStatus]:
        """End what lives of it: TERM at the first look, KILL after the grace, proof each time."""
        marker = f"{layout.MARKER}={job.key}".encode()
        alive = list(procfs.processes_of(claim.who, marker, folder))
        if alive and not self._acts:
            return self._orphaned(exact, folder, job, alive)
        orphans = self._orphans.get(exact.name)
        if not alive:
            texts = tuple(orphans.seen.values()) if orphans else ()
            self._orphans.pop(exact.name, None)
            return self._over(exact, job, folder, "SHIM_LOST", texts)
        if orphans is None:
            orphans = self._orphans[exact.name] = _Orphans(self._clock())
        late = self._clock() - orphans.since >= job.grace
        for one in alive:
            known = (one.pid, one.ticks) in orphans.seen
            fate = "killed" if late else "ended after TERM"
            orphans.seen[one.pid, one.ticks] = f"pid {one.pid} ({one.comm}): {fate}, shim lost"
            if late:
                procfs.send(one, (signal.SIGKILL,))
            elif not known:
                procfs.send(one, (signal.SIGTERM, signal.SIGCONT))
        body = verdict.lost_record(job, "SHIM_LOST", tuple(orphans.seen.values()), self._clock())
        status = self._status(exact, folder, body)
        reason = f"its shim is gone; {len(alive)} of its processes are being ended"
        return self._found(replace(status, settled=False, reason=reason))

    def _orphaned(
        self, exact: ExactJob, folder: str, job: JobFile, alive: list[procfs.Stat]
    ) -> Found[JobStatus]:
        """What a look that leaves them alone can say of processes without their shim."""
        texts = tuple(f"pid {one.pid} ({one.comm}): alive, shim lost" for one in alive)
        body = verdict.lost_record(job, "SHIM_LOST", texts, self._clock())
        status = self._status(exact, folder, body)
        reason = f"its shim is gone; {len(alive)} of its processes live until a driver ends them"
        return self._found(replace(status, settled=False, reason=reason))

    def _over(
        self, exact: ExactJob, job: JobFile, folder: str, code: str, leftovers: tuple[str, ...]
    ) -> Found[JobStatus]:
        """Make the loss final, so that every later look says the same."""
        body = verdict.lost_record(job, code, leftovers, self._clock())
        if self._acts:
            with contextlib.suppress(OSError):  # then each look finds it out anew
                records.write_record(folder, body)
        return self._found(self._status(exact, folder, body))

    # -- answers ----------------------------------------------------------------------------

    def _found(self, status: JobStatus) -> Found[JobStatus]:
        return Found(status, SOURCE, self._clock())

    def _absent(self, proof: str, *, late_possible: bool = False) -> Absent:
        return Absent(proof, SOURCE, self._clock(), late_possible)

    def _unavailable(self, cause: str, detail: str) -> Unavailable:
        return Unavailable(cause, detail, SOURCE, self._clock())

    def _elsewhere(self, job: JobFile) -> Unavailable:
        return self._unavailable("OTHER_HOST", f"the job was launched on host {job.host}")
