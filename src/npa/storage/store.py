"""Open a store and use it: retries of reads, read-back after a create, answers as observations."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from npa.errors import StorageError, StoreFull, StoreUnfit, UsageError
from npa.observation import Absent, Ambiguous, Found, Observation, Unavailable
from npa.storage.faults import Exists, Fault, Missing
from npa.storage.keys import Location, check_key, check_prefix, path_to_uri, split_uri
from npa.storage.local import LocalBackend
from npa.storage.seam import Blob, CreateOutcome, ObjectInfo, Storage, StoreOptions

T = TypeVar("T")

TRIES_MAX = 3
"""How often one look or one create is tried before the answer is Unavailable."""
PAUSE_SECONDS = 0.1
"""Pause before the second try; it doubles, with up to half of it added at random."""


class Backend(Protocol):
    """One kind of store. Methods raise Missing, Exists or Fault (npa.storage.faults)."""

    def get(self, key: str) -> Blob: ...
    def head(self, key: str) -> ObjectInfo: ...
    def list(self, prefix: str, after: str, limit: int | None) -> tuple[ObjectInfo, ...]: ...
    def create(self, key: str, data: bytes, durable: bool, later: bool) -> None: ...
    def harden(self) -> None: ...
    def settle(self, key: str) -> None: ...
    def put(self, key: str, data: bytes) -> None: ...
    def put_file(self, key: str, path: Path) -> None: ...
    def get_file(self, key: str, path: Path) -> ObjectInfo: ...
    def delete(self, key: str) -> None: ...


class Store(Storage):
    """A store over one backend. Get one from `open_store`, `Stores` or `Store.in_memory`."""

    def __init__(
        self,
        backend: Backend,
        uri: str,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._backend = backend
        self._uri = uri
        self._clock = clock
        self._sleep = sleep

    @classmethod
    def in_memory(cls) -> Store:
        """A fresh empty store that lives in this process."""
        from npa.storage.remote import Clients, RemoteBackend

        location = Location("memory", "", "")
        return cls(RemoteBackend(Clients(location, StoreOptions())), location.root)

    @property
    def uri(self) -> str:
        return self._uri

    def __repr__(self) -> str:
        return f"Store({self._uri!r})"

    def get(self, key: str) -> Observation[Blob]:
        check_key(key)
        return self._look(lambda: self._backend.get(key))

    def head(self, key: str) -> Observation[ObjectInfo]:
        check_key(key)
        return self._look(lambda: self._backend.head(key))

    def list(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> Observation[tuple[ObjectInfo, ...]]:
        folder = check_prefix(prefix)
        if limit is not None and limit < 1:
            raise UsageError(f"a limit of {limit} objects lists nothing")
        return self._look(lambda: self._backend.list(folder, after, limit))

    def create(
        self, key: str, data: bytes, *, durable: bool = False, later: bool = False
    ) -> CreateOutcome | Unavailable:
        check_key(key)
        last = Fault("unexpected", "not tried")
        for turn in range(TRIES_MAX):
            if turn:
                self._pause(turn)
            try:
                self._backend.create(key, data, durable, later)
                return CreateOutcome.CREATED
            except Exists:
                # Taken, then absent on reading back: somebody removed it, or the store lies.
                last = Fault("conflict", "the key was taken and then absent", again=True)
            except Fault as fault:
                if fault.full:
                    raise self._full(key) from fault
                last = fault
            seen = self._read_back(key, data, durable)
            if seen is not None:
                return seen
            # Proven absent: trying again is safe, for a late first request only writes our bytes.
            if not last.again:
                break
        return self._unavailable(last)

    def harden(self, *keys: str) -> Unavailable | None:
        try:
            self._backend.harden()
            for key in keys:
                self._backend.settle(key)
        except Fault as fault:
            return self._unavailable(fault)
        return None

    def put(self, key: str, data: bytes) -> None:
        check_key(key)
        self._act("write", key, lambda: self._backend.put(key, data))

    def put_file(self, key: str, path: Path) -> None:
        check_key(key)
        self._act("write", key, lambda: self._backend.put_file(key, path))

    def get_file(self, key: str, path: Path) -> Observation[ObjectInfo]:
        check_key(key)
        try:
            return self._look(lambda: self._backend.get_file(key, path))
        except _LocalFull:
            raise StoreFull(
                f"no space left for '{path}'", not_done="nothing was left half written"
            ) from None

    def delete(self, key: str) -> None:
        check_key(key)
        self._act("delete", key, lambda: self._backend.delete(key))

    def _look(self, look: Callable[[], T]) -> Observation[T]:
        fault = Fault("unexpected", "not tried")
        for turn in range(TRIES_MAX):
            if turn:
                self._pause(turn)
            try:
                return Found(look(), self._uri, self._clock())
            except Missing as missing:
                return Absent(missing.proof, self._uri, self._clock())
            except Fault as error:
                if error.full:
                    raise _LocalFull from error
                fault = error
            if not fault.again:
                break
        return self._unavailable(fault)

    def _read_back(
        self, key: str, data: bytes, durable: bool
    ) -> CreateOutcome | Unavailable | None:
        """What stands under `key` now; None if it is proven absent."""
        match self._look(lambda: self._backend.get(key)):
            case Found(value=blob):
                if blob.data != data:
                    return CreateOutcome.OTHER
                return self._mine(key, durable)
            case Absent():
                return None
            case Unavailable() as unavailable:
                return unavailable
            case Ambiguous():
                raise AssertionError("a store never answers Ambiguous")

    def _mine(self, key: str, durable: bool) -> CreateOutcome | Unavailable:
        # An earlier try may have died between the link and the fsync, so settle it now.
        try:
            if durable:
                self._backend.settle(key)
        except Fault as fault:
            if fault.full:
                raise self._full(key) from fault
            return self._unavailable(fault)
        return CreateOutcome.MINE

    def _act(self, verb: str, key: str, act: Callable[[], None]) -> None:
        for turn in range(1, TRIES_MAX + 1):
            try:
                return act()
            except Missing as missing:
                raise StorageError(
                    f"cannot {verb} '{self._uri}{key}': {missing.proof}"
                ) from missing
            except Fault as fault:
                if fault.full:
                    raise self._full(key) from fault
                if turn == TRIES_MAX or not fault.again:
                    raise StorageError(
                        f"cannot {verb} '{self._uri}{key}': {fault.cause} ({fault.detail})"
                    ) from fault
            self._pause(turn)
        return None

    def _full(self, key: str) -> StoreFull:
        return StoreFull(
            f"no space left to write '{self._uri}{key}'",
            not_done="nothing was left half written",
            hint="free some space or raise the quota, then go on",
        )

    def _unavailable(self, fault: Fault) -> Unavailable:
        return Unavailable(fault.cause, fault.detail, self._uri, self._clock())

    def _pause(self, turn: int) -> None:
        pause = PAUSE_SECONDS * 2 ** (turn - 1)
        self._sleep(pause * (1 + random.random() / 2))  # noqa: S311 - jitter, not a secret


class _LocalFull(Exception):
    """No space on the reading side."""


def open_store(uri: str, options: StoreOptions | None = None) -> Store:
    """Open the store rooted at the prefix `uri`. Contacts nothing. Raises UsageError."""
    location = split_uri(uri)
    prefix = check_prefix(location.key)
    if location.scheme == "file":
        path = Path("/" + prefix)
        return Store(LocalBackend(path), path_to_uri(path, folder=True))
    from npa.storage.remote import Clients, RemoteBackend

    prefix = f"{prefix}/" if prefix else ""
    clients = Clients(location, options or StoreOptions())
    return Store(RemoteBackend(clients, prefix), location.root + prefix)


def probe_conditional_create(store: Storage) -> None:
    """Prove that the second create of a fresh key fails. Leaves nothing behind.

    Raises StoreUnfit if it does not, StorageError if it could not be told.
    """
    key = f"npa-workflow/probe-{secrets.token_hex(16)}"
    first = store.create(key, b"first")
    second = store.create(key, b"second")
    with suppress(StorageError):  # a role that may not delete can still keep a journal
        store.delete(key)
    match first, second:
        case Unavailable(cause=cause), _:
            raise _unknown_fitness(store, cause)
        case _, Unavailable(cause=cause):
            raise _unknown_fitness(store, cause)
        case (CreateOutcome.CREATED | CreateOutcome.MINE, CreateOutcome.OTHER):
            return
        case _:
            raise StoreUnfit(
                f"the store '{store.uri}' does not honour create-if-absent",
                not_done="no run was started: two drivers could overwrite each other's journal",
                hint="use a store with conditional writes, for example S3 or a local folder",
            )


def _unknown_fitness(store: Storage, cause: str) -> StorageError:
    return StorageError(
        f"cannot tell whether '{store.uri}' honours create-if-absent: {cause}",
        not_done="no run was started",
    )


class Stores:
    """Looks at absolute URIs; opens one store per bucket, and one for the whole file system."""

    def __init__(
        self,
        options: StoreOptions | None = None,
        *,
        opener: Callable[[str, StoreOptions], Storage] = open_store,
    ) -> None:
        self._options = options or StoreOptions()
        self._opener = opener
        self._opened: dict[str, Storage] = {}
        self._lock = threading.Lock()

    def resolve(self, uri: str) -> tuple[Storage, str]:
        """The store of `uri` and the key in it; the key of a prefix has no trailing `/`."""
        location = split_uri(uri)
        with self._lock:
            store = self._opened.get(location.root)
            if store is None:
                store = self._opened[location.root] = self._opener(location.root, self._options)
        return store, location.key.removesuffix("/")

    def get(self, uri: str) -> Observation[Blob]:
        store, key = self.resolve(uri)
        return store.get(key)

    def head(self, uri: str) -> Observation[ObjectInfo]:
        store, key = self.resolve(uri)
        return store.head(key)

    def list(self, uri: str, *, limit: int | None = None) -> Observation[tuple[ObjectInfo, ...]]:
        """Objects below the prefix `uri`; keys are relative to the bucket or file system."""
        store, key = self.resolve(uri)
        return store.list(key, limit=limit)
