"""How diagnostics are shown: to people, to programs, to CI."""

from __future__ import annotations

import json

from npa.workflow.codes import Severity
from npa.workflow.diagnostics import (
    Diagnostic,
    in_order,
    path_text,
    render_github,
    render_json,
    render_sarif,
    render_text,
)

UNKNOWN = Diagnostic(
    code="NPA023",
    severity=Severity.ERROR,
    message="unknown state 'evalute' in `next`",
    path="states.train.next",
    line=31,
    column=11,
    end_column=18,
    help="did you mean 'evaluate'?",
)
NO_PLACE = Diagnostic(
    "NPA020", Severity.ERROR, "unknown config key", path="--var", help="declare it"
)
LINES = [""] * 30 + ["    next: evalute"]


def test_the_form_for_people_is_the_documented_one() -> None:
    assert render_text([UNKNOWN], filename="pipeline.yaml", lines=LINES) == (
        "pipeline.yaml:31:11 error NPA023 unknown state 'evalute' in `next`\n"
        "   31 |     next: evalute\n"
        "      |           ^^^^^^^ did you mean 'evaluate'?\n"
    )


def test_a_problem_without_a_place_has_no_excerpt() -> None:
    assert render_text([NO_PLACE], filename="f.yaml", lines=LINES) == (
        "f.yaml error NPA020 unknown config key\n      help: declare it\n"
    )


def test_colour_adds_styles_and_nothing_else() -> None:
    coloured = render_text([UNKNOWN], filename="f", lines=LINES, colour=True)
    assert "\x1b[1;31merror NPA023\x1b[0m" in coloured
    plain = coloured
    for style in ("\x1b[1;31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"):
        plain = plain.replace(style, "")
    assert plain == render_text([UNKNOWN], filename="f", lines=LINES)


def caret_column(item: Diagnostic, line: str) -> tuple[str, str]:
    rendered = render_text([item], filename="f", lines=[line]).splitlines()
    return rendered[1].removeprefix("    1 |"), rendered[2].removeprefix("      |")


def at(column: int, end: int) -> Diagnostic:
    return Diagnostic("NPA011", Severity.WARNING, "m", line=1, column=column, end_column=end)


def test_the_caret_stands_under_wide_and_combining_characters() -> None:
    shown, caret = caret_column(at(5, 6), "日本: 値x")
    assert (shown, caret) == (" 日本: 値x", "       ^^")


def test_control_characters_of_a_file_cannot_reach_the_terminal() -> None:
    text = render_text([at(1, 2)], filename="f", lines=["a\x1b[31m\tb"])
    assert "\x1b" not in text
    assert " a·[31m b" in text


def test_a_very_long_line_is_cut_around_the_place() -> None:
    line = "x" * 5000 + "HERE" + "y" * 5000
    shown, caret = caret_column(at(5001, 5005), line)
    assert len(shown) <= 161
    start = caret.index("^")
    assert shown[start : start + 4] == "HERE"


def test_order_is_by_line_and_equal_ones_stand_once() -> None:
    early = at(1, 2)
    assert in_order([UNKNOWN, early, UNKNOWN, NO_PLACE]) == (NO_PLACE, early, UNKNOWN)


def test_json_uses_camel_case_and_has_every_field() -> None:
    assert render_json([UNKNOWN]) == [
        {
            "code": "NPA023",
            "severity": "error",
            "message": "unknown state 'evalute' in `next`",
            "path": "states.train.next",
            "line": 31,
            "column": 11,
            "endColumn": 18,
            "help": "did you mean 'evaluate'?",
        }
    ]


def test_github_annotations_escape_what_would_end_them() -> None:
    item = Diagnostic("NPA011", Severity.WARNING, "100%\nmore", line=2, column=3, end_column=5)
    assert render_github([item], filename="a,b:c.yaml") == (
        "::warning file=a%2Cb%3Ac.yaml,line=2,col=3,endColumn=4,title=NPA011::100%25%0Amore\n"
    )
    assert render_github([NO_PLACE], filename="f").startswith("::error file=f,title=NPA020::")


def test_sarif_names_rules_regions_and_levels() -> None:
    log = json.loads(
        render_sarif([UNKNOWN, NO_PLACE], filename="f.yaml", titles={"NPA023": "Unknown state"})
    )
    run = log["runs"][0]
    assert log["version"] == "2.1.0"
    assert run["tool"]["driver"]["rules"] == [
        {"id": "NPA020", "shortDescription": {"text": "NPA020"}},
        {"id": "NPA023", "shortDescription": {"text": "Unknown state"}},
    ]
    first, second = run["results"]
    assert first["level"] == "error"
    assert first["locations"][0]["physicalLocation"]["region"] == {
        "startLine": 31,
        "startColumn": 11,
        "endColumn": 18,
    }
    assert "region" not in second["locations"][0]["physicalLocation"]


def test_paths_are_dotted_with_indexes_in_brackets() -> None:
    assert path_text(("states", "a", "outputs", 0, "uri")) == "states.a.outputs[0].uri"
    assert path_text(()) == ""
