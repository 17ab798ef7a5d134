"""Shapes, members, names and numbers of states."""

from __future__ import annotations

import pytest

from workflow.judged import found, load

SHELL = "run: {shell: 'true'}"
END = "end: {terminal: true}"


@pytest.mark.parametrize(
    "body",
    [
        "{sequence: [m], parallel: [m]}",
        "{parallel: [m], toolRef: demo.plain}",
        "{parallel: [m], loop: {max: 2}}",
        "{parallel: [m], foreach: {items: [1]}}",
    ],
)
def test_two_shapes_in_one_state(body: str) -> None:
    text = f"states:\n  a: {body[:-1]}, next: end}}\n  m: {{{SHELL}}}\n  {END}\n"
    assert "NPA030" in [code for code, _ in found(text)]


def test_a_shell_and_argv_exclude_each_other() -> None:
    assert found("states: {a: {run: {shell: x, argv: [x]}, terminal: true}}") == [
        ("NPA031", "states.a.run.shell")
    ]


@pytest.mark.parametrize("run", ["{}", "{shell: ' '}", "{argv: []}", "{argv: ['']}"])
def test_a_run_without_a_command(run: str) -> None:
    codes = [c for c, _ in found(f"states: {{a: {{run: {run}, terminal: true}}}}")]
    assert codes == ["NPA033"]


def test_states_without_a_command_may_route_and_end() -> None:
    assert (
        found("""
        config: {f: true}
        states:
          a: {transitions: [{if: config.f, goto: b}], next: c}
          b: {next: c}
          c: {terminal: true}
    """)
        == []
    )


@pytest.mark.parametrize(
    "field",
    [
        "trigger: {uri: 's3://b/'}",
        "retry: {payload: 1}",
        "timeoutSeconds: 3",
        "env: {A: b}",
        "secrets: [A]",
        "checkpoint: {uri: 's3://b/', loader: x}",
        "multiNodeMode: sharded",
        "parallelCount: 1",
        "maxConcurrency: 1",
        "parallelMode: window",
        "loop: {max: 2}",
        "foreach: {items: [1]}",
    ],
)
def test_fields_that_need_another_one(field: str) -> None:
    text = f"states: {{a: {{{field}, next: end}}, {END}}}"
    assert found(text) == [("NPA034", f"states.a.{field.split(':')[0]}")]


def test_members_of_a_parallel_group() -> None:
    text = f"""
        states:
          p: {{parallel: [ok, branch, ok, group, ends, goes, p], next: end}}
          ok: {{{SHELL}}}
          branch: {{sequence: [ok2]}}
          ok2: {{{SHELL}}}
          group: {{parallel: [ok3]}}
          ok3: {{{SHELL}}}
          ends: {{{SHELL}, terminal: true}}
          goes: {{{SHELL}, transitions: [{{goto: end}}]}}
          {END}
    """
    places = [path for code, path in found(text) if code == "NPA036"]
    assert places == [f"states.p.parallel[{n}]" for n in (2, 3, 4, 5)]
    assert ("NPA035", "states.p.parallel[6]") in found(text)


def test_branches_of_several_steps_are_fine() -> None:
    assert (
        found(f"""
        states:
          p: {{parallel: [one, two], next: end}}
          one: {{sequence: [a, b], loop: {{max: 2}}}}
          two: {{{SHELL}, loop: {{max: 2}}}}
          a: {{{SHELL}}}
          b: {{{SHELL}}}
          {END}
    """)
        == []
    )


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("maxConcurrency", "0", "NPA014"),
        ("maxConcurrency", "65", "NPA014"),
        ("maxConcurrency", "abc", "NPA021"),
        ("maxConcurrency", "config.nope", "NPA021"),
        ("parallelCount", "3", "NPA037"),
        ("parallelCount", "config.text", "NPA021"),
    ],
)
def test_numbers_of_groups(field: str, value: str, code: str) -> None:
    text = f"""
        config: {{text: many}}
        states:
          p: {{parallel: [a, b], {field}: {value}, terminal: true}}
          a: {{{SHELL}}}
          b: {{{SHELL}}}
    """
    assert found(text) == [(code, f"states.p.{field}")]


def test_a_window_may_be_wider_than_a_group() -> None:
    assert (
        found(f"""
        states:
          p: {{parallel: [a, b], maxConcurrency: 200, parallelMode: window, terminal: true}}
          a: {{{SHELL}}}
          b: {{{SHELL}}}
    """)
        == []
    )


def test_a_bad_reference_names_the_field_and_the_closest_key() -> None:
    (item,) = load(f"""
        config: {{rounds: 3}}
        states: {{a: {{{SHELL}, loop: {{max: config.round}}, terminal: true}}}}
    """).diagnostics
    assert item.message == "`loop.max` refers to the unknown config key 'round'"
    assert item.help == "did you mean 'rounds'?"


@pytest.mark.parametrize(
    ("foreach", "code"),
    [
        ("{}", "NPA012"),
        ("{as: x}", "NPA012"),
        ("{items: [1], uri: 's3://b/l.json'}", "NPA030"),
        ("{items: [1, 2, 3], maxItems: 2}", "NPA014"),
        ("{uri: 's3://b/l.json'}", ""),
        ("{items: []}", ""),
    ],
)
def test_items_of_a_foreach(foreach: str, code: str) -> None:
    codes = [c for c, _ in found(f"states: {{a: {{{SHELL}, foreach: {foreach}, terminal: true}}}}")]
    assert codes == ([code] if code else [])


def test_numbers_of_a_trigger_see_the_params_of_their_state() -> None:
    assert (
        found(f"""
            states:
              a:
                {SHELL}
                params: {{polls: 3, limit: 5}}
                trigger: {{uri: "s3://b/", maxPolls: config.polls}}
                timeoutSeconds: config.limit
                terminal: true
        """)
        == []
    )


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("timeoutSeconds: 0", "NPA014"),
        ("timeoutSeconds: .inf", "NPA021"),
        ("timeoutSeconds: soon", "NPA021"),
        ("timeoutSeconds: config.limit", ""),
        ("retry: {backoffSeconds: -1}", "NPA014"),
        ("trigger: {uri: 's3://b/', pollSeconds: 0}", "NPA014"),
        ("loop: {max: 2, gate: {uri: x, path: y, op: '<', value: config.limit}}", ""),
        ("loop: {max: 2, gate: {uri: x, path: y, op: '<', value: low}}", "NPA021"),
        ("loop: {max: 60000}", "NPA014"),
    ],
)
def test_measures(field: str, code: str) -> None:
    text = f"config: {{limit: '2.5'}}\nstates: {{a: {{{SHELL}, {field}, terminal: true}}}}"
    assert [c for c, _ in found(text)] == ([code] if code else [])


@pytest.mark.parametrize("name", ["a b", "a.b", "-rf", "_x", "ä", "a" * 64, "a/b", ""])
def test_names_that_the_provider_would_refuse(name: str) -> None:
    text = f"states: {{{name!r}: {{{SHELL}, terminal: true}}}}"
    assert "NPA017" in [code for code, _ in found(text)]
    if name:
        named = f"metadata: {{name: {name!r}}}\nstates: {{a: {{{SHELL}, terminal: true}}}}"
        assert [code for code, _ in found(named)] == ["NPA018"]


def test_names_of_63_characters_are_fine_and_kept_apart() -> None:
    first, second = "a" * 62 + "1", "a" * 62 + "2"
    text = f"states: {{{first}: {{{SHELL}, next: {second}}}, {second}: {{terminal: true}}}}"
    assert found(text) == []


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("env: {A-B: x}", "env.A-B"),
        ("env: {NPA_RUN_URI: x}", "env.NPA_RUN_URI"),
        ("env: {SKYPILOT_NODE_RANK: x}", "env.SKYPILOT_NODE_RANK"),
        ("secrets: [A B]", "secrets[0]"),
        ("env: {A: x}, secrets: [A]", "secrets[0]"),
    ],
)
def test_environment_names(field: str, path: str) -> None:
    text = f"states: {{a: {{{SHELL}, {field}, terminal: true}}}}"
    assert found(text) == [("NPA019", f"states.a.{path}")]


def test_a_secret_given_with_its_value_is_not_repeated() -> None:
    (item,) = load(f"states: {{a: {{{SHELL}, secrets: ['K=canary'], terminal: true}}}}").diagnostics
    assert "canary" not in item.message + item.help + item.path


@pytest.mark.parametrize(
    ("variables", "wanted", "message", "help_line"),
    [
        ({}, "wantd", "`value` refers to the unknown config key 'wantd'", "did you mean 'wanted'?"),
        ({"wanted": "abc"}, "wanted", "`config.wanted` is 'abc', not a number", ""),
    ],
)
@pytest.mark.parametrize("braces", [False, True])
def test_the_number_of_a_gate_under_until_is_told_at_its_own_place(
    variables: dict[str, str], wanted: str, message: str, help_line: str, braces: bool
) -> None:
    value = f"'{{{{config.{wanted}}}}}'" if braces else f"config.{wanted}"
    (item,) = load(
        f"""
        config: {{wanted: hello}}
        states:
          a:
            {SHELL}
            loop:
              max: 3
              until:
                gate:
                  uri: s3://b/score.json
                  path: v
                  op: ">="
                  value: {value}
            terminal: true
        """,
        overrides=variables,
    ).diagnostics
    assert (item.code, item.path, item.line, item.column, item.message, item.help) == (
        "NPA021", "states.a.loop.until.gate.value", 14, 18, message, help_line,
    )  # fmt: skip


def test_an_unknown_key_of_a_deadline_is_told_once() -> None:
    (item,) = load(f"""
        config: {{limit: 3}}
        states: {{a: {{{SHELL}, timeoutSeconds: config.limits, terminal: true}}}}
    """).diagnostics
    assert (item.code, item.message) == (
        "NPA021", "`timeoutSeconds` refers to the unknown config key 'limits'",
    )  # fmt: skip
    assert item.help == "did you mean 'limit'?"
