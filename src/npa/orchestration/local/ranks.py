"""Tasks and ranks as the shim keeps them, and the facts of them that go into its record.

Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npa.orchestration.local import layout


@dataclass(slots=True)
class Rank:
    """One rank of a task. `code`, `signal` or `errno` say how it ended; `by_us`: we ended it."""

    number: int
    log: str
    setup_env: dict[str, str]
    run_env: dict[str, str]
    stage: str = ""
    pid: int = 0
    started: float | None = None
    ended: float | None = None
    code: int | None = None
    signal: int | None = None
    errno: int | None = None
    what: str = ""
    by_us: bool = False
    placed: bool = False  # its working folder was made

    @property
    def failed(self) -> bool:
        return self.code != 0

    def facts(self) -> dict[str, object]:
        return {
            "rank": self.number,
            "stage": self.stage,
            "code": self.code,
            "signal": self.signal,
            "errno": self.errno,
            "what": self.what,
            "by_us": self.by_us,
            "started": self.started,
            "ended": self.ended,
            "log": self.log,
        }


@dataclass(slots=True)
class Task:
    path: str
    argv: list[str]
    shell: str
    setup: str
    env: dict[str, str]
    ranks: list[Rank]
    stage: str = ""
    first: Rank | None = None
    cancelled: bool = False
    kill_at: float | None = None

    @property
    def done(self) -> bool:
        return self.stage == "done"

    def facts(self) -> dict[str, object]:
        return {
            "path": self.path,
            "stage": self.stage,
            "first": None if self.first is None else self.first.number,
            "cancelled": self.cancelled,
            "ranks": [rank.facts() for rank in self.ranks],
        }


def task_of(one: dict[str, Any], number: int, of: int) -> Task:
    ranks = [
        Rank(rank, layout.log_name(number, of, rank), extra["setup"], extra["run"])
        for rank, extra in enumerate(one["ranks"])
    ]
    return Task(one["path"], one["argv"], one["shell"], one["setup"], one["env"], ranks)
