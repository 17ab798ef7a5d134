"""Rendering a job: environment, secrets, licence, source, package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from changed import replace
from npa.errors import UsageError
from npa.orchestration.skypilot.options import ModelCache, RenderOptions, StagedSource
from npa.orchestration.skypilot.render_errors import RenderError
from render_harness import CATALOG, KEY, only, render, step

# -- environment and secrets -----------------------------------------------------------------------


def test_the_task_s_own_variables_come_last_and_sorted() -> None:
    options = RenderOptions(env={"A": "all", "B": "all"})
    envs = only(step(), options=options, env={"B": "own", "NPA_WORKFLOW_ATTEMPT": "2"})["envs"]
    assert list(envs) == sorted(envs)
    assert (envs["A"], envs["B"]) == ("all", "own")
    assert envs["NPA_WORKFLOW_FENCE_ATTEMPT"] == "2"


@pytest.mark.req("B-08")
@pytest.mark.parametrize("value", ["${HOME}/x", "a {{config.b}}", "{{ item }}"])
def test_an_unresolved_placeholder_outside_the_programs_is_refused(value: str) -> None:
    with pytest.raises(RenderError, match="unresolved placeholder") as caught:
        render(step(), env={"A": value})
    assert caught.value.code == "PLACEHOLDER"
    assert "`envs.A`" in caught.value.message
    pod = {"cloud": "kubernetes", "kubernetes": {"pod_config": {"spec": {"run": [value]}}}}
    with pytest.raises(RenderError, match=r"config\.kubernetes\.pod_config\.spec\.run\[0\]"):
        render(step(profile=pod))


@pytest.mark.req("B-08")
def test_programs_may_use_variables() -> None:
    task = only(step(script="echo ${HOME} {{.ID}}", setup="echo ${HOME}"))
    assert "echo ${HOME} {{.ID}}" in task["run"]
    assert task["setup"].endswith("echo ${HOME}\n")


@pytest.mark.req("B-08")
@pytest.mark.parametrize("text", ["${X}", "{{{{a}}", "\\${X}", "a\\\\$", "{{", "ü\n${X}{{"])
def test_json_variables_keep_their_meaning_without_placeholders(text: str) -> None:
    given = json.dumps({"command": text, "nested": {"a": {}}})
    envs = only(step(), env={"NPA_PARAMS": given, "NPA_INPUTS": json.dumps([text])})["envs"]
    assert json.loads(envs["NPA_PARAMS"]) == json.loads(given)
    assert json.loads(envs["NPA_INPUTS"]) == [text]
    assert "${" not in envs["NPA_PARAMS"]
    assert "{{" not in envs["NPA_PARAMS"]


def test_a_variable_that_linux_would_refuse_is_refused() -> None:
    with pytest.raises(RenderError, match="too large"):
        render(step(), env={"A": "x" * 130_000})
    with pytest.raises(RenderError, match="no name of a variable"):
        render(step(), env={"a-b": "x"})


@pytest.mark.req("A-11")
def test_secrets_are_there_by_name_alone() -> None:
    rendered = render(step(), secrets=("HF_TOKEN",), options=RenderOptions(secrets=("TOKEN_B",)))
    assert "canary" not in rendered.text
    assert rendered.secrets == ("HF_TOKEN", "TOKEN_B")
    _, task = yaml.safe_load_all(rendered.text)
    assert task["secrets"] == {"HF_TOKEN": None, "TOKEN_B": None}


@pytest.mark.req("B-11")
def test_docker_credentials_are_forwarded_for_the_exact_host() -> None:
    options = RenderOptions(
        images={"*": "cr.example.org/x/y:1"}, private_hosts=frozenset(["cr.example.org"])
    )
    rendered = render(step(), options=options)
    _, task = yaml.safe_load_all(rendered.text)
    assert task["secrets"] == {
        "SKYPILOT_DOCKER_SERVER": "cr.example.org",
        "SKYPILOT_DOCKER_USERNAME": None,
        "SKYPILOT_DOCKER_PASSWORD": None,
    }
    assert rendered.secrets == ("SKYPILOT_DOCKER_USERNAME", "SKYPILOT_DOCKER_PASSWORD")
    other = replace(options, private_hosts=frozenset(["example.org"]))
    assert [finding.code for finding in render(step(), options=other).findings] == [
        "REGISTRY_CREDENTIALS"
    ]


@pytest.mark.req("B-11")
@pytest.mark.parametrize(
    "image", ["", CATALOG.images["cosmos"], "python:3.11-slim", "nvcr.io/nvidia/x:1"]
)
def test_public_images_need_no_secret(image: str) -> None:
    rendered = render(step(), options=RenderOptions(images={"*": image}))
    assert not rendered.findings
    assert not rendered.secrets


# -- licence, source, package ----------------------------------------------------------------------


@pytest.mark.req("B-07")
@pytest.mark.parametrize(
    ("tool", "config", "image", "isaac"),
    [
        ("workbench.rl.policy_train", {}, "", True),
        ("workbench.sonic.train", {}, "", True),
        ("workbench.vlm_eval.run", {}, "", False),
        ("workbench.byof.repo", {"base_profile": "ubuntu"}, "", False),
        ("workbench.byof.repo", {"base_profile": "isaac-lab"}, "", True),
        ("workbench.byof.repo", {"base_image": "nvcr.io/nvidia/isaac-sim:5"}, "", True),
        ("workbench.isaac_lab.byof_repo", {}, "", True),
        ("workbench.groot.finetune", {}, "", False),
        ("workbench.groot.finetune", {"sim_backend": "isaac"}, "", True),
        ("", {}, "ghcr.io/x/npa-isaac-lab:2", True),
        ("", {"base_profile": "isaac"}, "python:3", False),
    ],
)
def test_isaac_steps_carry_the_accepted_licence(
    tool: str, config: Mapping[str, object], image: str, isaac: bool
) -> None:
    options = RenderOptions(images={"*": image} if image else {})
    one = step(tool=tool, config=config)
    task = only(one, options=options)
    assert task["envs"].get("ACCEPT_EULA") == ("Y" if isaac else None)
    assert ("NPA_LICENCE=isaac\n" in task["setup"]) is isaac
    declined = render(one, options=replace(options, accept_eula=False))
    _, refused = yaml.safe_load_all(declined.text)
    assert refused["envs"].get("ACCEPT_EULA") == ("" if isaac else None)
    blocked = [f.code for f in declined.findings if f.blocking]
    assert ("ISAAC_LICENCE" in blocked) is isaac


@pytest.mark.req("B-10")
def test_staged_source_travels_as_one_archive_with_its_hash() -> None:
    source = StagedSource("s3://b/src.tar.gz", "c" * 64, "d" * 64)
    envs = only(step(), options=RenderOptions(source=source))["envs"]
    assert envs["NPA_SOURCE_URI"] == "s3://b/src.tar.gz"
    assert envs["NPA_SOURCE_SHA256"] == "c" * 64


@pytest.mark.req("B-10")
def test_a_package_that_was_set_by_hand_is_reported() -> None:
    options = RenderOptions(package=StagedSource("s3://b/npa-src/"))
    rendered = render(step(argv=("npa", "status")), options=options)
    (finding,) = rendered.findings
    assert finding.code == "SOURCE_UNPROVEN"
    assert "s3://b/npa-src/" in finding.message


@pytest.mark.req("B-05")
def test_a_command_of_the_package_needs_an_image_or_a_staged_package() -> None:
    (finding,) = render(step(tool="workbench.insights.compare", argv=("npa", "x"))).findings
    assert (finding.code, finding.blocking) == ("PACKAGE_MISSING", True)
    staged = RenderOptions(package=StagedSource("s3://b/p.tar.gz", "e" * 64, "f" * 64))
    assert not render(step(argv=("npa", "x")), options=staged).findings


OWN = StagedSource("s3://b/own.tar.gz", "1" * 64, "2" * 64)
USERS = StagedSource("s3://b/users.tar.gz", "3" * 64, "4" * 64)


@pytest.mark.req("B-09")
@pytest.mark.parametrize(
    ("tool", "argv", "own", "missing"),
    [
        ("workbench.rl.report_failure", ("x",), True, False),
        ("workbench.vlm_eval.run", ("npa", "x"), False, False),
        ("workbench.insights.compare", ("npa", "x"), False, True),
        ("", ("npa", "artifact", "ls"), True, False),
        ("", ("python3", "stages/train.py"), True, False),
        ("", ("./train",), False, False),
    ],
)
def test_our_own_package_never_hides_what_a_vendor_s_image_carries(
    tool: str, argv: tuple[str, ...], own: bool, missing: bool
) -> None:
    rendered = render(step(tool=tool, argv=argv), options=RenderOptions(own_package=OWN))
    envs = rendered.documents[1]["envs"]
    assert envs.get("NPA_SRC_S3_URI") == (OWN.uri if own else None)
    assert ("PACKAGE_MISSING" in [finding.code for finding in rendered.findings]) is missing
    both = render(step(tool=tool, argv=argv), options=RenderOptions(own_package=OWN, package=USERS))
    assert both.documents[1]["envs"]["NPA_SRC_S3_URI"] == USERS.uri


def test_a_tool_of_ours_needs_our_package_on_any_image() -> None:
    one = step(tool="workbench.rl.report_failure", profile={"image": "python:3.11-slim"})
    assert [finding.code for finding in render(one).findings] == ["PACKAGE_MISSING"]


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        ({"argv": ("npa", "artifact", "ls")}, "1"),
        ({"argv": ("python3", "-m", "npa.tools.decide")}, "1"),
        ({"script": 'python3 -c "from npa.workflows.x import y"'}, "1"),
        ({"argv": ("python", "train.py", "--data", "/mnt/npa/x")}, "maybe"),
        ({"script": "./npa-helper && echo snpa"}, ""),
        ({"tool": "workbench.rl.report_failure"}, "ours"),
        ({"tool": "workbench.vlm_eval.run"}, "theirs"),
        ({"tool": "workbench.fiftyone.launch_app"}, ""),
    ],
)
def test_only_commands_that_use_the_package_wait_for_it(
    words: Mapping[str, Any], needs: str
) -> None:
    lines = only(step(**words))["setup"].partition("set -eu")[0].splitlines()
    found = [line for line in lines if line.startswith("NPA_NEEDS_PACKAGE=")]
    assert found == ([f"NPA_NEEDS_PACKAGE={needs}"] if needs else [])


@pytest.mark.req("B-05")
def test_extras_requirements_and_interpreters_come_from_the_catalogue() -> None:
    groot = only(step(tool="workbench.groot.baseline_eval"))["setup"]
    assert "NPA_INTERPRETERS=/opt/groot/Isaac-GR00T/.venv/bin/python\n" in groot
    assert "python:tomli\ttomli>=2.0.0\n" in groot
    assert "NPA_EXTRA" not in groot.partition("set -eu")[0]
    viz = step(tool="workflow.groot.emit_learning_rrd", config={"pip_extra": "viz"})
    assert "NPA_EXTRA=viz\n" in only(viz)["setup"]
    both = step(tool="workbench.sonic.train", config={"pip_extra": "viz"})
    assert "NPA_EXTRA=sonic,viz\n" in only(both)["setup"]
    with pytest.raises(RenderError, match="extra"):
        render(step(config={"pip_extra": "viz]; rm -rf /"}))


@pytest.mark.req("B-06")
def test_a_self_hosted_model_is_served_in_run_and_not_in_setup() -> None:
    config = {"vlm_backend": "self-hosted", "vlm_model": "Q/V", "vlm_serve_ready_seconds": "1500"}
    task = only(step(tool="workbench.vlm_eval.run", config=config))
    assert "NPA_VLM_MODEL=Q/V\n" in task["run"]
    assert "NPA_VLM_READY_SECONDS=1500\n" in task["run"]
    assert "vllm" not in task["setup"]
    assert task["run"].index("api_server") < task["run"].index("python train.py")
    hosted = only(step(tool="workbench.vlm_eval.run", config={"vlm_backend": "api"}))
    assert "vllm" not in hosted["run"]


def test_a_self_hosted_backend_without_a_model_is_refused() -> None:
    config = {"vlm_backend": "self-hosted"}
    with pytest.raises(RenderError, match="needs a model"):
        render(step(tool="workbench.vlm_eval.run", config=config))


@pytest.mark.req("B-09")
def test_staged_source_comes_before_what_the_image_carries() -> None:
    run = only(step())["run"]
    assert 'PYTHONPATH="${npa_path}${npa_path:+${PYTHONPATH:+:}}${PYTHONPATH:-}"' in run
    assert 'PATH="$npa_home/bin:' in run


def test_the_claim_is_the_attempt_s() -> None:
    options = RenderOptions(claims_uri="s3://b/run/npa-workflow/attempts/", provider="u1")
    task = only(step(), options=options)
    assert task["envs"]["NPA_CLAIM_URI"] == f"s3://b/run/npa-workflow/attempts/{KEY}/claim"
    assert task["envs"]["NPA_PROVIDER"] == "u1"
    for program in ("setup", "run"):
        text = task[program]
        assert " claim ||" in text
        assert text.index(" claim ||") < text.rindex("npa_path=")
    assert "NPA_CLAIM_URI" not in only(step())["envs"]


def test_a_cache_is_a_claim_or_a_path() -> None:
    with pytest.raises(UsageError):
        ModelCache()
    with pytest.raises(UsageError):
        ModelCache("a", "/b")
