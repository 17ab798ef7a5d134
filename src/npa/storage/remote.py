"""Object stores over HTTP (S3, Google, Azure) and in memory, through the `obstore` client.

The client's own retries are off: a retried create reports "exists" for our own object. What the
client says is classed in `npa.storage.faults` and never leaves this module as it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npa.storage.faults import (
    Exists,
    Fault,
    Missing,
    fault_of_os_error,
    fault_of_remote,
    http_refusal,
)
from npa.storage.keys import Location
from npa.storage.local import into_place
from npa.storage.seam import Blob, ObjectInfo, StoreOptions

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

CONNECT_TIMEOUT_SECONDS = 5
REQUEST_TIMEOUT_SECONDS = 30
TRANSFER_TIMEOUT_SECONDS = 300
PART_BYTES = 8 << 20
PARTS_AT_ONCE = 4
LIST_PAGE = 1000
DEFAULT_REGION = "us-east-1"


class RemoteBackend:
    """Objects below `prefix` (empty or ending in `/`) of one bucket."""

    def __init__(self, clients: Clients, prefix: str = "") -> None:
        self._clients = clients
        self._prefix = prefix

    def get(self, key: str) -> Blob:
        try:
            result = self._clients.plain.get(self._prefix + key)
            data = bytes(result.bytes())
            meta = result.meta
        except Exception as error:
            raise self._class(error) from error
        if len(data) != meta["size"]:
            raise Fault("truncated", f"a short body from {self._clients.where}", again=True)
        return Blob(data, self._etag(meta))

    def head(self, key: str) -> ObjectInfo:
        try:
            meta = self._clients.plain.head(self._prefix + key)
        except Exception as error:
            fault = self._class(error)
            if isinstance(fault, Fault) and fault.cause == "absence_unproven":
                fault = self._absence(self._prefix + key)
            raise fault from error
        return ObjectInfo(key, meta["size"], self._etag(meta))

    def list(self, prefix: str, after: str, limit: int | None) -> tuple[ObjectInfo, ...]:
        folder = self._prefix + prefix + ("/" if prefix else "")
        found: list[ObjectInfo] = []
        try:
            pages = self._clients.plain.list(
                folder or None,
                offset=self._prefix + after if after else None,
                chunk_size=LIST_PAGE,
            )
            for page in pages:
                for meta in page:
                    key = meta["path"][len(self._prefix) :]
                    if meta["path"].startswith(folder) and key > after:
                        found.append(ObjectInfo(key, meta["size"], meta["e_tag"] or ""))
                if limit is not None and len(found) >= limit and self._clients.ordered:
                    break
        except Exception as error:
            raise self._class(error) from error
        if not found and self._clients.over_http:
            # A portal's or proxy's page parses as an empty listing, so ask for a real refusal too.
            self._absence(f"{folder}npa-no-such-object-{secrets.token_hex(8)}")
        found.sort(key=lambda info: info.key)
        return tuple(found if limit is None else found[:limit])

    def create(
        self,
        key: str,
        data: bytes,
        durable: bool,  # noqa: ARG002 - one seam
        later: bool,  # noqa: ARG002
    ) -> None:
        from obstore.exceptions import AlreadyExistsError

        try:
            self._clients.plain.put(self._prefix + key, data, mode="create", use_multipart=False)
        except AlreadyExistsError as error:
            refusal = http_refusal(str(error))
            if refusal is not None and refusal.status == 409:
                # S3: another conditional write is under way; it may yet fail.
                raise Fault(
                    "conflict", f"HTTP 409 from {self._clients.where}", again=True
                ) from None
            raise Exists from None
        except Exception as error:
            raise self._class(error) from error

    def settle(self, key: str) -> None:
        """Nothing to do: an object store's success is durable."""

    def harden(self) -> None:
        """Nothing to do, neither."""

    def put(self, key: str, data: bytes) -> None:
        try:
            self._clients.transfer.put(self._prefix + key, data, use_multipart=False)
        except Exception as error:
            raise self._class(error) from error

    def put_file(self, key: str, path: Path) -> None:
        try:
            self._clients.transfer.put(
                self._prefix + key, path, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
            )
        except Exception as error:
            raise self._class(error) from error

    def get_file(self, key: str, path: Path) -> ObjectInfo:
        info = self.head(key)
        with into_place(path) as sink:
            at = 0
            while at < info.size:
                part = self._part(key, info, at, min(at + PART_BYTES, info.size))
                sink.write(part)
                at += len(part)
        return info

    def delete(self, key: str) -> None:
        try:
            self._clients.plain.delete(self._prefix + key)
        except Exception as error:
            fault = self._class(error)
            if isinstance(fault, Fault):
                raise fault from error

    def _part(self, key: str, info: ObjectInfo, start: int, end: int) -> bytes:
        try:
            result = self._clients.transfer.get(
                self._prefix + key, options={"range": (start, end), "if_match": info.etag}
            )
            part = bytes(result.bytes())
        except Exception as error:
            fault = self._class(error)
            if isinstance(fault, Missing) or fault.cause == "precondition":
                raise Fault(
                    "changed", "the object changed while it was read", again=True
                ) from error
            raise fault from error
        if len(part) != end - start:
            raise Fault("truncated", f"a short body from {self._clients.where}", again=True)
        return part

    def _absence(self, path: str) -> Missing:
        """The store's own word that `path` is absent (a HEAD reply has no body to say it in)."""
        try:
            self._clients.plain.get(path)
        except Exception as error:
            fault = self._class(error)
            if isinstance(fault, Missing):
                return fault
            raise fault from error
        raise Fault("bad_reply", f"contradicting replies from {self._clients.where}", again=True)

    def _etag(self, meta: ObjectMeta) -> str:
        etag = meta["e_tag"]
        if not etag:
            raise Fault("bad_reply", f"a reply without a version from {self._clients.where}")
        return etag

    def _class(self, error: Exception) -> Fault | Missing:
        if isinstance(error, Fault | Missing):
            return error
        if isinstance(error, OSError) and error.errno is not None:
            return fault_of_os_error(error)
        return fault_of_remote(str(error), self._clients.where)


class Clients:
    """The clients of one bucket: `plain` never retries, `transfer` does (it only overwrites)."""

    def __init__(self, location: Location, options: StoreOptions) -> None:
        self._location = location
        self._options = options
        self.over_http = location.scheme != "memory"
        self.ordered = location.scheme in ("s3", "gs")
        self.where = options.endpoint or location.root.rstrip("/")
        self.plain: ObjectStore = self._open({"max_retries": 0}, REQUEST_TIMEOUT_SECONDS)
        self._transfer: ObjectStore | None = None if self.over_http else self.plain

    @property
    def transfer(self) -> ObjectStore:
        if self._transfer is None:
            retries = {"max_retries": 4, "retry_timeout": timedelta(minutes=2)}
            self._transfer = self._open(retries, TRANSFER_TIMEOUT_SECONDS)
        return self._transfer

    def _open(self, retry_config: Mapping[str, object], timeout_seconds: float) -> ObjectStore:
        from obstore import store

        if not self.over_http:
            return store.MemoryStore()
        common: dict[str, Any] = {
            "client_options": {
                "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_SECONDS),
                "timeout": timedelta(seconds=timeout_seconds),
                "allow_http": self._options.is_loopback,
            },
            "retry_config": retry_config,
        }
        bucket = self._location.bucket
        if self._location.scheme == "gs":
            return store.GCSStore(bucket, **common)
        if self._location.scheme == "az":
            return store.AzureStore(bucket, **common)
        return store.S3Store(bucket, config=_s3_config(self._options), **common)


def _s3_config(options: StoreOptions) -> Any:
    """Everything said explicitly, so that the client's own look at the environment decides nothing
    but the source of credentials when we were given none (a role of the machine or the pod).
    """
    region = options.region or DEFAULT_REGION
    endpoint = options.endpoint or f"https://s3.{region}.amazonaws.com"
    config: dict[str, object] = {
        "endpoint": endpoint,
        "region": region,
        "virtual_hosted_style_request": False,
        "conditional_put": "etag",
    }
    if options.access_key is not None and options.secret_key is not None:
        config["access_key_id"] = options.access_key.reveal()
        config["secret_access_key"] = options.secret_key.reveal()
        if options.session_token is not None:
            config["session_token"] = options.session_token.reveal()
    elif options.endpoint:
        config["skip_signature"] = True
    return config
