"""Observation: the only answer that a look at the world may give.

    Found(value)         it is there, and this is what it says
    Absent(proof)        a named positive signal says that it is not there
    Unavailable(cause)   could not look; says nothing about what is there
    Ambiguous(found)     several things answer to the name

Not being able to see is never the same as not being there, so there is no `None` and no exception
as an answer. Only an adapter (storage, an engine) builds `Absent`, and only from a positive signal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Found(Generic[T_co]):
    """The thing is there. `source` names who said so; `as_of` is epoch seconds of the look."""

    value: T_co
    source: str
    as_of: float


@dataclass(frozen=True, slots=True)
class Absent:
    """A positive signal of absence. `late_possible`: may it still appear (a request in flight)?"""

    proof: str
    source: str
    as_of: float
    late_possible: bool = False


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The look itself failed. `cause` is a short stable code, `detail` a hint for people."""

    cause: str
    detail: str
    source: str
    as_of: float


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """More than one candidate, or name and identity disagree. `candidates` are exact handles."""

    candidates: tuple[str, ...]
    source: str
    as_of: float


Observation = Found[T_co] | Absent | Unavailable | Ambiguous
