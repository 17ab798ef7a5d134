"""A customer's own SkyPilot file on a real SkyPilot, by the command that takes it."""

from __future__ import annotations

import json

import pytest

from e2e.skypilot.bench import STORE, Bench, ended

pytestmark = pytest.mark.e2e

RAW = """\
name: theirs
num_nodes: 2
resources: {cpus: 1, accelerators: "H100:2"}
envs:
  WHO: customer
  NPA_EXECUTION_OUTPUTS: '[{"uri": "URI", "kind": "directory"}]'
workdir: .
setup: |
  echo "set up on node $SKYPILOT_SETUP_NODE_RANK"
run: |
  set -eux
  test "$SKYPILOT_NUM_NODES" = 2
  test "$CUDA_VISIBLE_DEVICES" = 0,1
  test -f theirs.yaml
  echo "rank $SKYPILOT_NODE_RANK of $WHO has {{these}} and ${NPA_WORKFLOW_PATH}"
  python3 store.py put "out/rank-$SKYPILOT_NODE_RANK.txt" "$WHO"
"""


@pytest.mark.req("A-01")
def test_a_raw_task_runs_on_two_nodes_and_is_a_run_as_any_other(bench: Bench) -> None:
    folder = bench.folder / "raw"
    folder.mkdir()
    (folder / "store.py").write_text(STORE)
    uri = f"{bench.s3.uri}runs/raw/out/"
    (folder / "theirs.yaml").write_text(RAW.replace("URI", uri))
    code, out, err = ended(bench.submit_file("raw", folder / "theirs.yaml"))
    assert code == 0, err + bench.log("raw", "task")
    assert json.loads(out)["status"] == "succeeded"
    assert [bench.text("raw", f"out/rank-{rank}.txt") for rank in (0, 1)] == ["customer"] * 2
    (row,) = bench.rows("raw")
    assert (row.status, row.job.startswith("raw-task-")) == ("SUCCEEDED", True)
    assert "rank 0 of customer has {{these}} and task" in bench.log("raw", "task")
    bench.assert_nothing_is_left("raw")
