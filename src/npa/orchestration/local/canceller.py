"""Ending a job by proof: TERM to its shim first, KILL to the whole tree if that was in vain."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

from npa.orchestration.engine import CancelReply, CancelRequested, CancelUnknown, ExactJob
from npa.orchestration.local import layout, procfs, records
from npa.orchestration.local.procfs import Identity

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
    if os.path.exists(f"{folder}/{layout.RECORD}"):
        return CancelRequested()
    asked_at = _note(folder, clock())
    shim = procfs.stat(claim.who.pid)
    if shim is None or shim.ticks != claim.who.ticks:
        return CancelRequested()  # `observe` ends what a lost shim left
    waited = clock() - asked_at
    if waited < job.grace + MARGIN_SECONDS:
        procfs.send(shim, (signal.SIGTERM, signal.SIGCONT))
        return CancelRequested()
    _kill_tree(claim.who, shim, job.key, folder, too=waited >= job.grace + 2 * MARGIN_SECONDS)
    return CancelRequested()


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
