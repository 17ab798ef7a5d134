"""Source staging: which files belong to a pipeline, and how they are pinned for a run.

`scan` lists and fingerprints them, `snapshot` makes the content-addressed copy in which a run of
this machine works, `archive` packs them into one deterministic tar.gz with its provenance.
Secrets' files, version control, environments and caches are never part of the source.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from npa.errors import StorageError, UsageError
from npa.orchestration import source_listing
from npa.orchestration.source_listing import Limits

__all__ = [
    "Archive",
    "Limits",
    "SourceFile",
    "SourceTree",
    "archive",
    "hand_set_provenance",
    "scan",
    "snapshot",
]

MANIFEST_SCHEMA = "npa.source/v1"
_CHUNK_BYTES = 1 << 20


class SourceFile(Struct, frozen=True):
    """One file below the root. `path` uses `/`; `link` is a symlink's text ("" for a file)."""

    path: str
    executable: bool
    size: int
    sha256: str
    link: str = ""


class SourceTree(Struct, frozen=True):
    """The files of a pipeline at one moment.

    `digest` is the SHA-256 over `files` alone: it does not depend on where the folder lies or on
    version control. `commit` is "" outside a git work tree; `dirty` says that the files differ
    from it. `excluded` names what was left out on purpose (a folder ends in `/`).
    `listed_by` is `git` or `folder`; `ignore_sha256` is that of `.npaignore`, "" without one.
    """

    root: Path
    files: tuple[SourceFile, ...]
    digest: str
    commit: str = ""
    dirty: bool = False
    excluded: tuple[str, ...] = ()
    listed_by: str = "folder"
    ignore_sha256: str = ""

    @property
    def bytes_total(self) -> int:
        return sum(file.size for file in self.files)

    def provenance(self) -> dict[str, object]:
        """Where the source comes from, as JSON values. It holds no path of this machine."""
        return {
            "schema": MANIFEST_SCHEMA,
            "fingerprint": self.digest,
            "commit": self.commit,
            "dirty": self.dirty,
            "listed_by": self.listed_by,
            "bytes": self.bytes_total,
            "excluded": list(self.excluded),
            "ignore_sha256": self.ignore_sha256,
            "files": [
                {
                    "path": file.path,
                    "executable": file.executable,
                    "bytes": file.size,
                    "sha256": file.sha256,
                    **({"link": file.link} if file.link else {}),
                }
                for file in self.files
            ],
        }


class Archive(Struct, frozen=True):
    """One tar.gz of a tree. The same tree gives the same bytes."""

    data: bytes
    sha256: str
    manifest: Mapping[str, object]


def hand_set_provenance(uri: str) -> dict[str, object]:
    """What is known of a source that the user put at `uri` by hand: nothing but its place."""
    return {"schema": MANIFEST_SCHEMA, "uri": uri, "fingerprint": "", "commit": "", "files": []}


def scan(
    folder: Path,
    *,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    environment: Mapping[str, str] | None = None,
) -> SourceTree:
    """List and fingerprint the files below `folder`.

    In a git work tree: tracked files and untracked ones that are not ignored; else every file.
    `.npaignore` leaves out more (`npa.orchestration.source_ignore`).
    `environment` is the one that `git` gets (None: that of this process). Raises UsageError when
    the folder cannot be read, is too large, or holds a symlink that leaves it.
    """
    listing = source_listing.list_files(folder, limits, environment)
    files = tuple(_fingerprint(folder, path) for path in listing.paths)
    return SourceTree(
        root=folder,
        files=files,
        digest=_digest(files),
        commit=listing.commit,
        dirty=listing.dirty,
        excluded=listing.excluded,
        listed_by=listing.listed_by,
        ignore_sha256=listing.ignore_sha256,
    )


def snapshot(tree: SourceTree, into: Path) -> Path:
    """Copy the tree to `<into>/<digest>/` and return that folder; an intact copy is reused.

    The copy is made aside and renamed into place, so a crash leaves no half copy under the name,
    and two callers may race. A damaged copy is set aside, never changed: somebody may run in it.
    Raises UsageError when a file changed since the scan, StorageError when the disk refuses.
    """
    place = into / tree.digest
    if _intact(tree, place):
        return place
    try:
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = into / f".making-{tree.digest[:16]}-{secrets.token_hex(6)}"
        try:
            _copy(tree, aside)
            _put_in_place(tree, aside, place)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise StorageError(
            f"cannot copy the source to '{place}': {error.strerror or error}",
            not_done="nothing was launched",
        ) from error
    return place


def archive(
    tree: SourceTree,
    root: Path | None = None,
    *,
    below: str = "",
    extra: Mapping[str, bytes] | None = None,
) -> Archive:
    """Pack the tree, read from `root` (a snapshot) or from where it was scanned.

    `below` is a folder of the archive into which the tree goes; `extra` are files beside it. Sorted
    names, fixed times and owners: equal trees give equal bytes. Raises UsageError when a file
    changed since the scan.
    """
    import gzip
    import tarfile

    def member_of(name: str, size: int) -> tarfile.TarInfo:
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, 0o644
        return member

    base = tree.root if root is None else root
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0, compresslevel=6) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, data in sorted((extra or {}).items()):
            tar.addfile(member_of(name, len(data)), io.BytesIO(data))
        for file in tree.files:
            member = member_of(f"{below}/{file.path}" if below else file.path, file.size)
            if file.link:
                member.size = 0
                member.type, member.linkname, member.mode = tarfile.SYMTYPE, file.link, 0o777
                tar.addfile(member)
                continue
            member.mode = 0o755 if file.executable else 0o644
            tar.addfile(member, io.BytesIO(_read_same(base, file)))
    data = packed.getvalue()
    sha256 = hashlib.sha256(data).hexdigest()
    manifest = tree.provenance() | {"archive": {"bytes": len(data), "sha256": sha256}}
    return Archive(data, sha256, manifest)


# -- fingerprints ----------------------------------------------------------------------------------


def _fingerprint(folder: Path, path: str) -> SourceFile:
    full = folder / path
    try:
        if full.is_symlink():
            link = str(full.readlink())
            return SourceFile(path, False, 0, hashlib.sha256(link.encode()).hexdigest(), link)
        with _open(full) as handle:
            state = os.fstat(handle.fileno())
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(
            f"cannot read '{full}': {error.strerror or error}",
            not_done="no source was staged",
            hint="every file beside the pipeline is part of its source: make it readable, move it "
            "away or add it to `.npaignore`",
        ) from error
    return SourceFile(path, bool(state.st_mode & stat.S_IXUSR), state.st_size, digest)


def _open(full: Path) -> io.BufferedReader:
    """Open without following a symlink, or waiting on a pipe, that was put there since."""
    return os.fdopen(os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


def _digest(files: Iterable[SourceFile]) -> str:
    total = hashlib.sha256()
    for file in files:
        kind = "link" if file.link else "exec" if file.executable else "file"
        total.update(f"{kind}\0{file.size}\0{file.sha256}\0{file.path}\0".encode())
    return total.hexdigest()


def _read_same(base: Path, file: SourceFile) -> bytes:
    """The file's bytes. Raises UsageError if they are not the ones that were scanned."""
    try:
        with _open(base / file.path) as handle:
            data = handle.read(file.size + 1)
    except OSError as error:
        raise _changed(file, error.strerror or str(error)) from error
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise _changed(file, "its content is another one")
    return data


def _changed(file: SourceFile, why: str) -> UsageError:
    return UsageError(
        f"'{file.path}' changed while the source was being staged: {why}",
        not_done="nothing was launched",
        hint="wait until nothing writes below the pipeline's folder, then submit again",
    )


# -- snapshots -------------------------------------------------------------------------------------


def _copy(tree: SourceTree, aside: Path) -> None:
    aside.mkdir(mode=0o700)
    made = {aside}
    for file in tree.files:
        target = aside / file.path
        if target.parent not in made:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            made.add(target.parent)
        if file.link:
            target.symlink_to(file.link)
            continue
        with target.open("xb") as handle:
            handle.write(_read_same(tree.root, file))
            # Not fsynced: a copy that a power cut tore is found by its hashes and made again.
            os.fchmod(handle.fileno(), 0o555 if file.executable else 0o444)


def _put_in_place(tree: SourceTree, aside: Path, place: Path) -> None:
    # The second turn follows a damaged copy out of the way, the third a racing caller's rename.
    for _ in range(3):
        try:
            aside.rename(place)
        except OSError:
            if not place.exists():
                raise
        else:
            return
        if _intact(tree, place):
            return
        place.rename(place.with_name(f".damaged-{tree.digest[:16]}-{secrets.token_hex(6)}"))
    raise StorageError(
        f"cannot put the source into '{place}': something else keeps writing there",
        not_done="nothing was launched",
    )


def _intact(tree: SourceTree, place: Path) -> bool:
    """Is every file there with its content? Files that a task added are not looked at."""
    try:
        return all(_same(place, file) for file in tree.files) and place.is_dir()
    except OSError:
        return False


def _same(place: Path, file: SourceFile) -> bool:
    full = place / file.path
    if file.link:
        return full.is_symlink() and str(full.readlink()) == file.link
    with _open(full) as handle:
        state = os.fstat(handle.fileno())
        if state.st_size != file.size or bool(state.st_mode & stat.S_IXUSR) != file.executable:
            return False
        return hashlib.file_digest(handle, "sha256").hexdigest() == file.sha256
