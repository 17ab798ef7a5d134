"""The front door: what is refused, where it is told, and what a good file means."""

from __future__ import annotations

from pathlib import Path

import pytest

from npa.errors import UsageError
from npa.workflow.codes import Severity
from npa.workflow.load import load_file, load_text
from npa.workflow.meaning import (
    ForeachSpec,
    GateSpec,
    IoSpec,
    LoopSpec,
    RunBlock,
    TransitionSpec,
    TriggerSpec,
)
from npa.workflow.step import Checkpoint, Retry
from workflow.judged import found, load, workflow_of
from workflow.toolbox import NO_TOOLS, SAMPLE_TOOLS

EVERYTHING = """
metadata: {name: whole, description: all of it, labels: {team: arms}}
config: {rounds: 3, limit: "0.5", decision_uri: "s3://b/decision.json", flag: false}
run: {owner: lab}
resources: {gpu: {cloud: kubernetes, accelerators: "H100:1", memory: 64Gi}}
x-note: free
states:
  ingest:
    description: wait and fetch
    run: {argv: [fetch, 3, true, "{{config.flag}}"], setup: pip list}
    trigger: {uri: "s3://b/in/", pollSeconds: 5, max_polls: "{{config.rounds}}"}
    params: {seed: 1}
    outputs: [{uri: "s3://b/raw/", schema: raw.v1}, uri: "s3://b/index.json"]
    retry: {payload: 2, backoffSeconds: 0.5}
    timeoutSeconds: 60
    env: {MODE: fast}
    secrets: [TOKEN]
    checkpoint: {uri: "s3://b/ckpt/", loader: torch}
    next: fan
  fan: {parallel: [left, right], parallelMode: window, maxConcurrency: 2, next: refine}
  left: {sequence: [left-1, left-2]}
  left-1: {run: {shell: "true"}}
  left-2: {run: {shell: "true"}}
  right: {run: {shell: "true"}, resources: gpu}
  refine:
    sequence: [train, grade]
    loop: {max: config.rounds, until: promote_checkpoint}
    next: shards
  train: {run: {shell: "echo {{loop.refine}}"}}
  grade: {run: {shell: "true"}, writes_decision: true}
  shards:
    foreach: {items: [a, 1, null], as: shard, maxItems: 8}
    run: {shell: "echo {{item.shard}}"}
    next: route
  route:
    run: {shell: "true"}
    transitions:
      - {if: config.flag, goto: end}
      - {gate: {uri: "s3://b/score.json", path: a.b, op: ">=", value: config.limit}, goto: end}
    next: end
  end: {description: done, terminal: true}
"""


def test_every_field_reaches_its_meaning() -> None:
    workflow = workflow_of(EVERYTHING)
    assert (workflow.name, workflow.description) == ("whole", "all of it")
    assert workflow.labels == {"team": "arms"}
    assert workflow.initial == "ingest"
    assert list(workflow.states)[:2] == ["ingest", "fan"]
    ingest = workflow.states["ingest"]
    assert ingest.run == RunBlock(argv=("fetch", "3", "true", "{{config.flag}}"), setup="pip list")
    assert ingest.trigger == TriggerSpec("s3://b/in/", 5, "{{config.rounds}}", 1)
    assert ingest.outputs == (IoSpec("s3://b/raw/", "raw.v1"), IoSpec("s3://b/index.json"))
    assert ingest.retry == Retry(2, 0.5)
    assert (ingest.timeout_seconds, ingest.secrets) == (60, ("TOKEN",))
    assert (ingest.env, ingest.params) == ({"MODE": "fast"}, {"seed": 1})
    assert ingest.checkpoint == Checkpoint("s3://b/ckpt/", "torch")
    fan = workflow.states["fan"]
    assert (fan.parallel, fan.parallel_mode, fan.max_concurrency) == (
        ("left", "right"),
        "window",
        2,
    )
    assert workflow.states["refine"].loop == LoopSpec("config.rounds", "promote_checkpoint")
    assert workflow.states["grade"].writes_decision
    assert workflow.states["shards"].foreach == ForeachSpec(("a", 1, None), "", "shard", 8)
    gate = GateSpec("s3://b/score.json", "a.b", ">=", "{{config.limit}}")
    assert workflow.states["route"].transitions == (
        TransitionSpec("end", if_="config.flag"),
        TransitionSpec("end", gate=gate),
    )
    assert workflow.states["end"].terminal
    assert workflow.states["end"].resources == "default"


def test_the_whole_example_is_clean() -> None:
    assert found(EVERYTHING) == []


def test_meaning_cannot_be_changed() -> None:
    workflow = workflow_of(EVERYTHING)
    for mapping in (workflow.config, workflow.states, workflow.states["ingest"].params):
        with pytest.raises(TypeError):
            mapping["new"] = 1  # type: ignore[index]


def test_a_gate_may_stand_under_until() -> None:
    workflow = workflow_of("""
        states:
          a:
            run: {shell: "true"}
            loop: {max: 3, until: {gate: {uri: "s3://b/x", path: v, op: "<", value: 1}}}
            terminal: true
    """)
    assert workflow.states["a"].loop == LoopSpec(3, "", GateSpec("s3://b/x", "v", "<", 1.0))


@pytest.mark.req("B-01")
def test_both_versions_are_read() -> None:
    for version in ("v0.0.1", "v0.0.1-beta"):
        loaded = load_text(
            f"apiVersion: npa.workflow/{version}\nkind: Workflow\n"
            "states: {a: {run: {shell: x}, terminal: true}}\n",
            filename="f",
            tools=NO_TOOLS,
        )
        assert loaded.workflow is not None
        assert loaded.workflow.api_version == f"npa.workflow/{version}"
        assert loaded.workflow.name == "unnamed"


@pytest.mark.parametrize("text", ["", "- a\n", "just text\n", "3\n", "null\n"])
def test_a_file_that_is_no_mapping(text: str) -> None:
    loaded = load_text(text, filename="f", tools=NO_TOOLS)
    assert loaded.workflow is None
    assert [d.code for d in loaded.diagnostics] == ["NPA011"]


def test_a_missing_version_does_not_hide_other_errors() -> None:
    text = "kind: Workflow\nstates: {a: {run: {shell: x}, next: b}}\n"
    loaded = load_text(text, filename="f", tools=NO_TOOLS)
    assert {"NPA012", "NPA023"} <= {d.code for d in loaded.diagnostics}


def test_empty_sections_are_as_if_absent() -> None:
    assert (
        found("""
        config:
        resources:
        states:
          a: {run: {shell: "true"}, inputs: , outputs: , params: , next: , terminal: true}
    """)
        == []
    )


def test_all_problems_come_in_one_run_sorted_by_line() -> None:
    loaded = load("""
        metadata: {name: "a b"}
        config: {x: "{{config.y}}"}
        states:
          one: {run: {shell: "{{config.z}}"}, next: too, bogus: 1}
          two: {toolRef: nope, terminal: "false"}
          three: {run: {shell: "true"}, next: four}
    """)
    lines = [d.line for d in loaded.diagnostics]
    assert lines == sorted(lines)
    assert {d.code for d in loaded.diagnostics} >= {
        "NPA010", "NPA011", "NPA018", "NPA023", "NPA025", "NPA062"
    }  # fmt: skip


def test_an_error_deep_in_a_state_does_not_hide_its_other_fields() -> None:
    assert found("""
        states:
          a:
            run: {shell: "true", bogus: 1}
            loop: {max: 2, untill: x}
            next: nowhere
            terminal: true
    """) == [
        ("NPA010", "states.a.run.bogus"),
        ("NPA010", "states.a.loop.untill"),
        ("NPA023", "states.a.next"),
        ("NPA045", "states.a.next"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "code", "below"),
    [
        ("terminal: 'false'", "NPA011", "terminal"),
        ("sequence: abc", "NPA011", "sequence"),
        ("sequence: [1]", "NPA011", "sequence[0]"),
        ("outputs: [s3]", "NPA011", "outputs[0]"),
        ("outputs: [{}]", "NPA012", "outputs[0]"),
        ("params: {a: null}", "NPA011", "params.a"),
        ("params: {a: [1]}", "NPA011", "params.a"),
        ("run: {argv: echo hi}", "NPA011", "run.argv"),
        ("run: {shell: [a]}", "NPA011", "run.shell"),
        ("run: echo", "NPA011", "run"),
        ("loop: {max: 2.0}", "NPA011", "loop.max"),
        ("loop: {max: true}", "NPA011", "loop.max"),
        ("transitions: [{when: always, goto: a}]", "NPA013", "transitions[0].when"),
        ("transitions: [{when: loop_back}]", "NPA012", "transitions[0]"),
        ("multiNodeMode: any", "NPA013", "multiNodeMode"),
        ("parallelMode: windows", "NPA013", "parallelMode"),
        ("retry: {payload: -1}", "NPA014", "retry.payload"),
        ("env: {A: 1}", "NPA011", "env.A"),
        ("foreach: {items: [[1]]}", "NPA011", "foreach.items[0]"),
        ("foreach: {items: [1], as: 1x}", "NPA014", "foreach.as"),
        ("foreach: {items: [1], maxItems: 0}", "NPA014", "foreach.maxItems"),
        ("checkpoint: {uri: '', loader: x}", "NPA014", "checkpoint.uri"),
        ("retires: 3", "NPA010", "retires"),
    ],
)
def test_a_wrong_field_is_told_at_its_place(field: str, code: str, below: str) -> None:
    text = f"states:\n  a:\n    {field}\n    next: b\n  b: {{terminal: true}}\n"
    assert (code, f"states.a.{below}") in found(text)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("toolref", "did you mean 'toolRef'?"),
        ("writeDecision", "did you mean 'writesDecision'?"),
        ("retries", "did you mean 'retry'?"),
        ("depends_on", "did you mean 'needs'?"),
        ("timeout", "did you mean 'timeoutSeconds'?"),
        ("accelerators", "'accelerators' is a key of a resource profile"),
        ("zzzz", "start a key of your own with `x-`"),
    ],
)
def test_an_unknown_key_is_answered_with_the_closest(key: str, hint: str) -> None:
    loaded = load(f"states: {{a: {{run: {{shell: x}}, {key}: 1, terminal: true}}}}")
    assert [d.help for d in loaded.diagnostics if d.code == "NPA010"] == [hint]


def test_a_misspelled_section_inside_a_profile_is_an_error_with_a_suggestion() -> None:
    loaded = load("""
        resources: {gpu: {resorces: 1, acelerators: "H100:1"}}
        states: {a: {run: {shell: "true"}, resources: gpu, terminal: true}}
    """)
    helps = {d.path: d.help for d in loaded.diagnostics}
    assert helps == {
        "resources.gpu.resorces": "'resources' is a key of a state",
        "resources.gpu.acelerators": "did you mean 'accelerators'?",
    }


def test_free_keys_are_free_at_every_level() -> None:
    assert (
        found("""
        x-a: 1
        metadata: {name: n, x-b: 1}
        resources: {default: {x-c: 1}}
        states:
          a: {run: {shell: "true", x-d: 1}, x-e: {any: thing}, terminal: true}
    """)
        == []
    )


def test_overrides_replace_config_before_anything_is_checked() -> None:
    text = """
        config: {rounds: 2}
        states: {a: {run: {shell: "true"}, loop: {max: config.rounds}, terminal: true}}
    """
    assert workflow_of(text, overrides={"rounds": "5"}).config["rounds"] == "5"
    assert found(text, overrides={"rounds": "0"}) == [("NPA014", "states.a.loop.max")]
    assert found(text, overrides={"rounds": "x"}) == [("NPA021", "states.a.loop.max")]


def test_overrides_reach_triggers() -> None:
    text = """
        config: {polls: 3}
        states:
          a:
            run: {shell: "true"}
            trigger: {uri: "s3://b/", maxPolls: "{{config.polls}}"}
            terminal: true
    """
    assert found(text, overrides={"polls": "-5"}) == [("NPA014", "states.a.trigger.maxPolls")]


def test_an_unknown_override_is_an_error_with_a_suggestion() -> None:
    text = "config: {rate: 1}\nstates: {a: {run: {shell: x}, terminal: true}}\n"
    (item,) = load(text, overrides={"rte": "2"}).diagnostics
    assert (item.code, item.path, item.line) == ("NPA020", "--var", 0)
    assert item.help == "did you mean 'rate'?"


def test_an_override_may_give_what_the_file_mentions_or_the_engine_reads() -> None:
    text = "states: {a: {run: {shell: 'echo {{config.x}}'}, terminal: true}}\n"
    assert found(text, overrides={"x": "1", "bucket": "b", "prefix": "p"}) == []


def test_a_file_is_read_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_bytes(b"apiVersion: npa.workflow/v0.0.1\nkind: Workflow\n# caf\xe9\n")
    loaded = load_file(path, tools=SAMPLE_TOOLS)
    assert [(d.code, d.line) for d in loaded.diagnostics] == [("NPA001", 3)]
    assert loaded.source.filename == str(path)


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        load_file(tmp_path / "nope.yaml", tools=NO_TOOLS)
    with pytest.raises(UsageError, match="is a folder"):
        load_file(tmp_path, tools=NO_TOOLS)


def test_warnings_alone_leave_the_workflow_usable() -> None:
    loaded = load("""
        states:
          a: {run: {shell: "true"}, terminal: true}
          b: {run: {shell: "true"}, terminal: true}
    """)
    assert loaded.workflow is not None
    assert loaded.errors == ()
    assert [d.severity for d in loaded.diagnostics] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("op", "help_line"),
    [
        ("=<", "did you mean '<='?"),
        ("=>", "did you mean '>='?"),
        ("about", "choose `<`, `<=`, `>`, `>=`, `==`, `!=`"),
    ],
)
def test_a_wrong_comparison_is_one_error_at_its_place_and_hides_no_other(
    op: str, help_line: str
) -> None:
    problems = load(f"""
        config: {{wanted: 1}}
        states:
          refine:
            sequence: [train, grade]
            loop:
              max: 3
              until:
                gate: {{uri: "s3://b/x.json", path: v, op: "{op}", value: config.wantd}}
            next: way
          train: {{run: {{shell: "echo {{{{loop.refine}}}}"}}}}
          grade: {{run: {{shell: "true"}}, writesDecision: true}}
          way:
            run: {{shell: "true"}}
            transitions:
              - gate: {{uri: "s3://b/x.json", path: v, op: "{op}", value: 1}}
                goto: ende
            next: end
          end: {{terminal: true}}
    """).diagnostics
    assert [(d.code, d.path) for d in problems] == [
        ("NPA013", "states.refine.loop.until.gate.op"),
        ("NPA021", "states.refine.loop.until.gate.value"),
        ("NPA013", "states.way.transitions[0].gate.op"),
        ("NPA023", "states.way.transitions[0].goto"),
    ]
    assert (problems[0].line, problems[0].column) == (10, 51)
    assert (problems[0].message, problems[0].help) == (f"`op` cannot be text '{op}'", help_line)


@pytest.mark.parametrize(
    ("loop", "code", "path"),
    [
        ("3", "NPA011", ""),
        ("{until: promote}", "NPA013", ".until"),
        ("{until: [x]}", "NPA013", ".until"),
        ("{until: {gate: 1}}", "NPA011", ".until.gate"),
        ("{until: {gate: {uri: x, path: y, value: 1}}}", "NPA012", ".until.gate"),
        ("{until: {gate: {uri: '', path: y, op: '<', value: 1}}}", "NPA014", ".until.gate.uri"),
        ("{max: true}", "NPA011", ".max"),
    ],
)
def test_a_state_with_a_wrong_loop_is_still_a_loop(loop: str, code: str, path: str) -> None:
    assert found(f"""
        states:
          refine: {{sequence: [grade], loop: {loop}, terminal: true}}
          grade: {{run: {{shell: "echo {{{{loop.refine}}}}"}}, writesDecision: true}}
    """) == [(code, f"states.refine.loop{path}")]
