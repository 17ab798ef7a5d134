"""npa's own folder: `$NPA_CONFIG_DIR`, else `~/.npa`. Private (0700), made when first needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from npa.errors import UsageError

FOLDER_MODE = 0o700


class Home(Struct, frozen=True):
    """Where local runs, local jobs and the configuration lie. `path` is absolute."""

    path: Path

    @classmethod
    def find(cls, environ: Mapping[str, str] | None = None) -> Home:
        """The home that the environment selects; an empty variable counts as unset."""
        variables = os.environ if environ is None else environ
        chosen = variables.get("NPA_CONFIG_DIR", "")
        if chosen:
            return cls(Path(os.path.abspath(Path(chosen).expanduser())))  # noqa: PTH100 - no links
        user = variables.get("HOME", "")
        return cls((Path(user) if user else Path.home()) / ".npa")

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def jobs(self) -> Path:
        return self.path / "jobs"

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    def make(self) -> Home:
        """Create the folder if it is missing. Raises UsageError."""
        private_folder(self.path)
        return self


def private_folder(path: Path) -> Path:
    """Create `path` and its missing parents, each 0700, and return it. Raises UsageError."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        for folder in reversed(missing):
            folder.mkdir(FOLDER_MODE, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot create the folder '{path}': {error.strerror}",
            hint="NPA_CONFIG_DIR selects another place",
        ) from error
    return path
