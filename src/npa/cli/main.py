"""The entry of `npa`: the version at once, the groups by name, and every error rendered once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        from npa import __version__

        sys.stdout.write(f"npa {__version__}\n")
        return 0
    from npa.cli.edge import run

    return run(root, arguments)


def root() -> click.Group:
    """The command tree. The tables name modules; none of them is imported here."""
    from npa.cli.tree import npa

    return npa


if __name__ == "__main__":
    raise SystemExit(main())
