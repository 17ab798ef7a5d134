"""Decisions: the closed set, its spellings, and which transition of a branch is taken."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from npa.workflow.meaning import TransitionSpec

PROMOTE = "promote_checkpoint"
LOOP_BACK = "loop_back_to_inner_loop"
DECISIONS = (PROMOTE, LOOP_BACK)
GATE_NONE = "gate:none"

# Spellings of the closed set, of decisions and of predicates, as the public format has them.
_SPELLINGS = {
    "promote": PROMOTE,
    PROMOTE: PROMOTE,
    "loop_back": LOOP_BACK,
    LOOP_BACK: LOOP_BACK,
}


def normalise_decision(value: str) -> str:
    """One spelling for each decision of the closed set; other text stays as it is."""
    return _SPELLINGS.get(value, value)


def predicate_holds(predicate: str, decision: str) -> bool:
    """Does `until` or `when` hold for a decision?"""
    return normalise_decision(predicate) == normalise_decision(decision)


def gate_answer(index: int) -> str:
    """The answer that says that gate `index` is the first to hold."""
    return f"gate:{index}"


class Due(Enum):
    """What must be known before a branch can be taken."""

    DECISION = "decision"
    GATES = "gates"


def first_match(live: Sequence[TransitionSpec], decision: str, gate: str) -> str | Due:
    """The target of the first transition that holds, "" for none; or what must be known first.

    `live` are the transitions whose `if` is true, in list order. `decision` and `gate` are ""
    while unknown; gates are numbered in list order.
    """
    number = -1
    for transition in live:
        number += transition.gate is not None
        if transition.when:
            if not decision:
                return Due.DECISION
            if not predicate_holds(transition.when, decision):
                continue
        if transition.gate is not None:
            if not gate:
                return Due.GATES
            if gate != gate_answer(number):
                continue
        return transition.goto
    return ""
