"""What must hold after an attack, one function each. A check returns what is wrong, in words."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping

from chaos.world import World, until
from npa.errors import JournalCorrupt
from npa.observation import Found
from npa.orchestration.journal import entries as e
from npa.orchestration.state import Lifecycle, RunState, fold
from npa.storage import Stores


def artifacts(world: World, state: RunState) -> dict[str, object]:
    """Every validated output by its place below the run's root, read now: JSON, else its hash."""
    stores = Stores(world.options)
    found: dict[str, object] = {}
    for path in state.latest:
        success = state.success_of(path)
        for uri, _, _ in success[1].outputs if success else ():
            if uri.endswith("/"):
                continue
            seen = stores.get(uri)
            if not isinstance(seen, Found):
                found[uri.removeprefix(world.run_uri)] = f"not readable: {seen}"
                continue
            data = seen.value.data
            text = uri.endswith(".json")
            found[uri.removeprefix(world.run_uri)] = (
                json.loads(data) if text else hashlib.sha256(data).hexdigest()
            )
    return found


def journal_is_legal(world: World) -> list[str]:
    """The chain verifies, and the fold of each prefix is a legal state."""
    try:
        state = RunState()
        for frame in world.frames():
            state.apply([frame])
    except JournalCorrupt as error:
        return [f"the journal is corrupt: {error}"]
    return []


def ended_well(world: World) -> list[str]:
    state = fold(world.frames())
    if state.lifecycle is not Lifecycle.COMPLETED:
        return [f"the run is {state.lifecycle.value}: {state.failure}"]
    return [f"attempt {a.name} is still open" for a in state.open_attempts()]


def nothing_ran_twice(world: World) -> list[str]:
    """No attempt began twice on a rank, and no step has more attempts than it was allowed."""
    begun = Counter((key, rank) for word, _, key, rank in world.lines() if word == "begin")
    twice = [
        f"attempt {key[:10]} ran {n} times on rank {r}" for (key, r), n in begun.items() if n > 1
    ]
    state = fold(world.frames())
    unknown = {key for key, _ in begun} - set(state.attempts)
    return twice + [f"attempt {key[:10]} ran and is not in the journal" for key in unknown]


def attempts_are_paid_for(world: World) -> list[str]:
    """A second attempt follows an end that its budget pays for, or one that never ran at all."""
    state, wrong = fold(world.frames()), []
    for wave in state.waves.values():
        for before, after in itertools.pairwise(wave.attempts):
            klass = before.end.klass if before.end is not None else "open"
            never = before.end is not None and before.end.result is e.Result.REFUSED
            pays = {e.Cause.RETRY: "payload", e.Cause.RECOVERY: "transient"}.get(after.cause)
            if after.parent != before.key or not (never or klass == pays):
                wrong.append(f"{after.name} ({after.cause.value}) follows an end in `{klass}`")
    return wrong


def attempts_do_not_overlap(world: World) -> list[str]:
    """Once a later attempt of a step has written, an earlier one writes no more."""
    latest: dict[str, str] = {}
    over: set[str] = set()
    wrong = []
    for _, path, key, _ in world.lines():
        if key in over:
            wrong.append(f"{path}: attempt {key[:10]} wrote after its successor had begun")
        if latest.get(path, key) != key:
            over.add(latest[path])
        latest[path] = key
    return wrong


def no_process_is_left(world: World) -> list[str]:
    """Nothing of a task lives when its driver says done; helpers go at once, too."""
    wrong = [f"process {pid} of a task lives: {text}" for pid, text in world.tasks().items()]
    if not until(lambda: not world.helpers()):
        wrong += [f"process {pid} lives: {text}" for pid, text in world.helpers().items()]
    return wrong


def launches_were_written_down(world: World) -> list[str]:
    """Each job folder has an intent in the journal: it was durable before anything was made."""
    if not world.jobs.exists():
        return []
    names = {path.name for path in world.jobs.iterdir() if path.is_dir()}
    known = {a.name for a in fold(world.frames()).attempts.values() if a.intended_at}
    return [f"`{name}` was launched without an intent" for name in sorted(names - known)]


def drivers_were_calm(world: World) -> list[str]:
    """No driver ended in an error that nobody typed."""
    return [
        f"{log.name} ended in an unexpected error"
        for log in sorted((world.root / "drivers").glob("*.log"))
        if "UNEXPECTED" in (text := log.read_text(errors="replace")) or "Traceback" in text
    ]


AFTER_A_KILL: tuple[Callable[[World], list[str]], ...] = (
    journal_is_legal,
    launches_were_written_down,
)
AT_THE_END: tuple[Callable[[World], list[str]], ...] = (
    no_process_is_left,
    journal_is_legal,
    ended_well,
    nothing_ran_twice,
    attempts_are_paid_for,
    attempts_do_not_overlap,
    launches_were_written_down,
    drivers_were_calm,
)


def executed(world: World) -> Counter[str]:
    """How often each step ran, summed over its ranks."""
    return Counter(path for word, path, _, _ in world.lines() if word == "begin")


def same_result(got: Mapping[str, object], expected: Mapping[str, object]) -> list[str]:
    names = sorted({*got, *expected})
    return [
        f"{name} is not as in a quiet run" for name in names if got.get(name) != expected.get(name)
    ]
