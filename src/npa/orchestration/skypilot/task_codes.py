"""Exit codes with which a task ends before its payload: reserved, and never a payload's verdict."""

from __future__ import annotations

from enum import IntEnum


class TaskCode(IntEnum):
    """Why a launched task did not run its command. The packaged scripts hold the same numbers."""

    NODE = 94  # the node has no usable interpreter, package or model server
    LICENCE = 95  # a licence that the step needs was declined
    SOURCE = 96  # the staged source could not be brought, or is another one
    CLAIMED = 97  # the attempt belongs to another job: this one is the second launch
    CLAIM_UNKNOWN = 98  # the attempt could not be claimed, so it did not run
