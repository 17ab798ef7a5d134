"""A finished run of many steps, written by the journal's own writer and without running any.

usage: history.py HOME STEPS
Frames, entries and snapshots are those that a driver of a chain writes; it prints the run's ID.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from npa.orchestration import registry, snapshots
from npa.orchestration.journal import entries as e
from npa.orchestration.journal.chain import Appended, Journal
from npa.orchestration.prepare import Request
from npa.orchestration.seal import effect_key, job_name
from npa.orchestration.state import RunState
from npa.storage import open_store
from npa.target.home import Home

NATIVE_ID = "4242@123456@00000000-0000-4000-8000-000000000000"
SEAL = "0" * 64


def frames(request: Request, steps: int) -> Iterator[list[e.Entry]]:
    """One frame a step, as in a chain: the end of one and the start of the next."""
    parts = {"workflow": SEAL}
    yield [e.Genesis(SEAL, parts, request.to_json())]
    yield [e.DriverEntry("benchmark", "boot", 4242, 123456, "complete")]
    before: list[e.Entry] = []
    for number in range(steps):
        path = f"s{number}"
        key = effect_key(SEAL, path, 1, e.Verb.LAUNCH.value)
        name = job_name(request.run_id, path, key)
        digests = {path: effect_key(SEAL, path, 1, "digest")}
        reserved = e.Reserved(path, path, 1, key, name, e.Cause.FIRST, digests, (path,))
        yield [*before, reserved, e.Intent(key, e.Verb.LAUNCH)]
        end = e.MemberEnd(e.Result.SUCCEEDED, started_at=time.time(), ended_at=time.time())
        before = [
            e.Outcome(key, NATIVE_ID, "launch reply"),
            e.Ended(key, e.Result.SUCCEEDED, "", "", {path: end}, "succeeded"),
        ]
    yield [*before, e.Completed(f"s{steps - 1}", f"s{steps - 1}")]


def write(home: Home, steps: int) -> str:
    """Write the run below `home` and return its ID."""
    run_id = f"history-{steps}"
    uri = registry.default_run_uri(home, run_id)
    registry.note_run(home, registry.RunPlace(run_id, uri, "history", time.time()))
    store = open_store(uri)
    journal, state, last = Journal(store, time.time), RunState(), 0
    for number, entries in enumerate(frames(Request("history.yaml", "", run_id, uri), steps)):
        result = journal.append(entries, epoch=2 if number else 0)
        if not isinstance(result, Appended):
            raise RuntimeError(f"frame {number + 1} could not be written: {result}")
        state.apply([result.frame])
        if snapshots.due(state.n, last, over=state.lifecycle.over):
            last = state.n
            snapshots.write(store, state, journal.digest)
    return run_id


if __name__ == "__main__":
    print(write(Home(Path(sys.argv[1])).make(), int(sys.argv[2])))
