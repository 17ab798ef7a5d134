"""`fmt --check`: tells what is not canonical, and never writes."""

from __future__ import annotations

from pathlib import Path

from cli_harness import Golden, Run
from cli_specs import TWO_STEPS


def test_a_canonical_file(golden: Golden, npa: Run) -> None:
    npa("workflow", "new", "chain")
    golden("fmt-clean", "workflow", "fmt", "--check", "chain.yaml")


def test_what_is_not_canonical_is_told_with_its_place(golden: Golden, tmp_path: Path) -> None:
    text = TWO_STEPS.replace("metadata: {name: two}\n", "").replace(
        "initial: first\n", "initial: first\nmetadata: {name: two}  \n"
    )
    (tmp_path / "p.yaml").write_text(text)
    golden("fmt-remarks", "workflow", "fmt", "--check", "p.yaml")
    golden("fmt-remarks-json", "workflow", "fmt", "--check", "p.yaml", "--json")
    assert (tmp_path / "p.yaml").read_text() == text


def test_files_are_not_rewritten(golden: Golden, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(TWO_STEPS)
    golden("fmt-no-check", "workflow", "fmt", "p.yaml")
    assert (tmp_path / "p.yaml").read_text() == TWO_STEPS


def test_a_file_that_is_no_yaml_has_no_layout(golden: Golden, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("a: [\n")
    golden("fmt-unreadable", "workflow", "fmt", "--check", "p.yaml")
