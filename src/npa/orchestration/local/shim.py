"""The shim: the one parent of a job's processes, which outlives the driver.

Its first act is the claim; without it nothing runs. It starts the ranks, ends a gang of which one
rank failed, honours SIGTERM as a cancel, ends what the job left behind (it is a subreaper: a
daemon that forked twice is still its child), and writes the exit record as its last act. It only
notes facts; what they mean is judged in `verdict.py`. Standard library only.

A shim has one job at a time. When one ended well, with nothing left of it, the shim takes the next.
That it lives proves therefore nothing for one job: the proof is its lock on the job's file, held
until the record is there and no signal that was meant for this job can come any more (`part`).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from npa.orchestration.local import gpus, layout, procfs, spawn, workplace
from npa.orchestration.local.channel import DESCRIPTORS, receive
from npa.orchestration.local.ranks import Rank, Task, task_of
from npa.orchestration.local.record_file import RecordFile, oom_file

DRAIN_SECONDS = 0.5
"""How long helpers such as `tee` may finish by themselves after the main processes ended."""
KILL_AGAIN_SECONDS = 0.05
UNKILLABLE_SECONDS = 30.0
"""After so long under SIGKILL a process hangs in the kernel; it is reported as alive."""
LEFTOVERS_MAX = 100

JOBS_MAX = 500
"""So many jobs a shim serves at most: whatever may pile up in it ends with it."""

PATIENCE_SECONDS = 0.1
"""Pause before another try when the machine has no descriptor or memory to spare."""

_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
_IGNORED = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
_KILL = (signal.SIGKILL,)
_END = (signal.SIGTERM, signal.SIGCONT)  # CONT: a stopped process gets its chance, too
_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36  # <linux/prctl.h>

_prctl: Any = None
_oom_file = ""


def prepare() -> None:
    """Once, in the zygote: what each shim would otherwise load for itself."""
    global _prctl, _oom_file
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _prctl = ctypes.CDLL(None, use_errno=True).prctl
    _oom_file = oom_file()


@dataclass(slots=True)
class Shim:
    folder: str
    source: str
    key: str
    grace: float
    tasks: list[Task]
    me: procfs.Identity
    reply: int
    record: RecordFile
    subreaper: bool
    places: workplace.Places
    leftovers: dict[int, dict[str, object]] = field(default_factory=dict)
    sender: dict[str, int] | None = None

    # -- the course of a job ----------------------------------------------------------------

    def live(self) -> bool:
        """Run the job to its record; a fault of our own ends the job and is recorded, too.

        True if it ended by itself and left nothing behind.
        """
        crash = ""
        try:
            self.run()
        except Exception as error:
            crash = repr(error)
            self.send(self.everything(), _KILL)
        self.sweep()
        written = self.record.write(self.facts(time.time()) | {"crash": crash})
        undisturbed = self.sender is None and all(task.kill_at is None for task in self.tasks)
        return written and undisturbed and not crash and not self.leftovers

    def run(self) -> None:
        for task in self.tasks:
            self.start_stage(task, "setup" if task.setup else "run")
        self.record.watch_memory()
        while not all(task.done for task in self.tasks):
            self.turn()

    def facts(self, ended: float | None) -> dict[str, object]:
        return {
            "v": layout.VERSION,
            "key": self.key,
            "shim": str(self.me),
            "tasks": [task.facts() for task in self.tasks],
            "leftovers": list(self.leftovers.values())[:LEFTOVERS_MAX],
            "sender": self.sender,
            "oom_kills": self.record.oom_kills_since() if self.killed() else None,
            "ended": ended,
        }

    def killed(self) -> bool:
        """Was any rank killed, or did a shell say so of its child?"""
        ranks = [rank for task in self.tasks for rank in task.ranks]
        return any(rank.signal == signal.SIGKILL or rank.code == 137 for rank in ranks)

    def start_stage(self, task: Task, stage: str) -> None:
        """Start `stage` on every rank; the first that cannot start ends the gang."""
        changed = task.stage == "setup"
        task.stage = stage
        for rank in task.ranks:
            self.start_rank(task, rank)
            if rank.errno is not None:
                task.first = rank
                self.end(task)
                break
        if changed:
            self.publish()
        self.after(task)

    def start_rank(self, task: Task, rank: Rank) -> None:
        rank.stage, rank.code, rank.signal = task.stage, None, None
        if rank.started is None:
            rank.started = time.time()
        env = task.env | (rank.setup_env if task.stage == "setup" else rank.run_env)
        text = task.setup if task.stage == "setup" else task.shell
        argv = spawn.shell_argv(text, env) if text else task.argv
        rank.what = "shell" if text else argv[0]
        try:
            log = os.open(
                f"{self.folder}/{rank.log}",
                os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC,
                0o600,
            )
        except OSError as error:
            rank.errno, rank.what, rank.ended = error.errno, rank.log, time.time()
            return
        try:
            os.chdir(self.workplace(rank))
            rank.pid = spawn.spawn(argv, env, log)
        except OSError as error:
            rank.errno, rank.ended = error.errno, time.time()
        except ValueError:
            rank.errno, rank.ended = errno.EINVAL, time.time()  # a NUL byte
        finally:
            os.close(log)

    def workplace(self, rank: Rank) -> str:
        """The rank's own working folder, made when first needed; setup and run share it.

        Without a source it is empty: a program's `job.json` must not meet that of the job.
        """
        place = f"{self.folder}/{layout.work_name(rank.log)}"
        if not rank.placed:
            if self.source:
                self.places.make(self.source, place)
            else:
                os.mkdir(place, 0o700)
            rank.placed = True
        return place

    def tidy(self) -> None:
        """Working folders of a job that ended well are not kept."""
        os.chdir(self.folder)
        ranks = [rank for task in self.tasks for rank in task.ranks]
        good = all(rank.code == 0 for rank in ranks)
        for rank in ranks:
            if rank.placed and good:
                self.places.release(self.workplace(rank), again=self.subreaper)
            elif rank.placed:
                self.places.forget(self.workplace(rank))

    def turn(self) -> None:
        """Wait for a child, a signal or the next kill, and act on it."""
        due = [task.kill_at for task in self.tasks if task.kill_at is not None and not task.done]
        info = self.wait(min(due) - time.monotonic() if due else None)
        if info is not None and info.si_signo != signal.SIGCHLD:
            self.cancel(info)
        self.reap()
        now = time.monotonic()
        for task in self.tasks:
            if task.kill_at is not None and not task.done and now >= task.kill_at:
                self.send(self.processes(task), _KILL)
                task.kill_at = now + KILL_AGAIN_SECONDS

    def wait(self, seconds: float | None) -> signal.struct_siginfo | None:
        if seconds is None:
            return signal.sigwaitinfo(_SIGNALS)
        return signal.sigtimedwait(_SIGNALS, max(0.0, seconds))

    def reap(self) -> bool:
        """Take note of all children that ended; True if there is no child at all any more."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            for task in self.tasks:
                for rank in task.ranks:
                    if rank.pid == pid:
                        self.rank_over(task, rank, os.waitstatus_to_exitcode(status))

    def rank_over(self, task: Task, rank: Rank, code: int) -> None:
        rank.pid, rank.ended = 0, time.time()
        rank.code, rank.signal = (code, None) if code >= 0 else (None, -code)
        if rank.failed and not rank.by_us and task.first is None:
            task.first = rank
            self.end(task)
        self.after(task)

    def after(self, task: Task) -> None:
        """Go on to `run` when all setups are good; the task is done when no rank is left."""
        if task.done or any(rank.pid for rank in task.ranks):
            return
        if task.stage == "setup" and task.first is None and not task.cancelled:
            self.start_stage(task, "run")
            return
        task.stage = "done"
        if len(self.tasks) > 1:
            self.publish()

    # -- ending -----------------------------------------------------------------------------

    def cancel(self, info: signal.struct_siginfo) -> None:
        """The first request counts; more of them change nothing."""
        if self.sender is None:
            self.sender = {"pid": info.si_pid, "uid": info.si_uid}
        for task in self.tasks:
            if not task.done and task.kill_at is None:
                task.cancelled = True
                self.end(task)

    def end(self, task: Task) -> None:
        for rank in task.ranks:
            rank.by_us = rank.by_us or rank.pid != 0
        task.kill_at = time.monotonic() + self.grace
        self.send(self.processes(task), _END)

    def processes(self, task: Task) -> list[procfs.Stat]:
        """What belongs to a task: everything if it is alone, else what its ranks lead."""
        everything = self.everything()
        if len(self.tasks) == 1:
            return everything
        leaders = [rank.pid for rank in task.ranks if rank.pid]
        below = {one.pid for one in procfs.descendants(leaders)} | set(leaders)
        return [one for one in everything if one.pid in below or one.pgrp in leaders]

    def everything(self) -> list[procfs.Stat]:
        return patiently(self.find_everything)

    def find_everything(self) -> list[procfs.Stat]:
        found = procfs.descendants([self.me.pid])
        if not self.subreaper:
            marker = f"{layout.MARKER}={self.key}".encode()
            found += procfs.processes_of(self.me, marker, self.folder)
        return found

    def send(self, processes: list[procfs.Stat], signals: tuple[int, ...]) -> None:
        for one in processes:
            patiently(partial(procfs.send, one, signals))

    def gone(self) -> bool:
        return self.reap() and (self.subreaper or not self.everything())

    def gone_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self.gone():
            left = until - time.monotonic()
            if left <= 0:
                return False
            info = self.wait(left if self.subreaper else min(left, KILL_AGAIN_SECONDS))
            if info is not None and info.si_signo != signal.SIGCHLD:
                self.cancel(info)
        return True

    def sweep(self) -> None:
        """End what the job left behind, and note who it was."""
        if self.gone() or self.gone_within(DRAIN_SECONDS):
            return
        self.send(self.note(self.everything(), "ended after TERM"), _END)
        if self.gone_within(self.grace):
            return
        until = time.monotonic() + UNKILLABLE_SECONDS
        while time.monotonic() < until:
            self.send(self.note(self.everything(), "killed"), _KILL)
            if self.gone_within(KILL_AGAIN_SECONDS):
                return
        self.note(self.everything(), "alive")

    def note(self, processes: list[procfs.Stat], fate: str) -> list[procfs.Stat]:
        for one in processes:
            facts = {"pid": one.pid, "ticks": one.ticks, "name": one.comm, "fate": fate}
            self.leftovers[one.pid] = facts
        return processes

    def publish(self) -> None:
        """Say how far the tasks are, and wake a driver that waits. Only a comfort: may fail."""
        self.record.publish(self.facts(None))
        try:
            os.write(self.reply, b"+")
        except OSError:
            return


T = TypeVar("T")


def patiently(call: Callable[[], T]) -> T:
    """Try again until there are descriptors and memory: a shim must not fail for want of them."""
    while True:
        try:
            return call()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise
            time.sleep(PATIENCE_SECONDS)


# -- birth ----------------------------------------------------------------------------------


def main(channel: socket.socket, waiting: int) -> None:
    """Body of the forked shim: one job after the other, each claimed first. Never returns.

    `waiting` is locked while the shim can take a job; without it the zygote forks another.
    """
    status = 70
    try:
        me, subreaper = become_shim()
        places = workplace.Places()
        for number in range(JOBS_MAX):
            request = next_request(channel, patient=number == 0)
            if request is None:
                break
            fcntl.flock(waiting, fcntl.LOCK_UN)
            if not serve(*request, me, places, subreaper=subreaper):
                break
            fcntl.flock(waiting, fcntl.LOCK_SH)
        places.clear()
        status = 0
    finally:
        os._exit(status)


def next_request(channel: socket.socket, *, patient: bool) -> tuple[int, int] | None:
    """The descriptors of the next request and its reply; None at the end.

    One that is not `patient` leaves when none came for a while (the zygote set how long).
    """
    while True:
        try:
            data, fds = receive(channel)
        except BlockingIOError:
            if patient:
                continue
            return None
        return (fds[0], fds[1]) if data and len(fds) == DESCRIPTORS else None


def become_shim() -> tuple[procfs.Identity, bool]:
    """All that can be done before there is a job."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.setsid()
    os.dup2(0, 2)  # the zygote's error text is not ours
    _prctl(_PR_SET_NAME, b"npa-shim", 0, 0, 0)
    subreaper = _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    me = procfs.own_identity(procfs.boot_id())
    rehearse(me)
    return me, subreaper


def rehearse(me: procfs.Identity) -> None:
    """Touch the memory that a job will need, while nobody waits: saves 0.3 ms a launch."""
    ranks = [{"setup": {}, "run": {"A": "B"}}]
    one = {"path": "", "argv": [], "shell": "", "setup": "", "env": {"A": "B"}, "ranks": ranks}
    task = task_of(json.loads(json.dumps(one)), 0, 1)
    record, places = RecordFile("", ""), workplace.Places()
    json.dumps(Shim("", "", "", 0.0, [task], me, -1, record, True, places).facts(0.0))


def serve(
    request: int, reply: int, me: procfs.Identity, places: workplace.Places, *, subreaper: bool
) -> bool:
    """Run one job; True if the shim is as good as new after it."""
    body = json.loads(os.pread(request, os.fstat(request).st_size, 0))
    os.close(request)
    folder, of = body["folder"], len(body["tasks"])
    record = RecordFile(folder, _oom_file)
    lock = claim(body, me, record, reply)
    if lock is None:
        return False
    tasks = [task_of(one, number, of) for number, one in enumerate(body["tasks"])]
    source, key, grace = body["workdir"], body["key"], body["grace"]
    shim = Shim(folder, source, key, grace, tasks, me, reply, record, subreaper, places)
    clean = shim.live()
    os.close(reply)  # wakes a driver that waits: the record is there
    if clean:
        shim.tidy()
    # GPUs are held, and a file system without locks knows us alone, by the life of this process.
    return clean and subreaper and lock >= 0 and not body["gpus"] and part(folder, lock)


def claim(body: dict[str, Any], me: procfs.Identity, record: RecordFile, reply: int) -> int | None:
    """Take the claim and say so; None (and no payload) if that cannot be done.

    The answer is the descriptor that holds the job's lock, -1 where there are no locks.
    """
    folder, stage = body["folder"], "workdir"
    try:
        os.chdir(folder)
        if body["workdir"]:
            os.close(os.open(body["workdir"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        stage = "gpus"
        gpus.take(body["gpu_locks"], body["gpus"])
        stage = "claim"
        lock = os.open(f"{folder}/{layout.JOB}", os.O_RDONLY | os.O_CLOEXEC)
        locked = procfs.try_lock(lock, fcntl.LOCK_EX)  # held until `part`: proof of life
        record.reserve()
        os.symlink(layout.claim_text(layout.SHIM, str(me)), f"{folder}/{layout.CLAIM}")
    except OSError as error:
        if stage == "claim" and isinstance(error, FileExistsError | BlockingIOError):
            os.write(reply, b"foreign")
            return None
        os.write(reply, f"errno {error.errno} {stage}".encode())
        return None
    os.write(reply, f"claimed {me}".encode())
    os.set_blocking(reply, False)
    return lock if locked else -1


def part(folder: str, lock: int) -> bool:
    """Let go of a job whose record is there; False if that cannot be done cleanly.

    Whoever signals this shim because of the job holds a shared lock on its folder, in which there
    is no record yet (`canceller.py`). So under the exclusive lock all such signals have arrived;
    they are dropped with the job, and none can hit the next one.
    """
    try:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(here, fcntl.LOCK_EX)
        os.chdir("/")
    except OSError:
        return False
    while signal.sigtimedwait(_SIGNALS, 0) is not None:
        pass
    os.close(lock)
    os.close(here)
    return True
