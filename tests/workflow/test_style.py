"""The canonical layout: our own files have it, and what differs is remarked at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from npa.workflow import model
from npa.workflow.style import STATE, TOP, remarks

ROOT = Path(__file__).resolve().parents[2]
OURS = [
    *sorted((ROOT / "examples").glob("*/pipeline.yaml")),
    *sorted((ROOT / "workflows").rglob("*-pipeline.yaml")),
    *sorted((ROOT / "src" / "npa" / "cli" / "templates").glob("*.yaml")),
]
CLEAN = """# A comment.
apiVersion: npa.workflow/v0.0.1
kind: Workflow
metadata:
  name: clean
states:
  a:
    description: Any.
    needs: [b]
    toolRef: core.artifact.copy
    params: &shared
      # another comment
      key: [1, {next: 2, apiVersion: 3}]
      deeper:
        - one
        - two: 2
          three:
            - - nested
    run:
      shell: |
        if true; then
            echo deep
        fi
    outputs:
      - uri: x
        schema: y
    next: b
  b: {description: a flow mapping is held to the order as well, next: a}
  c:
    params: *shared
"""


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_our_own_files_are_canonical(path: Path) -> None:
    assert remarks(path.read_text()) == ()


def test_comments_aliases_flow_and_shell_text_are_no_layout() -> None:
    assert remarks(CLEAN) == ()


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("states:\n  a: {next: b, needs: [c]}\n", 2, 16, "`needs` belongs before `next`"),
        ("states: {}\nkind: Workflow\n", 2, 1, "`kind` belongs before `states`"),
        ("states:\n  a:\n    tool_ref: x\n", 3, 5, "`tool_ref` is spelt `toolRef`"),
        ("config:\n    a: 1\n", 2, 5, "indented by 4 columns, not 2"),
        ("config:\n  a:\n  - 1\n", 3, 3, "indented by 0 columns, not 2"),
        ("config:\n  a:\n    -   b: 1\n", 3, 9, "indented by 4 columns, not 2"),
        ("config:\n  a:\n    - - 1\n    -   - 2\n", 4, 9, "indented by 4 columns, not 2"),
        ("kind: Workflow  \n", 1, 15, "blanks stand at the end of the line"),
        ("kind: Workflow\r\n", 1, 15, "the line ends with a carriage return"),
        ("kind: Workflow", 1, 15, "the last line has no end"),
        ("kind: Workflow\n\n", 2, 1, "an empty line ends the file"),
    ],
)
def test_what_differs_is_remarked_at_its_place(
    text: str, line: int, column: int, message: str
) -> None:
    assert [(r.line, r.column, r.message) for r in remarks(text)] == [(line, column, message)]


@pytest.mark.parametrize("text", ["", "# nothing\n", "just text\n", "- a\n- b\n"])
def test_what_is_no_mapping_has_no_order(text: str) -> None:
    assert remarks(text) == ()


def test_every_key_of_a_state_and_of_the_file_has_its_place() -> None:
    assert set(STATE) == set(model.known_keys(model.StateBlock).values())
    assert set(TOP) == set(model.known_keys(model.WorkflowFile).values())
