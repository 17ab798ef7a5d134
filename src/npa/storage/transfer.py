"""Copy artifacts from any store to any store, by absolute URI, in bounded memory.

A source that ends in `/` is a prefix: everything below it is copied under the target prefix.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TypeVar, assert_never

from msgspec import Struct

from npa.errors import StorageError, UsageError
from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable
from npa.storage.keys import split_uri, uri_to_path
from npa.storage.seam import ObjectInfo
from npa.storage.store import Stores

T = TypeVar("T")

COPIES_AT_ONCE = 8


class ArtifactAbsent(StorageError):
    """The store says that there is nothing under that URI."""

    code = "ABSENT"


class ArtifactUnseen(StorageError):
    """It could not be seen whether there is anything under that URI."""

    code = "UNVERIFIED"


class Copied(Struct, frozen=True):
    """One object that was copied; `size` in bytes."""

    source: str
    target: str
    size: int


def present(answer: Observation[T], uri: str) -> T:
    """The value of a look at `uri`. Raises ArtifactAbsent or ArtifactUnseen."""
    match answer:
        case Found(value=value):
            return value
        case Absent():
            raise ArtifactAbsent(f"'{uri}' does not exist")
        case Unavailable(cause=cause, detail=detail):
            raise ArtifactUnseen(
                f"cannot look at '{uri}': {cause} ({detail})",
                hint="this says nothing about whether it exists",
            )
        case Ambiguous():
            raise ArtifactUnseen(f"several things answer to '{uri}'")
        case _:
            assert_never(answer)


def objects_below(
    stores: Stores, uri: str, limit: int | None = None
) -> list[tuple[str, ObjectInfo]]:
    """Names relative to the prefix `uri` with what they are. Raises ArtifactUnseen."""
    prefix = split_uri(uri).key
    start = len(prefix if prefix.endswith("/") or not prefix else prefix + "/")
    return [(info.key[start:], info) for info in present(stores.list(uri, limit=limit), uri)]


def copy(
    stores: Stores,
    source: str,
    target: str,
    on_copied: Callable[[Copied], None] = lambda _copied: None,
) -> tuple[Copied, ...]:
    """Copy an object, or all objects below a prefix. Raises ArtifactAbsent, StorageError.

    `on_copied` is called in this thread, after each object. The result is sorted by source.
    """
    if not source.endswith("/"):
        if target.endswith("/"):
            target += source.rpartition("/")[2]
        done = _copy_one(stores, source, target)
        on_copied(done)
        return (done,)
    if not target.endswith("/"):
        raise UsageError(
            f"'{source}' is a prefix and '{target}' is an object",
            hint="end the target with `/`",
        )
    names = [name for name, _ in objects_below(stores, source)]
    if not names:
        raise ArtifactAbsent(f"nothing lies below '{source}'")
    jobs = ((source + name, target + name) for name in names)
    return tuple(sorted(_copy_all(stores, jobs, on_copied), key=lambda done: done.source))


def _copy_all(
    stores: Stores,
    jobs: Iterable[tuple[str, str]],
    on_copied: Callable[[Copied], None],
) -> list[Copied]:
    pool = ThreadPoolExecutor(COPIES_AT_ONCE, thread_name_prefix="copy")
    try:
        futures: list[Future[Copied]] = [pool.submit(_copy_one, stores, *job) for job in jobs]
        done: list[Copied] = []
        for future in as_completed(futures):
            done.append(future.result())
            on_copied(done[-1])
        return done
    finally:
        pool.shutdown(cancel_futures=True)


def _copy_one(stores: Stores, source: str, target: str) -> Copied:
    from_store, from_key = stores.resolve(source)
    to_store, to_key = stores.resolve(target)
    if split_uri(target).scheme == "file":
        info = present(from_store.get_file(from_key, uri_to_path(target)), source)
    elif split_uri(source).scheme == "file":
        info = present(from_store.head(from_key), source)
        to_store.put_file(to_key, uri_to_path(source))
    else:
        with tempfile.TemporaryDirectory(prefix="npa-copy-") as folder:
            path = Path(folder) / "object"
            info = present(from_store.get_file(from_key, path), source)
            to_store.put_file(to_key, path)
    return Copied(source, target, info.size)
