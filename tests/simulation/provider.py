"""The provider: a job queue with SkyPilot's real traits, and the pods behind it.

Names are not unique and a launch carries no key: whatever is posted becomes a row. A row's life is
a timeline that is laid down when it is born; a cancel replaces what is left of it. Pods honour the
payload fence: the first row that starts with an attempt's key claims it, others leave at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from npa.orchestration.claims import key_of
from npa.orchestration.engine import Evidence, Job, Phase
from simulation.store import Written

TERMINAL = (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)
INACTIVE_SECONDS = 3.0  # a row without a controller for this long does not answer any more
LATE_SECONDS = 4.0
HIDDEN_LOOKS = 3

Event = tuple[float, str]

# Drivers look about every 5 s: at a good job when it is pending, running, cleaning up and over.
OK: tuple[Event, ...] = ((1, "run"), (7, "write"), (7, "succeed"), (10.5, "settle"))
TIMELINES: dict[str, tuple[Event, ...]] = {
    "backoff": (
        *((0.5, "start"), (4, "pend"), (7, "start"), (9, "run")),
        *((11, "write"), (11, "succeed"), (12, "settle")),
    ),
    "slow-settle": ((1, "run"), (3, "write"), (3, "succeed"), (25, "settle")),
    "word": (
        *((1, "run"), (4, "word"), (9, "word-over")),
        *((12, "write"), (12, "succeed"), (13, "settle")),
    ),
    "never-settles": ((1, "run"), (3, "write"), (3, "succeed")),
    "word-forever": ((1, "run"), (2, "word")),
    "cancel-words": (
        *((1, "run"), (3, "write"), (3, "cancelling"), (7, "cancelled")),
        *((11, "succeed"), (12, "settle")),
    ),
    "controller": (
        *((1, "run"), (3, "write"), (3, "succeed")),
        *((8, "fail:CONTROLLER_UNAVAILABLE"), (12, "settle")),
    ),
    "exit": ((1, "run"), (4, "exit"), (7, "write"), (7, "succeed"), (8, "settle")),
    "exit-late": ((1, "run"), (4, "write"), (6, "exit"), (7, "succeed"), (8, "settle")),
    "bare": ((1, "run"), (3, "succeed"), (4, "settle")),
    "some": ((1, "run"), (3, "write-one"), (3, "succeed"), (4, "settle")),
    "preempted": ((1, "run"), (4, "fail:PREEMPTED"), (7, "settle")),
    "preempted-late": ((1, "run"), (2, "write"), (3, "fail:PREEMPTED"), (4, "settle")),
    "preempted-some": ((1, "run"), (2, "write-one"), (3, "fail:PREEMPTED"), (4, "settle")),
    "evicted": ((1, "run"), (4, "fail:EVICTED"), (7, "settle")),
    "foreign": ((1, "run"), (2, "cancelled"), (3, "settle")),
    "forever": ((1, "run"),),
    "sick": ((1, "run"), (2, "sick:NODE_NOT_READY")),
    "misconfigured": ((1, "sick:IMAGE_NOT_FOUND"),),
    "mute": ((1, "run"), (2, "fail:"), (3, "settle")),
    "vanished": ((1, "run"), (7, "vanish")),
    "vanished-late": ((1, "run"), (4, "write"), (7, "vanish")),
    "phantom": (),
}
CANCEL: tuple[Event, ...] = ((1, "cancelled"), (2, "settle"))
RACED: tuple[Event, ...] = ((0.5, "write"), (0.5, "succeed"), (1.5, "settle"))
RACED_BARE: tuple[Event, ...] = ((0.5, "succeed"), (1.5, "settle"))


@dataclass(slots=True)
class Pod:
    """One task of a job: its step, what it declares, how it stands."""

    path: str
    outputs: tuple[str, ...]
    phase: Phase = Phase.PENDING
    evidence: tuple[Evidence, ...] = ()
    ended_at: float | None = None


@dataclass(slots=True)
class Row:
    """One managed job of the queue."""

    id: int
    name: str
    key: str
    pods: list[Pod]
    born: float
    timeline: tuple[Event, ...]
    hidden: int = 0
    active: bool = True
    settled: bool = False
    word: bool = False  # its status word is one that nobody knows
    gone: bool = False
    evidence: tuple[Evidence, ...] = ()
    at: int = 0  # the next event of the timeline
    base: float = 0.0  # what its times count from
    ran: bool = False

    @property
    def phase(self) -> Phase:
        """The word of the whole job."""
        if self.word:
            return Phase.UNKNOWN
        phases = [p.phase for p in self.pods]
        if all(p in TERMINAL for p in phases):
            for bad in (Phase.FAILED, Phase.CANCELLED):
                if bad in phases:
                    return bad
            return Phase.SUCCEEDED
        for live in (Phase.CANCELLING, Phase.RUNNING, Phase.STARTING):
            if live in phases:
                return live
        return Phase.PENDING if Phase.PENDING in phases else Phase.RUNNING

    @property
    def live(self) -> bool:
        """Has it not ended yet?"""
        return not self.gone and any(p.phase not in TERMINAL for p in self.pods)


def _claim(row: Row) -> bytes:
    return json.dumps({"job": row.id}).encode()


Content = Callable[[str, str], bytes]


@dataclass(slots=True)
class Provider:
    """The queue. `started` is told of each payload that starts: (key, path, row)."""

    content: Content
    started: Callable[[Row, Pod], None]
    born: Callable[[Row], None]
    rows: list[Row] = field(default_factory=list)
    late: list[tuple[float, Job]] = field(default_factory=list)
    store: dict[str, bytes] = field(default_factory=dict)  # where pods claim their attempt
    sealed: set[str] = field(default_factory=set)  # keys that the local engine sealed
    artifacts: dict[str, Written] = field(default_factory=dict)
    now: float = 0.0
    fence: bool = True
    _busy: list[Row] = field(default_factory=list)

    # -- requests ------------------------------------------------------------------------------

    def post(self, job: Job, nature: str = "") -> Row:
        """A launch request arrived."""
        pods = [Pod(t.step.path, tuple(o.uri for o in t.step.outputs)) for t in job.tasks]
        row = Row(
            id=len(self.rows) + 1,
            name=job.name,
            key=job.key,
            pods=pods,
            born=self.now,
            timeline=TIMELINES.get(nature, OK),
            hidden=HIDDEN_LOOKS if nature == "invisible" else 0,
            active=nature != "phantom",
            base=self.now,
        )
        self.rows.append(row)
        self._busy.append(row)
        self.born(row)
        return row

    def live(self, row: Row) -> bool:
        """May a payload of it run, now or later? Not if its claim is another's."""
        claim = self.store.get(key_of(row.key))
        fenced = self.fence and claim is not None and claim != _claim(row)
        return row.live and not fenced

    def restore(
        self,
        name: str,
        key: str,
        outputs: Mapping[str, tuple[str, ...]],
        *,
        ended: bool,
        good: Collection[str],
    ) -> Row:
        """A job of an earlier time, as a journal tells of it: over, or running from now on."""
        row = Row(
            id=len(self.rows) + 1,
            name=name,
            key=key,
            pods=[Pod(path, uris) for path, uris in outputs.items()],
            born=self.now,
            timeline=() if ended else OK,
            base=self.now,
            settled=ended,
        )
        self.rows.append(row)
        if not ended:
            self._busy.append(row)
        for pod in row.pods if ended else ():
            if pod.path in good:
                self._write(row, pod, pod.outputs)
            pod.phase = Phase.SUCCEEDED if pod.path in good else Phase.CANCELLED
        return row

    def post_late(self, job: Job) -> None:
        self.late.append((self.now + LATE_SECONDS, job))

    def cancel(self, row_id: int, how: str = "") -> None:
        """A cancel of one exact ID arrived. A terminal job is skipped silently."""
        row = self.rows[row_id - 1]
        if not row.live or how == "ignored":
            return
        for pod in row.pods:
            if pod.phase not in TERMINAL:
                pod.phase = Phase.CANCELLING if row.ran else pod.phase
        row.word = False
        timeline = {"raced": RACED, "raced-bare": RACED_BARE}.get(how, CANCEL)
        if timeline is not CANCEL and not row.ran:
            timeline = ((0.2, "run"), *timeline)
        row.active = True
        row.timeline, row.at, row.base = timeline, 0, self.now
        if row not in self._busy:
            self._busy.append(row)

    def destroy(self, row: Row) -> None:
        """A person removed the job by hand, with everything that runs of it."""
        self.cancel(row.id)

    # -- time ----------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Let everything happen that is due by `now`, in order of time."""
        while True:
            due = self._next(now)
            if due is None:
                break
            due()
        self.now = now

    def _next(self, now: float) -> Callable[[], None] | None:
        best, chosen = now, None
        for row in self._busy:
            if row.at < len(row.timeline):
                at = row.base + row.timeline[row.at][0]
                if at < best or (at == best and chosen is None):
                    best, chosen = at, row
        if self.late and self.late[0][0] <= best:
            at, job = self.late.pop(0)
            self.now = max(self.now, at)
            return lambda: self._arrive(job)
        if chosen is None:
            return None
        row, self.now = chosen, max(self.now, best)
        return lambda: self._step(row)

    def _arrive(self, job: Job) -> None:
        self.post(job)

    def _step(self, row: Row) -> None:
        word = row.timeline[row.at][1]
        row.at += 1
        if row.at == len(row.timeline):
            self._busy.remove(row)
        self._happen(row, word)

    def _happen(self, row: Row, word: str) -> None:
        open_pods = [p for p in row.pods if p.phase not in TERMINAL]
        match word:
            case "start":
                self._phase(open_pods, Phase.STARTING)
            case "pend":
                self._phase(open_pods, Phase.PENDING)
            case "cancelling":
                self._phase(open_pods, Phase.CANCELLING)
            case "run":
                self._run(row, open_pods)
            case "write" | "write-one":
                for pod in row.pods:
                    self._write(row, pod, pod.outputs[: 1 if word == "write-one" else None])
            case "exit":
                self._end(open_pods[:1], Phase.FAILED, "PAYLOAD_EXIT_NONZERO")
            case "succeed":
                words = [p for p in row.pods if p.phase not in (Phase.FAILED,)]
                self._end(words, Phase.SUCCEEDED, "")
                for pod in words:
                    pod.evidence = ()
            case "cancelled":
                self._end(open_pods, Phase.CANCELLED, "CANCELLED_BY_PROVIDER")
            case "settle":
                row.settled = True
            case "word":
                row.word = True
            case "word-over":
                row.word = False
            case "vanish":
                self._end(open_pods, Phase.FAILED, "")
                row.gone = True
            case _:
                kind, _, code = word.partition(":")
                facts = (Evidence(code, "sim", exit_code=None),) if code else ()
                if kind == "sick":
                    row.evidence = facts
                else:  # also over SUCCEEDED: a controller that fails during its clean-up
                    self._end(row.pods, Phase.FAILED, code)
                    row.evidence = facts

    def _run(self, row: Row, pods: list[Pod]) -> None:
        mine = _claim(row)
        if self.fence and self.store.setdefault(key_of(row.key), mine) != mine:
            self._end(pods, Phase.FAILED, "PAYLOAD_EXIT_NONZERO")
            row.timeline, row.at, row.base = ((0, "settle"),), 0, self.now
            if row not in self._busy:
                self._busy.append(row)
            return
        row.ran = True
        for pod in pods:
            pod.phase = Phase.RUNNING
            self.started(row, pod)

    def _write(self, row: Row, pod: Pod, uris: tuple[str, ...]) -> None:
        if pod.phase in (Phase.FAILED, Phase.CANCELLED):
            return
        for uri in uris:
            self.artifacts[uri] = Written(self.content(pod.path, uri), row.key)

    def _phase(self, pods: list[Pod], phase: Phase) -> None:
        for pod in pods:
            pod.phase = phase

    def _end(self, pods: list[Pod], phase: Phase, code: str) -> None:
        for pod in pods:
            pod.phase = phase
            pod.ended_at = self.now
            if code:
                pod.evidence = (Evidence(code, "sim", exit_code=3),)
