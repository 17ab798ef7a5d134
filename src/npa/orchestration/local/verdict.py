"""From the facts of a shim's record to phases and typed evidence. Pure.

Nothing here reads text that a program printed: exit codes, signals and error numbers decide.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from npa.orchestration.engine import Evidence, MemberStatus, Phase
from npa.orchestration.local import layout
from npa.orchestration.local.records import JobFile

SOURCE = "local"

_NOT_STARTED = {
    errno.ENOENT: "COMMAND_NOT_FOUND",
    errno.ENOTDIR: "COMMAND_NOT_FOUND",
    errno.EACCES: "COMMAND_NOT_EXECUTABLE",
    errno.EPERM: "COMMAND_NOT_EXECUTABLE",
    errno.ENOEXEC: "COMMAND_NOT_EXECUTABLE",
    errno.EISDIR: "COMMAND_NOT_EXECUTABLE",
    errno.E2BIG: "INVALID_ARGUMENT",
    errno.EINVAL: "INVALID_ARGUMENT",
    errno.ENAMETOOLONG: "INVALID_ARGUMENT",
    errno.ENOSPC: "NO_SPACE",
    errno.EDQUOT: "NO_SPACE",
    errno.EFBIG: "NO_SPACE",
    errno.EMFILE: "TOO_MANY_FILES",
    errno.ENFILE: "TOO_MANY_FILES",
    errno.EAGAIN: "TOO_MANY_PROCESSES",
    errno.ENOMEM: "TOO_MANY_PROCESSES",
}

_HINTS = {
    "INVALID_ARGUMENT": "the command or its environment is too long or holds a NUL byte",
    "NO_SPACE": "the disk that holds the job's folder is full",
    "TOO_MANY_FILES": "raise the limit on open files (`ulimit -n`)",
    "TOO_MANY_PROCESSES": "the machine or the user may have no more processes or memory",
}


class Verdict(Struct, frozen=True):
    """What an exit record means. `alive` are leftovers that even SIGKILL did not end."""

    phase: Phase
    members: tuple[MemberStatus, ...]
    evidence: tuple[Evidence, ...]
    leftovers: tuple[str, ...]
    alive: tuple[tuple[int, int], ...] = ()


def _explain(code: str, what: str, number: int) -> str:
    text = f"{what}: {os.strerror(number)}"
    return f"{text}; {_HINTS[code]}" if code in _HINTS else text


def refusal(number: int, what: str) -> Evidence:
    """Evidence for a launch that failed before any program: a full disk, no descriptor, no fork."""
    code = _NOT_STARTED.get(number, "")
    if code not in _HINTS:
        code = "LAUNCH_VERIFIED_ABSENT"
    return Evidence(code, SOURCE, hint=_explain(code, what, number))


def judge(record: Mapping[str, Any], *, asked: bool) -> Verdict:
    """Read a record. `asked`: this engine was asked to cancel the job.

    Raises ValueError for a record that is not one.
    """
    if "lost" in record:
        return _judge_lost(record, asked=asked)
    try:
        members = tuple(_member(task, record, asked=asked) for task in record["tasks"])
        leftovers = record["leftovers"]
        texts = tuple(f"pid {one['pid']} ({one['name']}): {one['fate']}" for one in leftovers)
        alive = tuple(
            (int(one["pid"]), int(one["ticks"])) for one in leftovers if one["fate"] == "alive"
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an exit record: {error!r}") from error
    evidence: tuple[Evidence, ...] = ()
    phase = phase_of([member.phase for member in members])
    if crash := record.get("crash"):
        phase, evidence = Phase.FAILED, (Evidence("SHIM_LOST", SOURCE, hint=str(crash)),)
    return Verdict(phase, members, evidence, texts, alive)


def lost_record(job: JobFile, code: str, leftovers: Sequence[str], at: float) -> dict[str, Any]:
    """The record that a driver makes for a job whose shim cannot write one any more."""
    return {
        "v": layout.VERSION,
        "key": job.key,
        "lost": code,
        "paths": [task.path for task in job.tasks],
        "leftovers": list(leftovers),
        "started": job.created,
        "ended": at,
    }


def _judge_lost(record: Mapping[str, Any], *, asked: bool) -> Verdict:
    try:
        evidence = (Evidence(str(record["lost"]), SOURCE),)
        phase = Phase.CANCELLED if asked else Phase.FAILED
        members = tuple(
            MemberStatus(str(path), phase, evidence, record["started"], record["ended"])
            for path in record["paths"]
        )
        return Verdict(phase, members, evidence, tuple(map(str, record["leftovers"])))
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a record of a loss: {error!r}") from error


def logs_of(record: Mapping[str, Any], path: str) -> dict[int, str]:
    """Rank -> file name of its log, for one task of a record that `judge` accepted."""
    return {
        rank["rank"]: rank["log"]
        for task in record["tasks"]
        if task["path"] == path
        for rank in task["ranks"]
    }


def phase_of(phases: Sequence[Phase]) -> Phase:
    """The phase of a job from those of its members."""
    live = [phase for phase in phases if not phase.terminal]
    if live:
        return Phase.STARTING if set(live) == {Phase.STARTING} else Phase.RUNNING
    for phase in (Phase.CANCELLED, Phase.FAILED):
        if phase in phases:
            return phase
    return Phase.SUCCEEDED


def progress(body: Mapping[str, Any]) -> tuple[MemberStatus, ...]:
    """Members of a job that still runs, from `progress.json`. Raises ValueError."""
    try:
        return tuple(
            _member(task, body, asked=False)
            if task["stage"] == "done"
            else MemberStatus(
                task["path"],
                Phase.STARTING if task["stage"] == "setup" else Phase.RUNNING,
                started_at=_earliest(task["ranks"]),
            )
            for task in body["tasks"]
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a progress file: {error!r}") from error


def _member(task: Mapping[str, Any], record: Mapping[str, Any], *, asked: bool) -> MemberStatus:
    ranks = task["ranks"]
    ended = [rank["ended"] for rank in ranks if rank["ended"] is not None]
    times = (_earliest(ranks), max(ended, default=record["ended"]))
    if task["cancelled"]:
        phase = Phase.CANCELLED
        evidence: tuple[Evidence, ...] = () if asked else (_foreign(record),)
    elif task["first"] is not None:
        phase = Phase.FAILED
        evidence = _failures(task, record)
    elif all(rank["code"] == 0 and rank["stage"] == "run" for rank in ranks):
        phase, evidence = Phase.SUCCEEDED, ()
    else:
        phase, evidence = Phase.FAILED, (Evidence("SHIM_LOST", SOURCE),)
    return MemberStatus(task["path"], phase, evidence, *times)


def _earliest(ranks: Sequence[Mapping[str, Any]]) -> float | None:
    return min((rank["started"] for rank in ranks if rank["started"] is not None), default=None)


def _foreign(record: Mapping[str, Any]) -> Evidence:
    sender = record.get("sender") or {}
    return Evidence(
        "CANCELLED_BY_SIGNAL",
        SOURCE,
        signal=int(signal.SIGTERM),
        hint=f"sent by pid {sender.get('pid')} of user {sender.get('uid')}",
    )


def _failures(task: Mapping[str, Any], record: Mapping[str, Any]) -> tuple[Evidence, ...]:
    """The rank that failed first, then others that failed by themselves."""
    ranks = task["ranks"]
    first = ranks[task["first"]]
    others = [
        rank for rank in ranks if rank is not first and not rank["by_us"] and _failed_itself(rank)
    ]
    return tuple(_failure(rank, record) for rank in [first, *others])


def _failed_itself(rank: Mapping[str, Any]) -> bool:
    return bool(rank["code"]) or rank["signal"] is not None or rank["errno"] is not None


def _failure(rank: Mapping[str, Any], record: Mapping[str, Any]) -> Evidence:
    number = int(rank["rank"])
    if rank["errno"] is not None:
        code = _NOT_STARTED.get(rank["errno"], "COMMAND_NOT_EXECUTABLE")
        return Evidence(code, SOURCE, rank=number, hint=_explain(code, rank["what"], rank["errno"]))
    code, hint = "PAYLOAD_EXIT_NONZERO", ""
    killed = rank["signal"] == signal.SIGKILL or rank["code"] == 128 + signal.SIGKILL
    if killed and (record.get("oom_kills") or 0) > 0:
        code, hint = "OUT_OF_MEMORY", "the kernel killed in this control group for want of memory"
    elif rank["signal"] is not None:
        code = "PAYLOAD_SIGNAL"
        if killed:
            hint = "SIGKILL, not sent by npa: by a person, or by the kernel for want of memory"
    elif rank["code"] in (126, 127):
        hint = "a shell ends so when it cannot find (127) or run (126) a command"
    if rank["stage"] == "setup" and code != "OUT_OF_MEMORY":
        code = "SETUP_FAILED"
    return Evidence(
        code, SOURCE, exit_code=rank["code"], signal=rank["signal"], rank=number, hint=hint
    )
