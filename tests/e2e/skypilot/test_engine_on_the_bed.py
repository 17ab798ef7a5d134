"""The engine against a real SkyPilot: what it launches runs once, and is seen as it is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.skypilot.conftest import World, task_document
from e2e.skypilot.looks import assert_looks_agree
from npa.observation import Absent, Found, Unavailable
from npa.orchestration.engine import JobRef
from npa.orchestration.skypilot import record
from npa.orchestration.skypilot.checks import check
from npa.orchestration.skypilot.configs import (
    Controller,
    check_config,
    kubernetes_config,
    slurm_config,
)
from npa.orchestration.skypilot.session import Session
from npa.orchestration.skypilot.spec import SessionSpec
from npa.orchestration.skypilot.validation import Phase as ScopePhase
from npa.orchestration.skypilot.validation import read_current
from orchestration.skypilot.contract import holds_from_launch_to_cancel

pytestmark = pytest.mark.e2e


@pytest.mark.req("D-02")
def test_preflight_finds_the_cluster_enabled(world: World) -> None:
    assert world.engine.preflight(()) == ()


def test_a_job_that_never_was_is_absent_after_two_looks(world: World) -> None:
    ref = JobRef("never", "00")
    first = world.engine.observe([ref])["never"]
    assert isinstance(first, Unavailable)
    world.engine.wait(3.0)
    assert isinstance(world.engine.observe([ref])["never"], Absent)
    assert_looks_agree(world.spec)


@pytest.mark.req("A-04")
def test_two_sessions_live_side_by_side(
    make_spec: Callable[[Path], SessionSpec], tmp_path: Path, world: World
) -> None:
    mine = world.engine.session.start()
    other = Session(make_spec(tmp_path / "other"))
    theirs = other.start()
    try:
        assert theirs.endpoint != mine.endpoint
        assert isinstance(other.health(), Found)
        records = [record.load(root) for root in (world.spec.root, other.spec.root)]
        assert len({r.user_id for r in records if r}) == 2
    finally:
        assert other.stop() is True
    assert world.engine.session.prove().process == mine.process


@pytest.mark.req("A-05")
def test_a_check_only_session_sees_the_cluster_and_its_gpus(
    make_spec: Callable[[Path], SessionSpec], tmp_path: Path, bed: Mapping[str, Any]
) -> None:
    found = check(tmp_path / "scope", make_spec, bed["infra"], gpus=True)
    assert found.has(bed["infra"])
    (h100,) = [gpus for gpus in found.gpus if gpus.product == "H100"]
    assert h100.total == bed["nodes"] * bed["gpus_per_node"]
    current = read_current(tmp_path / "scope")
    assert current is not None
    assert current.phase is ScopePhase.COMPLETE


SCHEMA = """
import json, sys
from sky.utils import common_utils, schemas
for config in json.load(sys.stdin):
    common_utils.validate_schema(config, schemas.get_config_schema(), "refused: ")
"""


@pytest.mark.req("A-12")
def test_skypilot_takes_every_configuration_that_npa_makes(
    bed: Mapping[str, Any], tmp_path: Path
) -> None:
    made = [kubernetes_config("context", controller) for controller in Controller]
    made += [slurm_config(), check_config("context")]
    python = Path(bed["sky_bin"]).parent / "python"
    done = subprocess.run(
        [str(python), "-I", "-c", SCHEMA],
        input=json.dumps(made),
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.req("D-01", "D-02", "D-04", "D-05", "E-04")
def test_the_engines_contract_holds_against_a_real_skypilot(world: World) -> None:
    task = task_document("only", "sleep 900")
    holds_from_launch_to_cancel(world.engine, world.job("contract", task, paths={"a": "only"}))
    seen = assert_looks_agree(world.spec)
    assert [(row.status, row.schedule_state) for row in seen.rows] == [("CANCELLED", "DONE")]
