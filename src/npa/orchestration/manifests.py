"""What the source of a run was, file by file, kept beside its journal for people to compare with.

`npa-workflow/source/<digest>.json` is content-addressed and created once. It explains a difference
of the seal; it never decides one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from npa.observation import Found
from npa.orchestration.journal.codec import canonical
from npa.orchestration.source import SourceTree
from npa.orchestration.source_ignore import FILE as IGNORE_FILE
from npa.storage import Storage

FOLDER = "npa-workflow/source/"


def keep(storage: Storage, tree: SourceTree | None) -> None:
    """Keep the manifest of `tree` if it is not there yet. Raises StoreFull."""
    if tree is not None:
        storage.create(f"{FOLDER}{tree.digest}.json", canonical(tree.provenance()))


def changed_files(storage: Storage, sealed: object, tree: SourceTree | None) -> tuple[str, ...]:
    """What differs between the sealed source and `tree`, a line a file; () if that is not known."""
    if not isinstance(sealed, str) or tree is None:
        return ()
    answer = storage.get(f"{FOLDER}{sealed}.json")
    if not isinstance(answer, Found):
        return ()
    try:
        kept = json.loads(answer.value.data)
        before = {str(f["path"]): (f["sha256"], f["executable"]) for f in kept["files"]}
        left_out = tuple(str(part) for part in kept.get("excluded", ()))
        ignore = str(kept.get("ignore_sha256", ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        return ()
    now = {f.path: (f.sha256, f.executable) for f in tree.files}
    lines = [
        f"{path} {_word(path, before, now, left_out, tree.excluded)}"
        for path in sorted(before.keys() | now.keys())
        if before.get(path) != now.get(path)
    ]
    if lines and ignore != tree.ignore_sha256:
        lines.insert(0, f"{IGNORE_FILE} {_ignore_word(ignore, tree.ignore_sha256)}")
    return tuple(lines)


def _word(
    path: str,
    before: Mapping[str, object],
    now: Mapping[str, object],
    out_before: Sequence[str],
    out_now: Sequence[str],
) -> str:
    if path in before and path in now:
        return "changed"
    if path in now:
        return "is no longer left out" if _among(path, out_before) else "is new"
    return "is left out now" if _among(path, out_now) else "is gone"


def _among(path: str, parts: Sequence[str]) -> bool:
    return any(path == part or (part.endswith("/") and path.startswith(part)) for part in parts)


def _ignore_word(before: str, now: str) -> str:
    if not before:
        return "is new"
    return "changed" if now else "is gone"
