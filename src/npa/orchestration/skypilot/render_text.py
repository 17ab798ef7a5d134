"""Documents as YAML text: programs as literal blocks, variables quoted, the rest by the C emitter.

The first two are written here because they are nearly all of the text, and because a program that
stands in the document as it will run can be reviewed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import yaml

from npa.orchestration.skypilot.render_errors import SCRIPTS

ENVIRONMENT = "envs"
# What YAML takes in a literal block as it stands; anything else goes through the emitter.
_NOT_PLAIN = re.compile("[^\t\n\x20-\x7e\u00a1-\u167f\u1681-\u1fff\u2030-\u205e\u2070-\u2fff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def documents_text(documents: Iterable[Mapping[str, Any]]) -> str:
    """Several documents, joined with `---`; keys keep their order, long lines are not folded."""
    return "---\n".join(_document(document) for document in documents)


def _document(document: Mapping[str, Any]) -> str:
    parts: list[str] = []
    plain: dict[str, Any] = {}
    for key, value in document.items():
        written = _written(key, value)
        if written is None:
            plain[key] = value
            continue
        if plain:
            parts.append(_dump(plain))
            plain = {}
        parts.append(written)
    if plain:
        parts.append(_dump(plain))
    return "".join(parts)


def _written(key: str, value: Any) -> str | None:
    """The field as text if it is one of those that are written here."""
    if key in SCRIPTS and isinstance(value, str):
        block = _block(value)
        return f"{key}: |\n{block}" if block else None
    if key == ENVIRONMENT and value and all(_fits_quotes(k, v) for k, v in value.items()):
        # A name without `_` could read as another type (`NO` is a boolean of YAML).
        names = {name: name if "_" in name else json.dumps(name) for name in value}
        lines = [f"  {names[name]}: {json.dumps(text)}\n" for name, text in value.items()]
        return f"{key}:\n{''.join(lines)}"
    return None


@lru_cache(maxsize=64)  # most tasks of a job share their setup
def _block(text: str) -> str:
    """The text as a literal block that ends in one newline; "" if YAML would not read it back."""
    if not text.endswith("\n") or text.endswith("\n\n") or text[0] in " \n\t":
        return ""
    if _NOT_PLAIN.search(text) is not None:
        return ""
    block = "  " + text[:-1].replace("\n", "\n  ") + "\n"
    return block.replace("\n  \n", "\n\n").replace("\n  \n", "\n\n")


def _fits_quotes(name: object, text: object) -> bool:
    """Is the JSON spelling of the text also its YAML spelling?"""
    if not isinstance(name, str) or not isinstance(text, str) or not _NAME.fullmatch(name):
        return False
    return text.isascii() and "\x7f" not in text


def _dump(value: Mapping[str, Any]) -> str:
    return yaml.dump(
        dict(value),
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=False,
        width=1_000_000,
        allow_unicode=True,
    )


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the emitter's signature
        return True


def _string(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)
