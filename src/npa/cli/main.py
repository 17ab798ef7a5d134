"""The entry of `npa`: the version at once, the groups by name, and every error rendered once."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

COLLECT_AFTER = 10_000
"""New objects between two looks for cycles (Python: 700). What we make mostly stays; the looks
cost 3 % of a run of a thousand steps."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        from npa import __version__

        try:
            sys.stdout.write(f"npa {__version__}\n")
        except BrokenPipeError:  # at once with PYTHONUNBUFFERED
            return _unread()
        return 0
    gc.set_threshold(COLLECT_AFTER)
    from npa.cli.edge import run

    return run(root, arguments)


def console() -> None:
    """The installed command: `main`, and the end of the process with its exit code.

    The interpreter is not taken down object by object (50 ms): nothing of ours is done there. It
    is where a thread still works, or what was printed cannot be delivered: Python reports that.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from npa.cli.streams import open_closed

        open_closed()
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = code or _unread()
    except OSError:
        sys.exit(code)
    if any(not one.daemon for one in threading.enumerate() if one is not threading.main_thread()):
        sys.exit(code)
    os._exit(code)


def _unread() -> int:
    """The exit code of an answer that nobody reads any more, which is let go of."""
    from npa.cli.exit_codes import ExitCode
    from npa.cli.streams import drop_unread

    drop_unread()
    return ExitCode.BROKEN_PIPE


def root() -> click.Group:
    """The command tree. The tables name modules; none of them is imported here."""
    from npa.cli.tree import npa

    return npa


if __name__ == "__main__":
    console()
