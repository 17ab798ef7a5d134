"""The public tools: each is there with all its facts, and the public pipelines validate."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from npa.catalog.entry import Entry
from npa.catalog.loader import COMPILED, Catalog, built_in_sources, fingerprint
from npa.workflow.load import load_file, load_text

ROOT = Path(__file__).parents[2]
SPECS = Path(os.environ.get("NPA_COMPAT_SPECS") or ROOT.parent / "shared" / "specs")
FACTS = Path(
    os.environ.get("NPA_COMPAT_TOOLS") or ROOT.parent / "shared" / "facts" / "workbench-tools.yaml"
)
NAMES = (Path(__file__).parent / "public_names.txt").read_text().split()
CATALOG = Catalog.built_in()

needs_facts = pytest.mark.skipif(not FACTS.is_file(), reason="NPA_COMPAT_TOOLS names no file")


@lru_cache(maxsize=1)
def facts() -> dict[str, Any]:
    value = yaml.load(FACTS.read_text(), Loader=yaml.CSafeLoader)
    assert isinstance(value, dict)
    return value


def entry(name: str) -> Entry:
    found = CATALOG.entry(name)
    assert found is not None, name
    return found


def fact(name: str) -> Mapping[str, Any]:
    found = facts()["tools"][name]
    assert isinstance(found, dict)
    return found


@pytest.mark.req("B-05")
def test_every_public_name_is_a_tool() -> None:
    assert len(NAMES) == 99
    assert [name for name in NAMES if CATALOG.get(name) is None] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_says_what_it_does_and_runs_something(name: str) -> None:
    found = entry(name)
    assert found.summary
    assert found.command


@needs_facts
@pytest.mark.req("B-05")
@pytest.mark.parametrize("name", NAMES)
def test_a_public_tool_has_its_command_and_all_its_facts(name: str) -> None:
    known, found = fact(name), entry(name)
    if known.get("form") == "inline":
        assert {param.key for param in found.params} >= set(known["config_keys"])
    else:
        assert found.command == tuple(known["command"])
        assert found.args == tuple(tuple(map(str, words)) for words in known["args"])
    assert found.image == known.get("image_key", "")
    assert found.extra == known.get("package_extra", "")
    assert list(found.interpreters) == known.get("vendor_interpreters", [])
    assert list(found.secrets) == known.get("secret_env", [])
    assert [
        {"probe": item.probe, "requirement": item.requirement} for item in found.requirements
    ] == known.get("requirements", [])
    assert found.gang.mode == known.get("multi_node", "forbidden")
    assert found.gang.activation_key == known.get("shard_activation_key", "")
    assert found.gang.output_key == known.get("shard_output_key", "")
    assert found.gang.count_key == known.get("variant_count_key", "")
    if "licence" in known:
        assert found.licence == known["licence"]
    if "config_defaults" in known:
        assert found.config_defaults == known["config_defaults"]
    if "omit_when_empty" in known:
        assert list(found.omit_when_empty) == known["omit_when_empty"]


@needs_facts
def test_the_images_are_the_public_ones() -> None:
    assert {key: CATALOG.images.get(key) for key in facts()["images"]} == facts()["images"]


def test_an_image_key_of_a_tool_is_an_image() -> None:
    keys = {entry(name).image for name in NAMES} - {""}
    assert keys <= CATALOG.images.keys()


def test_no_default_is_made_up() -> None:
    """Only the one tool with public defaults, and our own optional keys, have any."""
    ours = {"decision_field", "cpu_udfs"}
    with_defaults = {name for name in NAMES if entry(name).config_defaults.keys() - ours}
    assert with_defaults == {"workbench.cosmos2.transfer_execute"}


def test_the_compiled_form_is_fresh() -> None:
    compiled = resources.files("npa.catalog").joinpath("data", COMPILED).read_bytes()
    assert json.loads(compiled)["sources"] == fingerprint(built_in_sources()), (
        "run `python -m npa.catalog.compile`"
    )


@pytest.mark.req("B-01")
@pytest.mark.skipif(not SPECS.is_dir(), reason="NPA_COMPAT_SPECS names no folder")
def test_every_public_pipeline_validates_without_an_error() -> None:
    files = sorted(SPECS.glob("*.yaml"))
    assert files
    wrong = {
        file.name: [f"{item.line}: {item.message}" for item in loaded.errors]
        for file in files
        if (loaded := load_file(file, tools=CATALOG)).errors
    }
    assert wrong == {}


WORKFLOW = """\
apiVersion: npa.workflow/v0.0.1
kind: Workflow
metadata: {name: demo}
config: {rollouts_uri: 's3://b/r/', scores_uri: 's3://b/s/', vlm_backend: %s}
states:
  score:
    toolRef: workbench.vlm_eval.run
    params: {%s: api}
    terminal: true
"""


def test_lint_catches_a_wrong_parameter_name_and_names_the_right_ones() -> None:
    loaded = load_text(WORKFLOW % ("api", "bakend"), filename="w.yaml", tools=CATALOG)
    (problem,) = [item for item in loaded.errors if "bakend" in item.message]
    assert problem.line == 8
    assert "vlm_backend" in problem.help
    assert "rollouts_uri" in problem.help


def test_lint_catches_a_value_outside_the_closed_set() -> None:
    loaded = load_text(WORKFLOW % ("api", "vlm_backend"), filename="w.yaml", tools=CATALOG)
    assert not loaded.errors
    wrong = load_text(
        (WORKFLOW % ("hosted", "vlm_backend")).replace("    params: {vlm_backend: api}\n", ""),
        filename="w.yaml",
        tools=CATALOG,
    )
    assert any("self-hosted" in item.message for item in wrong.errors)


@pytest.mark.parametrize(
    "name",
    [
        "workbench.dataset.write_quality_decision",
        "workbench.rl.write_success_decision",
        "workbench.scenario_gen.write_hardening_decision",
    ],
)
def test_decision_writers_measure(name: str) -> None:
    found = entry(name)
    assert found.command[2:] == ("npa.tools.decide", "measured")
    assert found.writes_decision


def test_what_is_not_described_is_not_made_up() -> None:
    found = entry("workbench.lancedb.create_failure_views")
    assert found.command[2:] == ("npa.tools.undescribed",)
    assert "not described" in found.summary
