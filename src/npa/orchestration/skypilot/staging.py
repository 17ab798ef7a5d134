"""A run's source in its store: content-addressed archives that tasks bring to their nodes.

`npa-workflow/source/<sha256>.tar.gz`, created once. The name is the proof: a task compares it.
"""

from __future__ import annotations

from functools import lru_cache

from npa.errors import StorageError
from npa.observation import Found, Unavailable
from npa.orchestration.skypilot.options import StagedSource
from npa.orchestration.source import Archive, SourceTree, archive
from npa.orchestration.source_package import own_package
from npa.storage import CreateOutcome, Storage

FOLDER = "npa-workflow/source/"
SUFFIX = ".tar.gz"


def stage(storage: Storage, run_uri: str, tree: SourceTree | None) -> str:
    """Put our own package and `tree` into the run's store. The URI of the tree's archive, or "".

    Raises UsageError when a file changed since the scan, StorageError when it cannot be written.
    """
    _create(storage, _own())
    if tree is None:
        return ""
    packed = archive(tree)
    _create(storage, packed)
    return uri_of(run_uri, packed)


def uri_of(run_uri: str, packed: Archive) -> str:
    return f"{run_uri}{FOLDER}{packed.sha256}{SUFFIX}"


def staged(uri: str) -> StagedSource | None:
    """What lies at a URI that `stage` gave; None for ""."""
    if not uri:
        return None
    return StagedSource(uri, sha256=uri.rpartition("/")[2].removesuffix(SUFFIX))


def own_staged(run_uri: str) -> StagedSource:
    """Our own package as `stage` puts it there."""
    packed = _own()
    fingerprint = str(packed.manifest.get("fingerprint", ""))
    return StagedSource(uri_of(run_uri, packed), packed.sha256, fingerprint)


@lru_cache(maxsize=1)
def _own() -> Archive:
    return own_package()


def _create(storage: Storage, packed: Archive) -> None:
    key = f"{FOLDER}{packed.sha256}{SUFFIX}"
    if isinstance(storage.head(key), Found):
        return  # its name is its content
    answer = storage.create(key, packed.data)
    if isinstance(answer, Unavailable):
        raise StorageError(
            f"the source cannot be put into {storage.uri} ({answer.cause}): {answer.detail}",
            not_done="nothing was launched",
            hint="the same command may be given again",
        )
    assert answer in CreateOutcome  # noqa: S101 - present, whoever wrote it
