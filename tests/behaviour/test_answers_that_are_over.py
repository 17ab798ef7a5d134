"""An answer that the walk was given is not kept when what it was read from runs again."""

from __future__ import annotations

import json

import pytest

from behaviour.conftest import TRACE, Machine, spec
from npa.orchestration.journal import entries as e

OUT = "{{run.uri}}"
ROUND = "{{loop.refine}}"


def kept(uri: str) -> str:
    """Shell: `$f` is the file of an artifact, in a folder that is there."""
    return f'f="{uri}"; f="${{f#file://}}"; mkdir -p "${{f%/*}}"'


def loop(gain: str, at_least: float, last: str, between: str = "") -> str:
    """Rounds of `tune`, which measures gain x round, until that is enough; then `end`."""
    measured = f"{OUT}m/{ROUND}.json"
    tune = f'{TRACE}; {kept(measured)}; echo "{{\\"n\\": $(({gain} * {ROUND}))}}" > "$f"'
    states = {
        "prepare": {"run": {"shell": f"{TRACE}; {between}:"}, "next": "refine"},
        "refine": {
            "sequence": ["tune"],
            "loop": {
                "max": 5,
                "until": {"gate": {"uri": measured, "path": "n", "op": ">=", "value": at_least}},
            },
            "next": "end",
        },
        "tune": {"run": {"shell": tune}, "outputs": [{"uri": measured, "schema": "m.v1"}]},
        "end": {"run": {"shell": f"{TRACE}; {last}"}, "terminal": True},
    }
    return spec("prepare", states)


def rounds(machine: Machine) -> list[str]:
    """The decisions of the run as it stands now."""
    decisions = machine.state().decisions
    return [f"{key} {one.value} {one.seen}" for key, one in decisions.items()]


@pytest.mark.req("E-05")
def test_a_gate_is_asked_again_when_its_round_ran_again(machine: Machine) -> None:
    assert machine.said(machine.submit(loop("20", 50, "exit 3"))).code != 0
    assert machine.traces() == ["prepare", *(f"refine[{n}]/tune" for n in (1, 2, 3)), "end"]
    machine.write(loop("10", 50, ":"))
    said = machine.npa("workflow", "resume", "r1", "--accept-changes", "a smaller gain")
    assert said.code == 0, said
    assert [t for t in machine.traces()[5:] if "tune" in t] == [
        f"refine[{n}]/tune" for n in (1, 2, 3, 4, 5)
    ]
    assert rounds(machine)[-1].startswith("refine[5]?until gate:0 n = 50")


@pytest.mark.req("E-05")
@pytest.mark.parametrize("state", ["prepare", "refine", "tune"])
def test_a_gate_is_asked_again_when_a_person_runs_its_rounds_again(
    machine: Machine, state: str
) -> None:
    gain = '$(cat "$WORK/gain")'
    (machine.work / "gain").write_text("20")
    assert machine.said(machine.submit(loop(gain, 50, ":"))).code == 0
    (machine.work / "gain").write_text("60")
    assert machine.npa("workflow", "resume", "r1", "--from", state).code == 0
    assert rounds(machine)[-1].startswith("refine[1]?until gate:0 n = 60")
    again = machine.traces()[5:]
    assert [t for t in again if "tune" in t] == ["refine[1]/tune"]


@pytest.mark.req("E-05")
def test_a_gate_with_another_threshold_is_asked_again_and_its_steps_are_not(
    machine: Machine,
) -> None:
    assert machine.said(machine.submit(loop("20", 50, "exit 3"))).code != 0
    machine.write(loop("20", 80, ":"))
    said = machine.npa("workflow", "resume", "r1", "--accept-changes", "more is asked")
    assert said.code == 0, said
    assert machine.traces()[5:] == ["refine[4]/tune", "end"]
    assert rounds(machine)[-1].endswith("n = 80.0; asked >= 80.0")


@pytest.mark.req("E-05")
def test_an_answer_stands_while_nothing_under_it_runs_again(machine: Machine) -> None:
    """What was measured is overwritten by then; it was read once, and that is written down."""
    late = f'{kept(f"{OUT}m/1.json")}; echo "{{\\"n\\": 99}}" > "$f"; test -e "$WORK/go"'
    assert machine.said(machine.submit(loop("20", 50, late))).code != 0
    before = [x for f in machine.frames() for x in f.entries if isinstance(x, e.Decision)]
    machine.go()
    assert machine.npa("workflow", "resume", "r1").code == 0
    after = [x for f in machine.frames() for x in f.entries if isinstance(x, e.Decision)]
    assert len(before) == 3
    assert after == before


@pytest.mark.req("E-05")
def test_the_items_of_a_foreach_are_read_again_when_what_lists_them_ran_again(
    machine: Machine,
) -> None:
    listed = f"{OUT}list.json"
    states = {
        "list": {
            "run": {"shell": f'{kept(listed)}; cp "$WORK/list" "$f"'},
            "outputs": [{"uri": listed, "schema": "list.v1"}],
            "next": "each",
        },
        "each": {"foreach": {"uri": listed}, "run": {"shell": TRACE}, "next": "end"},
        "end": {"run": {"shell": TRACE}, "terminal": True},
    }
    (machine.work / "list").write_text(json.dumps(["a", "b"]))
    first = machine.said(machine.submit(spec("list", states)))
    assert first.code == 0, first
    assert sorted(machine.traces()) == ["each[a]", "each[b]", "end"]
    (machine.work / "list").write_text(json.dumps(["b", "c", "d"]))
    assert machine.npa("workflow", "resume", "r1", "--from", "list").code == 0
    assert sorted(machine.traces()[3:]) == ["each[b]", "each[c]", "each[d]", "end"]


def test_a_cancelled_run_is_not_revived_by_accepting_changes(machine: Machine) -> None:
    driver = machine.submit(loop("20", 50, "sleep 300"))
    machine.until_running("end")
    assert machine.npa("workflow", "cancel", "r1", "--reason", "wrong data").code == 0
    machine.said(driver)
    machine.write(loop("20", 50, ":"))
    refused = machine.npa("workflow", "resume", "r1", "--accept-changes", "a mended end")
    assert refused.code != 0
    assert "was cancelled: wrong data" in refused.err
    assert "--reopen REASON" in refused.err
    words = ("--accept-changes", "a mended end", "--reopen", "the data was right")
    assert machine.npa("workflow", "resume", "r1", *words).code == 0
