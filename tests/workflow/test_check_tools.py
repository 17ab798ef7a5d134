"""Tools, resources, decisions and data."""

from __future__ import annotations

import pytest

from npa.workflow.check_data import live_problems, placeholder_bucket
from workflow.judged import found, load, workflow_of

SHELL = "run: {shell: 'true'}"
TRAIN = "config: {learning_rate: 0.1, output_uri: 's3://b/o'}\n"


def test_an_unknown_tool_is_answered_with_the_closest() -> None:
    (item,) = load("states: {a: {toolRef: demo.plian, terminal: true}}").diagnostics
    assert (item.code, item.help) == ("NPA025", "did you mean 'demo.plain'?")


def test_a_wrong_parameter_name_lists_the_tools_parameters() -> None:
    (item,) = load(
        TRAIN + "states: {a: {toolRef: demo.train, params: {zzz: 1}, terminal: true}}"
    ).diagnostics
    assert item.code == "NPA026"
    assert item.help == "its parameters: learning_rate, output_uri, mode"


def test_a_param_that_another_text_of_the_state_uses_is_fine() -> None:
    assert (
        found(
            TRAIN + "resources: {p: {region: '{{config.where}}'}}\n"
            "states: {a: {toolRef: demo.train, resources: p, params: {where: x, tag: y}, "
            "outputs: [{uri: 's3://b/{{config.tag}}'}], terminal: true}}"
        )
        == []
    )


def test_a_missing_key_of_a_tool_is_told_once() -> None:
    assert found("""
        config: {learning_rate: 1}
        states:
          a: {toolRef: demo.train, next: b}
          b: {toolRef: demo.train, terminal: true}
    """) == [("NPA027", "states.a.toolRef")]


def test_defaults_of_a_tool_are_config() -> None:
    assert found("states: {a: {toolRef: demo.defaults, terminal: true}}") == []


@pytest.mark.parametrize(
    ("params", "bad"),
    [
        ("{learning_rate: fast}", True),
        ("{learning_rate: 1e-4}", False),
        ("{learning_rate: '{{config.other}}'}", False),
        ("{mode: quick}", True),
        ("{mode: full}", False),
        ("{mode: ''}", False),
        ("{output_uri: local}", True),
    ],
)
def test_values_of_a_kind(params: str, bad: bool) -> None:
    text = (
        "config: {learning_rate: 0.1, output_uri: 's3://b/o', other: 1}\n"
        f"states: {{a: {{toolRef: demo.train, params: {params}, terminal: true}}}}"
    )
    assert [c for c, _ in found(text)] == (["NPA028"] if bad else [])


# Resources


@pytest.mark.parametrize(
    ("profile", "key"),
    [
        ("{memory: 16 gigs}", "memory"),
        ("{cpus: four}", "cpus"),
        ("{accelerators: 'H100:0'}", "accelerators"),
        ("{accelerators: '{{config.kind}}:{{config.count}}'}", "accelerators"),
        ("{num_nodes: 64}", "num_nodes"),
        ("{numNodes: '{{config.kind}}'}", "num_nodes"),
        ("{disk_size: big}", "disk_size"),
    ],
)
def test_spellings_of_a_profile(profile: str, key: str) -> None:
    text = f"""
        config: {{kind: H100, count: none}}
        resources: {{default: {profile}}}
        states: {{a: {{{SHELL}, terminal: true}}}}
    """
    assert found(text) == [("NPA070", f"resources.default.{key}")]


def test_a_profile_that_only_a_run_can_resolve_is_left_alone() -> None:
    assert (
        found(f"""
        resources: {{default: {{memory: "{{{{run.id}}}}", cpus: 4}}}}
        states: {{a: {{{SHELL}, terminal: true}}}}
    """)
        == []
    )


def test_a_profile_is_judged_with_the_params_of_its_states() -> None:
    assert found(f"""
        config: {{n: 1}}
        resources: {{p: {{accelerators: "H100:{{{{config.n}}}}"}}}}
        states:
          a: {{{SHELL}, resources: p, next: b}}
          b: {{{SHELL}, resources: p, params: {{n: 0}}, terminal: true}}
    """) == [("NPA070", "resources.p.accelerators")]


def test_several_nodes_want_a_command_that_knows_its_rank() -> None:
    gang = "config: {n: 2}\nresources: {default: {num_nodes: '{{config.n}}'}}\n"
    state = "states: {a: {%s, terminal: true}}"
    assert found(gang + state % SHELL) == [("NPA071", "states.a.resources")]
    assert found(gang + state % f"{SHELL}, params: {{n: 1}}") == []
    assert found(gang + state % f"{SHELL}, multiNodeMode: sharded") == []
    assert found(gang + state % "toolRef: demo.plain") == [("NPA071", "states.a.resources")]
    codes = [c for c, _ in found(gang + state % "toolRef: demo.plain, multiNodeMode: sharded")]
    assert codes == ["NPA071", "NPA051"] or codes == ["NPA051", "NPA071"]


@pytest.mark.parametrize(
    ("config", "problems"),
    [
        ("{shard_count: 4, shard_mode: x, shard_uri: 's3://b/'}", 0),
        ("{shard_count: 4, shard_mode: '', shard_uri: 's3://b/'}", 1),
        ("{shard_count: 4, shard_mode: x, shard_uri: here}", 1),
        ("{shard_count: 1, shard_mode: x, shard_uri: 's3://b/'}", 1),
        ("{shard_count: many}", 3),
    ],
)
def test_the_contract_of_a_sharded_tool(config: str, problems: int) -> None:
    text = f"""
        config: {config}
        resources: {{default: {{num_nodes: 2}}}}
        states: {{a: {{toolRef: demo.shards, terminal: true}}}}
    """
    assert [c for c, _ in found(text)] == ["NPA072"] * problems


def test_keys_of_the_cluster_blocks() -> None:
    text = """
        resources:
          default:
            deployIfAbsent: {clusterName: x, skip_s3: true, gpuNode: 2}
            kubernetes: {pod_config: {}, podconfig: {}}
        states: {a: {run: {shell: "true"}, terminal: true}}
    """
    assert found(text) == [
        ("NPA010", "resources.default.deployIfAbsent.gpuNode"),
        ("NPA051", "resources.default.kubernetes.podconfig"),
    ]


# Decisions


def test_a_writer_deep_inside_a_loop_counts() -> None:
    assert (
        found(f"""
        states:
          l: {{sequence: [g], loop: {{max: 2, until: promote_checkpoint}}, terminal: true}}
          g: {{sequence: [w]}}
          w:
            {SHELL}
            writesDecision: true
            outputs: [{{uri: "s3://b/d", schema: x.Decision.v1}}]
    """)
        == []
    )


def test_a_writer_without_a_place_for_its_decision() -> None:
    assert found(f"""
        states:
          l: {{sequence: [w], loop: {{max: 2, until: promote_checkpoint}}, terminal: true}}
          w: {{{SHELL}, writesDecision: true}}
    """) == [("NPA047", "states.w.writesDecision")]


def test_a_looped_leaf_decides_for_itself() -> None:
    text = f"states: {{a: {{{SHELL}, loop: {{max: 2, until: loop_back}}, terminal: true}}}}"
    assert found(text) == [("NPA047", "states.a.loop.until")]
    assert found("config: {decision_uri: 's3://b/d'}\n" + text) == []


def test_a_word_and_a_number_exclude_each_other() -> None:
    gate = "gate: {uri: x, path: y, op: '<', value: 1}"
    text = f"""
        config: {{decision_uri: "s3://b/d"}}
        states:
          a:
            {SHELL}
            loop: {{max: 2, until: loop_back, {gate}}}
            transitions: [{{when: loop_back, {gate}, goto: b}}]
            next: b
          b: {{terminal: true}}
    """
    assert [c for c, _ in found(text)] == ["NPA030", "NPA030"]


# Data


def test_a_foreach_needs_the_item_in_its_outputs() -> None:
    text = """
        states:
          a:
            run: {shell: "true"}
            foreach: {items: [1, 2], as: shard}
            outputs: [{uri: "s3://b/out%s"}]
            terminal: true
    """
    assert found(text % "") == [("NPA080", "states.a.outputs[0].uri")]
    assert found(text % "-{{item.shard}}") == []


def test_params_keep_the_outputs_of_a_sweep_apart() -> None:
    text = f"""
        config: {{tag: none}}
        states:
          p: {{parallel: [a, b], terminal: true}}
          a: {{{SHELL}, params: {{tag: %s}}, outputs: [{{uri: "s3://b/{{{{config.tag}}}}"}}]}}
          b: {{{SHELL}, params: {{tag: b}}, outputs: [{{uri: "s3://b/{{{{config.tag}}}}"}}]}}
    """
    assert found(text % "a") == []
    assert found(text % "b") == [("NPA080", "states.b.outputs[0].uri")]


def test_two_branches_of_which_one_runs_may_write_the_same() -> None:
    assert (
        found(f"""
        config: {{f: true}}
        states:
          s: {{{SHELL}, transitions: [{{if: config.f, goto: a}}], next: b}}
          a: {{{SHELL}, outputs: [{{uri: "s3://b/o"}}], next: end}}
          b: {{{SHELL}, outputs: [{{uri: "s3://b/o"}}], next: end}}
          end: {{terminal: true}}
    """)
        == []
    )


@pytest.mark.parametrize(
    ("written", "read", "warned"),
    [
        ("{{run.uri}}a/", "{{run.uri}}a/b.json", False),
        ("{{run.uri}}a/b.json", "{{run.uri}}a/", False),
        ("{{run.uri}}a", "{{run.uri}}b", True),
        ("{{run.uri}}a", "s3://elsewhere/b", False),
        ("s3://data/runs/{{run.id}}/a", "s3://data/runs/{{run.id}}/b", True),
        ("{{run.uri}}a", "s3://data/base/{{config.tag}}", True),
    ],
)
def test_inputs_under_the_runs_prefix_are_written_by_the_run(
    written: str, read: str, warned: bool
) -> None:
    text = f"""
        config: {{bucket: data, prefix: base, tag: x}}
        states:
          a: {{{SHELL}, outputs: [{{uri: "{written}"}}], next: b}}
          b: {{{SHELL}, inputs: [{{uri: "{read}"}}], terminal: true}}
    """
    assert [c for c, _ in found(text)] == (["NPA082"] if warned else [])


def test_an_input_that_is_nearly_an_output_is_answered_with_that_output() -> None:
    text = f"""
        config: {{bucket: data, prefix: base}}
        states:
          a:
            {SHELL}
            outputs: [{{uri: "{{{{run.uri}}}}tracks/episodes.json"}}, {{uri: "{{{{run.uri}}}}x"}}]
            next: b
          b: {{{SHELL}, inputs: [{{uri: "{{{{run.uri}}}}tracks/episode.json"}}], terminal: true}}
    """
    (item,) = load(text).diagnostics
    assert item.code == "NPA082"
    assert item.help == "did you mean '{{run.uri}}tracks/episodes.json', which 'a' writes?"
    (far,) = load(text.replace("episode.json", "weights.pt")).diagnostics
    assert far.help.startswith("it lies under the run's own prefix")


def test_a_placeholder_bucket_is_an_error_on_a_live_submit_only() -> None:
    text = "config: {bucket: '<yours>'}\nstates: {a: {run: {shell: x}, terminal: true}}"
    workflow = workflow_of(text)
    (item,) = live_problems(workflow)
    assert (item.code, item.path, item.line) == ("NPA083", "config.bucket", 3)
    assert live_problems(workflow_of(text, overrides={"bucket": "real"})) == ()
    assert not placeholder_bucket({})
