"""Which live jobs hold what of this machine, jobs of earlier drivers included."""

from __future__ import annotations

import os
from functools import reduce
from pathlib import Path

from npa.observation import Absent, Found
from npa.orchestration.engine import JobRef
from npa.orchestration.local import layout, records
from npa.orchestration.local.inventory import Usage
from npa.orchestration.local.observer import Observer
from npa.orchestration.local.records import JobFile


class Ledger:
    """Live jobs under one root. Jobs of others are read once from their folders, then watched."""

    def __init__(self, root: Path, observer: Observer) -> None:
        self._root = root
        self._observer = observer
        self._live: dict[str, JobFile] = {}
        self._adopted: set[str] | None = None

    def add(self, job: JobFile) -> None:
        self._live[job.name] = job

    def remove(self, name: str) -> None:
        self._live.pop(name, None)

    def used(self) -> Usage:
        """What is held now. A job that cannot be seen is taken to hold what it asked for."""
        if self._adopted is None:
            self._adopted = self._find_live()
        for name in [name for name in self._adopted if name in self._live]:
            job = self._live[name]
            seen = self._observer.look(JobRef(name, job.key))
            if isinstance(seen, Absent) or (isinstance(seen, Found) and seen.value.settled):
                self.remove(name)
        self._adopted &= self._live.keys()
        return reduce(lambda left, job: left + usage(job), self._live.values(), Usage())

    def _find_live(self) -> set[str]:
        """Folders with a shim's claim and no exit record. Others hold nothing, or not any more."""
        found = set()
        for entry in os.scandir(self._root):
            if entry.name in self._live or os.path.exists(f"{entry.path}/{layout.RECORD}"):
                continue
            try:
                claim = records.read_claim(entry.path)
                job = records.read_job(entry.path) if claim else None
            except (OSError, ValueError):
                continue
            if job is not None and claim is not None and claim.kind == layout.SHIM:
                self._live[job.name] = job
                found.add(job.name)
        return found


def usage(job: JobFile) -> Usage:
    return Usage(
        sum(task.cpus for task in job.tasks),
        sum(task.memory_gib for task in job.tasks),
        frozenset(index for task in job.tasks for rank in task.gpus for index in rank),
    )
