"""Whatever code a user sees, `npa workflow explain` has a page for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import npa
from npa.orchestration.evidence import TABLE
from npa.orchestration.reasons import reasons
from npa.orchestration.remedies import REMEDIES
from npa.orchestration.skypilot.refusals import Refusal

NAMED = ("Finding", "Hold", "RunFailed", "Fail", "EndRefused")


def codes_raised() -> Iterator[str]:
    """Codes that the source gives: `code = "X"` of a class, `code="X"` of a call, findings."""
    for path in sorted(Path(npa.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            values: list[ast.expr | None] = []
            if isinstance(node, ast.ClassDef):
                values += [
                    line.value
                    for line in node.body
                    if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "code"
                ]
            elif isinstance(node, ast.Call):
                values += [word.value for word in node.keywords if word.arg == "code"]
                if ast.unparse(node.func).rpartition(".")[2] in NAMED:
                    values += node.args[:2]
            for value in values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    text = value.value
                    if text.isupper() and text.replace("_", "").isalpha():
                        yield text


def test_every_code_that_a_user_can_see_has_a_page() -> None:
    seen = {*TABLE, *REMEDIES, *(why.value for why in Refusal), *codes_raised()}
    assert len(seen) > 100
    assert sorted(seen - set(reasons())) == []


def test_every_page_says_what_happened_what_was_done_and_which_command_is_next() -> None:
    for reason in reasons().values():
        assert reason.means.endswith(".")
        assert reason.npa.endswith(".")
        assert "`" in reason.next
        assert reason.code in reason.text()
