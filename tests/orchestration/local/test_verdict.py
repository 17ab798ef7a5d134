"""What the facts of a record mean."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npa.orchestration.engine import Phase
from npa.orchestration.local import record_file
from npa.orchestration.local.record_file import RecordFile
from npa.orchestration.local.verdict import judge, phase_of


def rank(number: int = 0, **facts: object) -> dict[str, Any]:
    plain = {"stage": "run", "code": 0, "signal": None, "errno": None, "what": "x", "by_us": False}
    times = {"started": 1.0, "ended": 2.0, "log": f"rank-{number}.log"}
    return {"rank": number, **plain, **times, **facts}


def record(*ranks: dict[str, Any], first: int | None = None, **facts: Any) -> dict[str, Any]:
    task = {"path": "a", "stage": "done", "first": first, "cancelled": False, "ranks": list(ranks)}
    task["cancelled"] = facts.pop("cancelled", False)
    return {"tasks": [task], "leftovers": [], "oom_kills": None, "ended": 3.0, **facts}


@pytest.mark.parametrize(
    ("facts", "kills", "code"),
    [
        ({"code": None, "signal": 9}, 1, "OUT_OF_MEMORY"),
        ({"code": 137}, 1, "OUT_OF_MEMORY"),
        ({"code": None, "signal": 9}, 0, "PAYLOAD_SIGNAL"),
        ({"code": None, "signal": 9}, None, "PAYLOAD_SIGNAL"),
        ({"code": 137}, 0, "PAYLOAD_EXIT_NONZERO"),
        ({"code": 1}, 5, "PAYLOAD_EXIT_NONZERO"),
        ({"code": 1, "stage": "setup"}, None, "SETUP_FAILED"),
        ({"code": None, "signal": 11, "stage": "setup"}, None, "SETUP_FAILED"),
        ({"code": None, "errno": errno.EAGAIN}, None, "TOO_MANY_PROCESSES"),
        ({"code": None, "errno": errno.EMFILE}, None, "TOO_MANY_FILES"),
        ({"code": None, "errno": errno.ENOSPC}, None, "NO_SPACE"),
    ],
)
def test_memory_is_blamed_only_with_proof(facts: dict[str, Any], kills: int, code: str) -> None:
    said = judge(record(rank(**facts), first=0, oom_kills=kills), asked=False)
    assert said.phase is Phase.FAILED
    assert said.members[0].evidence[0].code == code


def test_ranks_that_we_ended_are_no_evidence() -> None:
    ended = rank(0, code=None, signal=15, by_us=True)
    also = rank(2, code=8)
    said = judge(record(ended, rank(1, code=7), also, first=1), asked=False)
    assert [(one.rank, one.exit_code) for one in said.members[0].evidence] == [(1, 7), (2, 8)]


def test_a_task_that_was_cancelled_did_not_succeed_whatever_it_said() -> None:
    said = judge(record(rank(), cancelled=True), asked=True)
    assert said.phase is Phase.CANCELLED


def test_an_unkillable_leftover_is_kept_in_view() -> None:
    left = {"pid": 5, "ticks": 6, "name": "dd", "fate": "alive"}
    said = judge(record(rank(), leftovers=[left]), asked=False)
    assert said.alive == ((5, 6),)
    assert said.leftovers == ("pid 5 (dd): alive",)


def test_a_fault_of_the_shim_is_no_success() -> None:
    said = judge(record(rank(), crash="OSError(5)"), asked=False)
    assert (said.phase, said.evidence[0].code) == (Phase.FAILED, "SHIM_LOST")


@given(st.lists(st.sampled_from(Phase), min_size=1))
def test_a_job_is_over_when_all_its_members_are(phases: list[Phase]) -> None:
    found = phase_of(phases)
    assert found.terminal == all(phase.terminal for phase in phases)
    if found is Phase.SUCCEEDED:
        assert set(phases) == {Phase.SUCCEEDED}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["tasks", "leftovers", "ranks", "path", "ended", "first", "lost"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["tasks", "leftovers", "lost", "paths"]), json_values))
def test_garbage_is_refused_with_one_kind_of_error(body: dict[str, Any]) -> None:
    try:
        said = judge(body, asked=False)
    except ValueError:
        return
    assert said.phase.terminal


@pytest.mark.parametrize(
    ("text", "kills"),
    [
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", 3),
        ("low 0\nhigh 0\nmax 1\noom 1\noom_kill 2\noom_group_kill 0\n", 2),
        ("nothing\n", None),
        ("oom_kill many\n", None),
    ],
)
def test_both_versions_of_control_groups_are_read(
    tmp_path: Any, text: str, kills: int | None
) -> None:
    file = tmp_path / "events"
    file.write_text(text)
    assert record_file.oom_kills(str(file)) == kills


def test_a_record_is_tried_until_it_is_there(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [3]
    rename = record_file.os.rename

    def failing(source: str, target: str) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(record_file.os, "rename", failing)
    monkeypatch.setattr(record_file, "RETRY_SECONDS", 0.0)
    file = RecordFile(str(tmp_path), "")
    file.reserve()
    file.write({"a": 1})
    assert json.loads((tmp_path / "exit.json").read_text()) == {"a": 1}


def test_a_record_whose_folder_was_taken_away_is_given_up(tmp_path: Any) -> None:
    RecordFile(str(tmp_path / "nowhere"), "").write({"a": 1})
    assert not list(tmp_path.iterdir())
