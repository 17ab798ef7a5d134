"""What can be set on a workflow, and where it is used."""

from __future__ import annotations

import pytest

from npa.workflow.describe import describe, value_type
from workflow.judged import workflow_of
from workflow.toolbox import SAMPLE_TOOLS

TEXT = """
    metadata: {name: demo, description: a demo}
    config:
      bucket: data
      rate: "0.1"
      rounds: 3
      out: "s3://{{config.bucket}}/o"
      idle: x
    resources: {default: {image: "{{config.image_tag}}"}}
    states:
      a:
        toolRef: demo.defaults
        params: {rate: "{{config.rate}}"}
        loop: {max: "{{config.rounds}}"}
        outputs: [{uri: "{{config.out}}{{config.rate}}"}]
        next: b
      b: {run: {shell: "echo {{config.image_tag}}"}, terminal: true}
"""


def test_every_key_is_told_with_type_source_and_uses() -> None:
    description = describe(workflow_of(TEXT, overrides={"image_tag": "v1"}), SAMPLE_TOOLS)
    keys = {item.key: item for item in description.keys}
    assert keys["bucket"].uses == ("config.out",)
    assert keys["rate"].uses == ("states.a.params.rate",)
    assert (keys["rate"].type, keys["rounds"].type, keys["out"].type) == (
        "number",
        "integer",
        "uri",
    )
    assert keys["rounds"].uses == ("states.a.loop.max",)
    assert keys["image_tag"].uses == ("resources.default.image", "states.b.run.shell")
    assert (keys["depth"].source, keys["depth"].uses) == (
        "tool default",
        ("toolRef demo.defaults",),
    )
    assert (keys["idle"].uses, keys["idle"].line) == ((), 9)
    assert description.unused == ("idle",)
    assert description.states == ("a", "b")


def test_a_key_that_every_state_overrides_is_used_by_the_overrides() -> None:
    text = """
        config: {lr: 1, idle: 2}
        states:
          a: {run: {shell: "echo {{config.lr}}"}, params: {lr: 3}, next: b}
          b: {run: {shell: "train"}, params: {lr: 4, own: 5}, terminal: true}
    """
    description = describe(workflow_of(text), SAMPLE_TOOLS)
    keys = {item.key: item for item in description.keys}
    assert keys["lr"].uses == ("states.a.params.lr", "states.b.params.lr")
    assert description.unused == ("idle",)
    assert "own" not in keys


def test_the_json_form_has_stable_names() -> None:
    told = describe(workflow_of(TEXT, overrides={"image_tag": "v1"}), SAMPLE_TOOLS).as_json()
    assert set(told) == {"workflow", "description", "initial", "states", "config", "unused"}
    first = told["config"][0]  # type: ignore[index]
    assert set(first) == {"key", "value", "type", "source", "uses", "line", "overridden"}


def test_what_overrides_a_value_is_told_with_what_stood_there() -> None:
    text = """
        config: {lr: 1, idle: 2}
        states:
          a: {run: {shell: "echo {{config.lr}}"}, params: {lr: 3}, next: b}
          b: {toolRef: demo.defaults, params: {depth: 4, own: 5}, terminal: true}
    """
    overrides = {"lr": "0.5", "depth": "9"}
    workflow = workflow_of(text, overrides=overrides)
    depth = SAMPLE_TOOLS.get("demo.defaults").config_defaults["depth"]  # type: ignore[union-attr]
    raw = {"config": {"lr": 1, "idle": 2}}
    keys = {item.key: item for item in describe(workflow, SAMPLE_TOOLS, overrides, raw).keys}
    told = {
        key: [(one.where, one.value, one.instead_of) for one in item.overridden]
        for key, item in keys.items()
    }
    assert told["lr"] == [("--var", "0.5", 1), ("states.a.params.lr", 3, "0.5")]
    assert told["depth"] == [("--var", "9", depth), ("states.b.params.depth", 4, "9")]
    assert told["idle"] == []


@pytest.mark.parametrize(
    ("value", "kind"),
    [("x", "string"), ("", "string"), ("3", "integer"), ("true", "boolean"), ("null", "string"),
     (True, "boolean"), (None, "null"), ([1], "list"), ({}, "mapping"), ("s3://b", "uri"),
     (0.5, "number")],
)  # fmt: skip
def test_types(value: object, kind: str) -> None:
    assert value_type(value) == kind
