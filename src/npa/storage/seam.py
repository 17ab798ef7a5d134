"""The seam to object storage: what the journal, the outputs and the artifacts ask of a store.

Keys are relative to the store's root (`uri`, which ends in `/`), use `/`, and never start with it.
Looks answer with an Observation: `Absent` only from a positive signal of the store, a listing is
complete or `Unavailable`. A conditional create has three outcomes, because the reply to a create
that did happen may be lost.
"""

from __future__ import annotations

import ipaddress
from enum import Enum
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from npa.errors import UsageError
from npa.observation import Observation, Unavailable
from npa.target.secret import Secret


class StoreOptions(Struct, frozen=True, eq=False):
    """How to reach a store. Printable: secrets show as `Secret(***)`.

    `endpoint` is a URL without user information; plain http is accepted for loopback hosts only.
    """

    endpoint: str = ""
    region: str = ""
    access_key: Secret | None = None
    secret_key: Secret | None = None
    session_token: Secret | None = None

    def __post_init__(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            raise UsageError(
                "storage credentials are incomplete: an access key and a secret key go together",
                hint="set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither",
            )
        if self.endpoint:
            _check_endpoint(self.endpoint)

    @property
    def is_loopback(self) -> bool:
        """Is the endpoint on this machine?"""
        return bool(self.endpoint) and is_loopback_host(urlsplit(self.endpoint).hostname or "")


def _check_endpoint(endpoint: str) -> None:
    """Refuse what would leak or weaken; the endpoint is not echoed if it may hold a password."""
    parts = urlsplit(endpoint)
    if parts.username is not None or parts.password is not None:
        raise UsageError("the storage endpoint holds user information, which is not accepted")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"the storage endpoint '{endpoint}' is not an http or https URL")
    if parts.scheme == "http" and not is_loopback_host(parts.hostname):
        raise UsageError(
            f"the storage endpoint '{endpoint}' would send data in clear text",
            hint="use https; plain http is accepted for loopback hosts only",
        )


def is_loopback_host(host: str) -> bool:
    """Does the name or address mean this machine? No name is looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Blob(Struct, frozen=True):
    """The whole content of one object and the version tag under which it was read."""

    data: bytes
    etag: str


class ObjectInfo(Struct, frozen=True):
    """One object: its key, its size in bytes, its version tag."""

    key: str
    size: int
    etag: str


def is_blank(data: bytes) -> bool:
    """Is this what a loss of power leaves of an object that was not made durable?"""
    return not data.strip(b"\0")


class CreateOutcome(Enum):
    """What a conditional create came to."""

    CREATED = "created"
    MINE = "mine"  # it exists with exactly these bytes: most likely our own reply was lost
    OTHER = "other"  # it exists with other bytes


class Storage(Protocol):
    """A store, rooted at `uri`. Methods are safe to call from several threads."""

    @property
    def uri(self) -> str:
        """The root, ending in `/`."""
        ...

    def get(self, key: str) -> Observation[Blob]: ...

    def head(self, key: str) -> Observation[ObjectInfo]: ...

    def list(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> Observation[tuple[ObjectInfo, ...]]:
        """Objects below the folder `prefix` with keys greater than `after`, sorted by key.

        `a` and `a/` mean the same folder: `a/x` is below it, `ab` and `a` itself are not.
        `Found(())` says that a complete listing is empty.
        """
        ...

    def create(
        self, key: str, data: bytes, *, durable: bool = False, later: bool = False
    ) -> CreateOutcome | Unavailable:
        """Create `key` if it is absent. `Unavailable`: it may or may not exist now.

        `durable`: on return it survives a loss of power, where the store is a local folder; with
        `later`, on return of the next `harden`. A process that dies loses it in neither case; a
        loss of power before takes it away, or leaves a blank under its name (`is_blank`), which a
        later durable create fills as if it were absent.
        Raises StoreFull when there is no space; nothing was created then.
        """
        ...

    def harden(self, *keys: str) -> Unavailable | None:
        """Make durable what was created with `later`, here or by others (`keys`). None: it is."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write or overwrite; for artifacts only. Raises StorageError."""
        ...

    def put_file(self, key: str, path: Path) -> None:
        """Upload a file in bounded memory. Raises StorageError."""
        ...

    def get_file(self, key: str, path: Path) -> Observation[ObjectInfo]:
        """Download into `path` in bounded memory; `path` appears whole or not at all."""
        ...

    def delete(self, key: str) -> None:
        """Remove `key`; a key that is absent is no error. Raises StorageError."""
        ...
