"""What a catalogue file may say, and how its problems are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npa.catalog.entry import Entry, from_json
from npa.catalog.loader import Catalog
from npa.catalog.reading import CatalogError, read_catalog
from npa.errors import UsageError
from npa.workflow.tools import GangMode

HEAD = "catalogue: npa.catalog/v1\n"

FULL = (
    HEAD
    + """
family: video
images: {video-transfer: registry.example.com/video:1}
defaults:
  image: video-transfer
  optional_secrets: [HF_TOKEN]
  params:
    seed: {kind: int, default: 7}
tools:
  transfer:
    summary: augment clips
    command: [npa, video, transfer]
    args:
    - [--input-uri, '{{config.trigger_uri}}']
    - [--run-id, '{{run.id}}']
    - [--configs-uri, '{{config.configs_uri}}']
    - [--control, '{{config.control}}']
    - [--guidance, '{{config.guidance}}']
    - [--cache-dir, '{{config.cache_dir}}']
    - [--seed, '{{config.seed}}']
    - [--execute]
    params:
      trigger_uri: {kind: uri, role: input, schema: clips.v1, file: clips.json}
      control: {kind: enum, values: [edge, depth], default: edge}
    config_defaults: {guidance: '3.0', cache_dir: ''}
    omit_when_empty: [--cache-dir]
    extra: viz
    requirements:
    - {requirement: 'av>=12,<17', probe: 'python:av'}
    interpreters: [/opt/vendor/bin/python]
    secrets: [API_KEY]
    env: {NODES: '1'}
    licence: isaac
    gang: {mode: sharded, activation_key: configs_uri, output_key: augment_uri, count_key: n}
    gpu: {min_count: 1, rt_cores: true}
    setup: vendor
    setup_shell: echo ready
    preamble: self-hosted-vlm
    checkpoint_loader: resume
    aliases: [video.old_name]
"""
)


@pytest.fixture
def entry() -> Entry:
    return read_catalog(FULL.encode(), "video.yaml").entries["video.transfer"]


def test_an_entry_holds_every_fact(entry: Entry) -> None:
    assert entry.image == "video-transfer"
    assert entry.requirements[0].probe == "python:av"
    assert entry.gpu.rt_cores
    assert entry.optional_secrets == ("HF_TOKEN",)
    assert (entry.preamble, entry.setup) == ("self-hosted-vlm", "vendor")
    assert entry.family == "video"


def test_the_language_gets_its_part(entry: Entry) -> None:
    tool = entry.tool()
    assert tool.argv[:5] == ("npa", "video", "transfer", "--input-uri", "{{config.trigger_uri}}")
    assert tool.argv[-1] == "--execute"
    assert tool.gang is GangMode.SHARDED
    assert (tool.gang_activation_key, tool.gang_output_key, tool.gang_count_key) == (
        "configs_uri",
        "augment_uri",
        "n",
    )
    assert tool.secrets == ("API_KEY",)
    assert tool.setup == "echo ready"


def test_defaults_of_parameters_are_defaults_of_config(entry: Entry) -> None:
    assert entry.config_defaults == {
        "guidance": "3.0",
        "cache_dir": "",
        "control": "edge",
        "seed": "7",
    }


def test_undescribed_parameters_are_required_strings(entry: Entry) -> None:
    params = {param.name: param for param in entry.params}
    assert list(params) == [
        "seed",
        "trigger_uri",
        "control",
        "configs_uri",
        "guidance",
        "cache_dir",
    ]
    assert (params["configs_uri"].kind, params["configs_uri"].required) == ("string", True)
    assert (params["guidance"].required, params["guidance"].default) == (False, "3.0")
    assert params["trigger_uri"].schema == "clips.v1"


def test_the_compiled_form_keeps_everything(entry: Entry) -> None:
    assert from_json(json.loads(json.dumps(entry.to_json()))) == entry


def test_an_alias_is_the_same_tool_under_another_name() -> None:
    entries = read_catalog(FULL.encode(), "video.yaml").entries
    assert entries["video.old_name"].alias_of == "video.transfer"
    assert entries["video.old_name"].tool().argv == entries["video.transfer"].tool().argv


TOOL = HEAD + "tools:\n  a.b:\n    command: [x]\n"

WRONG = [
    (HEAD + "tolls: {}\n", "c.yaml:2:1 unknown key 'tolls', did you mean 'tools'?"),
    (TOOL + "    sumary: x\n", "c.yaml:5:5 unknown key 'sumary', did you mean 'summary'?"),
    (TOOL + "    params: {p: {knd: int}}\n", "c.yaml:5:18 unknown key 'knd', did you mean 'kind'?"),
    (
        TOOL + "    secrets: [1]\n",
        "c.yaml:5:15 tools.a.b.secrets[0]: input should be a valid string",
    ),
    (TOOL + "    omit_when_empty: [--x]\n", "c.yaml:4:5 tools.a.b: `omit_when_empty` names --x"),
    (TOOL + "    args: [[]]\n", "an item of `args` is empty"),
    (TOOL + "    params: {p: {kind: enum}}\n", "`values` goes with `kind: enum`"),
    (TOOL + "    params: {p: {required: true, default: 1}}\n", "with a default is not required"),
    (
        TOOL + "    params: {p: {kind: enum, values: [a], default: b}}\n",
        "the default 'b' is not one of the values",
    ),
    (TOOL + "    gang: {count_key: n}\n", "keys of a gang contract need `mode: sharded`"),
    (HEAD + "tools:\n  A B: {command: [x]}\n", "c.yaml:3:3 'A B' is not a valid name"),
    (HEAD + "tools:\n  a.b: {}\n", "c.yaml:3:8 `a.b` has no command"),
    (TOOL + "    aliases: [a.b]\n", "`a.b` is named twice"),
    (TOOL + "  a.b:\n    command: [y]\n", "c.yaml:5:3"),
    ("catalogue: npa.catalog/v2\n", "c.yaml:1:12"),
    ("tools: {}\n", "the key 'catalogue' is missing"),
    ("tools: [\n", "c.yaml:1:9"),
    ("- a\n", "c.yaml:1:1"),
    (HEAD + "schemas:\n  s.v1: {type: objekt}\n", '`type` is "objekt", which cannot be used'),
    (HEAD + "schemas:\n  s.v1: {minimun: 1}\n", "the keyword `minimun` is not checked here"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_problem_is_reported_at_its_place(text: str, message: str) -> None:
    with pytest.raises(CatalogError) as caught:
        read_catalog(text.encode(), "c.yaml")
    assert message in caught.value.message


def test_all_problems_are_reported_in_order() -> None:
    text = TOOL + "    sumary: x\n    licence: 3\n    secrets: ['1']\n"
    with pytest.raises(CatalogError) as caught:
        read_catalog(text.encode(), "c.yaml")
    assert [problem.line for problem in caught.value.problems] == [5, 6, 7]
    assert "c.yaml:7" in caught.value.hint


@pytest.mark.req("B-05")
def test_a_user_adds_tools_by_file_and_by_folder(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(HEAD + "tools: {mine.one: {command: [x]}}\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "two.yaml").write_text(HEAD + "tools: {mine.two: {command: [y]}}\n")
    catalog = Catalog.load(tmp_path / "one.yaml", tmp_path / "folder")
    one, two = catalog.get("mine.one"), catalog.get("mine.two")
    assert one is not None
    assert two is not None
    assert (one.argv, two.argv) == (("x",), ("y",))
    assert {"core.artifact.copy", "mine.one", "mine.two"} <= set(catalog.names())


def test_a_name_clash_is_reported_with_both_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + "tools: {core.artifact.copy: {command: [x]}}\n")
    with pytest.raises(CatalogError) as caught:
        Catalog.load(path)
    assert "core.artifact.copy" in caught.value.message
    assert "core.yaml" in caught.value.message


def test_a_tool_may_be_replaced_on_purpose(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + "tools: {core.artifact.copy: {command: [x], replaces: true}}\n")
    tool = Catalog.load(path).get("core.artifact.copy")
    assert tool is not None
    assert tool.argv == ("x",)


def test_an_image_key_cannot_change_its_meaning(tmp_path: Path) -> None:
    for name, image in (("a", "r/one:1"), ("b", "r/two:1")):
        (tmp_path / f"{name}.yaml").write_text(HEAD + f"images: {{key: '{image}'}}\n")
    with pytest.raises(CatalogError, match="image key `key`"):
        Catalog.load(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the catalogue"):
        Catalog.load(tmp_path / "none.yaml")


def test_an_unknown_tool_is_none() -> None:
    assert Catalog.load().get("no.such_tool") is None
