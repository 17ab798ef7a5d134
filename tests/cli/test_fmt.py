"""`fmt`: lays a file out in place, and with `--check` or `--diff` writes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cli_harness import Golden, Run
from cli_specs import HEAD, TWO_STEPS

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
    text = HEAD + (
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


@pytest.mark.parametrize(
    "text",
    [
        "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: x} \n",
        HEAD.replace("v0.0.1", "v9") + "metadata: {name: x} \n",
        "setup: true \nrun: echo hi\n",
        "kind: [Workflow] \napiVersion: {a: b}\n",
        "- kind: Workflow \n",
    ],
)
@pytest.mark.parametrize("option", [(), ("--check",), ("--diff",)])
def test_a_file_that_is_no_workflow_of_ours_is_refused(
    npa: Run, spec: Path, text: str, option: tuple[str, ...]
) -> None:
    spec.write_text(text)
    done = npa("workflow", "fmt", "p.yaml", *option)
    assert (done.code, "is no workflow of ours" in done.stderr) == (1, True)
    assert spec.read_text() == text


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_owner_and_group_stay(npa: Run, spec: Path) -> None:
    os.chown(spec, 1234, 2345)
    spec.chmod(0o6750)
    assert npa("workflow", "fmt", "p.yaml").code == 0
    found = spec.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (1234, 2345, 0o6750)
    assert spec.read_text() != UNTIDY


def test_an_owner_that_may_not_be_given_is_no_reason_to_fail(
    npa: Run, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(_number: int, owner: int, group: int) -> None:
        asked.append((owner, group))
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)
    group = spec.stat().st_gid
    assert npa("workflow", "fmt", "p.yaml").code == 0
    assert asked == [(spec.stat().st_uid, group), (-1, group)]
    assert spec.read_text() != UNTIDY


def test_a_file_with_more_names_is_refused_and_keeps_them(
    npa: Run, spec: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.hardlink_to(spec)
    done = npa("workflow", "fmt", "p.yaml")
    assert (done.code, "`p.yaml` has 2 hard links" in done.stderr) == (64, True)
    assert (other.samefile(spec), spec.read_text()) == (True, UNTIDY)
    assert npa("workflow", "fmt", "p.yaml", "--diff").code == 1
    assert sorted(path.name for path in tmp_path.glob(".p*")) == []


def test_a_file_whose_lines_yaml_counts_otherwise_is_named_and_left(npa: Run, spec: Path) -> None:
    text = UNTIDY.replace("# the first", "# the\u2028# first")
    spec.write_text(text, encoding="utf-8", newline="")
    for option in ((), ("--check",)):
        done = npa("workflow", "fmt", "p.yaml", *option)
        assert done.code == 1
        assert "p.yaml:" in done.stdout
        assert "U+2028 ends a line in YAML" in done.stdout
    assert spec.read_text(encoding="utf-8") == text
