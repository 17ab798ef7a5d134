"""Public pipelines load without a change, and say what they always said silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from npa.workflow.codes import Severity
from npa.workflow.load import load_file
from workflow.toolbox import public_tools, specs_folder

FOLDER = specs_folder()
FACTS = FOLDER.parent / "facts" / "workbench-tools.yaml"
SPECS = sorted(FOLDER.glob("*.yaml"))

pytestmark = pytest.mark.skipif(
    not (SPECS and FACTS.is_file()), reason="public pipelines are not here (NPA_COMPAT_SPECS)"
)


@pytest.mark.req("B-01")
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_public_pipeline_loads_without_errors(path: Path) -> None:
    loaded = load_file(path, tools=public_tools(FACTS))
    assert [d.message for d in loaded.errors] == []
    assert loaded.workflow is not None
    assert loaded.workflow.states


def test_transitions_that_can_never_fire_are_the_only_flow_warning() -> None:
    flow = {}
    for path in SPECS:
        for item in load_file(path, tools=public_tools(FACTS)).diagnostics:
            assert item.severity is Severity.WARNING
            if "NPA030" <= item.code < "NPA060":
                flow[path.stem] = (item.code, item.path)
    assert flow == {"adversarial-scenario-hardening": ("NPA045", "states.decide.transitions")}
