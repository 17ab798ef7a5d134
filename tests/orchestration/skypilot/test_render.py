"""Rendering a job: documents, names, resources, images, and the public pipelines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from npa.orchestration.skypilot.options import ModelCache, RenderOptions
from npa.orchestration.skypilot.render import task_names
from npa.orchestration.skypilot.render_errors import RenderError
from render_harness import CATALOG, DIGEST, only, render, step

# -- documents -------------------------------------------------------------------------------------


@pytest.mark.req("B-02")
def test_one_step_becomes_a_serial_job_with_a_header() -> None:
    rendered = render(step())
    header, task = yaml.safe_load_all(rendered.text)
    assert header == {"name": "run-train-abc", "execution": "serial"}
    assert list(task) == ["name", "resources", "envs", "run", "setup"]
    assert task["name"] == "train"
    assert task["run"].endswith("\npython train.py\n")


@pytest.mark.req("B-03")
def test_the_members_of_a_group_become_one_job_group() -> None:
    rendered = render(step("sweep/a"), step("sweep/b"), name="run-sweep-abc")
    header, *tasks = yaml.safe_load_all(rendered.text)
    assert header == {"name": "run-sweep-abc", "execution": "parallel"}
    assert [task["name"] for task in tasks] == ["sweep-a", "sweep-b"]
    assert rendered.task_names == {"sweep/a": "sweep-a", "sweep/b": "sweep-b"}


def test_the_text_reads_back_as_the_documents() -> None:
    shell = "echo 'ü' \"$X\" ${HOME}\n\n  if true; then\n\techo $((1+1))\n  fi\n"
    rendered = render(
        step("a", script=shell, setup="pip install x\n\n"),
        step("b", script="\x1b[0m\u2028"),
        env={"A": "x: y\n- z", "NO": "1", "T": "ü\u2028", "E": ""},
    )
    assert list(yaml.safe_load_all(rendered.text)) == [dict(d) for d in rendered.documents]


def test_rendering_depends_on_nothing_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    before = render(step(tool="workbench.vlm_eval.run"))
    monkeypatch.setenv("NPA_WORKFLOW_GPU_ACCELERATOR", "H200:8")
    monkeypatch.setenv("NPA_COSMOS_X", "1")
    monkeypatch.setenv("NPA_REGISTRY", "elsewhere")
    monkeypatch.setenv("NPA_SRC_S3_URI", "s3://b/src/")
    after = render(step(tool="workbench.vlm_eval.run"))
    assert after.text == before.text
    assert after.digest == before.digest
    assert render(step(argv=("other",))).digest != before.digest


@pytest.mark.req("B-04")
def test_the_number_of_nodes_stands_at_the_task() -> None:
    task = only(step(profile={"cloud": "kubernetes", "num_nodes": 2, "accelerators": "H100:8"}))
    assert task["num_nodes"] == 2
    assert "num_nodes" not in task["resources"]
    assert "num_nodes" not in only(step())


@pytest.mark.req("B-04")
def test_setup_uses_no_rank_and_no_addresses() -> None:
    assert "SKYPILOT_NODE" not in only(step())["setup"]


@pytest.mark.req("B-04")
@pytest.mark.parametrize("name", ["SKYPILOT_NODE_RANK", "SKYPILOT_DOCKER_PASSWORD"])
def test_variables_of_the_provider_are_left_to_it(name: str) -> None:
    with pytest.raises(RenderError, match="belongs to the provider"):
        render(step(), env={name: "0"})


def test_a_step_without_a_command_is_refused() -> None:
    with pytest.raises(RenderError, match="train: there is nothing to run"):
        render(step(argv=()))


def test_every_argument_is_one_word_of_the_shell() -> None:
    task = only(step(argv=("echo", "a b", "$X", "it's", "")))
    assert task["run"].endswith("\necho 'a b' '$X' 'it'\"'\"'s' ''\n")


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "1run", "a b", "run-", "a" * 61, "ünicode", "a.b"])
def test_a_job_name_that_skypilot_refuses_is_refused(name: str) -> None:
    with pytest.raises(RenderError, match="no name for a job"):
        render(step(), name=name)


def test_names_longer_than_63_that_differ_late_stay_apart() -> None:
    paths = [f"{'g' * 70}/{'s' * 64}{end}" for end in "ab"]
    names = task_names([step(path) for path in paths])
    assert len(set(names.values())) == 2
    assert all(len(name) <= 63 for name in names.values())


def test_names_that_differ_in_case_or_signs_alone_stay_apart() -> None:
    names = task_names([step(p) for p in ("a/b", "a-b", "A-B", "train[1]", "train[2]", "9")])
    assert len({name.lower() for name in names.values()}) == 6
    assert names["a-b"] != "a-b"  # `a/b` has it
    assert names["train[1]"] == "train-1"
    assert names["9"].startswith("t-9-")


# -- resources -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "resources"),
    [
        (
            {"cloud": "kubernetes", "accelerators": "H100:1", "cpus": 16, "memory": "80Gi"},
            {"cloud": "kubernetes", "accelerators": "H100:1", "cpus": "16+", "memory": "80+"},
        ),
        (
            {"cloud": "K8s", "accelerators": {"L40S": 4}, "disk_size": "100Gi", "memory": "512Mi"},
            {"cloud": "K8s", "accelerators": "L40S:4", "memory": "0.5+", "ephemeral_storage": 100},
        ),
        (
            {"cloud": "aws", "cpus": "4+", "memory": "16GB", "disk_size": 50, "region": "eu-1"},
            {"cloud": "aws", "cpus": "4+", "memory": 16, "region": "eu-1"},
        ),
        (
            {"cloud": "nebius", "use_spot": True, "cpus": 0.5},
            {"cloud": "nebius", "cpus": 0.5, "use_spot": True},
        ),
        (
            {"cloud": "kubernetes", "cpus": "", "memory": None, "labels": {"a": 1}},
            {"cloud": "kubernetes"},
        ),
    ],
)
def test_units_are_settled_for_the_cloud(
    profile: Mapping[str, object], resources: Mapping[str, object]
) -> None:
    assert only(step(profile=profile))["resources"] == resources


@pytest.mark.parametrize(
    ("override", "declared", "given"),
    [
        ({"H100:8": "NVIDIA-H100-80GB-HBM3:8"}, "H100:8", "NVIDIA-H100-80GB-HBM3:8"),
        ({"H100": "H200"}, "H100:8", "H200:8"),
        ({"H100": "H200"}, {"H100": 8}, "H200:8"),
        ({"H100": "H200:4"}, {"H100": 8}, "H200:4"),
        ({"A100": "H200"}, "H100:2", "H100:2"),
    ],
)
def test_an_accelerator_override_keeps_the_count(
    override: Mapping[str, str], declared: object, given: str
) -> None:
    options = RenderOptions(accelerators=override)
    task = only(step(profile={"cloud": "kubernetes", "accelerators": declared}), options=options)
    assert task["resources"]["accelerators"] == given


def test_a_memory_override_is_for_accelerators_alone() -> None:
    options = RenderOptions(memory="64Gi")
    gpu = {"cloud": "kubernetes", "accelerators": "H100:1", "memory": "80Gi"}
    cpu = {"cloud": "kubernetes", "memory": "8Gi"}
    assert only(step(profile=gpu), options=options)["resources"]["memory"] == "64+"
    assert only(step(profile=cpu), options=options)["resources"]["memory"] == "8+"


def test_the_place_of_a_run_replaces_the_profile_s_cloud() -> None:
    task = only(
        step(profile={"cloud": "kubernetes", "cpus": 1, "region": "x"}),
        options=RenderOptions(infra="slurm/lab"),
    )
    assert task["resources"] == {"infra": "slurm/lab", "cpus": 1}
    pods = only(step(profile={"cpus": 1}), options=RenderOptions(infra="k8s/ctx"))
    assert pods["resources"] == {"infra": "k8s/ctx", "cpus": "1+"}


def test_pod_settings_are_passed_on_and_nothing_else() -> None:
    block = {"pod_config": {"spec": {"x": 1}}, "provision_timeout": 1800, "other": 1}
    task = only(step(profile={"cloud": "kubernetes", "kubernetes": block}))
    assert task["config"] == {
        "kubernetes": {"pod_config": {"spec": {"x": 1}}, "provision_timeout": 1800}
    }


def test_a_model_cache_is_mounted_beside_what_the_profile_has() -> None:
    containers = [{"name": "ray-node", "imagePullPolicy": "IfNotPresent"}]
    block = {"pod_config": {"spec": {"containers": containers}}}
    profile = {"cloud": "kubernetes", "kubernetes": block}
    task = only(step(profile=profile), options=RenderOptions(model_cache=ModelCache("claim")))
    spec = task["config"]["kubernetes"]["pod_config"]["spec"]
    assert spec["containers"] == [
        {
            "name": "ray-node",
            "imagePullPolicy": "IfNotPresent",
            "volumeMounts": [{"name": "npa-model-cache", "mountPath": "/opt/npa-model-cache"}],
        }
    ]
    assert spec["volumes"] == [
        {"name": "npa-model-cache", "persistentVolumeClaim": {"claimName": "claim"}}
    ]
    assert task["envs"]["HF_HOME"] == "/opt/npa-model-cache/huggingface"
    assert "volumeMounts" not in containers[0]  # the step's own profile is untouched


def test_a_profile_that_mounts_a_cache_keeps_its_own() -> None:
    mount = {"name": "mine", "mountPath": "/opt/npa-model-cache"}
    pod = {"spec": {"containers": [{"name": "ray-node", "volumeMounts": [mount]}]}}
    profile = {"cloud": "kubernetes", "kubernetes": {"pod_config": pod}}
    task = only(step(profile=profile), options=RenderOptions(model_cache=ModelCache("claim")))
    assert task["config"]["kubernetes"]["pod_config"] == pod
    assert task["envs"]["NPA_MODEL_CACHE_DIR"] == "/opt/npa-model-cache"


def test_a_model_cache_is_for_pods_alone() -> None:
    task = only(step(profile={"cloud": "aws"}), options=RenderOptions(model_cache=ModelCache("c")))
    assert "config" not in task
    assert "NPA_MODEL_CACHE_DIR" not in task["envs"]


# -- images ----------------------------------------------------------------------------------------

COSMOS = CATALOG.images["cosmos"]


@pytest.mark.req("B-05")
@pytest.mark.parametrize(
    ("overrides", "own", "image"),
    [
        ({}, "", COSMOS),
        ({}, "own:1", "own:1"),
        ({}, "tool://sonic", CATALOG.images["sonic"]),
        ({"*": "all:1"}, "own:1", "all:1"),
        ({"*": "all:1", "workbench": "family:1"}, "", "family:1"),
        ({"workbench": "a:1", "workbench.vlm_eval": "b:1", "workbench.vlm": "c:1"}, "", "b:1"),
        ({"workbench.vlm_eval": "b:1", "workbench.vlm_eval.run": "exact:1"}, "", "exact:1"),
        ({"workbench.vlm_eval.run": ""}, "own:1", ""),
    ],
)
def test_the_first_that_names_an_image_wins(
    overrides: Mapping[str, str], own: str, image: str
) -> None:
    profile = {"cloud": "kubernetes", "image": own}
    task = only(
        step(tool="workbench.vlm_eval.run", profile=profile),
        options=RenderOptions(images=overrides),
    )
    assert task["resources"].get("image_id", "") == (f"docker:{image}" if image else "")
    assert task["envs"].get("NPA_TASK_IMAGE", "") == image


def test_a_registry_replaces_the_public_one_and_a_digest_pins() -> None:
    tag = COSMOS.rpartition("/")[2]
    moved = f"registry.example.org/x/{tag}"
    pinned = f"registry.example.org/x/npa-cosmos@{DIGEST}"
    options = RenderOptions(registry="registry.example.org/x", digests={moved: pinned})
    task = only(step(tool="workbench.vlm_eval.run"), options=options)
    assert task["resources"]["image_id"] == f"docker:{pinned}"


def test_an_image_key_without_a_known_tag_is_told() -> None:
    rendered = render(step(profile={"cloud": "kubernetes", "image": "tool://wan2-2"}))
    (finding,) = rendered.findings
    assert (finding.code, finding.blocking) == ("IMAGE_TAG_UNKNOWN", False)
    assert "npa-wan2-2" in finding.message


@pytest.mark.parametrize("image", ["a b", "x;rm -rf /", "$(id)", "a@sha256:12"])
def test_what_is_no_image_reference_is_refused(image: str) -> None:
    with pytest.raises(RenderError, match="no image reference"):
        render(step(), options=RenderOptions(images={"*": image}))


BAKED = {"require_baked_npa": "1", "source_sha": "a" * 40}


@pytest.mark.parametrize("image", ["", "reg.example.org/x:1", f"x@{DIGEST}"])
def test_a_workflow_that_demands_a_digest_renders_only_with_one(image: str) -> None:
    with pytest.raises(RenderError, match="demands an image with a digest") as caught:
        render(step(config=BAKED), options=RenderOptions(images={"*": image}))
    assert "--image" in caught.value.hint


def test_a_pinned_image_brings_its_own_package() -> None:
    pinned = RenderOptions(images={"*": f"ghcr.io/x/y@{DIGEST}"})
    task = only(step(config=BAKED), options=pinned)
    assert "NPA_REQUIRE_BAKED=1\n" in task["setup"]
    assert task["envs"]["NPA_SIM2REAL_SOURCE_SHA"] == "a" * 40
    with pytest.raises(RenderError, match="not a commit"):
        render(step(config={**BAKED, "source_sha": "main"}), options=pinned)
    unknown = render(step(config={**BAKED, "source_sha": ""}), options=pinned)
    assert [finding.code for finding in unknown.findings] == ["SOURCE_COMMIT_MISSING"]


# -- public pipelines ------------------------------------------------------------------------------

ROOT = Path(__file__).parents[3]
SPECS = Path(os.environ.get("NPA_COMPAT_SPECS") or ROOT.parent / "shared" / "specs")


@pytest.mark.req("B-01")
@pytest.mark.skipif(not SPECS.is_dir(), reason="NPA_COMPAT_SPECS names no folder")
def test_every_public_pipeline_plans_both_ways_and_renders() -> None:
    import importlib.util
    import sys

    spec = importlib.util.spec_from_file_location(
        "compat_report", ROOT / "scripts" / "compat_report.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["compat_report"] = module
    try:
        spec.loader.exec_module(module)
        rows = [module.report(file, CATALOG) for file in sorted(SPECS.glob("*.yaml"))]
    finally:
        del sys.modules["compat_report"]
    assert rows
    assert {row.file: row.error for row in rows if row.error} == {}
    assert all(row.documents == 2 * row.jobs or "sweep" in row.file for row in rows if row.jobs)
    assert "cosmos3-checkpoint-eval.yaml" in {row.file for row in rows if row.pinned}
