"""A run's source in its store: content-addressed archives that tasks bring to their nodes.

`npa-workflow/source/<sha256>.tar.gz`, created once. The name is the proof: a task compares it. So
are the programs that all tasks share, in `npa-workflow/programs/<sha256>`.
"""

from __future__ import annotations

from functools import lru_cache

from npa.errors import StorageError
from npa.observation import Found, Unavailable
from npa.orchestration.skypilot.options import StagedSource
from npa.orchestration.skypilot.render_scripts import PROGRAMS, program_digest, script
from npa.orchestration.source import Archive, SourceTree, archive
from npa.orchestration.source_package import own_package
from npa.storage import CreateOutcome, Storage

FOLDER = "npa-workflow/source/"
SUFFIX = ".tar.gz"
PROGRAMS_FOLDER = "npa-workflow/programs/"


def stage(storage: Storage, run_uri: str, tree: SourceTree | None) -> str:
    """Put programs, our own package and `tree` into the run's store. The URI of the tree, or "".

    Raises UsageError when a file changed since the scan, StorageError when it cannot be written.
    """
    for name in PROGRAMS:
        _create(storage, PROGRAMS_FOLDER + program_digest(name), script(name).encode())
    _create(storage, _key(_own()), _own().data)
    if tree is None:
        return ""
    packed = archive(tree)
    _create(storage, _key(packed), packed.data)
    return uri_of(run_uri, packed)


def uri_of(run_uri: str, packed: Archive) -> str:
    return run_uri + _key(packed)


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


def _key(packed: Archive) -> str:
    return f"{FOLDER}{packed.sha256}{SUFFIX}"


def _create(storage: Storage, key: str, data: bytes) -> None:
    if isinstance(storage.head(key), Found):
        return  # its name is its content
    answer = storage.create(key, data)
    if isinstance(answer, Unavailable):
        raise StorageError(
            f"the source cannot be put into {storage.uri} ({answer.cause}): {answer.detail}",
            not_done="nothing was launched",
            hint="the same command may be given again",
        )
    assert answer in CreateOutcome  # noqa: S101 - present, whoever wrote it
