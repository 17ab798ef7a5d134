"""Our own package as staged source: for tasks whose command uses `npa` in an image without it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from msgspec.structs import replace

import npa
from npa.orchestration.source import Archive, archive, scan

REQUIREMENTS = "requirements.txt"
_FOLDER = "npa"


def own_package() -> Archive:
    """The package that runs now, with what it requires; equal packages give equal archives."""
    return pack(Path(npa.__file__).parent, _required(metadata.requires("npa") or ()))


def pack(folder: Path, required: Sequence[str]) -> Archive:
    """`npa/…` and `requirements.txt` in one archive.

    Nothing has to be built on a node: the tree is put on the path, and pip installs the list.
    """
    tree = scan(folder)
    text = "".join(f"{line}\n" for line in sorted(required)).encode()
    fingerprint = hashlib.sha256(tree.digest.encode() + text).hexdigest()
    return archive(replace(tree, digest=fingerprint), below=_FOLDER, extra={REQUIREMENTS: text})


def _required(lines: Sequence[str]) -> list[str]:
    """Requirements without those of extras."""
    return [line for line in lines if not re.search(r"\bextra\s*==", line)]
