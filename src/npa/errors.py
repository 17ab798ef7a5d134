"""Errors as values: what happened, what was not done, and the command that comes next.

NpaError
├── UsageError        the command line or a file of the user is wrong
├── StorageError      a store refused, cannot be reached, or cannot do what we need
│   ├── StoreFull     no space (ENOSPC, quota): nothing was lost, nothing was half written
│   └── StoreUnfit    the store ignores conditional create, so a journal cannot live there
├── RunError          a run cannot go on: identity, another driver, a corrupt journal
│   ├── DrivenElsewhere   another driver holds the run
│   └── JournalCorrupt    the chain is torn or foreign
└── EngineError       an engine cannot do what was asked

The exit code of each kind stands in one table, `npa.cli.exit_codes`.
"""

from __future__ import annotations


class NpaError(Exception):
    """Base of all errors that a user may see.

    `code` is stable and documented, `message` says what happened (one sentence, no full stop),
    `not_done` says what did not happen because of it, `hint` is what to know or do, and
    `next_command` is the command to type next (either may be empty).
    """

    code = "NPA_ERROR"

    def __init__(
        self,
        message: str,
        *,
        not_done: str = "",
        hint: str = "",
        next_command: str = "",
        code: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.not_done = not_done
        self.hint = hint
        self.next_command = next_command
        if code:
            self.code = code


class UsageError(NpaError):
    """The command line, an option or a file of the user cannot be used as it is."""

    code = "USAGE"


class StorageError(NpaError):
    """A store refused, could not be reached, or answered something unusable."""

    code = "STORAGE"


class StoreFull(StorageError):
    """No space left (ENOSPC, EDQUOT). What was written before is intact."""

    code = "STORE_FULL"


class StoreUnfit(StorageError):
    """The store does not honour create-if-absent, on which the journal rests."""

    code = "STORE_UNFIT"


class RunError(NpaError):
    """A run cannot be started or go on."""

    code = "RUN"


class DrivenElsewhere(RunError):
    """Another driver holds this run."""

    code = "DRIVEN_ELSEWHERE"


class JournalCorrupt(RunError):
    """The journal's chain is torn, foreign or unreadable; it is never read as empty."""

    code = "JOURNAL_CORRUPT"


class EngineError(NpaError):
    """An engine cannot do what was asked of it."""

    code = "ENGINE"
