"""Every dependency stands in docs/dependencies.md with its weight, and in the locks with hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = (
    "requirements.lock",
    "requirements-demo.lock",
    "requirements-dev.lock",
    "requirements-bdd100k.lock",
)


def declared() -> dict[str, list[str]]:
    """Names in pyproject.toml by set, normalised."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    sets = {"runtime": project["project"]["dependencies"]}
    sets |= project["project"]["optional-dependencies"]
    sets |= project["dependency-groups"]
    return {key: [name_of(item) for item in items] for key, items in sets.items()}


def name_of(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def locked(lock: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", (ROOT / lock).read_text(), flags=re.MULTILINE))


def test_each_dependency_is_documented_with_a_weight() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.+)$", text, flags=re.MULTILINE))
    names = {name for items in declared().values() for name in items}
    assert names == set(rows)
    for name, row in rows.items():
        assert re.search(r"\d", row), f"{name} has no measured weight"


@pytest.mark.parametrize(
    ("lock", "sets"),
    [
        ("requirements.lock", {"runtime", "build"}),
        ("requirements-demo.lock", {"runtime", "build", "demo"}),
        ("requirements-dev.lock", {"runtime", "build", "demo", "dev"}),
        ("requirements-bdd100k.lock", {"runtime", "build", "demo", "dev", "bdd100k"}),
    ],
)
def test_each_lock_holds_its_sets(lock: str, sets: set[str]) -> None:
    wanted = {name for key in sets for name in declared()[key]}
    assert wanted - locked(lock) == set()


def test_one_version_of_a_package_in_all_locks() -> None:
    pins: dict[str, set[str]] = {}
    for lock in LOCKS:
        for name, version in re.findall(
            r"^([a-z0-9-]+)==([^ ;\\]+)", (ROOT / lock).read_text(), flags=re.MULTILINE
        ):
            pins.setdefault(name, set()).add(version)
    # A package may be pinned more than once in one lock, for different Pythons.
    largest = dict.fromkeys(pins)
    for name, version in re.findall(
        r"^([a-z0-9-]+)==([^ ;\\]+)",
        (ROOT / LOCKS[-1]).read_text(),
        flags=re.MULTILINE,
    ):
        largest[name] = (largest[name] or set()) | {version}
    assert pins == largest


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_hashes_and_no_index_or_path(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "--hash=sha256:" in text
    assert "://" not in text
    assert "--index" not in text
    assert not re.search(r"(^|\s)(/|\.\./|file:)", text)
