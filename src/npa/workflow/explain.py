"""A page for every code: what it means, with a wrong and a right example."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

from msgspec import Struct, field

from npa.workflow.codes import Code, Severity, severity_of
from npa.workflow.model import API_VERSIONS
from npa.workflow.source import parse_text

FILE_HEAD = f"apiVersion: {API_VERSIONS[0]}\nkind: Workflow\n"
"""The two lines that every example leaves out."""


class Page(Struct, frozen=True):
    """One code. `wrong` yields it, `right` does not; `variables` are `--var` values for both."""

    code: str
    severity: Severity
    title: str
    meaning: str
    wrong: str
    right: str
    variables: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The page for a terminal."""
        options = "".join(f" --var {k}={v}" for k, v in self.variables.items())
        parts = [f"{self.code} {self.severity.value}: {self.title}", self.meaning]
        parts += [f"wrong{options}:\n\n{_indented(self.wrong)}"]
        parts += [f"right{options}:\n\n{_indented(self.right)}"]
        return "\n\n".join(parts) + "\n"

    def as_json(self) -> dict[str, object]:
        return {
            "code": self.code,
            "severity": self.severity.value,
            "title": self.title,
            "meaning": self.meaning,
            "wrong": self.wrong,
            "right": self.right,
            "variables": dict(self.variables),
        }


def example_file(example: str) -> str:
    """An example as a whole file."""
    return example if example.startswith("apiVersion") else FILE_HEAD + example


def _indented(text: str) -> str:
    lines = ("    " + line for line in text.rstrip("\n").split("\n"))
    return "\n".join("".join(c if c.isprintable() else "·" for c in line) for line in lines)


@cache
def pages() -> Mapping[str, Page]:
    """All pages by code, in order."""
    file = resources.files("npa.workflow").joinpath("codes.yaml")
    raw = parse_text(file.read_text(encoding="utf-8"), "codes.yaml").value
    if not isinstance(raw, dict):
        raise TypeError("codes.yaml is not a mapping")  # a broken installation
    found = {}
    for code in Code:
        entry = raw[code.value]
        found[code.value] = Page(
            code=code.value,
            severity=severity_of(code),
            title=entry["title"],
            meaning=entry["meaning"],
            wrong=entry["wrong"],
            right=entry["right"],
            variables=MappingProxyType(entry.get("vars", {})),
        )
    return MappingProxyType(found)


def titles() -> dict[str, str]:
    """Short titles by code, for SARIF rules."""
    return {code: page.title for code, page in pages().items()}
