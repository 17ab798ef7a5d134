"""The one table of exit codes: what a script may conclude from how `npa` ended.

A usage error is 64 (EX_USAGE of sysexits.h) and not click's own 2, because 2 says here that the
truth could not be established, on which automation must not act. 75 is EX_TEMPFAIL.
"""

from __future__ import annotations

from enum import IntEnum

from npa.errors import DrivenElsewhere, JournalCorrupt, NpaError, UsageError


class ExitCode(IntEnum):
    """Every way in which `npa` ends on its own."""

    OK = 0
    FAILED = 1
    UNVERIFIED = 2
    PARTIAL = 3
    NOT_SUBMITTED = 4
    HELD = 10
    DRIVEN_ELSEWHERE = 11
    IDENTITY_MISMATCH = 12
    USAGE = 64
    NO_ROOM = 75
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANING: dict[ExitCode, str] = {
    ExitCode.OK: "done, or nothing was left to do",
    ExitCode.FAILED: "failed, for the reason that the error names; a run failed or was cancelled",
    ExitCode.UNVERIFIED: "could not be verified, or an unexpected error: conclude nothing from it",
    ExitCode.PARTIAL: "done in part: the output names what is left",
    ExitCode.NOT_SUBMITTED: "planned only: no run of that name was submitted",
    ExitCode.HELD: "the run is held: it waits for a decision of yours, and the output names it",
    ExitCode.DRIVEN_ELSEWHERE: "another driver holds the run: nothing was changed",
    ExitCode.IDENTITY_MISMATCH: "inputs are not those that the run sealed: nothing was changed",
    ExitCode.USAGE: "the command line cannot be used as it is: nothing was started",
    ExitCode.NO_ROOM: "no room for now and nothing was launched: try the same command later",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
    ExitCode.BROKEN_PIPE: "the reader of the output went away",
}

_BY_CODE: dict[str, ExitCode] = {
    "HELD": ExitCode.HELD,
    "IDENTITY": ExitCode.IDENTITY_MISMATCH,
    "IDENTITY_MISMATCH": ExitCode.IDENTITY_MISMATCH,
    "NO_ROOM": ExitCode.NO_ROOM,
    "SKYPILOT_CHECK": ExitCode.UNVERIFIED,
    "UNVERIFIED": ExitCode.UNVERIFIED,
}


def exit_code_of(error: NpaError) -> ExitCode:
    """The exit code of a typed error: by its own code first, then by its kind."""
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    match error:
        case UsageError():
            return ExitCode.USAGE
        case DrivenElsewhere():
            return ExitCode.DRIVEN_ELSEWHERE
        case JournalCorrupt():
            return ExitCode.UNVERIFIED
        case _:
            return ExitCode.FAILED
