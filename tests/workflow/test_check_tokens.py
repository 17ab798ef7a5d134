"""Tokens in their places: scopes, keys, and whether there is a value yet."""

from __future__ import annotations

import json

import pytest

from workflow.judged import found, load

SHELL = "run: {shell: 'true'}"
OUT = "outputs: [{uri: 's3://b/%s'}]"


def shell(text: str, config: str = "{}", extra: str = "") -> list[tuple[str, str]]:
    state = f"{{run: {{shell: {json.dumps(text)}}}, terminal: true{extra}}}"
    return found(f"config: {config}\nstates: {{a: {state}}}")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{{config.nope}}", "NPA062"),
        ("{{run.nope}}", "NPA062"),
        ("{{state.nope.uri}}", "NPA062"),
        ("{{loop.nope}}", "NPA062"),
        ("{{item.nope}}", "NPA062"),
        ("{{env.HOME}}", "NPA061"),
        ("{{config.nope|up}}", "NPA063"),
        ("{{run.id} }", "NPA060"),
    ],
)
def test_what_has_no_meaning(text: str, code: str) -> None:
    assert shell(f"echo {text}") == [(code, "states.a.run.shell")]


def test_run_has_id_prefix_uri_and_what_the_file_adds() -> None:
    text = "{{run.id}} {{run.prefix}} {{run.uri}} {{run.owner}}"
    assert (
        found(f"""
        run: {{owner: lab}}
        states: {{a: {{run: {{shell: "echo {text}"}}, terminal: true}}}}
    """)
        == []
    )


def test_params_lie_over_config_but_do_not_see_each_other() -> None:
    assert shell("echo {{config.x}}", extra=", params: {x: 1}") == []
    assert shell("true", extra=", params: {x: 1, y: '{{config.x}}'}") == [
        ("NPA062", "states.a.params.y")
    ]


def test_the_place_of_a_token_inside_a_block_is_its_own_line() -> None:
    (item,) = load("""
        states:
          a:
            run:
              shell: |
                echo one
                echo {{config.nope}}
            terminal: true
    """).diagnostics
    assert (item.line, item.column, item.end_column) == (8, 14, 29)


def test_config_sees_only_itself_and_the_run() -> None:
    assert found(f"""
        config:
          a: "{{{{state.s.uri}}}}"
          b: "{{{{loop.s}}}}"
          c: ["{{{{run.id}}}}"]
          d: "{{{{run.x}}}}"
        states: {{s: {{{SHELL}, terminal: true}}}}
    """) == [("NPA062", "config.a"), ("NPA062", "config.b"), ("NPA062", "config.d")]


@pytest.mark.parametrize(
    ("part", "problem"),
    [("uri", ""), ("output_1", ""), ("output_2", "NPA062"), ("output_0", "NPA062"),
     ("path", "NPA062")],
)  # fmt: skip
def test_outputs_of_a_state(part: str, problem: str) -> None:
    codes = [
        code
        for code, _ in found(f"""
        states:
          a: {{{SHELL}, {OUT % "a"}, next: b}}
          b: {{run: {{shell: "cat {{{{state.a.{part}}}}}"}}, terminal: true}}
    """)
    ]
    assert codes == ([problem] if problem else [])


def test_a_state_without_outputs_has_no_uri() -> None:
    (item,) = load(f"""
        states:
          a: {{{SHELL}, next: b}}
          b: {{run: {{shell: "cat {{{{state.a.uri}}}}"}}, terminal: true}}
    """).diagnostics
    assert item.message == "state 'a' declares no outputs"


def test_an_output_of_a_branch_may_not_be_there() -> None:
    assert found(f"""
        config: {{f: true}}
        states:
          a: {{{SHELL}, transitions: [{{if: config.f, goto: b}}], next: c}}
          b: {{{SHELL}, {OUT % "b"}, next: c}}
          c: {{run: {{shell: "cat {{{{state.b.uri}}}}"}}, terminal: true}}
    """) == [("NPA065", "states.c.run.shell")]


def test_an_output_of_a_sibling_may_not_be_there_but_is_after_the_join() -> None:
    assert found(f"""
        states:
          p: {{parallel: [a, b], next: c}}
          a: {{{SHELL}, {OUT % "a"}}}
          b: {{run: {{shell: "cat {{{{state.a.uri}}}}"}}}}
          c: {{run: {{shell: "cat {{{{state.a.uri}}}}"}}, terminal: true}}
    """) == [("NPA065", "states.b.run.shell")]


def test_a_profile_is_judged_for_each_state_that_uses_it() -> None:
    assert found(f"""
        resources: {{p: {{image: "{{{{state.b.uri}}}}", region: "{{{{config.r}}}}"}}}}
        states:
          a: {{{SHELL}, resources: p, params: {{r: x}}, next: b}}
          b: {{{SHELL}, {OUT % "b"}, terminal: true}}
    """) == [("NPA065", "resources.p.image")]


def test_loop_numbers_are_known_inside_and_after() -> None:
    assert found("""
        states:
          early: {run: {shell: "echo {{loop.l}}"}, next: l}
          l: {sequence: [in], loop: {max: 2}, next: late}
          in: {run: {shell: "echo {{loop.l}}"}}
          late: {run: {shell: "echo {{loop.l}}"}, terminal: true}
    """) == [("NPA067", "states.early.run.shell")]


def test_items_are_known_inside_their_foreach_only() -> None:
    assert found("""
        states:
          f: {sequence: [in], foreach: {uri: "{{run.uri}}{{item.value}}", as: shard}, next: out}
          in: {run: {shell: "echo {{item.shard}} {{item.value}} {{item.index}}"}}
          out: {run: {shell: "echo {{item.shard}}"}, terminal: true}
    """) == [("NPA062", "states.f.foreach.uri"), ("NPA062", "states.out.run.shell")]


@pytest.mark.parametrize(
    ("text", "value", "hazard"),
    [
        ("echo {{config.v}}", "a b", True),
        ("echo {{config.v}}", "plain-1.0/x:y", False),
        ("echo '{{config.v}}'", "a b; rm", False),
        ("echo '{{config.v}}'", "it's", True),
        ('echo "{{config.v}}"', "a b; rm", False),
        ('echo "{{config.v}}"', "$HOME", True),
        ("echo {{config.v|quote}}", "a b", False),
        ("echo {{config.v|base64}}", "a b", False),
        ("# it's\necho {{config.v}}", "a b", True),
        ("echo \\' {{config.v}}", "a b", True),
        ("python3 - <<'PY'\nx = \"{{config.v}}\"\nPY\n", "a b $x", False),
        ("cat <<E\n'\nE\necho {{config.v}}", "a b", True),
        ("x=$#; echo '{{config.v}}'", "a b", False),
    ],
)
def test_values_that_the_shell_would_interpret(text: str, value: str, hazard: bool) -> None:
    codes = [c for c, _ in shell(text, config=f"{{v: {value!r}}}")]
    assert codes == (["NPA066"] if hazard else [])


@pytest.mark.parametrize(
    ("condition", "code"),
    [("config.f", ""), ("'{{config.f}}'", ""), ("config.g", "NPA022"), ("'true'", "NPA022"),
     ("config.p", "")],
)  # fmt: skip
def test_if_is_one_config_flag(condition: str, code: str) -> None:
    codes = [
        c
        for c, _ in found(f"""
        config: {{f: false}}
        states:
          a:
            run: {{shell: "true"}}
            params: {{p: true}}
            transitions: [{{if: {condition}, goto: b}}]
            next: b
          b: {{terminal: true}}
    """)
    ]
    assert codes == ([code] if code else [])
