"""What ends a hold: for each code the command that a person types, after what has to be seen to.

No hold is without one: `remedy_of` knows every code that `decide` and the driver can hold with.
"""

from __future__ import annotations

from collections.abc import Mapping

# Code -> (command, what a person sees to before it). {run} and {job} are filled in.
REMEDIES: Mapping[str, tuple[str, str]] = {
    "IDENTITY": ("npa workflow resume {run} --accept-changes REASON", "or undo the change"),
    "AMBIGUOUS": ("npa workflow {verb} {run} --gone {job}", "remove every job of that name"),
    "CLAIMED": ("npa workflow {verb} {run} --gone {job}", "remove the job that has begun"),
    "VANISHED": ("npa workflow {verb} {run} --gone {job}", "see that nothing of it runs"),
    "CANCELLATION_UNVERIFIED": ("npa workflow {verb} {run} --gone {job}", "remove the job"),
    "UNSETTLED": ("npa workflow {verb} {run} --gone {job}", "see that nothing of it runs"),
    "ORPHAN": ("npa workflow {verb} {run} --gone {job}", "remove the job"),
    "UNKNOWN": ("npa workflow {verb} {run} --gone {job}", "read its log, see that nothing runs"),
    "OUTPUT_EVIDENCE": ("npa workflow resume {run}", "remove its outputs, or move them away"),
    "PREFLIGHT": ("npa workflow resume {run}", "put right what the preflight found"),
}


def remedy_of(code: str, *, run: str, job: str, ends: bool) -> str:
    """The command that ends a hold, with what comes before it. `ends`: the run is being cancelled.

    Raises KeyError for a code that nothing can hold with.
    """
    command, first = REMEDIES[code]
    verb = "cancel" if ends else "resume"
    text = command.format(run=run, job=job, verb=verb)
    return f"{first}, then `{text}`" if not first.startswith("or") else f"`{text}`, {first}"
