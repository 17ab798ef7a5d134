"""Whole runs by the command line on a real SkyPilot: their journal and artifacts lie in S3.

Each run proves several things, because a managed job takes half a minute.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path

import pytest

from e2e.skypilot.bench import Bench, ended
from e2e.skypilot.canary import ArgvWatch, in_files, in_store
from s3server import SECRET_KEY

pytestmark = pytest.mark.e2e

# Where SkyPilot 0.12.2 keeps what its tasks get, below the private folder of a run's session.
SKYPILOTS_OWN = re.compile(
    r"/home/\.sky/(api_server/(requests\.db|clients/)|spot_jobs\.db|managed_jobs/)"
)
# The gang ends only after `last` began: with batches it would wait for ever.
WINDOW = """\
initial: all
states:
  all: {parallel: [gang, quick, last], parallelMode: window, maxConcurrency: 2, terminal: true}
  gang:
    resources: gang
    multiNodeMode: sharded
    secrets: [CANARY]
    run:
      shell: |
        set -eu
        test "$(printf %s "$CANARY" | sha256sum | cut -d' ' -f1)" = DIGEST
        test "$SKYPILOT_NUM_NODES" = 2
        test "$SKYPILOT_NUM_GPUS_PER_NODE" = 2
        test "$(echo "$SKYPILOT_NODE_IPS" | sort -u | wc -l)" = 2
        test "$(echo "$CUDA_VISIBLE_DEVICES" | tr , '\\n' | sort -u | wc -l)" = 2
        python3 store.py put "rank-$SKYPILOT_NODE_RANK.txt" "$(hostname)"
        python3 store.py wait last.txt
    outputs: [{uri: "{{run.uri}}rank-0.txt"}, {uri: "{{run.uri}}rank-1.txt"}]
  quick:
    resources: one
    run: {shell: 'test -z "${CANARY:-}" && test -n "$FOR_ALL"'}
  last:
    resources: one
    run: {shell: "python3 store.py put last.txt began"}
    outputs: [{uri: "{{run.uri}}last.txt"}]
"""
GROUP = """\
initial: all
states:
  all: {parallel: [good, bad, unprepared, never], maxConcurrency: 3, terminal: true}
  good:
    resources: one
    run: {shell: "python3 store.py put good.txt done"}
    outputs: [{uri: "{{run.uri}}good.txt"}]
  bad:
    resources: gang
    multiNodeMode: sharded
    run: {shell: 'test "$SKYPILOT_NUM_NODES" = 2 && echo these are its last words; exit 3'}
  unprepared: {resources: one, run: {setup: "exit 4", shell: "python3 store.py put no.txt no"}}
  never: {resources: one, run: {shell: "python3 store.py put no.txt no"}}
"""


@pytest.mark.req("A-11", "B-03", "B-04", "F-06")
def test_a_window_slides_over_a_gang_with_gpus_and_its_secrets_stay_where_they_belong(
    bench: Bench,
) -> None:
    values = {name: f"canary{secrets.token_hex(16)}" for name in ("CANARY", "FOR_ALL")}
    bench.variables |= values
    looked_for = {**values, "the store's key": SECRET_KEY}
    digest = hashlib.sha256(values["CANARY"].encode()).hexdigest()
    names = [word for name in values for word in ("--secret-env", name)]
    with ArgvWatch(looked_for) as watch:
        driver = bench.submit("window", WINDOW.replace("DIGEST", digest), *names)
        bench.until(lambda: bench.text("window", "rank-0.txt"), driver)
        during = in_files(bench.folder, looked_for)
        code, out, err = ended(driver)
    assert code == 0, err
    assert len({bench.text("window", f"rank-{rank}.txt") for rank in (0, 1)} - {""}) == 2
    assert [row.status for row in bench.rows("window")] == ["SUCCEEDED"] * 3  # one job a member
    bench.assert_nothing_is_left("window")
    assert all(value not in out + err for value in looked_for.values())

    # In no argument on this host. SkyPilot's executor on a node of Slurm gets the variables of a
    # task as one, whatever is done here: docs/guarantees.md says so.
    assert watch.looks > 100
    assert {found for found in watch.found if found[0] == os.getuid()} == set()
    assert all("sky.skylet.executor.slurm" in line for _, _, line in watch.found), watch.found
    # In no file of ours, nor on a node; SkyPilot's own ones held them until the run was over.
    assert in_store(bench.s3.store(""), looked_for) == {}
    assert {path for path in during if not SKYPILOTS_OWN.search(path)} == set()
    assert set().union(*during.values()) == set(looked_for), "the search finds nothing at all"
    assert bench.session("window").stat().st_mode & 0o077 == 0
    for place in (bench.folder, Path("/home/npabed"), Path("/var/log/npa-bed")):
        assert in_files(place, looked_for) == {}


@pytest.mark.req("B-03", "D-01", "D-02", "D-05", "E-02", "F-01", "F-06")
def test_each_member_of_a_group_ends_as_it_did_and_no_later_batch_begins(bench: Bench) -> None:
    code, _, _ = ended(bench.submit("group", GROUP))
    assert code == 1
    code, seen = bench.ask("status", "group")
    assert (code, seen["status"], seen["failure"]["code"] != "") == (1, "FAILED", True)
    assert {step["path"]: (step["recorded"], step["code"]) for step in seen["steps"]} == {
        "all/good": ("succeeded", ""),
        "all/bad": ("failed", "PAYLOAD_EXIT_NONZERO"),
        "all/unprepared": ("failed", "SETUP_FAILED"),
    }
    assert seen["skipped"] == ["never"]
    rows = bench.rows("group")
    assert {row.job_id for row in rows} == {1}  # one job group of three, one of them a gang
    assert {row.task.rpartition("-")[2]: row.status for row in rows} == {
        "good": "SUCCEEDED",
        "bad": "FAILED",
        "unprepared": "FAILED_SETUP",
    }
    assert (bench.text("group", "good.txt"), bench.text("group", "no.txt")) == ("done", "")
    bench.assert_nothing_is_left("group")
    assert "these are its last words" in bench.log("group", "all/bad")  # the server is gone
