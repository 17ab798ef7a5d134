"""docs/cli.md says what the code does: exit codes, and the keys of each document."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli_harness import Run
from cli_specs import TWO_STEPS, write
from npa.cli.exit_codes import MEANING

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def test_the_exit_codes_of_the_page_are_those_of_the_table() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \| (.+) \|$", PAGE, flags=re.MULTILINE)
    assert rows == [(str(code.value), code.name, text) for code, text in MEANING.items()]


def documented(row: str) -> set[str]:
    """The top-level keys in a row of the page's JSON table (what stands in brackets is deeper)."""
    table = PAGE.partition("## JSON")[2].partition("## ")[0]
    match = re.search(rf"^\| {re.escape(row)} \| (.+) \|$", table, flags=re.MULTILINE)
    assert match, row
    text = re.sub(r"\([^()]*\)", "", match[1])
    return {re.split(r"[:\[]", key)[0] for key in re.findall(r"`([^`]+)`", text)} - {""}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("`validate-spec`", ("workflow", "validate-spec", "p.yaml")),
        ("`fmt`", ("workflow", "fmt", "p.yaml")),
        ("`plan-spec --waves`", ("workflow", "plan-spec", "p.yaml", "--waves")),
        ("`run-spec`", ("workflow", "run-spec", "p.yaml")),
        ("`submit --plan-only`", ("workflow", "submit", "p.yaml", "--plan-only")),
        ("`submit`, `run`, `resume`", ("run", "p.yaml", "--run-id", "other")),
        ("`status`", ("workflow", "status", "r1")),
        ("`artifacts`", ("workflow", "artifacts", "r1")),
        ("`cancel`", ("workflow", "cancel", "r1")),
        ("any, on an error", ("workflow", "status", "nope")),
    ],
)
def test_the_keys_of_a_document_are_those_of_the_page(
    npa: Run, tmp_path: Path, row: str, words: tuple[str, ...]
) -> None:
    write(tmp_path, TWO_STEPS)
    npa("run", "p.yaml", "--run-id", "r1")
    document = json.loads(npa(*words, "--json").stdout)
    assert set(document) == documented(row)
