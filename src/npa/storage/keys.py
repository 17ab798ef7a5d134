"""Keys and URIs: what is a legal key, and how an absolute URI splits into a root and a key.

`file:///a%20b` and `file:///a b` name the same path. Keys of object stores are taken as written.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct

from npa.errors import UsageError

KEY_BYTES_MAX = 1024
"""Longest key of S3, in bytes of UTF-8."""

SCHEMES = ("s3", "gs", "az", "file", "memory")
_ALIASES = {"gcs": "gs", "azure": "az", "abfs": "az"}
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
# Names of half-written files; object-store clients leave such names out of listings.
_TEMPORARY = re.compile(r"#\d+\Z")


class Location(Struct, frozen=True):
    """A split URI. `bucket` is empty for `file`; `key` has no leading `/`, may end in one."""

    scheme: str
    bucket: str
    key: str

    @property
    def root(self) -> str:
        """The URI of the bucket, or of the whole file system."""
        return f"{self.scheme}://{self.bucket}/"


def split_uri(uri: str) -> Location:
    """Split an absolute URI of an object or a prefix. Raises UsageError."""
    scheme, mark, rest = uri.partition("://")
    scheme = _ALIASES.get(scheme, scheme)
    if not mark or scheme not in SCHEMES:
        raise UsageError(
            f"'{uri}' is not the URI of an artifact",
            hint="write s3://bucket/key, gs://bucket/key, az://container/key or file:///path",
        )
    if "\0" in uri:
        raise UsageError("a URI must not contain a NUL byte")
    if scheme == "file":
        return Location("file", "", _file_key(uri, rest))
    bucket, _, key = rest.partition("/")
    if scheme != "memory" and not _BUCKET.fullmatch(bucket):
        raise UsageError(f"'{uri}' names no valid bucket")
    return Location(scheme, bucket, key)


def _file_key(uri: str, rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise UsageError(
            f"'{uri}' is not an absolute file URI", hint="write three slashes: file:///path"
        )
    return unquote(path, errors="surrogateescape")


def path_to_uri(path: Path, *, folder: bool = False) -> str:
    """The file URI of an absolute path; readable: only `%` is escaped."""
    if not path.is_absolute():
        raise UsageError(f"'{path}' is not an absolute path")
    uri = "file://" + str(path).replace("%", "%25")
    return uri.rstrip("/") + "/" if folder else uri


def uri_to_path(uri: str) -> Path:
    """The path that a file URI names. Raises UsageError."""
    location = split_uri(uri)
    if location.scheme != "file":
        raise UsageError(f"'{uri}' is not a file URI")
    return Path("/" + location.key)


def check_key(key: str) -> str:
    """Return `key` if it is legal, else raise UsageError. Never climbs out of the root."""
    problem = _problem(key)
    if problem:
        raise UsageError(f"the key {key!r} cannot be used: {problem}")
    return key


def check_prefix(prefix: str) -> str:
    """Return the folder `prefix` without its trailing `/` (`""` is the root)."""
    bare = prefix.removesuffix("/")
    return check_key(bare) if bare else ""


def _problem(key: str) -> str:
    if not key:
        return "it is empty"
    if "\0" in key:
        return "it contains a NUL byte"
    if key.startswith("/"):
        return "it starts with a slash"
    if len(key.encode("utf-8", "surrogateescape")) > KEY_BYTES_MAX:
        return f"it is longer than {KEY_BYTES_MAX} bytes"
    for segment in key.split("/"):
        if segment == "":
            return "it has an empty segment"
        if segment in (".", ".."):
            return "it has a '.' or '..' segment"
    if is_temporary(key):
        return "names ending in '#' and digits are reserved for half-written files"
    return ""


def is_temporary(name: str) -> bool:
    """Is this the name of a half-written file?"""
    return _TEMPORARY.search(name) is not None
