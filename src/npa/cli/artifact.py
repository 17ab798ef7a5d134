"""`npa artifact get|put|ls|head`: read and write artifacts by URI, on any store."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npa.cli.options import json_option
from npa.cli.output import Output

if TYPE_CHECKING:
    from npa.storage import Stores
    from npa.storage.transfer import Copied

STDIN_BYTES_MAX = 1 << 30


@click.group(help="Read and write artifacts by URI: s3://, gs://, az://, file://.")
def artifact() -> None:
    """The group; its commands are below."""


@artifact.command()
@click.argument("uri", metavar="URI")
@click.argument("path", metavar="[PATH]", default=".")
@json_option
def get(uri: str, path: str, as_json: bool) -> None:
    """Download an object or a prefix.

    A URI that ends in `/` is a prefix: everything below it comes down. PATH is a file,
    or a folder if it exists or ends in `/`; `-` writes the object to stdout.
    """
    from npa.storage.transfer import present

    output = Output(as_json=as_json)
    stores = _stores()
    if path == "-":
        if as_json or uri.endswith("/"):
            raise click.UsageError("only one object, and not with `--json`, can go to stdout")
        output.raw(present(stores.get(uri), uri).data)
        return
    _transfer(output, stores, uri, _local_target(uri, path))


@artifact.command()
@click.argument("path", metavar="PATH")
@click.argument("uri", metavar="URI")
@json_option
def put(path: str, uri: str, as_json: bool) -> None:
    """Upload a file or a folder.

    A folder goes below a prefix: a URI that ends in `/`. PATH `-` reads the object from stdin.
    """
    from npa.storage import path_to_uri

    output = Output(as_json=as_json)
    stores = _stores()
    if path == "-":
        _put_stdin(output, stores, uri)
        return
    source = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as they were named
    _transfer(output, stores, path_to_uri(source, folder=source.is_dir()), uri)


@artifact.command()
@click.argument("uri", metavar="URI")
@click.option("--limit", type=click.IntRange(1), help="Show at most so many objects.")
@json_option
def ls(uri: str, limit: int | None, as_json: bool) -> None:
    """List what lies below a prefix."""
    from npa.storage.transfer import ArtifactAbsent, objects_below

    output = Output(as_json=as_json)
    prefix = uri if uri.endswith("/") else uri + "/"
    found = objects_below(_stores(), prefix, limit)
    if not found:
        raise ArtifactAbsent(f"nothing lies below '{prefix}'")
    rows = [
        {"uri": prefix + name, "name": name, "size": info.size, "etag": info.etag}
        for name, info in found
    ]
    total = sum(info.size for _, info in found)
    output.document({"uri": prefix, "objects": rows, "count": len(rows), "bytes": total})
    width = max(len(str(info.size)) for _, info in found)
    for name, info in found:
        output.line(f"{info.size:>{width}}  {name}")


@artifact.command()
@click.argument("uri", metavar="URI")
@json_option
def head(uri: str, as_json: bool) -> None:
    """Say whether it exists and how large it is."""
    from npa.storage.transfer import ArtifactAbsent, objects_below, present

    output = Output(as_json=as_json)
    stores = _stores()
    if uri.endswith("/"):
        found = [info for _, info in objects_below(stores, uri)]
        if not found:
            raise ArtifactAbsent(f"nothing lies below '{uri}'")
        total = sum(info.size for info in found)
        output.document({"uri": uri, "kind": "prefix", "count": len(found), "bytes": total})
        output.line(f"{len(found)} objects, {total} bytes")
        return
    info = present(stores.head(uri), uri)
    output.document({"uri": uri, "kind": "object", "bytes": info.size, "etag": info.etag})
    output.line(f"{info.size} bytes, version {info.etag}")


def _stores() -> Stores:
    from npa.storage import Stores
    from npa.target.credentials import storage_access

    return Stores(storage_access().options)


def _local_target(uri: str, path: str) -> str:
    """The URI of the local PATH: a folder for a prefix, else a file."""
    from npa.storage import path_to_uri

    target = Path(os.path.abspath(path))  # noqa: PTH100 - links stay as they were named
    into_folder = uri.endswith("/") or path.endswith("/") or target.is_dir()
    return path_to_uri(target, folder=into_folder)


def _transfer(output: Output, stores: Stores, source: str, target: str) -> None:
    from npa.storage.transfer import copy

    def tell(copied: Copied) -> None:
        output.note(f"{copied.target} ({copied.size} bytes)")

    done = copy(stores, source, target, tell)
    _report(output, source, target, [(one.source, one.target, one.size) for one in done])


def _put_stdin(output: Output, stores: Stores, uri: str) -> None:
    if uri.endswith("/"):
        raise click.UsageError("stdin is one object: name it, without `/` at the end")
    data = sys.stdin.buffer.read(STDIN_BYTES_MAX + 1)
    if len(data) > STDIN_BYTES_MAX:
        raise click.UsageError(f"stdin holds more than {STDIN_BYTES_MAX} bytes: upload a file")
    store, key = stores.resolve(uri)
    store.put(key, data)
    output.note(f"{uri} ({len(data)} bytes)")
    _report(output, "-", uri, [("-", uri, len(data))])


def _report(output: Output, source: str, target: str, rows: list[tuple[str, str, int]]) -> None:
    output.document(
        {
            "source": source,
            "target": target,
            "objects": [{"source": a, "target": b, "size": size} for a, b, size in rows],
            "count": len(rows),
            "bytes": sum(size for _, _, size in rows),
        }
    )


if __name__ == "__main__":
    from npa.cli.edge import run

    raise SystemExit(run(lambda: artifact, sys.argv[1:]))
