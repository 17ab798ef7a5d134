"""Choices: a test that asks `choose(n)` can be run with every answer, or with drawn ones.

`Exhaustive` is the odometer of bounded exhaustive testing: each run answers like the one before up
to the last choice that can still be raised, raises it, and forgets all that came after. It needs to
know nothing of the test; a test that chooses deterministically is enumerated in full, once each.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from simulation.faults import Op

Fault = tuple[int, str]  # the point, and what happens there
Schedule = tuple[Fault, ...]


class Exhaustive:
    """Enumerates every sequence of choices. A fixed `prefix` is never changed.

    >>> gen = Exhaustive()
    >>> [[gen.choose(2), gen.choose(2)] for _ in gen.runs()]
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """

    def __init__(self, prefix: Sequence[int] = ()) -> None:
        self._values = list(prefix)
        self._bounds = [0] * len(prefix)
        self._fixed = len(prefix)
        self._at = 0

    def runs(self) -> Iterator[None]:
        """One item for each run to be made."""
        while True:
            self._at = 0
            yield
            del self._values[self._at :], self._bounds[self._at :]
            while len(self._values) > self._fixed and self._values[-1] + 1 >= self._bounds[-1]:
                self._values.pop()
                self._bounds.pop()
            if len(self._values) == self._fixed:
                return
            self._values[-1] += 1

    def choose(self, options: int) -> int:
        """A number below `options`."""
        if self._at == len(self._values):
            self._values.append(0)
            self._bounds.append(options)
        value = self._values[self._at]
        if self._at >= self._fixed:
            self._bounds[self._at] = options
        self._at += 1
        return value

    @property
    def chosen(self) -> tuple[int, ...]:
        return tuple(self._values[: self._at])


class Plan(Protocol):
    """Who says what goes wrong. `taken` is what was said, which is the schedule."""

    taken: list[Fault]

    def pick(self, point: int, op: Op, kinds: Sequence[str]) -> str: ...


class Scripted:
    """The faults of a recorded schedule; one that does not fit its point is left out."""

    def __init__(self, schedule: Schedule | Mapping[int, str] = ()) -> None:
        self._faults = dict(schedule)
        self.taken: list[Fault] = []

    def pick(self, point: int, op: Op, kinds: Sequence[str]) -> str:
        fault = self._faults.get(point, "")
        if not fault or fault not in kinds:
            return ""
        self.taken.append((point, fault))
        return fault


class Told:
    """A story: `{(Op.LAUNCH, 1): "late"}` is the first launch; (op, 0) is every call of that kind.

    For tests that say what happens, not at which point. Raises AssertionError for a fault that does
    not fit its call.
    """

    def __init__(self, story: Mapping[tuple[Op, int], str]) -> None:
        self._story = dict(story)
        self._counts: dict[Op, int] = {}
        self.taken: list[Fault] = []

    def pick(self, point: int, op: Op, kinds: Sequence[str]) -> str:
        count = self._counts[op] = self._counts.get(op, 0) + 1
        fault = self._story.get((op, count)) or self._story.get((op, 0), "")
        if not fault:
            return ""
        assert fault in kinds, f"{fault} does not happen at {op}"
        self.taken.append((point, fault))
        return fault


class Enumerated:
    """At most `budget` faults, chosen by an `Exhaustive`."""

    def __init__(self, choices: Exhaustive, budget: int) -> None:
        self._choices = choices
        self._left = budget
        self.taken: list[Fault] = []

    def pick(self, point: int, op: Op, kinds: Sequence[str]) -> str:
        if not self._left or not kinds:
            return ""
        number = self._choices.choose(len(kinds) + 1)
        if not number:
            return ""
        self._left -= 1
        fault = kinds[number - 1]
        self.taken.append((point, fault))
        return fault


class Drawn:
    """Up to `budget` faults at random points, from a seed."""

    def __init__(self, seed: int, *, budget: int, rate: float) -> None:
        self._random = random.Random(seed)
        self._left = budget
        self._rate = rate
        self.taken: list[Fault] = []

    def pick(self, point: int, op: Op, kinds: Sequence[str]) -> str:
        if not self._left or not kinds or self._random.random() >= self._rate:
            return ""
        self._left -= 1
        fault = self._random.choice(kinds)
        self.taken.append((point, fault))
        return fault


class Only:
    """A plan with some kinds of faults only."""

    def __init__(self, plan: Plan, kinds: frozenset[str]) -> None:
        self._plan = plan
        self._kinds = kinds

    @property
    def taken(self) -> list[Fault]:
        return self._plan.taken

    def pick(self, point: int, op: Op, kinds: Sequence[str]) -> str:
        return self._plan.pick(point, op, tuple(k for k in kinds if k in self._kinds))


def write(schedule: Sequence[Fault]) -> str:
    """`12:kill-before,31:lost-reply`; `-` for no fault at all."""
    return ",".join(f"{point}:{fault}" for point, fault in schedule) or "-"


def read(text: str) -> Schedule:
    """What `write` wrote. Raises ValueError."""
    if text in ("", "-"):
        return ()
    pairs = (part.partition(":") for part in text.split(","))
    return tuple((int(point), fault) for point, _, fault in pairs)
