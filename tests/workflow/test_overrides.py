"""Values of `--var` have the type of the key's default, and text stays text."""

from __future__ import annotations

import pytest

from npa.workflow.overrides import declared, read_as, typed, with_misfits
from workflow.judged import load

TEXT = """
config: {nap: 0.2, rounds: 2, fast: false, name: abc, widths: [1, 2], none: null}
states: {a: {run: {shell: "echo {{config.nap}} {{config.rounds}}"}, terminal: true}}
"""


@pytest.mark.parametrize(
    ("text", "default", "value"),
    [
        ("4", 0.2, 4.0),
        ("1e3", 0.2, 1000.0),
        ("7", 2, 7),
        ("-07", 2, -7),
        ("0.5", 1, 0.5),
        ("true", False, True),
        ("0", True, False),
        ("7", "abc", "7"),
        ("7", [1], "7"),
        ("7", {"a": 1}, "7"),
        ("7", None, "7"),
    ],
)
def test_an_override_is_read_as_the_type_of_its_default(
    text: str, default: object, value: object
) -> None:
    found = read_as(text, default)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("key", "text", "code", "kind"),
    [
        ("rounds", "abc", "NPA021", "a number"),
        ("rounds", "", "NPA021", "a number"),
        ("nap", "abc", "NPA021", "a number"),
        ("nap", "nan", "NPA021", "a number"),
        ("nap", "1e999", "NPA021", "a number"),
        ("fast", "yes", "NPA011", "`true` or `false`"),
        ("fast", "", "NPA011", "`true` or `false`"),
    ],
)
def test_an_override_that_does_not_fit_is_told_at_the_default(
    key: str, text: str, code: str, kind: str
) -> None:
    overrides = {key: text}
    loaded = with_misfits(load(TEXT, overrides=overrides), overrides)
    (item,) = loaded.diagnostics
    assert loaded.workflow is None
    assert (item.code, item.path, item.line) == (code, f"config.{key}", 3)
    assert item.message == f"`config.{key}` is {text!r} in `--var`, not {kind}"


def test_what_fits_or_holds_a_token_leaves_the_file_as_it_is() -> None:
    overrides = {"nap": "4", "rounds": "{{config.nap}}", "name": "2.5", "widths": "x"}
    loaded = load(TEXT, overrides=overrides)
    assert with_misfits(loaded, overrides) is loaded
    assert loaded.workflow is not None
    assert loaded.workflow.config["nap"] == "4"  # tokens and the seal see the text


def test_params_of_a_state_win_and_what_does_not_fit_stays_text() -> None:
    overrides = {"nap": "4", "rounds": "9", "fast": "{{config.nap}}", "new": "1"}
    defaults = declared(load(TEXT).source.value, overrides)
    assert defaults == {"nap": 0.2, "rounds": 2, "fast": False}
    config = {"nap": "4", "rounds": "five", "fast": "4", "new": "1"}
    assert typed(config, {"rounds": "five"}, defaults) == {**config, "nap": 4.0}
