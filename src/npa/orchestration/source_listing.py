"""Which names below a folder are source: git's answer or a walk, less what is never staged.

A listing is bounded: a folder with too much in it is refused before anything is read.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct

from npa.errors import UsageError
from npa.orchestration.source_ignore import Ignore

_TOOL_FOLDERS = {
    *(".git", ".hg", ".svn", ".venv", ".tox", ".nox", ".npa", ".cache", ".direnv", ".terraform"),
    *(".ipynb_checkpoints", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache"),
    *(".pytest_cache", ".hypothesis", ".import_linter_cache"),
}
_SECRET_FOLDERS = {".aws", ".azure", ".docker", ".gcloud", ".gnupg", ".kube", ".nebius", ".ssh"}
_EXCLUDED_FOLDERS = _TOOL_FOLDERS | _SECRET_FOLDERS
_SECRET_FILES = (
    *(".env*", "*.env", ".netrc", "_netrc", ".pgpass", ".pypirc", ".npmrc", ".git-credentials"),
    *(".htpasswd", "kubeconfig", "*.kubeconfig", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks"),
    *("*.keystore", "*.ppk"),
)
_SECRET_WORDS = ("id_*", "*credentials*")
_CODE_SUFFIXES = (".py", ".pyi", ".md", ".rst")  # `id_map.py` and `credentials.py` are code
_LITTER = (
    *("*.pyc", "*.pyo", ".DS_Store", "Thumbs.db"),
    *(".*.sw[a-p]", "*~", ".#*", "#*#"),  # what editors keep beside a file that is open
)


def _matcher(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))


_NEVER = _matcher([*_SECRET_FILES, *(name.lower() for name in _LITTER)])
_SOUNDS_SECRET = _matcher(_SECRET_WORDS)


class Limits(Struct, frozen=True):
    """How much source a pipeline may have."""

    bytes_max: int = 64 * 1024 * 1024
    files_max: int = 5_000


class Listing(Struct, frozen=True):
    """Sorted relative names of files and symlinks, with what git says of the folder."""

    paths: tuple[str, ...]
    excluded: tuple[str, ...]
    commit: str
    dirty: bool
    listed_by: str
    ignore_sha256: str


def list_files(folder: Path, limits: Limits, environment: Mapping[str, str] | None) -> Listing:
    """The source below `folder`. Raises UsageError; see `npa.orchestration.source.scan`."""
    if not folder.is_dir():
        raise UsageError(f"'{folder}' is not a folder", not_done="no source was staged")
    excluded: set[str] = set()
    found: set[str] = set()
    ignore = Ignore.of(folder)
    git = _Git.of(folder, environment, ignore)
    if git is None:
        names = _walk(folder, "", excluded, ignore)
    else:
        names = _tracked(folder, git, excluded, ignore)
    meter = _Meter(folder, limits)
    for name in names:
        if name in found:
            continue
        if left_out := ignore.part(name):
            excluded.add(left_out)
            continue
        state = os.lstat(folder / name)
        if stat.S_ISLNK(state.st_mode):
            _check_link(folder, name)
        elif not stat.S_ISREG(state.st_mode):
            excluded.add(name)  # a pipe, socket or device holds no source
            continue
        _check_name(name)
        meter.take(name, state.st_size)
        found.add(name)
    dirty = git is not None and git.dirty
    commit = "" if git is None else git.commit
    listed_by = "folder" if git is None else "git"
    return Listing(
        tuple(sorted(found)), tuple(sorted(excluded)), commit, dirty, listed_by, ignore.sha256
    )


def excluded_part(path: str) -> str:
    """The part of `path` because of which it is never staged (a folder ends in `/`), or ""."""
    *folders, name = path.split("/")
    for depth, part in enumerate(folders):
        if part.lower() in _EXCLUDED_FOLDERS or part.endswith(".egg-info"):
            return "/".join(folders[: depth + 1]) + "/"
    return path if _excluded_file(name.lower()) else ""


def _excluded_file(name: str) -> bool:
    if _NEVER.match(name):
        return True
    return bool(_SOUNDS_SECRET.match(name)) and not name.endswith(_CODE_SUFFIXES)


# -- a walk ----------------------------------------------------------------------------------------


def _walk(folder: Path, below: str, excluded: set[str], ignore: Ignore) -> Iterator[str]:
    """Every file under `folder/below`, folder by folder; an unreadable folder is an error."""
    open_folders = [below]
    while open_folders:
        here = open_folders.pop()
        try:
            with os.scandir(folder / here) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise UsageError(
                f"cannot read folder '{folder / here}': {error.strerror or error}",
                not_done="no source was staged",
                hint="every file beside the pipeline is part of its source",
            ) from error
        if any(entry.name == "pyvenv.cfg" for entry in found):
            excluded.add(f"{here}/")  # a Python environment, whatever its name
            continue
        for entry in found:
            name = f"{here}/{entry.name}" if here else entry.name
            if entry.is_dir(follow_symlinks=False):
                barred = excluded_part(f"{name}/") or ignore.part(f"{name}/")
                if barred:
                    excluded.add(barred)
                else:
                    open_folders.append(name)
            elif _excluded_file(entry.name.lower()):
                excluded.add(name)
            else:
                yield name


# -- git -------------------------------------------------------------------------------------------


class _Git(Struct):
    """What git says of one folder of a work tree."""

    names: list[str]
    commit: str = ""
    dirty: bool = False

    @classmethod
    def of(cls, folder: Path, environment: Mapping[str, str] | None, ignore: Ignore) -> _Git | None:
        """None when the folder is in no work tree of ours, or git is missing or fails."""
        top = _work_tree(folder)
        if top is None:
            return None
        # The options win over GIT_DIR and GIT_WORK_TREE, which a hook of another repository sets;
        # a file-system monitor is a command that the repository's own configuration would choose.
        git = ["git", f"--git-dir={top / '.git'}", f"--work-tree={top}", "-c", "core.fsmonitor="]
        git += ["-c", "core.quotePath=false", "--no-optional-locks"]
        listing = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        status = [*git, "status", "--porcelain=v2", "--branch", "-z", "--", "."]
        answers = _run_both(listing, status, folder, environment)
        if answers is None:
            return None
        prefix = folder.resolve().relative_to(top).as_posix()
        below = "" if prefix == "." else f"{prefix}/"
        commit, dirty = _read_status(answers[1], below, ignore)
        return cls(_split(answers[0]), commit, dirty)


def _work_tree(folder: Path) -> Path | None:
    here = folder.resolve()
    for top in (here, *here.parents):
        try:
            owner = os.lstat(top / ".git").st_uid
        except OSError:
            continue
        # Git itself refuses a repository of somebody else: its configuration names commands.
        return top if owner in (0, os.geteuid()) else None
    return None


def _run_both(
    first: list[str], second: list[str], folder: Path, environment: Mapping[str, str] | None
) -> tuple[bytes, bytes] | None:
    """Both outputs, from two processes side by side, or None if either fails."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        running.extend(_start(argv, folder, environment) for argv in (first, second))
        outputs = [process.communicate()[0] for process in running]
    except OSError:
        for process in running:
            process.kill()
            process.communicate()
        return None
    if any(process.returncode for process in running):
        return None
    return outputs[0], outputs[1]


def _start(
    argv: list[str], folder: Path, environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _read_status(status: bytes, prefix: str, ignore: Ignore) -> tuple[str, bool]:
    """Commit and dirtiness from `git status --porcelain=v2 --branch -z`."""
    commit = ""
    for line in _split(status):
        if line.startswith("# branch.oid "):
            oid = line.removeprefix("# branch.oid ")
            commit = "" if oid == "(initial)" else oid
        elif line.startswith("? "):
            name = line.removeprefix("? ").removeprefix(prefix)
            if not (excluded_part(name) or ignore.part(name)):
                return commit, True
        elif not line.startswith("# "):
            return commit, True
    return commit, False


def _split(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def _tracked(folder: Path, git: _Git, excluded: set[str], ignore: Ignore) -> Iterator[str]:
    environments = tuple(
        name.removesuffix("pyvenv.cfg") for name in git.names if name.endswith("/pyvenv.cfg")
    )
    for name in git.names:
        barred = excluded_part(name)
        if barred or name.startswith(environments):
            excluded.add(barred or next(part for part in environments if name.startswith(part)))
            continue
        full = folder / name
        if full.is_dir() and not full.is_symlink():
            # A repository inside this one: git names its folder alone.
            if left_out := ignore.part(f"{name.rstrip('/')}/"):
                excluded.add(left_out)
            else:
                yield from _walk(folder, name.rstrip("/"), excluded, ignore)
        elif os.path.lexists(full):  # else tracked and deleted
            yield name


# -- what is refused -------------------------------------------------------------------------------


class _Meter:
    """Adds up a listing and refuses it once it is too large."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._folder, self._limits = folder, limits
        self._bytes: Counter[str] = Counter()
        self._files: Counter[str] = Counter()
        self._bytes_total = self._files_total = 0

    def take(self, name: str, size: int) -> None:
        part = name.split("/", 1)[0] + "/" if "/" in name else name
        self._bytes[part] += size
        self._files[part] += 1
        self._bytes_total += size
        self._files_total += 1
        if self._bytes_total > self._limits.bytes_max:
            largest, size = self._bytes.most_common(1)[0]
            limit = f"{self._limits.bytes_max / 1048576:g} MiB"
            raise self._too_large(limit, f"'{largest}' alone has {size / 1048576:.1f} MiB")
        if self._files_total > self._limits.files_max:
            largest, count = self._files.most_common(1)[0]
            raise self._too_large(
                f"{self._limits.files_max:,} files", f"'{largest}' alone has {count:,} files"
            )

    def _too_large(self, limit: str, largest: str) -> UsageError:
        return UsageError(
            f"the source in '{self._folder}' is larger than {limit}: {largest} so far",
            code="SOURCE_TOO_LARGE",
            not_done="no source was staged",
            hint="all files beside the pipeline travel with it: move data elsewhere and name it by "
            "URI, list it in `.npaignore`, or put the pipeline into a folder of its own",
        )


def _check_link(folder: Path, name: str) -> None:
    text = str((folder / name).readlink())
    lexical = os.path.normpath(PurePosixPath(name).parent / text)
    root = os.path.realpath(folder)
    real = os.path.realpath(folder / name)
    inside = real == root or real.startswith(root + os.sep)
    if text.startswith("/") or lexical.split("/", 1)[0] == ".." or not inside:
        raise UsageError(
            f"symlink '{name}' leaves the pipeline's folder '{folder}'",
            code="SOURCE_LINK",
            not_done="no source was staged",
            hint=f"it points to '{text}': copy the file in, or add the link to `.npaignore`",
        )


def _check_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode(errors="backslashreplace")
        raise UsageError(
            f"file name '{shown}' is not UTF-8",
            not_done="no source was staged",
            hint="rename the file or add it to `.npaignore`",
        ) from None
