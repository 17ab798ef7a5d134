"""Each attempt works in a folder of its own: nobody sees another's files, or what one left."""

from __future__ import annotations

from pathlib import Path

import pytest

from npa.orchestration.driver import Ending
from npa.orchestration.local.inventory import Inventory
from npa.orchestration.local.workplace import copy_tree, remove_tree
from runs_harness import Bench

PUT = 'cp out "$WORK/$NPA_WORKFLOW_STATE.out"'


def test_steps_side_by_side_do_not_share_relative_files(bench: Bench) -> None:
    bench.inventory = Inventory(cpus=8, memory_gib=8)
    meet = 'touch "$WORK/in-{n}"; until [ "$(ls "$WORK" | grep -c "^in-")" = 3 ]; do :; done'
    members = "\n".join(
        f"  m{n}: {{run: {{shell: 'echo {n} > out; {meet.format(n=n)}; {PUT}'}}}}" for n in range(3)
    )
    text = f"""
initial: all
states:
  all: {{parallel: [m0, m1, m2], next: end}}
{members}
  end: {{run: {{argv: ['true']}}, terminal: true}}
"""
    bench.submit(text, source=True)
    outcome, _ = bench.drive()
    assert outcome.ending is Ending.COMPLETED
    assert [(bench.work / f"m{n}.out").read_text() for n in range(3)] == ["0\n", "1\n", "2\n"]


def test_what_a_step_leaves_or_changes_reaches_no_other_step_and_no_other_run(
    bench: Bench,
) -> None:
    text = """
initial: a
states:
  a: {run: {shell: 'test ! -e left; touch left; echo broken > rate.txt'}, next: b}
  b: {run: {shell: 'test ! -e left && test "$(cat rate.txt)" = 1'}, terminal: true}
"""
    bench.write(text)
    (bench.root / "project" / "rate.txt").write_text("1\n")
    for run_id in ("r1", "r2"):
        bench.submit(text, run_id=run_id, source=True)
        outcome, _ = bench.drive(run_id)
        assert outcome.ending is Ending.COMPLETED


def test_ranks_of_a_gang_have_a_folder_each_and_setup_shares_it(bench: Bench) -> None:
    bench.inventory = Inventory(cpus=8, memory_gib=8)
    text = """
resources: {gang: {num_nodes: 2, cpus: 1}}
initial: a
states:
  a:
    resources: gang
    multiNodeMode: sharded
    run:
      setup: 'test ! -e ready && touch ready'
      shell: 'test -e ready && test ! -e mine && touch mine && pwd >> "$WORK/places"'
    terminal: true
"""
    bench.submit(text, source=True)
    outcome, _ = bench.drive()
    assert outcome.ending is Ending.COMPLETED
    assert len(set(bench.traces("places"))) == 2


def test_the_folder_of_a_failed_step_is_kept_and_of_a_good_one_is_not(bench: Bench) -> None:
    text = """
initial: a
states:
  a: {run: {shell: 'touch good'}, next: b}
  b: {run: {shell: 'touch evidence; exit 1'}, terminal: true}
"""
    bench.submit(text, source=True)
    bench.drive()
    bench.engines[-1].close()
    assert [p.name for p in bench.home.jobs.rglob("evidence")] == ["evidence"]
    assert not list(bench.home.jobs.rglob("good"))


def test_a_tree_is_copied_for_writing_with_its_links_and_removed_whole(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep/er").mkdir(parents=True)
    (source / "deep/er/run.sh").write_text("x")
    (source / "deep/er/run.sh").chmod(0o555)
    (source / "data").write_bytes(b"y" * 3_000_000)
    (source / "data").chmod(0o444)
    (source / "link").symlink_to("data")
    copy_tree(str(source), str(tmp_path / "copy"))
    copy = tmp_path / "copy"
    assert (copy / "data").read_bytes() == (source / "data").read_bytes()
    assert (copy / "link").readlink() == Path("data")
    modes = [(copy / name).stat().st_mode & 0o777 for name in ("data", "deep/er/run.sh")]
    assert modes == [0o600, 0o700]
    with pytest.raises(FileExistsError):
        copy_tree(str(source), str(copy))
    remove_tree(str(copy))
    assert not copy.exists()
    remove_tree(str(copy))
