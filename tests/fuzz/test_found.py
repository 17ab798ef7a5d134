"""What the fuzzer found stays mended, and no file costs more than its size justifies."""

from __future__ import annotations

import random

import pytest

from fuzz.examine import CPU_SECONDS_MAX, Broken, examine
from fuzz.grammar import change, dictionary, seeds, words
from fuzz.hostile import SHAPES


@pytest.mark.req("B-01")
def test_every_seed_and_every_finding_is_answered_as_it_must_be() -> None:
    count = sum(1 for data in seeds() if examine(data) < CPU_SECONDS_MAX)
    assert count == len(list(seeds()))
    assert count >= 20


@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_made_to_cost_much_is_answered_in_bounded_time(shape: str) -> None:
    """CPU time, a tenth of the bound or less as a rule; quadratic work would take ten times it."""
    assert examine(SHAPES[shape](500).encode()) < CPU_SECONDS_MAX


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"\xef\xbb\xbf", b"\x00", b"a: \xed\xa0\x80", b"%YAML 9\n---\n", b"&a *a"],
)
def test_bytes_that_are_no_workflow_are_answered(data: bytes) -> None:
    examine(data)


def test_a_changed_tree_is_still_answered() -> None:
    """The campaign's own changes, a few of them: the fuzzer runs them by the hundred thousand."""
    known, files = words(), list(seeds())
    draw = random.Random(2)
    changed = 0
    for _ in range(150):
        data = draw.choice(files)
        made = change(data, draw, known, [])
        changed += made != data
        examine(made)
    assert changed > 100


def test_the_dictionary_holds_the_language() -> None:
    lines = dictionary().splitlines()
    assert {'"parallelMode"', '"foreach"', '"promote_checkpoint"'} <= set(lines)
    assert all(line.startswith('"') and line.endswith('"') for line in lines)


def test_a_place_outside_the_file_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuzz import examine as module
    from npa.workflow import load

    real = load.load_file

    def misplaced(*words: object, **more: object) -> load.Loaded:
        from msgspec.structs import replace

        loaded = real(*words, **more)  # type: ignore[arg-type]
        moved = tuple(replace(item, line=item.line + 1000) for item in loaded.diagnostics)
        return replace(loaded, diagnostics=moved)

    monkeypatch.setattr(module, "load_file", misplaced)
    with pytest.raises(Broken, match="not a place"):
        examine(b"apiVersion: npa.workflow/v0.0.1\nkind: Workflow\nstates: {a: {bogus: 1}}\n")
