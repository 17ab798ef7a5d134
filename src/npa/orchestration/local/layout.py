"""What lies in a job's folder, and what the claim says. Standard library only (the shim uses it).

    <jobs root>/<job name>/
      job.json        what was asked, without any value of an environment; the shim locks it
      claim           symbolic link that nobody can create twice; its target says who claimed
      rank-0.log      what a rank wrote (`m1-rank-0.log` for the second task of a job)
      cancel.json     when a cancel was first asked for
      progress.json   how far the tasks are (only while there is something to say)
      exit.json       the exit record: final, written once

The claim is a symbolic link because one system call both creates it (or fails) and fills it: no
reader ever sees half a claim, and a full disk cannot leave an empty one.
"""

from __future__ import annotations

JOB = "job.json"
CLAIM = "claim"
CANCEL = "cancel.json"
PROGRESS = "progress.json"
RECORD = "exit.json"
SPARE = "exit.spare"

VERSION = 1

MARKER = "NPA_WORKFLOW_ATTEMPT_ID"
"""Each process of a job has this name in its environment, with the effect key as the value."""

SHIM = "shim"
SEAL = "sealed"


def claim_text(kind: str, identity: str) -> str:
    return f"{kind} {identity}"


def split_claim(text: str) -> tuple[str, str]:
    """`(kind, identity)` of a claim. Raises ValueError for text that is not a claim."""
    kind, _, identity = text.partition(" ")
    if kind not in (SHIM, SEAL) or not identity:
        raise ValueError(f"not a claim: {text!r}")
    return kind, identity


def work_name(log: str) -> str:
    """The working folder of the rank that writes `log`."""
    return log.removesuffix(".log") + ".work"


def log_name(task: int, tasks: int, rank: int) -> str:
    return f"rank-{rank}.log" if tasks == 1 else f"m{task}-rank-{rank}.log"
