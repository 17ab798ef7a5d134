"""A page for every code with which a run, a step or a command ends or waits.

The diagnostics of files (`NPA023`) have their own pages in `npa.workflow.explain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

from msgspec import Struct

from npa.workflow.source import parse_text


class Reason(Struct, frozen=True):
    """What happened, what npa did and did not do about it, and what to do next."""

    code: str
    means: str
    npa: str
    next: str

    def text(self) -> str:
        """The page for a terminal."""
        return f"{self.code}\n\n{self.means}\n\nnpa: {self.npa}\n\nnext: {self.next}\n"

    def as_json(self) -> dict[str, object]:
        return {"code": self.code, "means": self.means, "npa": self.npa, "next": self.next}


@cache
def reasons() -> Mapping[str, Reason]:
    """All pages by code, sorted."""
    text = resources.files("npa.orchestration").joinpath("reasons.yaml").read_text("utf-8")
    groups = parse_text(text, "reasons.yaml").value
    if not isinstance(groups, list):
        raise TypeError("reasons.yaml is not a list")  # a broken installation
    found = {
        code: Reason(code, group["means"], group["npa"], group["next"])
        for group in groups
        for code in group["codes"]
    }
    return MappingProxyType(dict(sorted(found.items())))
