"""The token language: splitting, rendering, config resolution, integer references."""

from __future__ import annotations

import base64
import json
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npa.workflow.codes import Code
from npa.workflow.tokens import (
    ConfigUnresolvable,
    NotAnInteger,
    Scopes,
    Token,
    UnresolvedToken,
    config_reference,
    integer,
    parse,
    render_value,
    resolve_config,
    text_of,
    truth,
)

SCOPES = Scopes(
    config={"a": "x", "n": 3, "t": True, "none": None, "list": [1, "b"], "f": 0.5},
    run={"id": "r-1", "uri": "file:///runs/r-1/"},
    state={"train.uri": "s3://b/train", "train.output_2": "s3://b/2"},
    loop={"refine": 2},
    item={"shard": "07"},
)


def render(text: str) -> str:
    return parse(text).render(SCOPES.lookup)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("plain", "plain"),
        ("", ""),
        ("{{config.a}}", "x"),
        ("{{ config . a }}", "x"),
        ("{{\n config.a\n}}", "x"),
        ("-{{config.n}}-{{run.id}}-", "-3-r-1-"),
        ("{{config.t}} {{config.none}} {{config.list}}", 'true null [1,"b"]'),
        ("{{config.f}}", "0.5"),
        ("{{state.train.uri}} {{state.train.output_2}}", "s3://b/train s3://b/2"),
        ("{{loop.refine}}/{{item.shard}}", "2/07"),
        ("{{config.a|base64}}", base64.b64encode(b"x").decode()),
        ("{{config.list | json | quote}}", shlex.quote('[1,"b"]')),
        ("{{config.a|json}}", '"x"'),
        ("{{{{config.a}}", "{{config.a}}"),
        ("{{{{", "{{"),
        ("{{{{{{config.a}}", "{{x"),
        ('{"k":{{config.n}}}', '{"k":3}'),
        ("{{{config.n}}}", "{3}"),
        ("a }} b", "a }} b"),
    ],
)
def test_rendering(text: str, rendered: str) -> None:
    assert parse(text).problems == ()
    assert render(text) == rendered


@pytest.mark.parametrize(
    "text",
    [
        'print(json.dumps({{"shape": 1}}))',
        "docker ps --format '{{.Names}}'",
        "f'{{key: value}}'",
        "{{#each}}",
        "{{ }}",
    ],
)
def test_braces_that_are_no_token_stay_text(text: str) -> None:
    assert parse(text).problems == ()
    assert render(text) == text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{{env.HOME}}", Code.UNKNOWN_SCOPE),
        ("{{confg.a}}", Code.UNKNOWN_SCOPE),
        ("{{config.a|upper}}", Code.UNKNOWN_TRANSFORM),
        ("{{config.a b}}", Code.BAD_TOKEN),
        ("{{config a}}", Code.BAD_TOKEN),
        ("{{config.}}", Code.BAD_TOKEN),
        ("{{config.a|}}", Code.BAD_TOKEN),
        ("{{name}}", Code.BAD_TOKEN),
        ("echo {{config.a\nnext", Code.BAD_TOKEN),
        ("{{config.a}", Code.BAD_TOKEN),
    ],
)
def test_what_is_meant_as_a_token_and_is_none(text: str, code: Code) -> None:
    assert [problem.code for problem in parse(text).problems] == [code]


def test_every_problem_of_a_string_is_told() -> None:
    assert len(parse("{{env.A}} {{config.a|up}} {{name}} {{config.a}}").problems) == 3


def test_a_missing_value_is_named() -> None:
    with pytest.raises(UnresolvedToken, match=r"`\{\{config.zz\}\}` has no value here"):
        render("{{config.zz}}")


def test_render_value_goes_into_lists_and_mappings() -> None:
    value = {"a": ["{{config.a}}", 3, None], "b": {"c": "{{run.id}}"}}
    assert render_value(value, SCOPES.lookup) == {"a": ["x", 3, None], "b": {"c": "r-1"}}


@given(st.text(alphabet="{}. |ab\nconfig", max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_splits_without_loss_of_literals(text: str) -> None:
    template = parse(text)
    doubled = text.replace("{{", "{{{{") if "{{" in text else text
    assert parse(doubled).problems == ()
    if not template.problems and not any(isinstance(p, Token) for p in template.parts):
        joined = "".join(p for p in template.parts if isinstance(p, str))
        assert joined == text or "{{{{" in text


@given(st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_transforms_can_be_undone(text: str) -> None:
    scopes = Scopes(config={"v": text})
    assert shlex.split(parse("{{config.v|quote}}").render(scopes.lookup)) == [text]
    assert json.loads(parse("{{config.v|json}}").render(scopes.lookup)) == text


# Config


def test_config_is_resolved_in_any_order_and_depth() -> None:
    depth = 5000
    config: dict[str, object] = {f"k{n}": f"{{{{config.k{n + 1}}}}}!" for n in range(depth)}
    config[f"k{depth}"] = "{{run.id}}"
    resolution = resolve_config(config, {"id": "r"})
    assert resolution.values["k0"] == "r" + "!" * depth
    assert resolution.required() is resolution.values


def test_tokens_inside_lists_of_config_are_resolved_too() -> None:
    values = resolve_config({"a": ["{{config.b}}"], "b": 3}).required()
    assert values["a"] == ["3"]


def test_a_circle_in_config_is_told_as_a_path() -> None:
    config = {"a": "{{config.b}}", "b": "{{config.c}}", "c": "{{config.b}}", "d": "ok"}
    resolution = resolve_config(config)
    assert resolution.cycles == (("b", "c", "b"),)
    assert resolution.values["d"] == "ok"
    with pytest.raises(ConfigUnresolvable, match="b -> c -> b"):
        resolution.required()


def test_an_unknown_key_in_config_is_told_with_its_user() -> None:
    resolution = resolve_config({"a": "{{config.zz}}", "b": "{{config.a}}"})
    assert [(key, token.key) for key, token in resolution.unknown] == [("a", "zz")]
    with pytest.raises(ConfigUnresolvable, match="'a'"):
        resolution.required()


def test_values_that_double_each_other_do_not_fill_the_memory() -> None:
    config: dict[str, object] = {"k0": "x" * 10}
    config |= {f"k{n}": f"{{{{config.k{n - 1}}}}}" * 10 for n in range(1, 40)}
    resolution = resolve_config(config)
    assert resolution.too_long
    assert all(len(text_of(value)) <= 1024 * 1024 for value in resolution.values.values())
    with pytest.raises(ConfigUnresolvable, match="too long"):
        resolution.required()


# Numbers and flags


@pytest.mark.parametrize(
    ("value", "number"),
    [(3, 3), ("3", 3), (" 3 ", 3), ("-1", -1), ("config.n", 7), ("{{config.n}}", 7),
     ("{{ config.n }}", 7), ("config.s", 9)],
)  # fmt: skip
def test_integers_and_references_to_them(value: object, number: int) -> None:
    assert integer(value, {"n": 7, "s": "9"}) == number


@pytest.mark.parametrize(
    "value",
    [True, 2.0, "2.0", "", "abc", None, [3], "config.zz", "{{config.zz}}", "x{{config.n}}",
     "config.f", "9" * 30],
)  # fmt: skip
def test_what_is_no_integer(value: object) -> None:
    with pytest.raises(NotAnInteger):
        integer(value, {"n": 7, "f": 2.5})


def test_a_reference_is_one_key_and_nothing_else() -> None:
    assert config_reference("config.a.b") == "a.b"
    assert config_reference("{{config.a|json}}") == ""
    assert config_reference("{{run.id}}") == ""
    assert config_reference("a") == ""


@pytest.mark.parametrize(
    "value", [False, "false", "False", " false ", 0, "0", "", None, "null", []]
)
def test_what_is_false(value: object) -> None:
    assert truth(value) is False


@pytest.mark.parametrize("value", [True, "true", 1, "1", "anything", [0], 0.5])
def test_what_is_true(value: object) -> None:
    assert truth(value) is True
