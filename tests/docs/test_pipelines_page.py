"""Every example of docs/pipelines.md is a pipeline without a problem, and covers the language."""

from __future__ import annotations

import re

import pytest

import snippets
from npa.catalog.loader import Catalog
from npa.workflow.load import load_text

PAGE = (snippets.ROOT / "docs" / "pipelines.md").read_text()
HEAD = "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nmetadata: {name: example}\n"
EXAMPLES = re.findall(r"^```yaml(?P<whole> whole)?\n(.*?)^```$", PAGE, flags=re.M | re.S)
TOOLS = Catalog.built_in()
PARTS = """
    argv shell params inputs outputs schema resources num_nodes multiNodeMode sequence parallel
    parallelMode maxConcurrency foreach maxItems loop until gate transitions if trigger retry
    backoffSeconds timeoutSeconds checkpoint env secrets
""".split()  # noqa: SIM905 - a list of words reads best as words


def text(whole: str, body: str) -> str:
    return body if whole else HEAD + body


@pytest.mark.parametrize(("whole", "body"), EXAMPLES)
def test_an_example_has_no_problem(whole: str, body: str) -> None:
    loaded = load_text(text(whole, body), filename="example.yaml", tools=TOOLS)
    assert loaded.diagnostics == ()
    assert loaded.workflow is not None


@pytest.mark.parametrize("key", PARTS)
def test_the_page_shows_each_part_of_the_language(key: str) -> None:
    assert any(re.search(rf"\b{key}:", body) for _, body in EXAMPLES)
