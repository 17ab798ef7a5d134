"""A file is laid out anew by moving its text: nothing is lost, and it means the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from npa.workflow import layout
from npa.workflow.comments import comments
from npa.workflow.layout import laid_out
from npa.workflow.style import remarks
from workflow.test_style import CLEAN, OURS

WRONG = """# About the file.
kind: Workflow
apiVersion: npa.workflow/v0.0.1BLANKS

metadata: {name: wrong}
states:
    # The first one.
    a:
        next: b   # where it goes

        # What it runs.
        run:
            shell: |
              echo "aBLANKS
              if true; then
                  echo deep
              fi
        needs:
        - b
        -   c
        tool_ref: x
    # The second one.
    b: {next: c, needs: [a], run: {shell: "x, y"}}
    c:
      params:
          list:
          -   one: 1
              two: 2
          - - deep
            -   - deeper
      description: >-
        folded
        text
    # The end of the states.
config:
  x: 'quoted'  # kept
initial: a


""".replace("BLANKS", "  ")
RIGHT = """# About the file.
apiVersion: npa.workflow/v0.0.1
kind: Workflow

metadata: {name: wrong}
config:
  x: 'quoted'  # kept
initial: a
states:
  # The first one.
  a:
    needs:
      - b
      -   c

    toolRef: x
    # What it runs.
    run:
      shell: |
        echo "aBLANKS
        if true; then
            echo deep
        fi
    next: b   # where it goes
  # The second one.
  b: {needs: [a], run: {shell: "x, y"}, next: c}
  c:
    description: >-
      folded
      text
    params:
      list:
        - one: 1
          two: 2
        - - deep
          - - deeper
  # The end of the states.
""".replace("BLANKS", "  ")


def test_a_file_is_laid_out_with_its_comments_quotes_and_blocks_of_text() -> None:
    assert laid_out(WRONG) == RIGHT
    assert remarks(RIGHT) == ()


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_a_canonical_file_is_left_as_it_is(path: Path) -> None:
    text = path.read_text()
    assert laid_out(text) == text


def test_it_is_laid_out_once_and_for_all() -> None:
    assert laid_out(RIGHT) == RIGHT
    assert laid_out(CLEAN) == CLEAN


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
@pytest.mark.parametrize("indent", [2, 3, 4])
def test_a_file_that_a_program_wrote_becomes_canonical_and_means_the_same(
    path: Path, indent: int
) -> None:
    value = yaml.safe_load(path.read_text())
    text = yaml.safe_dump(value, sort_keys=True, indent=indent, width=60)
    found = laid_out(text)
    assert remarks(found) == ()
    assert yaml.safe_load(found) == value


@pytest.mark.parametrize(
    "text",
    [
        "kind: Workflow\r\napiVersion: v\r\n",
        "",
        "# nothing\n",
        "just text",
        "- b: 1\n-   a: 2\n",
        "states:\n  a: &x {next: b, needs: []}\n  b: *x\n",
        "states:\n  a: {env: &e {A: b}, next: b, params: *e}\n",  # the anchor must stay in front
        "states: {a: {next: b,\n    needs: [x]}, b: {terminal: true, run: {argv: [x]}}}\n",
        "? kind\n: Workflow\n? apiVersion\n: v\n",
        "kind: |2\n    two\n   one\nconfig:\n    text: |4\n            x\n",
        "config:\n      a: 'one\n        two'\n      b: plain\n         text\n",
        "--- # begins\nkind: Workflow\napiVersion: v\n",
        "states:\n    a:\n    # nothing\n    b: # nothing either\n",
        "states:\n  a:\n    next: b\n    needs: [c] # last",
    ],
)
def test_what_is_odd_keeps_its_meaning_and_is_laid_out_once(text: str) -> None:
    found = laid_out(text)
    assert yaml.safe_load(found) == yaml.safe_load(text)
    assert found.count("#") == text.count("#")
    assert laid_out(found) == found


@given(st.data())
def test_comments_and_lines_between_keys_are_kept_wherever_they_stand(data: st.DataObject) -> None:
    lines = RIGHT.splitlines()
    added = data.draw(
        st.lists(st.tuples(st.integers(0, len(lines)), st.integers(0, 8)), max_size=4)
    )
    for number, (line, column) in enumerate(added):
        lines.insert(line, f"{' ' * column}# added {number}")
    text = "\n".join(lines) + "\n"
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:  # a comment ended a text in folded lines
        return
    found = laid_out(text)
    assert yaml.safe_load(found) == value
    assert sorted(found.split()) == sorted(text.split())


ODD = ("\r", "\x85", "\u2028", "\u2029")
NEVER = """# TODD# wiki
kind: Workflow
apiVersion: npa.workflow/v0.0.1
metadata: {name: x}
states:
  a:
    timeout_seconds: 30
# NEVER raise this above 60: the server kills longer jobs
    run: {argv: [x]}
    terminal: true
"""


@pytest.mark.parametrize("odd", ODD, ids=ascii)
def test_a_file_with_an_end_of_line_that_only_yaml_knows_is_left_and_told(odd: str) -> None:
    text = NEVER.replace("ODD", odd)
    assert laid_out(text) == text
    (remark,) = remarks(text)
    assert (remark.line, remark.column) == (1, 4)
    assert f"U+{ord(odd):04X} ends a line in YAML" in remark.message
    assert laid_out(NEVER) != NEVER


@pytest.mark.parametrize(
    "text",
    [
        "states:\n    s: \n    t: \r\u2028    2: {}\nmetadata: |\n 9\t\na: ",
        "a: \x85b\n",
        "a: |\u2029 b\r",
    ],
)
def test_whatever_ends_its_lines_no_file_makes_it_fail(text: str) -> None:
    assert laid_out(text) == text
    assert remarks(text)


@given(st.text(alphabet="ab:-#|>'\"{}[],&* \n\n\r\t\x85\u2028", max_size=60))
def test_no_text_at_all_makes_it_fail_and_none_loses_a_comment(tail: str) -> None:
    text = f"kind: Workflow\nstates:\n    a:\n        next: b\n{tail}"
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError:
        return
    found = laid_out(text)
    assert yaml.compose(found, Loader=yaml.CSafeLoader) is not None
    if found != text:
        again = yaml.compose(found, Loader=yaml.CSafeLoader)
        assert comments(found, again) == comments(text, root)
    assert laid_out(found) == found


def _breaks(_text: str) -> str:
    raise IndexError


def _cuts_a_comment(text: str) -> str:
    return text.replace("# About the file.", "# About")


@pytest.mark.parametrize("change", [_breaks, _cuts_a_comment])
def test_a_change_that_fails_or_touches_a_comment_is_dropped(
    monkeypatch: pytest.MonkeyPatch, change: object
) -> None:
    """The others are made all the same."""
    monkeypatch.setattr(layout, "_line_ends", change)
    found = laid_out(WRONG)
    assert "# About the file.\n" in found
    assert found.rstrip("\n") == laid_out(WRONG).rstrip("\n")
    assert "toolRef: x" in found


def test_comments_are_told_from_content() -> None:
    text = """# one
a: 'no # comment'  # two #2
b: "no
  # comment" # three
c: |  # four
  # content
d#e: f#g
h: [i, # four
  "#"]
j: >
  text

  # content
# one
k: &x y\t#  last
l: |
  # content"""
    found = comments(text, yaml.compose(text, Loader=yaml.CSafeLoader))
    assert found == {"# one": 2, "# two #2": 1, "# three": 1, "# four": 2, "#  last": 1}


def test_what_a_second_pass_would_change_is_changed_at_once() -> None:
    text = """states:
    a:
        next: b
        inputs: |
          t
BLANKS
    b:
        terminal: true
""".replace("BLANKS", "  ")
    found = laid_out(text)
    assert found != text
    assert laid_out(found) == found
    assert remarks(found) == ()
