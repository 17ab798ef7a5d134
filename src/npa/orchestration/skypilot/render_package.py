"""Which steps need `npa` on their node, whose it must be, and which staged tree brings it."""

from __future__ import annotations

import re
from enum import Enum

from npa.catalog.entry import Entry
from npa.orchestration.skypilot.options import RenderOptions, StagedSource
from npa.workflow.step import Step

_OURS = "npa.tools."
"""Modules that ship with this package and with no image."""
_MENTIONS_PACKAGE = re.compile(r"(?<![\w./-])npa(?![\w-])")
_RUNS_PYTHON = re.compile(r"(?<![\w.-])python[0-9.]*(?![\w-])")


class Need(Enum):
    """What a command needs of the package; the value is what the scripts read."""

    NO = ""
    MAYBE = "maybe"  # the user's own Python: it may import `npa.stage`
    MENTIONED = "1"  # the user's own text says `npa`
    OURS = "ours"  # a tool of ours
    THEIRS = "theirs"  # a tool that its image, or the user's package, brings


def package_need(step: Step, entry: Entry | None) -> Need:
    """What the step needs, judged by its tool or else by its text."""
    if entry is not None:
        if any(word.startswith(_OURS) for word in entry.command):
            return Need.OURS
        theirs = any(word == "npa" or word.startswith("npa.") for word in entry.command)
        return Need.THEIRS if theirs else Need.NO
    texts = (*step.command.argv, step.command.shell)
    if any(_MENTIONS_PACKAGE.search(text) for text in texts):
        return Need.MENTIONED
    return Need.MAYBE if any(_RUNS_PYTHON.search(text) for text in texts) else Need.NO


def package_for(need: Need, options: RenderOptions) -> StagedSource | None:
    """The tree that is staged for a step. The user's own comes before everything."""
    if options.package is not None:
        return options.package
    # Ours would hide the tools that a vendor's image carries under the same name.
    return options.own_package if need in (Need.MAYBE, Need.MENTIONED, Need.OURS) else None


def is_missing(need: Need, has_image: bool, package: StagedSource | None) -> bool:
    """Is it certain that the command will not find the package?"""
    if package is not None or need in (Need.NO, Need.MAYBE):
        return False
    return need is Need.OURS or not has_image
