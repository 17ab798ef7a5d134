"""The embedded engine: `LocalEngine` runs jobs on this machine and lets them outlive the driver.

launch   mkdir, job.json, one message to the zygote, wait for the claim
observe  the folder and `/proc` (see `observer.py`); it seals and ends what it must, to be sure
glance   the same look for people: it changes nothing
cancel   SIGTERM to the shim by proof; when that is old and nothing came of it, SIGKILL to all
wait     the shims' own pipes, or pidfds for jobs that another driver launched
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from npa.errors import EngineError
from npa.observation import Found, Observation, Unavailable
from npa.orchestration.engine import (
    CancelReply,
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
    Room,
    RoomKind,
)
from npa.orchestration.local import (
    canceller,
    gpus,
    inventory,
    layout,
    procfs,
    records,
    request,
    verdict,
)
from npa.orchestration.local.inventory import Inventory, Usage
from npa.orchestration.local.launcher import Claimed, Foreign, Launcher, NotStarted, Reply
from npa.orchestration.local.ledger import Ledger
from npa.orchestration.local.logs import LocalLogs
from npa.orchestration.local.observer import Observer
from npa.orchestration.local.preflight import preflight
from npa.target.home import private_folder
from npa.workflow.step import Step

SOURCE = "local"
CLAIM_SECONDS_MAX = 2.0
"""How long a launch that finds the folder made by somebody else waits for its claim."""
BLIND_SECONDS = 0.25
"""How often to look when a live job has no descriptor that is sure to wake us."""


class LocalEngine:
    """Jobs as detached processes of this machine. One instance per driver; threads may share it.

    Raises EngineError when made on a host without `/proc`. `jobs_root` is made once, by what is to
    launch: a look at a run makes nothing, and a root that is taken away later is not replaced, as
    an empty one would seem to prove that no job was ever there.
    `base_env` is what every job's environment starts from.
    """

    name = "local"
    launches_groups = False
    jobs_end_with_host = True
    launch_window_seconds = 0.0  # the claim file settles at once whether a job can still appear

    def __init__(
        self,
        jobs_root: Path,
        *,
        base_env: Mapping[str, str],
        inventory: Inventory | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._root = jobs_root.absolute()
        self._env = dict(base_env)
        self._clock = clock
        self._rooted = False
        try:
            me = procfs.own_identity(procfs.boot_id())
        except OSError as error:
            raise EngineError(
                f"the local engine cannot run here: {error}",
                not_done="nothing was started",
                hint="it needs Linux with `/proc` and a writable home folder",
                code="LOCAL_ENGINE_UNFIT",
            ) from error
        self._me = me
        self._host = procfs.host_id()
        self._gpu_locks = str(self._root.parent / ".gpus")
        self._given_inventory = inventory
        self._observer = Observer(self._root, me, self._host, clock)
        self._glancer = Observer(self._root, me, self._host, clock, acts=False)
        self._ledger = Ledger(self._root, self._observer)
        self._launcher = Launcher(self._root, request.launcher_env(self._env))
        self._lock = threading.RLock()
        self._watches: dict[str, int] = {}
        self._own: dict[str, str] = {}  # native IDs by name, of launches not yet seen to be over
        # key and status of own jobs whose pipes have been silent since the last look
        self._unchanged: dict[str, tuple[str, JobStatus]] = {}
        self._blind: set[str] = set()

    @property
    def target(self) -> Mapping[str, str]:
        return {"engine": self.name, "host": os.uname().nodename, "jobs_root": str(self._root)}

    @property
    def inventory(self) -> Inventory:
        """What this machine has; read once, when first needed."""
        if self._given_inventory is None:
            self._given_inventory = inventory.read_inventory(self._env)
        return self._given_inventory

    @property
    def logs(self) -> LocalLogs:
        """Reader of the logs of jobs under this root."""
        return LocalLogs(self._glancer.folder, self._glancer.look, self._clock)

    def preflight(self, steps: Sequence[Step]) -> tuple[Finding, ...]:
        return preflight(steps, self.inventory, self._env)

    def room(self, steps: Sequence[Step]) -> Room:
        with self._lock:
            try:
                used = self._used()
            except OSError as error:
                return Room(RoomKind.BUSY, f"what other jobs hold cannot be seen: {error}")
            return inventory.room(steps, self.inventory, used)

    def _used(self) -> Usage:
        """What jobs of this run hold, and the GPUs that jobs of other runs hold."""
        elsewhere = gpus.held(self._gpu_locks, (gpu.index for gpu in self.inventory.gpus))
        return self._ledger.used() + Usage(gpus=elsewhere)

    # -- launch -----------------------------------------------------------------------------

    def get_ready(self) -> None:
        """Let what launches need start now: it takes some 40 ms, which a driver has meanwhile.

        Raises UsageError if the folder of the jobs cannot be made.
        """
        with self._lock:
            self._make_root()
            self._launcher.get_ready()

    def _make_root(self) -> None:
        if not self._rooted:
            private_folder(self._root)
            self._rooted = True

    def launch(self, job: Job) -> LaunchReply:
        """Start a job once. A name that has a folder is never started again, only looked at."""
        if problem := request.problem(job):
            return LaunchRefused(Evidence("INVALID_ARGUMENT", SOURCE, hint=problem))
        with self._lock:  # so no look of ours meets a launch of ours half way
            return self._launch(job)

    def _launch(self, job: Job) -> LaunchReply:
        self._make_root()
        folder = self._observer.folder(job.name)
        try:
            picked = self._assign(job)
        except OSError as error:
            return self._refused(error.errno, "look at the GPUs")
        if isinstance(picked, LaunchRefused):
            return picked
        about = request.job_file(
            job, picked, self._host, self._me.boot, self._clock(), self.inventory
        )
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            return self._already(job, folder)
        except OSError as error:
            return self._refused(error.errno, folder)
        try:
            records.write_job(folder, about)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(f"{folder}/{layout.JOB}")
                os.rmdir(folder)
            return self._refused(error.errno, folder)
        body = request.body(job, picked, folder, self._gpu_locks, self._env)
        reply = self._launcher.launch(body)
        if isinstance(reply, Claimed):
            self._watches[job.name] = reply.pipe
            self._own[job.name] = str(reply.shim)
            self._ledger.add(about)
            return Launched(str(reply.shim), SOURCE)
        return self._not_claimed(job, folder, reply)

    def _assign(self, job: Job) -> list[tuple[tuple[int, ...], ...]] | LaunchRefused:
        """GPU indices of each rank of each task, none of them held by anybody else."""
        found: list[tuple[tuple[int, ...], ...]] = []
        if not any(task.step.profile.accelerator_count for task in job.tasks):
            return [((),) * max(1, task.step.profile.num_nodes) for task in job.tasks]
        used = self._used()
        for task in job.tasks:
            if reason := inventory.impossible(task.step.profile, self.inventory):
                return LaunchRefused(
                    Evidence("IMPOSSIBLE_SHAPE", SOURCE, hint=f"`{task.step.path}` {reason}")
                )
            picked = inventory.assign(task.step.profile, self.inventory, used.gpus)
            if picked is None:
                return self._no_gpu()
            used += Usage(gpus=frozenset(index for rank in picked for index in rank))
            found.append(picked)
        return found

    def _no_gpu(self) -> LaunchRefused:
        return LaunchRefused(Evidence("CAPACITY_OR_QUOTA", SOURCE, hint="other jobs hold the GPUs"))

    def _refused(self, number: int | None, what: str) -> LaunchRefused:
        return LaunchRefused(verdict.refusal(number or errno.EIO, what))

    def _already(self, job: Job, folder: str) -> LaunchReply:
        """Somebody made the folder. Their claim is awaited for a moment; nothing is started."""
        until = time.monotonic() + CLAIM_SECONDS_MAX
        while True:
            try:
                claim = records.read_claim(folder)
            except (OSError, ValueError) as error:
                return LaunchUnknown("JOB_FOLDER_EXISTS", str(error))
            if claim is not None and claim.kind == layout.SHIM:
                return Launched(str(claim.who), SOURCE)
            if claim is not None:
                return self._sealed(f"process {claim.who.pid} sealed `{job.name}` before")
            if time.monotonic() >= until:
                return LaunchUnknown(
                    "JOB_FOLDER_EXISTS", f"`{folder}` exists and nobody claimed it"
                )
            select.select([], [], [], 0.002)

    def _not_claimed(self, job: Job, folder: str, reply: Reply) -> LaunchReply:
        """Make sure that nothing can start any more: the seal and a shim want the same claim."""
        try:
            sealed = records.seal(folder, self._me)
        except OSError as error:
            return LaunchUnknown("UNSEALED", f"{reply}: {error}")
        if not sealed or isinstance(reply, Foreign):
            return self._already(job, folder)
        if isinstance(reply, NotStarted) and reply.stage == "gpus" and reply.errno == errno.EAGAIN:
            return self._no_gpu()
        if isinstance(reply, NotStarted) and reply.stage == "workdir":
            hint = f"the working folder `{job.workdir}`: {os.strerror(reply.errno)}"
            return LaunchRefused(Evidence("INVALID_ARGUMENT", SOURCE, hint=hint))
        if isinstance(reply, NotStarted):
            return self._refused(reply.errno, reply.stage)
        return self._sealed(f"no shim came: {getattr(reply, 'detail', '')}")

    def _sealed(self, hint: str) -> LaunchRefused:
        return LaunchRefused(Evidence("LAUNCH_VERIFIED_ABSENT", SOURCE, hint=hint))

    # -- observe ----------------------------------------------------------------------------

    def observe(self, refs: Sequence[JobRef]) -> Mapping[str, Observation[JobStatus]]:
        with self._lock:
            self._listen()
            return {ref.name: self._look(ref) for ref in refs}

    def _listen(self) -> None:
        """Hear what the shims' pipes have to say, so that silence means: nothing has changed."""
        if not self._unchanged:
            return
        fds = {self._watches[name]: name for name in self._unchanged}
        for fd, _event in _poll(fds).poll(0):
            self._woken(fd, fds[fd])

    def glance(self, refs: Sequence[JobRef]) -> Mapping[str, Observation[JobStatus]]:
        """A look that changes nothing, safe beside a driver that is launching."""
        return {ref.name: self._bad_name(ref) or self._glancer.look(ref) for ref in refs}

    def _bad_name(self, ref: JobRef) -> Unavailable | None:
        problem = request.name_problem(ref.name)
        return Unavailable("BAD_NAME", problem, SOURCE, self._clock()) if problem else None

    def _look(self, ref: JobRef) -> Observation[JobStatus]:
        if bad := self._bad_name(ref):
            return bad
        if ref.name in self._unchanged:
            return self._as_before(ref)
        own = self._own.get(ref.name)
        seen = self._observer.look_for_end(ref, own) if own else self._observer.look(ref)
        if isinstance(seen, Found) and seen.value.settled:
            self._forget(ref.name)
        elif isinstance(seen, Found) and own and ref.name in self._watches:
            self._unchanged[ref.name] = (ref.key, seen.value)
        elif isinstance(seen, Found):
            self._watch(ref.name, seen.value)
        return seen

    def _as_before(self, ref: JobRef) -> Observation[JobStatus]:
        """The shim holds the pipe of just this job until its end, and writes at each change."""
        key, status = self._unchanged[ref.name]
        if ref.key != key or ref.native_id not in ("", status.exact.native_id):
            return self._observer.look(ref)
        now = self._clock()
        return Found(replace(status, exact=replace(status.exact, seen_at=now)), SOURCE, now)

    def _watch(self, name: str, status: JobStatus) -> None:
        """Let `wait` wake up for a job that another driver launched.

        While that driver lives the shim may go on to other jobs of it: so its end is not waited
        for alone, the job is looked at from time to time, too.
        """
        if name in self._watches or status.phase.terminal:
            return
        self._blind.add(name)
        try:
            who = procfs.Identity.parse(status.exact.native_id)
            self._watches[name] = os.pidfd_open(who.pid)
            if not procfs.is_alive(who):
                self._drop_watch(name)
        except (OSError, ValueError):
            self._drop_watch(name)

    def _forget(self, name: str) -> None:
        self._ledger.remove(name)
        self._own.pop(name, None)
        self._blind.discard(name)
        self._drop_watch(name)

    def _drop_watch(self, name: str) -> None:
        self._unchanged.pop(name, None)
        fd = self._watches.pop(name, None)
        if fd is not None:
            os.close(fd)

    # -- cancel, wait, close ----------------------------------------------------------------

    def cancel(self, exact: ExactJob) -> CancelReply:
        """Ask a job's shim to end it; harder if an earlier request had its time."""
        with self._lock:
            self._unchanged.pop(exact.name, None)
        return canceller.cancel(
            exact, self._observer.folder(exact.name), self._observer.bound_to, self._clock
        )

    def wait(self, seconds: float) -> None:
        """Sleep until a shim says something or ends, at most `seconds`."""
        with self._lock:
            fds = {fd: name for name, fd in self._watches.items()}
            if self._blind or self._observer.has_orphans:
                seconds = min(seconds, BLIND_SECONDS)
        for fd, _event in _poll(fds).poll(max(0.0, seconds) * 1000):
            self._woken(fd, fds[fd])

    def _woken(self, fd: int, name: str) -> None:
        """Swallow a `+`; drop the descriptor of a shim that ended, or it would wake us for ever."""
        with self._lock:
            if self._watches.get(name) != fd:
                return
            self._unchanged.pop(name, None)
            try:
                more = os.read(fd, 4096)
            except OSError:  # a pidfd cannot be read: its process ended
                more = b""
            if not more:
                self._drop_watch(name)

    def close(self) -> None:
        with self._lock:
            self._launcher.close()
            for name in list(self._watches):
                self._drop_watch(name)


def _poll(fds: Iterable[int]) -> select.poll:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return poll
