"""Where runs are: from the name that a user types to the URI of a run's journal.

`<home>/index/<run-id>.json` notes each run that was submitted from this home. It is a signpost and
never the truth: what a run is stands in its journal.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from npa.errors import RunError, UsageError
from npa.orchestration.seal import slug
from npa.storage import path_to_uri
from npa.target.home import Home, private_folder

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
SLUG_MAX = 48


class RunPlace(Struct, frozen=True):
    """A run that is known by name: its ID, its root (ends in `/`), and what it runs."""

    run_id: str
    run_uri: str
    workflow: str
    created_at: float


class AmbiguousRun(UsageError):
    """`places` are the runs whose IDs begin so, newest first."""

    code = "RUN_AMBIGUOUS"

    def __init__(self, name: str, places: tuple[RunPlace, ...]) -> None:
        super().__init__(
            f"{len(places)} runs begin with `{name}`",
            not_done="none of them was touched",
            hint="give more of the ID",
            next_command="npa workflow list",
        )
        self.places = places


def check_run_id(run_id: str) -> str:
    """Return `run_id` if it is one. Raises UsageError."""
    if RUN_ID.fullmatch(run_id) is None:
        raise UsageError(
            f"`{run_id}` cannot be a run ID",
            not_done="nothing was created",
            hint="1 to 96 letters, digits or `.-_`, beginning with a letter or digit",
        )
    return run_id


def new_run_id(workflow: str, now: float) -> str:
    """`<slug>-<UTC stamp>-<6 hex>`: readable, sorted by time, unique."""
    stamp = time.strftime("%Y%m%dt%H%M%S", time.gmtime(now))
    return f"{slug(workflow, SLUG_MAX) or 'run'}-{stamp}-{secrets.token_hex(3)}"


def default_run_uri(home: Home, run_id: str) -> str:
    return path_to_uri(home.runs / run_id, folder=True)


def note_run(home: Home, place: RunPlace) -> None:
    """Put up the signpost. An existing one for another place is a UsageError."""
    folder = private_folder(home.path / "index")
    path = folder / f"{place.run_id}.json"
    body = {
        "run_id": place.run_id,
        "run_uri": place.run_uri,
        "workflow": place.workflow,
        "created_at": place.created_at,
    }
    spare = folder / f"{place.run_id}.{os.getpid()}"
    try:
        spare.touch(mode=0o600)
        spare.write_text(json.dumps(body), encoding="utf-8")
        known = _put_up(spare, path)
    finally:
        spare.unlink(missing_ok=True)
    if known is not None and known.run_uri != place.run_uri:
        raise UsageError(
            f"run `{place.run_id}` exists already, at {known.run_uri}",
            not_done="nothing was created",
            next_command=f"npa workflow status {place.run_id}",
        )


def _put_up(spare: Path, path: Path) -> RunPlace | None:
    """Give the file its name at once and whole; what stands there already, if it can be read."""
    try:
        path.hardlink_to(spare)
    except FileExistsError:
        known = _read(path)
        if known is None:
            spare.replace(path)
        return known
    return None


def known_runs(home: Home) -> Iterator[RunPlace]:
    """All signposts of this home, newest first; unreadable ones are skipped."""
    found = [p for p in (_read(f) for f in (home.path / "index").glob("*.json")) if p is not None]
    yield from sorted(found, key=lambda p: p.created_at, reverse=True)


def find_run(home: Home, name: str) -> RunPlace:
    """The run that `name` means: an ID, the start of one alone, or the URI of its root.

    Raises RunError (unknown), AmbiguousRun, UsageError.
    """
    if "://" in name:
        uri = name if name.endswith("/") else f"{name}/"
        return RunPlace(uri.rstrip("/").rpartition("/")[2], uri, "", 0.0)
    check_run_id(name)
    known = _read(home.path / "index" / f"{name}.json")
    if known is not None:
        return known
    if (home.runs / name).is_dir():
        return RunPlace(name, default_run_uri(home, name), "", 0.0)
    close = tuple(place for place in known_runs(home) if place.run_id.startswith(name))
    if len(close) == 1:
        return close[0]
    if close:
        raise AmbiguousRun(name, close)
    raise RunError(
        f"no run `{name}` is known here",
        hint="give the whole ID, or the URI of the run's root: s3://bucket/prefix/run-id/",
        next_command="npa workflow list",
        code="RUN_NOT_FOUND",
    )


def _read(path: Path) -> RunPlace | None:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return RunPlace(
            str(raw["run_id"]), str(raw["run_uri"]), str(raw["workflow"]), float(raw["created_at"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
