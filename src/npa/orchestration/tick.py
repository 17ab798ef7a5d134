"""One tick of a driver: a frame in the making, the effects that follow it, and what is waited for.

Entries are applied to the state as they are emitted, so that later decisions of the same tick see
earlier ones and all go into one frame (group commit). If the frame is then lost to another writer,
the driver throws the state away and folds the journal again.
"""

from __future__ import annotations

from msgspec import Struct, field

from npa.orchestration.decide import Goal, Hold
from npa.orchestration.engine import ExactJob
from npa.orchestration.journal.entries import Entry
from npa.orchestration.state import Header, RunState
from npa.workflow.step import Step


class LaunchEffect(Struct, frozen=True):
    """Launch the attempt `key` with these steps; its intent is in this tick's frame."""

    key: str
    steps: tuple[Step, ...]


class CancelEffect(Struct, frozen=True):
    """Cancel one exact job; its intent is in this tick's frame."""

    key: str
    exact: ExactJob


Effect = LaunchEffect | CancelEffect


class Tick(Struct):
    """`waits` and `holds` are by subject (a wave key, a step path, a question, or "")."""

    state: RunState
    goal: Goal
    wall: float
    mono: float
    header: Header
    entries: list[Entry] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    waits: dict[str, str] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    for_room: set[str] = field(default_factory=set)  # waits that end when something else ends
    chosen: list[Step] = field(default_factory=list)
    look_again: float = 60.0
    _begun: bool = False

    def emit(self, entry: Entry) -> None:
        """Put `entry` into this tick's frame and into the state."""
        if not self._begun:
            self.state.begin(self.header)
            self._begun = True
        self.state.take(entry)
        self.entries.append(entry)

    def wait(self, subject: str, reason: str, seconds: float) -> None:
        """Note what `subject` waits for, and look again after `seconds` at the latest."""
        self.waits[subject] = reason
        self.look_again = min(self.look_again, max(0.0, seconds))

    def wait_for_room(self, subject: str, reason: str, seconds: float) -> None:
        """As `wait`, for something that starts when another job ends."""
        self.wait(subject, reason or "waiting for room", seconds)
        self.for_room.add(subject)
