"""What the source of a run was, file by file, kept beside its journal for people to compare with.

`npa-workflow/source/<digest>.json` is content-addressed and created once. It explains a difference
of the seal; it never decides one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from npa.observation import Found
from npa.orchestration.journal.codec import canonical
from npa.orchestration.source import SourceTree
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
        files = json.loads(answer.value.data)["files"]
        before = {str(f["path"]): (f["sha256"], f["executable"]) for f in files}
    except (ValueError, LookupError, TypeError):
        return ()
    now = {f.path: (f.sha256, f.executable) for f in tree.files}
    return tuple(f"{path} {_word(path, before, now)}" for path in _differing(before, now))


def _differing(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    return sorted(p for p in before.keys() | now.keys() if before.get(p) != now.get(p))


def _word(path: str, before: Mapping[str, object], now: Mapping[str, object]) -> str:
    if path not in before:
        return "is new"
    return "is gone" if path not in now else "changed"
