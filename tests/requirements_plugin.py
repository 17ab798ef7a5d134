"""Requirement tracing: `@pytest.mark.req("D-01")` ties a test to docs/requirements.md.

An unknown ID fails the collection. `make requirements` prints each ID with the tests that prove
it, and then the IDs that have none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

TABLE = Path(__file__).resolve().parents[1] / "docs" / "requirements.md"


def read_table(text: str) -> dict[str, str]:
    """ID -> what holds, from the Markdown table."""
    return dict(re.findall(r"^\| ([A-Z]-\d\d) \| (.+?) \|$", text, flags=re.MULTILINE))


def unknown_ids(marks: dict[str, list[str]], known: dict[str, str]) -> list[str]:
    """One sentence for each ID that the table does not hold."""
    return [
        f"{test}: requirement {name!r} is not in docs/requirements.md"
        for name, tests in sorted(marks.items())
        if name not in known
        for test in tests
    ]


def render(marks: dict[str, list[str]], known: dict[str, str]) -> str:
    lines = []
    for name, text in known.items():
        if tests := marks.get(name):
            lines.append(f"{name}  {text}")
            lines += [f"      {test}" for test in sorted(set(tests))]
    missing = [name for name in known if name not in marks]
    lines.append("")
    lines.append(f"proven: {len(known) - len(missing)} of {len(known)}")
    lines += [f"no test: {name}  {known[name]}" for name in missing]
    return "\n".join(lines)


def marks_of(items: Iterable[pytest.Item]) -> dict[str, list[str]]:
    """ID -> node IDs of the tests (without their parameters) that carry it."""
    marks: defaultdict[str, list[str]] = defaultdict(list)
    for item in items:
        for mark in item.iter_markers("req"):
            for name in mark.args:
                marks[name].append(item.nodeid.split("[")[0])
    return dict(marks)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "req(id, ...): the requirements that this test proves")
    config.addinivalue_line("markers", "e2e: end to end, slower; run by .ci/run after the others")
    config.addinivalue_line("markers", "exhaustive: whole enumerations; run by .ci/run as well")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if problems := unknown_ids(marks_of(items), read_table(TABLE.read_text())):
        raise pytest.UsageError("\n".join(problems))
