"""Ending a job by proof: TERM to its shim first, KILL to the whole tree if that was in vain.

A shim may go on to another job, so that its pid proves nothing. It does so only under the exclusive
lock of the job's folder (`shim.part`), and drops there all signals that have arrived. We signal
under the shared lock, having seen that the shim is still at this job.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from npa.orchestration.engine import CancelReply, CancelRequested, CancelUnknown, ExactJob
from npa.orchestration.local import layout, procfs, records
from npa.orchestration.local.procfs import Identity
from npa.orchestration.local.records import JobFile

MARGIN_SECONDS = 5.0
"""After the grace the shim has this long to kill and to write its record, before we do it."""


def cancel(exact: ExactJob, folder: str, bound_to: str, clock: Callable[[], float]) -> CancelReply:
    """Ask once; from a repeat after grace and margin on, kill. Never touches a reused pid."""
    if exact.bound_to != bound_to:
        return CancelUnknown("PROOF_STALE", "the job was seen by another process or boot")
    try:
        return _cancel(exact, folder, clock)
    except (OSError, ValueError) as error:
        return CancelUnknown("UNREADABLE", str(error))


def _cancel(exact: ExactJob, folder: str, clock: Callable[[], float]) -> CancelReply:
    claim, job = records.read_claim(folder), records.read_job(folder)
    if claim is None or job is None or str(claim.who) != exact.native_id:
        return CancelUnknown("IDENTITY", f"`{exact.name}` is not {exact.native_id} any more")
    with _shim_kept(folder) as kept:
        if kept and not os.path.exists(f"{folder}/{layout.RECORD}"):
            _ask(claim.who, job, folder, clock)
    return CancelRequested()


@contextmanager
def _shim_kept(folder: str) -> Iterator[bool]:
    """Keep the shim of a job from going on to another; False if it is about to: the job is over."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            procfs.try_lock(fd, fcntl.LOCK_SH)
        except BlockingIOError:
            kept = False
        else:
            kept = True
        yield kept
    finally:
        os.close(fd)


def _ask(who: Identity, job: JobFile, folder: str, clock: Callable[[], float]) -> None:
    asked_at = _note(folder, clock())
    shim = procfs.stat(who.pid)
    at_work = procfs.lock_held(f"{folder}/{layout.JOB}") is not False
    if shim is None or shim.ticks != who.ticks or not at_work:
        return  # `observe` ends what a lost shim left
    waited = clock() - asked_at
    if waited < job.grace + MARGIN_SECONDS:
        procfs.send(shim, (signal.SIGTERM, signal.SIGCONT))
        return
    _kill_tree(who, shim, job.key, folder, too=waited >= job.grace + 2 * MARGIN_SECONDS)


def _kill_tree(who: Identity, shim: procfs.Stat, key: str, folder: str, *, too: bool) -> None:
    """KILL all below the shim, so that it writes its record; later (`too`) the shim as well."""
    procfs.send(shim, (signal.SIGCONT,))
    marker = f"{layout.MARKER}={key}".encode()
    below = {one.pid: one for one in procfs.descendants([who.pid])}
    below |= {one.pid: one for one in procfs.processes_of(who, marker, folder)}
    if too and (below or shim.state in "Tt"):  # else it only waits for room for its record
        procfs.send(shim, (signal.SIGKILL,))
    for one in below.values():
        procfs.send(one, (signal.SIGKILL,))


def _note(folder: str, now: float) -> float:
    """When a cancel was first asked for. It outlives this driver; a full disk is no obstacle."""
    path = f"{folder}/{layout.CANCEL}"
    try:
        records.write_new(path, json.dumps({"at": now}).encode())
    except FileExistsError:
        pass
    except OSError:
        return now
    else:
        return now
    try:
        body = records.read_json(path) or {}
        return float(body.get("at", now))
    except (ValueError, TypeError):
        return os.stat(path).st_mtime
