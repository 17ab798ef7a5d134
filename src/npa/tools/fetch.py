"""Fetch a URL into an artifact, checked: content hash, size, time, redirects, retries.

    python3 -m npa.tools.fetch --url https://… --target URI --sha256 HEX
    python3 -m npa.tools.fetch --url https://… --target URI --record URI

Either the SHA-256 is known and must match, or what came is recorded as JSON. Plain http needs the
SHA-256 (loopback hosts excepted). The target appears only when everything held.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NoReturn
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from npa import __version__
from npa.errors import NpaError, UsageError
from npa.storage.seam import is_loopback_host
from npa.tools.task import Task, run_tool

TRIES_MAX = 4
PAUSE_SECONDS = 1.0
REDIRECTS_MAX = 5
CHUNK_BYTES = 1 << 20
_AGAIN = frozenset([408, 425, 429, 500, 502, 503, 504])


class FetchError(NpaError):
    """The URL could not be fetched, or what came is not what was asked for."""

    code = "FETCH"


class Wanted(Struct, frozen=True):
    """What to fetch and within which bounds."""

    url: str
    sha256: str
    bytes_max: int
    timeout_seconds: float
    total_seconds: float


class Got(Struct, frozen=True):
    """What came: `url` after redirects, without its query, which may be a signature."""

    url: str
    sha256: str
    size: int
    content_type: str
    tries: int


class _Again(Exception):
    """This try failed in a way that may pass."""


def main(argv: Sequence[str], task: Task, *, sleep: Callable[[float], None] = time.sleep) -> int:
    options = _parser().parse_args(argv)
    wanted = _wanted(options)
    with tempfile.TemporaryDirectory(prefix="npa-fetch-") as folder:
        path = Path(folder) / "body"
        got = fetch(wanted, path, sleep=sleep)
        store, key = task.stores.resolve(options.target)
        store.put_file(key, path)
    print(f"wrote {options.target} ({got.size} bytes, sha256 {got.sha256})")  # noqa: T201
    if options.record:
        task.write_json(
            options.record,
            {
                "url": bare(wanted.url),
                "final_url": got.url,
                "target": options.target,
                "sha256": got.sha256,
                "bytes": got.size,
                "content_type": got.content_type,
                "tries": got.tries,
            },
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="npa.tools.fetch", allow_abbrev=False)
    parser.add_argument("--url", required=True)
    parser.add_argument("--target", required=True, help="URI of the artifact")
    parser.add_argument("--sha256", default="", help="the hash that the body must have")
    parser.add_argument("--record", default="", help="URI of a JSON record of what came")
    parser.add_argument("--max-bytes", type=int, default=10 << 30)
    parser.add_argument("--timeout-seconds", type=float, default=30.0, help="of one wait")
    parser.add_argument("--total-seconds", type=float, default=3600.0, help="of one try")
    return parser


def _wanted(options: argparse.Namespace) -> Wanted:
    parts = urlsplit(options.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("the URL is not an http or https URL")
    if parts.username or parts.password:
        raise UsageError("the URL holds user information, which is not accepted")
    sha256 = options.sha256.lower()
    if sha256 and (len(sha256) != 64 or set(sha256) - set("0123456789abcdef")):
        raise UsageError("`--sha256` is not 64 hexadecimal digits")
    if not sha256 and not options.record:
        raise UsageError(
            "neither a SHA-256 to check nor a place to record it was given",
            hint="set `config.fetch_sha256` or `config.fetch_record_uri`",
        )
    if parts.scheme == "http" and not sha256 and not is_loopback_host(parts.hostname):
        raise UsageError("plain http needs the SHA-256 of what is expected")
    if options.max_bytes < 1 or options.timeout_seconds <= 0 or options.total_seconds <= 0:
        raise UsageError("sizes and times must be greater than zero")
    return Wanted(
        options.url, sha256, options.max_bytes, options.timeout_seconds, options.total_seconds
    )


def fetch(wanted: Wanted, path: Path, *, sleep: Callable[[float], None] = time.sleep) -> Got:
    """Fetch into `path`. Raises FetchError, UsageError."""
    for number in range(1, TRIES_MAX + 1):
        try:
            return _try(wanted, path, number)
        except _Again as again:
            if number == TRIES_MAX:
                _refuse(f"{bare(wanted.url)}: {again}, after {TRIES_MAX} tries")
            print(f"try {number}: {again}", file=sys.stderr)  # noqa: T201 - the task's log
            sleep(PAUSE_SECONDS * 2 ** (number - 1))
    raise AssertionError("a try returns or raises")


def _try(wanted: Wanted, path: Path, number: int) -> Got:
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked
        wanted.url, headers={"User-Agent": f"npa/{__version__}", "Accept-Encoding": "identity"}
    )
    opener = urllib.request.build_opener(_Redirects(wanted))
    deadline = time.monotonic() + wanted.total_seconds
    try:
        with opener.open(request, timeout=wanted.timeout_seconds) as reply, path.open("wb") as sink:
            sha256, size = _pour(reply, sink, wanted, deadline)
            announced = reply.headers.get("Content-Length")
            final, content_type = reply.url, reply.headers.get_content_type()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _AGAIN:
            raise _Again(f"HTTP {error.code}") from error
        _refuse(f"{bare(wanted.url)}: HTTP {error.code}")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise _Again(f"{type(reason).__name__}") from error
    if announced is not None and announced.isdecimal() and int(announced) != size:
        raise _Again(f"{size} of {announced} bytes came")
    if wanted.sha256 and sha256 != wanted.sha256:
        _refuse(f"{bare(wanted.url)}: the SHA-256 is {sha256}, expected {wanted.sha256}")
    return Got(bare(final), sha256, size, content_type, number)


def _pour(
    reply: http.client.HTTPResponse, sink: IO[bytes], wanted: Wanted, deadline: float
) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while chunk := reply.read(CHUNK_BYTES):
        size += len(chunk)
        if size > wanted.bytes_max:
            _refuse(f"{bare(wanted.url)}: more than {wanted.bytes_max} bytes")
        if time.monotonic() > deadline:
            raise _Again(f"more than {wanted.total_seconds:g} s")
        digest.update(chunk)
        sink.write(chunk)
    return digest.hexdigest(), size


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow a few redirects, and never from https to clear text unless the hash is known."""

    max_redirections = REDIRECTS_MAX
    max_repeats = 2

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def redirect_request(self, *args: object) -> urllib.request.Request | None:
        new = super().redirect_request(*args)  # type: ignore[arg-type]
        if new is None:
            return None
        parts = urlsplit(new.full_url)
        was_https = urlsplit(self._wanted.url).scheme == "https"
        if parts.scheme not in ("http", "https"):
            _refuse(f"{bare(self._wanted.url)}: redirected to another kind of address")
        if was_https and parts.scheme == "http" and not self._wanted.sha256:
            _refuse(f"{bare(self._wanted.url)}: redirected to clear text")
        return new


def bare(url: str) -> str:
    """The URL without query and fragment, which may hold a signature."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def _refuse(message: str) -> NoReturn:
    raise FetchError(message, not_done="nothing was written")


if __name__ == "__main__":
    sys.exit(run_tool(main))
