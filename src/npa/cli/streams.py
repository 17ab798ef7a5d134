"""The three standard streams: none of them need be open, and a reader may go away."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO


def open_closed() -> None:
    """Open the null device in place of each stream that was closed when we were started.

    Before anything else is opened: the system gives away the lowest free number, and a file or a
    child's pipe would become our stdout. It is inherited, so that our children need not ask.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            null_at(number)
            stream = open(number, mode, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def null_at(number: int) -> None:
    """The null device, for reading and writing, under this number."""
    null = os.open(os.devnull, os.O_RDWR)
    if null == number:
        os.set_inheritable(null, True)
    else:
        os.dup2(null, number)
        os.close(null)


def drop_unread() -> None:
    """Give the null device what nobody reads any more: Python flushes once more at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            drop(stream)
        except OSError:  # a full disk, for one: the end of the process meets it again
            pass


def drop(stream: TextIO) -> None:
    """What this stream still holds, and what it is given from here on, goes nowhere."""
    null_at(stream.fileno())
    with suppress(OSError):
        stream.flush()
