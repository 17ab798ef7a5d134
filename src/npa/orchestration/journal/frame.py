"""One frame of a journal, and how its bytes are read."""

from __future__ import annotations

import hashlib
import json

from msgspec import Struct

from npa.errors import JournalCorrupt
from npa.orchestration.journal.codec import decode
from npa.orchestration.journal.entries import Entry


class Frame(Struct, frozen=True):
    """One frame as read. `digest` is the SHA-256 of its bytes, `size` their number."""

    n: int
    prev: str
    at: float
    epoch: int
    by: str
    entries: tuple[Entry, ...]
    digest: str
    size: int


RESTORE = "put the run's journal back as it was; nothing is decided on one that does not verify"


def parse(data: bytes, name: str = "a journal frame") -> Frame:
    """Read the frame called `name`. Raises JournalCorrupt for bytes that are not exactly one."""
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
    except JournalCorrupt as error:
        raise JournalCorrupt(f"`{name}`: {error.message}", hint=error.hint or RESTORE) from error
    except KeyError as error:
        raise JournalCorrupt(f"`{name}` is torn or foreign: no {error}", hint=RESTORE) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise JournalCorrupt(f"`{name}` is torn or foreign: {error}", hint=RESTORE) from error
    if not isinstance(frame.n, int) or not isinstance(frame.prev, str) or not entries:
        raise JournalCorrupt(f"`{name}` is torn or foreign", hint=RESTORE)
    return frame
