"""What must hold after every schedule: one function for each invariant, by its number.

Facts were noted by `watch` at the moment they describe, so judging them at the end is judging each
step. Each function raises Violation, or returns nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from npa.cli.exit_codes import ExitCode
from npa.errors import JournalCorrupt
from npa.observation import Absent, Found
from npa.orchestration.journal.chain import FOLDER, GENESIS_PREV
from npa.orchestration.journal.frame import parse
from npa.orchestration.state import RunState
from simulation.engine import LocalLikeEngine
from simulation.faults import HARMLESS
from simulation.scenarios import Scenario
from simulation.watch import PERSON
from simulation.world import Violation, World

CANARY = "canary-7d1f0c"


@dataclass
class Played:
    """A schedule that was played to its end."""

    world: World
    scenario: Scenario
    endings: list[str] = field(default_factory=list)
    exit_codes: list[int] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)  # all that drivers showed of waits and holds
    live_after_done: list[tuple[int, ...]] = field(default_factory=list)
    state: RunState = field(default_factory=RunState)

    @property
    def faults(self) -> set[str]:
        return {fault for _, fault in self.world.plan.taken}


def _check(holds: bool, number: int, what: str) -> None:
    if not holds:
        raise Violation(number, what)


def payloads_run_once(p: Played) -> None:
    """1. No attempt key runs its payload twice; launches <= 1 + retries + recoveries of a wave."""
    watch = p.world.watch
    for (key, path), count in Counter((s.key, s.path) for s in watch.starts).items():
        _check(count == 1, 1, f"{path} ran {count} times under one key {key[:8]}")
    for key, count in Counter(f.key for f in watch.launches).items():
        _check(count == 1, 1, f"{watch.tries[key].name} was launched {count} times")
    policy = p.scenario.policy
    budgets = 1 + policy.retries + policy.recoveries
    waves = Counter((watch.tries[f.key].wave, watch.tries[f.key].reopened) for f in watch.launches)
    free = Counter((t.wave, t.reopened) for t in watch.tries.values() if t.free)
    for wave, count in waves.items():
        permitted = budgets + free[wave]
        _check(count <= permitted, 1, f"{wave[0]} was launched {count} of {permitted} times")


def one_live_attempt(p: Played) -> None:
    """2. At most one live-or-unknown attempt of a wave, at the provider as in the journal."""
    watch = p.world.watch
    for born in watch.births:
        if born.live_before:
            other = watch.tries[born.live_before[0]].name
            raise Violation(2, f"{watch.tries[born.key].name} came while {other} was live")


def intent_before_launch(p: Played) -> None:
    """3. No launch without its durable intent before it."""
    for fact in p.world.watch.launches:
        _check(fact.intended, 3, f"launch of {fact.key[:8]} without a durable intent")


def nothing_on_blindness(p: Played) -> None:
    """4. No launch, no cancel and no end of an attempt on Unavailable or Ambiguous."""
    for cancel in p.world.watch.cancels:
        seen = cancel.seen
        _check(isinstance(seen, Found), 4, f"cancel of {cancel.exact.native_id} on {seen!r}")
    launched = {f.key for f in p.world.watch.launches}
    for end in p.world.watch.ends:
        if end.pid == PERSON or end.refused or not p.world.watch.tries[end.key].intents:
            continue
        if end.body["code"] == "LAUNCH_NOT_MADE" and end.key not in launched:
            continue  # its own driver left the launch out
        _check(
            isinstance(end.seen, (Found, Absent)),
            4,
            f"{p.world.watch.tries[end.key].name} was ended on {end.seen!r}",
        )


def exact_ids(p: Played) -> None:
    """5. Only IDs that are recorded for a wave are ever cancelled, each after its intent."""
    for cancel in p.world.watch.cancels:
        native = cancel.exact.native_id
        _check(native in cancel.recorded, 5, f"cancelled {native}, recorded {cancel.recorded}")
        _check(cancel.intended, 5, f"cancelled {native} without a durable intent")


def true_success(p: Played) -> None:
    """6. Success only with every declared output there, written by this very attempt."""
    watch, provider = p.world.watch, p.world.provider
    ran = {(s.key, s.path) for s in watch.starts}
    for end in watch.ends:
        for path, member in end.body["members"].items():
            if member["result"] != "succeeded":
                continue
            writers = end.writers[path]
            name = watch.tries[end.key].name
            _check("" not in writers, 6, f"{name} succeeded without its outputs")
            foreign = [w for w in writers if w != end.key]
            # a payload that itself ends well vouches for what lies at its places
            own_word = member.get("ended_at") and end.body.get("provider") == "succeeded"
            _check(
                not foreign or bool(own_word),
                6,
                f"{name} succeeded with the outputs of another attempt",
            )
            _check((end.key, path) in ran, 6, f"{name} succeeded and never ran")
    for over in watch.overs:
        if over.kind != "completed":
            continue
        for path, uris in watch.declared.items():
            lost = [u for u in uris if not u.endswith("/") and u not in provider.artifacts]
            _check(path not in p.scenario.steps or not lost, 6, f"completed without {lost}")


def terminal_is_final(p: Played) -> None:
    """7. Terminal decisions never change; an attempt's entries follow the protocol's order."""
    for number, what in p.world.watch.problems:
        if number == 7:
            raise Violation(7, what)


def cancelled_is_true(p: Played) -> None:
    """8. "Cancelled" only when every exact ID was seen terminal; and nothing comes later."""
    watch = p.world.watch
    for end in watch.ends:
        known = watch.tries[end.key]
        if end.body["result"] != "cancelled" or not known.intents or end.key in watch.vouched:
            continue
        seen = end.seen
        over = isinstance(seen, Found) and seen.value.phase.terminal and seen.value.settled
        _check(over, 8, f"{known.name} was called cancelled on {seen!r}")
    for over_fact in watch.overs:
        _check(not over_fact.open, 8, f"{over_fact.kind} with open {over_fact.open}")
    if p.state.lifecycle.over:
        for row in p.world.provider.rows:
            known = watch.tries[row.key]
            _check(
                not p.world.provider.live(row) or known.native_id not in ("", str(row.id)),
                8,
                f"the run is over and job {row.id} ({known.name}) is {row.phase.value}",
            )


def joins_see_all(p: Played) -> None:
    """9. A payload starts when all that it needs has ended well, each exactly once."""
    for start in p.world.watch.starts:
        _check(not start.missing, 9, f"{start.path} started before {start.missing}")
    if p.state.lifecycle.value == "completed":
        for path in p.scenario.steps:
            _check(p.state.success_of(path) is not None, 9, f"completed without {path}")


def budgets_once(p: Played) -> None:
    """10. Budgets are consumed once, and a successor's parent has one successor."""
    watch = p.world.watch
    parents = Counter(t.parent for t in watch.tries.values() if t.parent)
    for parent, count in parents.items():
        _check(count == 1, 10, f"{watch.tries[parent].name} has {count} successors")
    policy = p.scenario.policy
    for cause, budget in (("retry", policy.retries), ("recovery", policy.recoveries)):
        used = Counter(
            (t.wave, t.reopened) for t in watch.tries.values() if t.cause == cause and not t.free
        )
        for (wave, _), count in used.items():
            _check(count <= budget, 10, f"{wave} has {count} attempts by {cause}, {budget} allowed")
    for fact in watch.launches:
        fresh = fact.check_age <= policy.preflight_fresh_seconds + policy.skew_seconds + 1.0
        name = watch.tries[fact.key].name
        _check(fresh, 10, f"{name} was launched on a preflight {fact.check_age:.0f} s old")


def valid_chain(p: Played) -> None:
    """11. The journal is a chain, and the fold of every prefix is a legal state, as it was live."""
    for number, what in p.world.watch.problems:
        if number == 11:
            raise Violation(11, what)
    prev, state = GENESIS_PREV, RunState()
    for n, key in enumerate(sorted(k for k in p.world.store if k.startswith(FOLDER)), start=1):
        data = p.world.store[key]
        raw = json.loads(data)
        _check(raw["n"] == n and key.endswith(f"{n:010d}.json"), 11, f"frame {n} is out of place")
        _check(raw["prev"] == prev, 11, f"frame {n} does not follow")
        prev = hashlib.sha256(data).hexdigest()
        try:
            state.apply([parse(data)])
        except JournalCorrupt as error:
            raise Violation(11, f"the fold of {n} frames: {error.message}") from error
    _check(state == p.world.watch.shadow, 11, "two folds of one journal differ")
    p.state = state


def no_secret(p: Played) -> None:
    """12. The canary appears nowhere outside its sinks (a child's environment)."""
    for key, data in p.world.store.items():
        _check(CANARY.encode() not in data, 12, f"the canary is in {key}")
    for text in p.shown:
        _check(CANARY not in text, 12, "the canary was shown")
    _check(CANARY not in repr(p.state), 12, "the canary is in the state")


def nothing_lives_on(p: Played) -> None:
    """13. No job of a run lives on after a driver said that it is done."""
    for live in p.live_after_done:
        _check(not live, 13, f"the driver said done, and jobs {live} live")


def it_ends(p: Played) -> None:
    """14. Once faults stop, a run ends; what is harmless changes nothing of how."""
    _check(p.state.lifecycle.over, 14, f"the run did not end: {p.endings}")
    if _only_harmless(p):
        _check(
            p.state.lifecycle.value == "completed",
            14,
            f"harmless faults made the run {p.state.lifecycle.value}: {p.endings}",
        )
        _check("held" not in p.endings, 14, "harmless faults held the run")
        starts = Counter(s.path for s in p.world.watch.starts)
        once = starts == Counter(p.scenario.steps)
        _check(once, 14, f"harmless faults changed what ran: {dict(starts)}")


def _only_harmless(p: Played) -> bool:
    """Must the run complete, with each payload run once?"""
    harmful = p.faults - HARMLESS
    if p.scenario.engine is LocalLikeEngine:
        harmful |= p.faults & {"late", "invisible"}  # a claim makes of a late launch a lost one
    if p.scenario.policy.max_wait_seconds:
        harmful |= p.faults & {"clock-forward"}  # a deadline may pass by it
    acted = p.scenario.cancel_after or p.world.person.asked_to_cancel or p.world.watch.reopened
    return not harmful and not acted and not p.scenario.natures


def exit_75_is_true(p: Played) -> None:
    """15. Exit 75 only if no launch was attempted."""
    if int(ExitCode.NO_ROOM) in p.exit_codes:
        _check(not p.world.watch.launches, 15, "exit 75 after a launch")


Invariant = Callable[[Played], None]
# The chain comes first: it folds the journal that the others ask.
ALL: tuple[Invariant, ...] = (
    valid_chain,
    payloads_run_once,
    one_live_attempt,
    intent_before_launch,
    nothing_on_blindness,
    exact_ids,
    true_success,
    terminal_is_final,
    cancelled_is_true,
    joins_see_all,
    budgets_once,
    no_secret,
    nothing_lives_on,
    it_ends,
    exit_75_is_true,
)


NUMBERS = (11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15)  # of ALL, in its order
BY_NUMBER = dict(zip(NUMBERS, ALL, strict=True))


def check_all(played: Played) -> None:
    """Raises Violation for the first invariant that does not hold."""
    for invariant in ALL:
        invariant(played)
