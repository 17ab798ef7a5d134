"""Runs inside a launched task before anything of ours is installed: standard library, Python 3.8.

It lies beside `npa_store.py`, which brought it.

    task.py claim                      take the attempt, or leave it to the job that has it
    task.py fetch URI SHA256 FOLDER    bring staged source: one archive, or all below a prefix
    task.py npa [WORD ...]             the `npa` command of the recorded interpreter

Stores are `s3://` (AWS_* variables) and `file://`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import time
import urllib.error
import xml.etree.ElementTree as ElementTree
from typing import Any, Callable, Dict, Iterator, List
from urllib.parse import unquote

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)  # PYTHONSAFEPATH of an image leaves it out

from npa_store import (  # type: ignore[import-not-found] # noqa: E402 - its neighbour
    PAUSE_SECONDS,
    job_id,
    note,
    say,
    send,
)

TRIES = 6  # with pauses of 1 + 2 + 4 + 8 + 16 s
EXIT_SOURCE, EXIT_CLAIMED, EXIT_CLAIM_UNKNOWN = 96, 97, 98


class Taken(Exception):
    """The key exists."""


class Missing(Exception):
    """The key does not exist."""


class Trouble(Exception):
    """The store did not do it; `again`: it may do it later."""

    def __init__(self, text: str, again: bool) -> None:
        super().__init__(text)
        self.again = again


def request(method: str, uri: str, body: bytes = b"", query: Dict[str, str] = {}) -> bytes:  # noqa: B006
    """One request to S3, with what went wrong told apart."""
    try:
        return bytes(send(method, uri, body, query))
    except urllib.error.HTTPError as error:
        if error.code == 404 and b"NoSuchBucket" not in error.read():
            raise Missing(uri) from None
        if error.code == 412:
            raise Taken(uri) from None
        again = error.code in (408, 409, 425, 429) or error.code >= 500
        raise Trouble(f"{uri}: HTTP {error.code}", again) from None
    except OSError as error:
        raise Trouble(f"{uri}: {error}", True) from None


def local(uri: str) -> str:
    return unquote(uri[len("file://") :])


def get(uri: str) -> bytes:
    if uri.startswith("s3://"):
        return request("GET", uri)
    try:
        with open(local(uri), "rb") as handle:
            return handle.read()
    except FileNotFoundError:
        raise Missing(uri) from None
    except OSError as error:
        raise Trouble(f"{uri}: {error}", True) from None


def create(uri: str, body: bytes) -> None:
    """Write `uri` if it is absent."""
    if uri.startswith("s3://"):
        request("PUT", uri, body)
        return
    path = local(uri)
    aside = f"{path}.{os.urandom(6).hex()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(aside, "xb") as handle:
            handle.write(body)
        try:
            os.link(aside, path)
        finally:
            os.unlink(aside)
    except FileExistsError:
        raise Taken(uri) from None
    except OSError as error:
        raise Trouble(f"{uri}: {error}", True) from None


def names_below(prefix: str) -> Iterator[str]:
    if prefix.startswith("file://"):
        root = local(prefix)
        for folder, _, files in os.walk(root):
            yield from (os.path.relpath(os.path.join(folder, name), root) for name in files)
        return
    bucket, _, key = prefix[len("s3://") :].partition("/")
    query = {"list-type": "2", "prefix": key}
    while True:
        found = query
        data = steady(lambda: request("GET", f"s3://{bucket}", b"", found))  # noqa: B023
        page = ElementTree.fromstring(data)
        keys = [e.text or "" for e in page.iter() if e.tag.rpartition("}")[2] == "Key"]
        yield from (name[len(key) :] for name in keys if name != key)
        fields = {child.tag.rpartition("}")[2]: child.text for child in page}
        token = fields.get("NextContinuationToken")
        if not token:
            return
        query = {**query, "continuation-token": token}


def steady(call: Callable[[], Any]) -> Any:
    """Call until it works or will not; the last Trouble is raised."""
    turn = 0
    while True:
        try:
            return call()
        except Trouble as trouble:
            turn += 1
            if not trouble.again or turn == TRIES:
                raise
            time.sleep(PAUSE_SECONDS * 2 ** (turn - 1))


def claim() -> int:
    """One attempt belongs to one job: the first that writes the claim. A restart finds its own."""
    uri = os.environ.get("NPA_CLAIM_URI", "")
    if not uri:
        return 0  # the fence is off, and the submit has said so
    job = job_id()
    if not job:
        say("cannot claim the attempt: the provider names no job")
        return EXIT_CLAIM_UNKNOWN
    mine = {"job": job, "provider": os.environ.get("NPA_PROVIDER", "")}
    try:
        holder = steady(lambda: take(uri, mine))
    except (Trouble, Missing, ValueError) as trouble:
        say(f"cannot claim the attempt: {trouble}")
        return EXIT_CLAIM_UNKNOWN
    if holder != mine:
        say(f"the attempt belongs to another job, {holder}: this job ({job}) does nothing")
        return EXIT_CLAIMED
    return 0


def take(uri: str, mine: Dict[str, str]) -> Any:
    """Who holds the claim. A reply that got lost does no harm: the next try reads our own."""
    try:
        create(uri, json.dumps(mine, sort_keys=True).encode())
    except Taken:
        try:
            return json.loads(get(uri))
        except Missing:
            raise Trouble(f"{uri} was taken and then absent", True) from None
    return mine


def fetch(uri: str, sha256: str, folder: str) -> int:
    """Bring source to `folder`, whole or not at all; what lies there already is kept."""
    if os.path.isdir(folder):
        return 0
    aside = f"{folder}.{os.urandom(6).hex()}"  # nodes may share this home
    try:
        os.makedirs(aside)
        if uri.endswith("/"):
            bring_prefix(uri, aside)
        else:
            bring_archive(uri, sha256, aside)
        os.rename(aside, folder)
    except (Trouble, Missing, tarfile.TarError, OSError, ValueError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        if os.path.isdir(folder):  # a neighbour on this node was faster
            return 0
        say(f"cannot bring the source: {type(error).__name__}: {error}")
        return EXIT_SOURCE
    return 0


def bring_archive(uri: str, sha256: str, folder: str) -> None:
    data = steady(lambda: get(uri))
    found = hashlib.sha256(data).hexdigest()
    if sha256 and found != sha256:
        raise ValueError(f"{uri} has SHA-256 {found}, not {sha256}")
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            place = inside(folder, member.name)
            if member.issym():
                inside(folder, os.path.join(os.path.dirname(member.name), member.linkname))
                os.makedirs(os.path.dirname(place), exist_ok=True)
                os.symlink(member.linkname, place)
            elif member.isfile():
                content = archive.extractfile(member)
                write(place, content.read() if content else b"")
                os.chmod(place, 0o755 if member.mode & 0o100 else 0o644)
            elif not member.isdir():
                raise ValueError(f"{member.name} is no file")


def bring_prefix(uri: str, folder: str) -> None:
    for name in names_below(uri):
        write(inside(folder, name), steady(lambda: get(uri + name)))  # noqa: B023


def inside(folder: str, name: str) -> str:
    """The place of `name`, which must not leave the folder, not by a link either."""
    place = os.path.join(folder, name)
    root = os.path.realpath(folder)
    if os.path.isabs(name) or os.path.commonpath([root, os.path.realpath(place)]) != root:
        raise ValueError(f"{name} leaves the folder")
    return place


def write(place: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "wb") as handle:
        handle.write(data)


def run_npa(words: List[str]) -> Any:
    """The console script of whichever `npa` the interpreter imports first."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != HERE]
    sys.argv = ["npa", *words]
    try:
        from npa.cli.main import main as command
    except ImportError:
        from importlib.metadata import entry_points

        found: Any = entry_points()
        every = found.select(group="console_scripts") if hasattr(found, "select") else []
        scripts = [one for one in every or found.get("console_scripts", []) if one.name == "npa"]
        if not scripts:
            raise
        command = scripts[0].load()
    return command()


def main(words: List[str]) -> Any:
    code = -1
    if words == ["claim"]:
        code = claim()
    if words[:1] == ["fetch"] and len(words) == 4:
        code = fetch(words[1], words[2], words[3])
    if code > 0:
        note(code)
    if code >= 0:
        return code
    if words[:1] == ["npa"]:
        return run_npa(words[1:])
    say("usage: task.py claim | fetch URI SHA256 FOLDER | npa [WORD ...]")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
