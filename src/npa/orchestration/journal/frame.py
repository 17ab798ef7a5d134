"""One frame of a journal, and how its bytes are read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from npa.errors import JournalCorrupt
from npa.orchestration.journal.codec import decode
from npa.orchestration.journal.entries import Entry


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as read. `digest` is the SHA-256 of its bytes, `size` their number."""

    n: int
    prev: str
    at: float
    epoch: int
    by: str
    entries: tuple[Entry, ...]
    digest: str
    size: int


def parse(data: bytes) -> Frame:
    """Read one frame. Raises JournalCorrupt for bytes that are not exactly a frame."""
    try:
        raw = json.loads(data)
        entries = tuple(decode(x) for x in raw["entries"])
        frame = Frame(
            n=raw["n"],
            prev=raw["prev"],
            at=raw["at"],
            epoch=raw["epoch"],
            by=raw["by"],
            entries=entries,
            digest=hashlib.sha256(data).hexdigest(),
            size=len(data),
        )
    except JournalCorrupt:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise JournalCorrupt(f"a journal frame is torn or foreign: {error}") from error
    if not isinstance(frame.n, int) or not isinstance(frame.prev, str) or not entries:
        raise JournalCorrupt("a journal frame is torn or foreign")
    return frame
