"""`.npaignore`: what the user leaves out of a pipeline's source, in the syntax of `.gitignore`.

One file, at the top of the pipeline's folder; it works with and without git. It is not part of the
source itself: writing one does not block a resume, unless it changes which files are staged.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable
from pathlib import Path

from npa.errors import UsageError

FILE = ".npaignore"
_BYTES_MAX = 1 << 20


class Ignore:
    """The patterns of one folder. `sha256` is that of the file, "" if there is none."""

    def __init__(self, matches: Callable[[str], bool] | None = None, sha256: str = "") -> None:
        self.sha256 = sha256
        self._matches = matches
        self._folders: dict[str, str] = {"": ""}

    @classmethod
    def of(cls, folder: Path) -> Ignore:
        """Raises UsageError (IGNORE_FILE) for a file that cannot be understood."""
        data = _read(folder / FILE)
        if data is None:
            return cls()
        import pathspec  # only where there is such a file

        try:
            lines = data.decode("utf-8-sig").splitlines()
            spec = pathspec.GitIgnoreSpec.from_lines(lines)
        except UnicodeDecodeError:
            raise _unusable(folder, "it is not UTF-8 text") from None
        except ValueError as error:
            raise _unusable(folder, str(error)) from error
        return cls(spec.match_file, hashlib.sha256(data).hexdigest())

    def part(self, path: str) -> str:
        """The part of `path` because of which it is left out (a folder ends in `/`), or "".

        `path` ends in `/` for a folder. As in git, nothing below a folder that is left out can be
        taken back.
        """
        if path == FILE:
            return path
        if self._matches is None:
            return ""
        if path.endswith("/"):
            return self._folder(path[:-1])
        above = self._folder(path.rpartition("/")[0])
        return above or (path if self._matches(path) else "")

    def _folder(self, path: str) -> str:
        found = self._folders.get(path)
        if found is None:
            above = self._folder(path.rpartition("/")[0])
            name = f"{path}/"
            found = above or (name if self._matches is not None and self._matches(name) else "")
            self._folders[path] = found
        return found


def _read(path: Path) -> bytes | None:
    try:
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode) or state.st_size > _BYTES_MAX:
            raise _unusable(path.parent, "it is not a plain file of at most 1 MiB")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path.parent, error.strerror or str(error)) from error


def _unusable(folder: Path, why: str) -> UsageError:
    return UsageError(
        f"cannot use '{folder / FILE}': {why}",
        code="IGNORE_FILE",
        not_done="no source was staged",
        hint="it has the syntax of `.gitignore`: one pattern a line",
    )
