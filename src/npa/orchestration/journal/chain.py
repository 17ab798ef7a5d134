"""The chain of frames in a store: open, verify, refresh, append.

A frame is `{n, prev, at, epoch, by, entries}`; `prev` is the SHA-256 of frame n-1's bytes and `by`
a random tag of the writing process. A create has three outcomes: created, exists with my bytes (my
own reply was lost), exists with other bytes (somebody else was first: read, decide again). If none
of them could be established, the same bytes are offered again and nothing may be acted upon.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from npa.errors import JournalCorrupt, StorageError
from npa.observation import Absent, Ambiguous, Found, Unavailable
from npa.orchestration.journal.codec import canonical, encode
from npa.orchestration.journal.entries import Entry
from npa.orchestration.journal.frame import RESTORE, Frame, parse
from npa.storage import Blob, CreateOutcome, Storage, is_blank

FOLDER = "npa-workflow/journal/"
GENESIS_PREV = "0" * 64
READERS = 16  # parallel GETs when a run is opened


def key_of(n: int) -> str:
    return f"{FOLDER}{n:010d}.json"


class Appended(Struct, frozen=True):
    frame: Frame


class Lost(Struct, frozen=True):
    """Somebody else wrote first; these are the frames that we had not seen."""

    frames: tuple[Frame, ...]


class Unknown(Struct, frozen=True):
    """It could not be established whether the frame is there. Offer it again; act on nothing."""

    cause: Unavailable


AppendResult = Appended | Lost | Unknown


class _Pending(Struct, frozen=True):
    frame: Frame
    data: bytes
    later: bool


class Journal:
    """A writer's and reader's view of one run's chain. Not shared between threads.

    `by` tags this writer's frames (random if not given); `readers` is how many objects are fetched
    at a time when a run is opened.
    """

    def __init__(
        self,
        storage: Storage,
        now: Callable[[], float],
        *,
        by: str = "",
        readers: int = READERS,
    ) -> None:
        self.storage = storage
        self._now = now
        self._by = by or secrets.token_hex(4)
        self._readers = readers
        self._pending: _Pending | None = None
        self._owed: tuple[str, ...] | None = None  # keys to harden before more; (): our own
        self.head = 0
        self.digest = GENESIS_PREV

    # -- reading ---------------------------------------------------------------------------------

    def start_at(self, n: int, digest: str) -> None:
        """Trust the chain up to frame `n` (a verified snapshot); read on from there."""
        self.head, self.digest = n, digest

    def read(self) -> tuple[Frame, ...]:
        """All frames after the head, verified; the head moves.

        Raises JournalCorrupt (torn or foreign chain) or StorageError (could not look).
        """
        listing = self.storage.list(FOLDER, after=key_of(self.head) if self.head else "")
        match listing:
            case Found(value=infos):
                names = [i.key for i in infos]
            case Unavailable() as cause:
                raise _cannot_look(cause)
            case Absent() | Ambiguous():
                raise JournalCorrupt(f"listing the journal answered {listing!r}")
        expected = [key_of(self.head + 1 + i) for i in range(len(names))]
        if names != expected:
            odd = next((a for a, b in zip(names, expected, strict=False) if a != b), "")
            text = f"the journal has a gap or a foreign object at {odd!r}"
            raise JournalCorrupt(text, hint=RESTORE)
        blobs = self._fetch(expected)
        found = self._accept(blobs)
        if len(found) < len(blobs) - 1:
            raise JournalCorrupt(f"`{key_of(self.head + 1)}` is empty", hint=RESTORE)
        return found

    def refresh(self) -> tuple[Frame, ...]:
        """New frames since the head, cheaply: one look when there is nothing new.

        What was found before a look failed is handed over, never dropped: the head has moved past
        it. Raises as `read` when nothing could be read.
        """
        found: list[Frame] = []
        while True:
            match self.storage.get(key_of(self.head + 1)):
                case Found(value=blob) if not self._is_emptied(blob.data):
                    found.extend(self._accept([blob.data]))
                case Found() | Absent():
                    return tuple(found)
                case Unavailable() as cause:
                    if found:
                        return tuple(found)
                    raise _cannot_look(cause)
                case Ambiguous() as odd:
                    raise JournalCorrupt(f"reading the journal answered {odd!r}")

    def _fetch(self, keys: Sequence[str]) -> list[bytes]:
        local = self.storage.uri.startswith("file:")  # threads would only wait for each other
        if len(keys) <= 2 or self._readers == 1 or local:
            return [self._bytes_of(k) for k in keys]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(self._readers, thread_name_prefix="journal") as pool:
            return list(pool.map(self._bytes_of, keys))

    def _bytes_of(self, key: str) -> bytes:
        match self.storage.get(key):
            case Found(value=Blob(data=data)):
                return data
            case Unavailable() as cause:
                raise _cannot_look(cause)
            case Absent() | Ambiguous():
                raise JournalCorrupt(f"{key} was listed but cannot be read")

    def _accept(self, blobs: Iterable[bytes]) -> tuple[Frame, ...]:
        frames: list[Frame] = []
        for data in blobs:
            if self._is_emptied(data):  # power was lost before anybody counted on it
                break
            key = key_of(self.head + 1)
            frame = parse(data, key)
            if frame.n != self.head + 1:
                raise JournalCorrupt(f"`{key}` calls itself frame {frame.n}", hint=RESTORE)
            if frame.prev != self.digest:
                text = f"`{key}` does not follow the frame before it: one of the two was altered"
                raise JournalCorrupt(text, hint=RESTORE)
            self.head, self.digest = frame.n, frame.digest
            self._owed = (key,)
            frames.append(frame)
        return tuple(frames)

    def _is_emptied(self, data: bytes) -> bool:
        """Only a folder loses what was not hardened; elsewhere an empty frame is a damaged one."""
        return is_blank(data) and self.storage.uri.startswith("file:")

    def stamp(self) -> float:
        """The present wall-clock time as frames carry it (milliseconds)."""
        return round(self._now(), 3)

    # -- writing ---------------------------------------------------------------------------------

    def append(
        self, entries: Sequence[Entry], *, epoch: int, at: float = 0.0, later: bool = False
    ) -> AppendResult:
        """Write one frame after the head, stamped `at` (now). Raises StoreFull: no space.

        `later`: until `harden` has returned, a loss of power can take the frame away again.

        While an earlier append is unresolved its frame is settled first, and the result is about
        *that* frame when it turns out to be `Lost` or `Unknown`.
        """
        if self._pending is not None:
            earlier = self._offer(self._pending)
            if not isinstance(earlier, Appended):
                return earlier
            return Lost((earlier.frame,))
        if self._owed is not None and (cause := self.harden()) is not None:
            return Unknown(cause)  # a frame must not be lost under the one that follows it
        n, stamp = self.head + 1, at or self.stamp()
        data = canonical(
            {
                "n": n,
                "prev": self.digest,
                "at": stamp,
                "epoch": epoch,
                "by": self._by,
                "entries": [encode(x) for x in entries],
            }
        )
        digest = hashlib.sha256(data).hexdigest()
        frame = Frame(n, self.digest, stamp, epoch, self._by, tuple(entries), digest, len(data))
        return self._offer(_Pending(frame, data, later))

    def harden(self) -> Unavailable | None:
        """Let frames that were appended with `later` survive a loss of power. None: they do."""
        cause = self.storage.harden(*(self._owed or ()))
        if cause is None:
            self._owed = None
        return cause

    def settle(self) -> AppendResult | None:
        """Offer an unresolved frame again; None when there is none."""
        return self._offer(self._pending) if self._pending is not None else None

    def _offer(self, pending: _Pending) -> AppendResult:
        self._pending = pending
        key = key_of(pending.frame.n)
        answer = self.storage.create(key, pending.data, durable=True, later=pending.later)
        match answer:
            case CreateOutcome.CREATED | CreateOutcome.MINE:
                self._pending = None
                self.head, self.digest = pending.frame.n, pending.frame.digest
                self._owed = () if pending.later else None
                return Appended(pending.frame)
            case CreateOutcome.OTHER:
                self._pending = None
                try:
                    return Lost(self.refresh())
                except StorageError as error:
                    return Unknown(Unavailable("store", error.message, "journal", self._now()))
            case Unavailable():
                return Unknown(answer)


def _cannot_look(cause: Unavailable) -> StorageError:
    return StorageError(
        f"the journal cannot be read ({cause.cause}): {cause.detail}",
        not_done="nothing was decided or launched",
        hint="nothing is lost: the run goes on where it is once the store answers",
        code="JOURNAL_UNAVAILABLE",
    )
