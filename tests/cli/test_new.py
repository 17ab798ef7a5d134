"""A first pipeline: every template is offered, written once, and clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_harness import Golden, Run
from npa.cli.new import TEMPLATES


def test_templates_are_listed(golden: Golden) -> None:
    golden("new-list", "workflow", "new")
    golden("new-list-json", "workflow", "new", "--json")


def test_a_template_is_written_beside_me(golden: Golden, tmp_path: Path, npa: Run) -> None:
    golden("new-chain", "workflow", "new", "chain")
    assert (tmp_path / "chain.yaml").read_text() == npa(
        "workflow", "new", "chain", "-o", "-"
    ).stdout


def test_an_existing_file_is_never_overwritten(golden: Golden, tmp_path: Path) -> None:
    (tmp_path / "gate.yaml").write_text("mine")
    golden("new-exists", "workflow", "new", "gate")
    assert (tmp_path / "gate.yaml").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_named(golden: Golden) -> None:
    golden("new-no-folder", "workflow", "new", "gate", "-o", "no/such/folder.yaml")


@pytest.mark.parametrize("template", TEMPLATES)
def test_each_template_validates_clean(npa: Run, template: str) -> None:
    npa("workflow", "new", template)
    result = npa("workflow", "validate-spec", f"{template}.yaml", "--json")
    assert '"status": "valid"' in result.stdout
    assert '"diagnostics": []' in result.stdout
    assert result.code == 0
