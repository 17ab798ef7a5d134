"""Which SkyPilot is used: `--sky-bin`, then NPA_SKYPILOT_BIN, then our own configuration.

Never `sky` from PATH: what lies there is somebody else's, of any version.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import yaml
from msgspec import Struct

from npa.errors import EngineError, UsageError
from npa.orchestration.skypilot.installer import VERSION

CONFIG_NAME = "skypilot.yaml"  # in npa's home; written by `npa skypilot bootstrap`
CONFIG_KEYS = ("sky_bin", "isolated_config_dir")


class SkyBin(Struct, frozen=True):
    """A usable SkyPilot. `source` says who named it; both paths are absolute."""

    path: Path
    interpreter: Path
    version: str
    source: str


def resolve(option: str, env: Mapping[str, str], npa_home: Path) -> SkyBin:
    """The SkyPilot to use. Raises EngineError (SKYPILOT_ABSENT, SKYPILOT_VERSION)."""
    config = read_config(npa_home)
    for source, named in (
        ("--sky-bin", option),
        ("NPA_SKYPILOT_BIN", env.get("NPA_SKYPILOT_BIN", "")),
        (CONFIG_NAME, config.get("sky_bin", "")),
    ):
        if named:
            return _check(Path(named), source)
    raise EngineError(
        "SkyPilot has not been set up",
        not_done="nothing was started",
        hint="`sky` on PATH is never used; npa keeps an environment of its own",
        next_command="npa skypilot bootstrap",
        code="SKYPILOT_ABSENT",
    )


def _check(path: Path, source: str) -> SkyBin:
    if not path.is_absolute() or not path.is_file() or not os.access(path, os.X_OK):
        raise EngineError(
            f"`{path}` (from {source}) is not the absolute path of a program",
            not_done="nothing was started",
            next_command="npa skypilot bootstrap",
            code="SKYPILOT_ABSENT",
        )
    # `current` is a link: from here on the run stays with the environment it began with.
    real = path.parent.resolve() / path.name
    interpreter = real.parent / "python"
    version = installed_version(real.parent.parent)
    if not interpreter.exists() or not version:
        raise EngineError(
            f"`{path}` (from {source}) does not lie in a virtual environment with SkyPilot",
            not_done="nothing was started",
            next_command="npa skypilot bootstrap",
            code="SKYPILOT_ABSENT",
        )
    if version != VERSION:
        raise EngineError(
            f"`{path}` (from {source}) is SkyPilot {version}, and {VERSION} is needed",
            not_done="nothing was started",
            next_command="npa skypilot bootstrap",
            code="SKYPILOT_VERSION",
        )
    return SkyBin(real, interpreter, version, source)


def installed_version(prefix: Path) -> str:
    """The version in the environment's own metadata, without starting it; "" if there is none."""
    found = sorted(prefix.glob("lib/python3.*/site-packages/skypilot-*.dist-info/METADATA"))
    for metadata in found[:1]:
        for line in metadata.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("Version: "):
                return line.removeprefix("Version: ").strip()
    return ""


def read_config(npa_home: Path) -> dict[str, str]:
    """`skypilot.yaml` of npa's home; empty if there is none. Raises UsageError."""
    path = npa_home / CONFIG_NAME
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"{path} cannot be read", hint=type(error).__name__) from error
    if not isinstance(loaded, dict) or not all(isinstance(v, str) for v in loaded.values()):
        raise UsageError(f"{path} must map {', '.join(CONFIG_KEYS)} to paths")
    unknown = [str(key) for key in loaded if key not in CONFIG_KEYS]
    if unknown:
        raise UsageError(
            f"{path} has the unknown key `{unknown[0]}`", hint=f"known: {', '.join(CONFIG_KEYS)}"
        )
    return loaded


def write_config(npa_home: Path, **changes: str) -> Path:
    """Set keys of `skypilot.yaml` ("" removes one), atomically. Returns the file's path."""
    merged = {**read_config(npa_home), **changes}
    npa_home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = npa_home / CONFIG_NAME
    staged = path.with_name(path.name + ".new")
    text = yaml.safe_dump({key: value for key, value in merged.items() if value})
    staged.write_text(text, encoding="utf-8")
    staged.chmod(0o600)
    staged.replace(path)
    return path
