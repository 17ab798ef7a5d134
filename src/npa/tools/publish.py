"""Publish a promoted artifact: copy it to the release prefix and write `manifest.json` there.

    python3 -m npa.tools.publish --artifact URI --decision URI --release URI/

Nothing is copied unless the decision says `promote_checkpoint`. The manifest is written last, so a
release with a manifest is whole. Other declared outputs get the same manifest as a report.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from npa.errors import StorageError, UsageError
from npa.observation import Absent, Found
from npa.storage import split_uri
from npa.tools.decide import PROMOTE
from npa.tools.task import Task, run_tool

_DECISION_KEYS = ("decision", "last_decision", "action")


def main(argv: Sequence[str], task: Task) -> int:
    parser = argparse.ArgumentParser(prog="npa.tools.publish", allow_abbrev=False)
    parser.add_argument("--artifact", required=True, help="one object, or a prefix (ends in /)")
    parser.add_argument("--decision", required=True)
    parser.add_argument("--release", required=True)
    options = parser.parse_args(argv)
    decision = task.read_json(options.decision)
    word = next((decision[key] for key in _DECISION_KEYS if key in decision), None)
    if word not in (PROMOTE, "promote"):
        raise UsageError(
            f"the decision is '{word}', so nothing is published",
            hint=f"only `{PROMOTE}` publishes; see {options.decision}",
        )
    release = options.release.rstrip("/") + "/"
    with tempfile.TemporaryDirectory(prefix="npa-publish-") as folder:
        files = [
            _copy(task, source, release + name, Path(folder) / "artifact")
            for source, name in _objects(task, options.artifact)
        ]
    manifest: dict[str, object] = {
        "artifact": options.artifact,
        "decision": decision,
        "release": release,
        "run_id": task.run_id,
        "files": files,
    }
    task.write_json(f"{release}manifest.json", manifest)
    for uri in task.outputs:
        if not uri.endswith("/") and uri != f"{release}manifest.json":
            task.write_json(uri, manifest)
    return 0


def _objects(task: Task, uri: str) -> list[tuple[str, str]]:
    """(URI, name in the release) of each object to publish."""
    if not uri.endswith("/"):
        return [(uri, uri.rsplit("/", 1)[1])]
    listing = task.stores.list(uri)
    if not isinstance(listing, Found):
        raise StorageError(f"cannot list {uri}")
    root = split_uri(uri)
    found = [(root.root + info.key, info.key.removeprefix(root.key)) for info in listing.value]
    if not found:
        raise UsageError(f"there is nothing to publish below {uri}")
    return found


def _copy(task: Task, source: str, target: str, through: Path) -> dict[str, object]:
    store, key = task.stores.resolve(source)
    got = store.get_file(key, through)
    if isinstance(got, Absent):
        raise UsageError(f"there is no object at {source}")
    if not isinstance(got, Found):
        raise StorageError(f"cannot read {source}")
    with through.open("rb") as handle:
        sha256 = hashlib.file_digest(handle, "sha256").hexdigest()
    target_store, target_key = task.stores.resolve(target)
    target_store.put_file(target_key, through)
    return {"uri": target, "source": source, "bytes": through.stat().st_size, "sha256": sha256}


if __name__ == "__main__":
    sys.exit(run_tool(main))
