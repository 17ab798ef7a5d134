"""Inputs that look like workflows: real files, words of the language, changes of trees."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from npa.catalog.loader import Catalog
from npa.workflow import model
from npa.workflow.model import known_keys

ROOT = Path(__file__).resolve().parents[2]
LEVELS = tuple(
    level for level in vars(model).values()
    if isinstance(level, type) and issubclass(level, model.Level) and level is not model.Level
)  # fmt: skip
VALUES = (
    "npa.workflow/v0.0.1", "Workflow", "group", "window", "sharded", "promote_checkpoint",
    "loop_back", "loop_back_to_inner_loop", "{{config.n}}", "{{state.a.uri}}", "{{state.a.dir}}",
    "{{loop.a}}", "{{item}}", "{{item.item}}", "{{run.id}}", "{{run.uri}}", "{{config.n|quote}}",
    "{{", "}}", "${HOME}", "config.n", "H100:8", "tool://sonic", "kubernetes", "1Gi", "4+", "<<",
    "*a", "&a", "!!int", "!!str", "1e999", ".nan", "0x1F", "012", "~", "s3://b/{{run.id}}/o",
    ">=", "==", "<", "1h", "30s", "-1", "99999999999999999999", "true", "null", "x-note",
)  # fmt: skip
"""Values that mean something; keys come from the model itself."""


def seeds() -> Iterator[bytes]:
    """Every workflow of the repository, every finding, and public files if they are here."""
    public = Path(os.environ.get("NPA_COMPAT_SPECS") or ROOT.parent / "shared/specs")
    folders = (ROOT / "workflows", ROOT / "examples", public, ROOT / "tests/fuzz/found")
    for folder in folders:
        for file in sorted(folder.rglob("*.y*ml")):
            yield file.read_bytes()
    for level in LEVELS:
        keys = "".join(f"      {key}: 1\n" for key in known_keys(level))
        yield f"apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nstates:\n  a:\n{keys}".encode()


def words() -> tuple[str, ...]:
    """Keys of the language, values that it knows, tools of the catalogue."""
    keys = {key for level in LEVELS for key in known_keys(level)}
    return (*sorted(keys), *VALUES, *sorted(Catalog.built_in().names()))


def dictionary() -> str:
    """The words in libFuzzer's format."""
    quoted = (word.replace("\\", "\\\\").replace('"', '\\"') for word in words())
    return "".join(f'"{word}"\n' for word in quoted)


def change(data: bytes, draw: random.Random, known: tuple[str, ...], others: list[Any]) -> bytes:
    """The same file with a few changes to its tree; `data` itself if it is not YAML."""
    try:
        tree = yaml.load(data, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, OverflowError):
        return data
    if not isinstance(tree, dict | list):
        return data
    for _ in range(draw.randint(1, 3)):
        places = list(_places(tree))
        if not places:
            return data
        parent, key = draw.choice(places)
        _change_one(parent, key, draw, known, others, places)
    try:
        text = yaml.dump(tree, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
    except (yaml.YAMLError, RecursionError, ValueError):
        return data
    return text.encode("utf-8", "surrogatepass")


def _change_one(
    parent: Any,
    key: Any,
    draw: random.Random,
    known: tuple[str, ...],
    others: list[Any],
    places: list[tuple[Any, Any]],
) -> None:
    match draw.randrange(6):
        case 0:
            del parent[key]
        case 1:
            parent[key] = draw.choice(known)
        case 2 if isinstance(parent, dict):
            parent[draw.choice(known)] = parent.pop(key)
        case 3:
            # A part of another file, or of this one: copied, so that no tree holds itself.
            source = places if draw.random() < 0.5 or not others else list(_places(others[-1]))
            if not source:
                return
            there, name = draw.choice(source)
            parent[key] = yaml.safe_load(
                yaml.safe_dump(there.get(name) if isinstance(there, dict) else there[name])
            )
        case 4:
            parent[key] = {draw.choice(known): parent[key]}
        case _:
            parent[key] = [
                parent[key],
                draw.choice((1, 0, -1, 3.5, True, None, draw.choice(known))),
            ]


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        pairs = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        for key, value in pairs:
            yield node, key
            if isinstance(value, dict | list):
                waiting.append(value)
