"""Every code has a page, and the page tells the truth."""

from __future__ import annotations

import pytest

from npa.workflow.check_data import live_problems
from npa.workflow.check_scripts import missing_scripts
from npa.workflow.codes import WARNINGS, Code, Severity
from npa.workflow.explain import Page, example_file, pages, titles
from npa.workflow.load import load_text
from workflow.toolbox import SAMPLE_TOOLS


def codes_of(example: str, page: Page) -> set[str]:
    loaded = load_text(
        example_file(example), filename="f.yaml", tools=SAMPLE_TOOLS, overrides=page.variables
    )
    found = {item.code for item in loaded.diagnostics}
    if loaded.workflow is not None:
        found |= {item.code for item in live_problems(loaded.workflow)}
        found |= {item.code for item in missing_scripts(loaded.workflow, {"join.py"})}
    return found


@pytest.mark.parametrize("code", [code.value for code in Code])
def test_the_wrong_example_yields_its_code_and_the_right_one_is_clean(code: str) -> None:
    page = pages()[code]
    assert code in codes_of(page.wrong, page)
    assert codes_of(page.right, page) == set()


def test_every_code_has_exactly_one_page() -> None:
    assert list(pages()) == [code.value for code in Code]
    assert set(titles()) == set(pages())


def test_a_page_says_code_severity_title_and_both_examples() -> None:
    text = pages()["NPA023"].text()
    assert text.startswith("NPA023 error: Unknown state\n")
    assert "next: evalute" in text
    assert "next: evaluate" in text


def test_pages_of_warnings_say_so() -> None:
    assert {c.value for c in WARNINGS} == {
        page.code for page in pages().values() if page.severity is Severity.WARNING
    }
