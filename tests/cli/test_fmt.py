"""`fmt`: lays a file out in place, and with `--check` or `--diff` writes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cli_harness import Golden, Run
from cli_specs import TWO_STEPS

UNTIDY = TWO_STEPS.replace("metadata: {name: two}\n", "").replace(
    "initial: first\n", "initial: first  # the first one\nmetadata: {name: two}  \n"
)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(UNTIDY)
    return path


def test_a_canonical_file(golden: Golden, npa: Run) -> None:
    npa("workflow", "new", "chain")
    golden("fmt-clean", "workflow", "fmt", "--check", "chain.yaml")


def test_what_is_not_canonical_is_told_with_its_place(golden: Golden, spec: Path) -> None:
    golden("fmt-remarks", "workflow", "fmt", "--check", "p.yaml")
    golden("fmt-remarks-json", "workflow", "fmt", "--check", "p.yaml", "--json")
    golden("fmt-diff", "workflow", "fmt", "--diff", "p.yaml")
    assert spec.read_text() == UNTIDY


def test_without_an_option_the_file_is_laid_out_in_place(
    golden: Golden, npa: Run, spec: Path, tmp_path: Path
) -> None:
    spec.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(spec)
    before = npa("workflow", "plan-spec", "p.yaml", "--json").stdout
    golden("fmt-in-place", "workflow", "fmt", "link.yaml")
    assert "initial: first  # the first one\n" in spec.read_text()
    assert (link.is_symlink(), spec.stat().st_mode & 0o777) == (True, 0o640)
    assert sorted(path.name for path in tmp_path.glob("*.yaml*")) == ["link.yaml", "p.yaml"]
    assert npa("workflow", "fmt", "--check", "p.yaml").code == 0
    assert npa("workflow", "fmt", "--diff", "p.yaml").stdout == ""
    assert npa("workflow", "plan-spec", "p.yaml", "--json").stdout == before
    again = npa("workflow", "fmt", "p.yaml", "--json")
    assert (again.code, json.loads(again.stdout)["changed"]) == (0, False)


def test_what_is_left_to_do_by_hand_is_told(npa: Run, spec: Path) -> None:
    """An alias that would come to stand before its anchor keeps the keys where they are."""
    text = (
        "states:\n  a:\n    next: b \n    outputs: &o []\n    inputs: *o\n  b: {terminal: true}\n"
    )
    spec.write_text(text)
    done = npa("workflow", "fmt", "p.yaml")
    assert done.code == 1
    assert "`inputs` belongs before `next`" in done.stdout
    assert spec.read_text() == text.replace("next: b \n", "next: b\n")


def test_a_file_that_cannot_be_written_is_named(npa: Run, spec: Path, tmp_path: Path) -> None:
    (tmp_path / f".p.yaml.{os.getpid()}").touch()
    done = npa("workflow", "fmt", "p.yaml")
    assert (done.code, "`p.yaml` cannot be written" in done.stderr) == (64, True)
    assert spec.read_text() == UNTIDY


def test_a_file_that_is_no_yaml_has_no_layout(golden: Golden, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("a: [\n")
    golden("fmt-unreadable", "workflow", "fmt", "--check", "p.yaml")
    golden("fmt-unreadable-in-place", "workflow", "fmt", "p.yaml")
    assert (tmp_path / "p.yaml").read_text() == "a: [\n"
