"""The walk: what may run next, given what happened.

A `Walk` is a deterministic machine over the compiled graph. It is fed answers and asked for its
frontier; it never looks at the world, and it never recurses. Planning, running and resuming use
the same walk: planning answers with an assumption, running with the real artifact, resuming with
what the journal recorded.

    walk = Walk(graph, context)
    while walk.ended is None:
        for ask in walk.take_new(): ...        launch a batch, read a decision, read items
        walk.finished(path) | walk.failed(path) | walk.decided(key, value) | walk.expanded(key, …)

Rules that the format leaves open, decided here:
- `next`, `transitions` and `terminal` of a member count for nothing: its group drives the order.
- A state without command and members is passed through; it may still branch.
- After a failure nothing new opens; what is open may still end, then the walk ends with a reason.
- A decision is read from one artifact (the first of the public search order that is declared),
  never from a second one if the first is missing: that could be another iteration's answer.
- A branch for which no artifact is declared uses the decision that its run read last.
"""

from __future__ import annotations

from npa.workflow.asks import (
    Ask,
    AskDecision,
    AskItems,
    Batch,
    BatchKind,
    Ended,
    Gate,
    Items,
)
from npa.workflow.context import Context, make_context
from npa.workflow.decisions import normalise_decision
from npa.workflow.frames import Frame, copy_frames, item_labels
from npa.workflow.machine import DONE, Machine

__all__ = [
    "AnswerMismatch",
    "Ask",
    "AskDecision",
    "AskItems",
    "Batch",
    "BatchKind",
    "Context",
    "Ended",
    "Gate",
    "Items",
    "Walk",
    "make_context",
]


UNKNOWN_ITEM = "*"  # stands for the items of a `foreach` that nobody has read yet


class AnswerMismatch(ValueError):
    """An answer that fits no open ask: the caller's record is not a record of this walk."""


class Walk(Machine):
    """The walk. `ended` is None while anything can still happen."""

    # What is asked.

    def frontier(self) -> tuple[Ask, ...]:
        """Every open ask, in the order in which they opened."""
        return tuple(self._open.values())

    def take_new(self) -> tuple[Ask, ...]:
        """The asks that opened since the last call and are still open."""
        fresh, self._fresh = self._fresh, []
        return tuple(self._open[key] for key in fresh if key in self._open)

    @property
    def failing(self) -> str:
        """Why the walk will end badly once all that is open has ended; "" while it goes well."""
        return self._failing

    def awaits(self, path: str) -> bool:
        """Is this step open: handed out and not yet answered?"""
        return path in self._pending

    def skipped(self) -> tuple[str, ...]:
        """Names of states that have not run and can no longer run, in file order."""
        alive = set(self._visited)
        if not self._failing and self.ended is None:
            out = self.graph.ways_out()
            stack = [self._root.position]
            reached = set(stack)
            while stack:
                at = stack.pop()
                ways = () if self.graph.states[at].terminal else out[at]
                for target in (*self.graph.members(at), *ways):
                    if target not in reached:
                        reached.add(target)
                        stack.append(target)
            alive |= reached
        return tuple(s.name for number, s in enumerate(self.graph.states) if number not in alive)

    def position(self) -> tuple[str, ...]:
        """Keys of all that is open: walks of one graph with equal positions go on alike."""
        remembered = () if self.context.config.get("decision_uri") else (self._root.scope.decision,)
        known = (f"{word}={answer}" for word, answer in sorted(self._answers.items()))
        return (*remembered, *known, *sorted({*self._pending, *self._questions}))

    def copy(self) -> Walk:
        """An independent walk at the same point; costs as much as what is open, not the past."""
        new = object.__new__(Walk)
        new.graph, new.context, new.ended = self.graph, self.context, self.ended
        new._builder = self._builder
        new._open, new._fresh = dict(self._open), list(self._fresh)
        holders = [frame for frame, _, _ in self._pending.values()]
        frames = copy_frames((*holders, *self._questions.values(), self._root))
        new._pending = {
            path: (frames[id(frame)], slot, key)
            for path, (frame, slot, key) in self._pending.items()
        }
        new._left = dict(self._left)
        new._questions = {key: frames[id(frame)] for key, frame in self._questions.items()}
        new._withdrawn, new._visited = set(self._withdrawn), set(self._visited)
        new._failing, new._todo = self._failing, []
        new._root = frames[id(self._root)]
        new._answers = dict(self._answers)
        return new

    def __deepcopy__(self, memo: dict[int, object]) -> Walk:
        return self.copy()

    # Answers.

    def finished(self, path: str) -> None:
        """A step ended well. Raises AnswerMismatch if it is not open."""
        frame, slot = self._answered(path)
        self._todo.append((frame, slot, DONE))
        self._settle()

    def failed(self, path: str) -> None:
        """A step ended badly for good. Raises AnswerMismatch if it is not open."""
        self._answered(path)
        self._fail(f"step '{path}' failed")
        self._settle()

    def abandoned(self, path: str) -> None:
        """An open step was never started and never will be: only once the walk is failing."""
        if not self._failing:
            raise AnswerMismatch(f"step '{path}' cannot be abandoned: nothing has failed")
        self._answered(path)
        self._settle()

    def decided(self, key: str, value: str) -> None:
        """Answer an AskDecision. Raises AnswerMismatch if it is not open or no such gate exists."""
        if key in self._withdrawn:
            return
        ask = self._open.get(key)
        if not isinstance(ask, AskDecision):
            raise AnswerMismatch(f"no open question has the key '{key}'")
        answer = value if ask.gates else normalise_decision(value)
        if ask.gates and answer not in ask.options:
            raise AnswerMismatch(f"question '{key}' has no answer '{value}'")
        del self._open[key]
        frame = self._questions.pop(key)
        if answer not in ask.options:
            allowed = " or ".join(ask.options)
            self._fail(f"decision '{value}' for '{key}' is not {allowed}")
        elif frame is self._root:
            self._answers["gate" if ask.gates else "decision"] = answer
            if not ask.gates:
                frame.scope.decision = answer
            self._todo.append((frame, 0, DONE))
        else:
            self._loop_decided(frame, answer)
        self._settle()

    def expanded(self, key: str, items: Items) -> None:
        """Answer an AskItems. Too many items end the walk with a reason."""
        if key in self._withdrawn:
            return
        ask = self._open.get(key)
        if not isinstance(ask, AskItems):
            raise AnswerMismatch(f"no open question has the key '{key}'")
        del self._open[key]
        frame = self._questions.pop(key)
        if len(items) > ask.max_items:
            count = f"{len(items)} items, more than `maxItems` {ask.max_items}"
            self._fail(f"foreach '{frame.name}' has {count}")
        else:
            self._fan_out(frame, items, item_labels(items))
        self._settle()

    def expand_unknown(self, key: str) -> None:
        """For plans: stand in for items that nobody has read by one step at `state[*]`."""
        ask = self._open.get(key)
        if not isinstance(ask, AskItems):
            raise AnswerMismatch(f"no open question has the key '{key}'")
        del self._open[key]
        self._fan_out(self._questions.pop(key), (UNKNOWN_ITEM,), (UNKNOWN_ITEM,))
        self._settle()

    def _answered(self, path: str) -> tuple[Frame, int]:
        if path not in self._pending:
            raise AnswerMismatch(f"step '{path}' is not open")
        frame, slot, key = self._pending.pop(path)
        left = self._left.get(key, 1) - 1
        if left:
            self._left[key] = left
        else:
            self._left.pop(key, None)
            del self._open[key]
        return frame, slot
