"""`gpus` and `verify` look through a server of their own, which has stopped when they answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_harness import Run
from npa.errors import EngineError
from npa.orchestration.skypilot.session import Session
from sky_harness import Sky

H100 = {"where": "bed", "gpu": "H100", "per_node": [1, 2, 4, 6, 8], "total": 16, "free": 10}
KUBECONFIG = """
current-context: one
contexts:
  - {name: one, context: {cluster: c, user: u}}
  - {name: two, context: {cluster: c, user: u}}
clusters: [{name: c, cluster: {server: "https://k.example"}}]
users: [{name: u, user: {token: t}}]
"""


@pytest.fixture
def kube(sky: Sky, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    sky.change(enabled=["Kubernetes"])
    return path


def sessions(sky: Sky) -> list[Path]:
    """Sessions of checks that are still there."""
    return [path.parent for path in sky.home.rglob("session.json")]


@pytest.mark.req("A-05")
def test_the_accelerators_are_listed_once_the_server_has_stopped(npa: Run, sky: Sky) -> None:
    sky.change(gpus=[H100])
    done = npa("workbench", "workflow", "gpus", "--infra", "slurm/bed", "--json")
    assert done.code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["accelerators"] == [
        {
            "where": "bed",
            "accelerator": "H100",
            "per_node": [1, 2, 4, 6, 8],
            "free": 10,
            "total": 16,
        }
    ]
    assert (document["server"], document["infra"]) == ("owned", "slurm/bed")
    assert sessions(sky) == []
    table = npa("workflow", "gpus", "--infra", "slurm/bed")
    assert " ".join(table.stdout.splitlines()[1].split()) == "bed H100 1, 2, 4, 6, 8 10 16"
    assert "`accelerators: H100:8`" in table.stderr


@pytest.mark.req("A-05")
def test_a_cluster_without_accelerators_is_an_answer(npa: Run, sky: Sky) -> None:
    done = npa("workflow", "gpus", "--infra", "slurm/bed")
    assert (done.code, done.stdout) == (0, "slurm/bed has no accelerators that SkyPilot knows\n")


@pytest.mark.req("A-05")
def test_a_server_that_is_not_proven_stopped_is_no_success(
    npa: Run, sky: Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Session.stop

    def fail(*_: object, **__: object) -> bool:
        raise EngineError("99 did not end", code="SESSION_STOP")

    monkeypatch.setattr(Session, "stop", fail)
    sky.change(gpus=[H100])
    for words in (("workflow", "gpus"), ("skypilot", "verify")):
        done = npa(*words, "--infra", "slurm/bed")
        assert (done.code, done.stdout) == (1, "")
        assert "not proven stopped" in done.stderr
    monkeypatch.setattr(Session, "stop", stop)


@pytest.mark.parametrize("fault", ["check_error", "gpus_error"])
def test_what_skypilot_cannot_tell_is_no_empty_list(npa: Run, sky: Sky, fault: str) -> None:
    sky.change(faults={fault: "unreachable"})
    done = npa("workflow", "gpus", "--infra", "slurm/bed", "--json")
    assert (done.code, json.loads(done.stdout)["code"]) == (2, "SKYPILOT_CHECK")
    (kept,) = sessions(sky)  # its logs say why
    assert sky.living(kept) == ()


@pytest.mark.req("A-05")
def test_a_cluster_that_is_not_enabled_is_not_asked_for_accelerators(npa: Run, sky: Sky) -> None:
    sky.change(enabled=[], gpus=[H100])
    done = npa("workflow", "gpus", "--infra", "slurm/bed", "--json")
    assert (done.code, json.loads(done.stdout)["enabled"]) == (1, False)
    assert "asked_gpus" not in sky.read()


def test_without_skypilot_the_error_says_how_to_get_it(
    npa: Run, sky: Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NPA_SKYPILOT_BIN")
    done = npa("workflow", "gpus", "--infra", "slurm/bed", "--json")
    assert (done.code, json.loads(done.stdout)["next_command"]) == (1, "npa skypilot bootstrap")


@pytest.mark.req("A-05", "A-11")
def test_without_a_target_skypilots_own_server_is_asked(npa: Run, sky: Sky) -> None:
    sky.change(gpus=[H100])
    done = npa("workflow", "gpus", "--json")
    assert (done.code, json.loads(done.stdout)["server"]) == (0, "ambient")
    assert sky.read()["asked_gpus"] == ["k8s"]
    assert sessions(sky) == []


@pytest.mark.req("A-05")
def test_a_context_is_looked_at_through_its_kubeconfig(npa: Run, sky: Sky, kube: Path) -> None:
    for words in (("--context", "two"), ("--infra", "k8s/two")):
        done = npa("workflow", "gpus", *words, "--json")
        assert (done.code, json.loads(done.stdout)["infra"]) == (0, "k8s/two"), done.stderr
    done = npa("skypilot", "verify", "--kubeconfig", kube, "--json")
    assert json.loads(done.stdout)["kubernetes_enabled"] is True
    assert json.loads(done.stdout)["infra"] == "k8s/one"  # the current context
    done = npa("workflow", "gpus", "--context", "three", "--json")
    assert (done.code, json.loads(done.stdout)["code"]) == (64, "KUBECONFIG")


@pytest.mark.req("A-05")
def test_a_project_and_a_context_must_agree(npa: Run, sky: Sky, kube: Path) -> None:
    config = sky.home / "config.yaml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(f"projects:\n  robots: {{context: two, kubeconfig: {kube}}}\n  bad: 3\n")
    done = npa("skypilot", "verify", "--project", "robots", "--json")
    assert (done.code, json.loads(done.stdout)["infra"]) == (0, "k8s/two")
    done = npa("skypilot", "verify", "--project", "robots", "--cluster", "two")
    assert done.code == 0
    other = kube.with_name("other")
    other.write_text(KUBECONFIG)
    for words in (("--cluster", "one"), ("--infra", "k8s/one"), ("--kubeconfig", str(other))):
        done = npa("workflow", "gpus", "--project", "robots", *words, "--json")
        assert (done.code, json.loads(done.stdout)["code"]) == (64, "PROJECT_CONTEXT")
    for name, said in (("bad", "must be a mapping"), ("none", "has: bad, robots")):
        done = npa("skypilot", "verify", "--project", name)
        assert done.code == 64
        assert said in done.stderr
    assert sessions(sky) == []


@pytest.mark.req("A-05")
def test_a_slurm_cluster_takes_no_kubernetes_options(npa: Run, sky: Sky) -> None:
    assert npa("workflow", "gpus", "--infra", "slurm/bed", "--context", "one").code == 64
    assert npa("workflow", "gpus", "--infra", "nebius").code == 64
    assert npa("workflow", "gpus", "--infra", "slurm/elsewhere").code == 64


@pytest.mark.req("A-05")
@pytest.mark.parametrize("how", ["option", "variable", "file"])
def test_the_root_of_the_sessions_is_chosen(
    npa: Run, sky: Sky, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    roots = {name: tmp_path / f"root-{name}" for name in ("option", "variable", "file")}
    order = list(roots)[list(roots).index(how) :]  # what is named, the strongest first
    words: tuple[str, ...] = ()
    if "option" in order:
        words = ("--isolated-config-dir", str(roots["option"]))
    if "variable" in order:
        monkeypatch.setenv("NPA_SKYPILOT_ISOLATED_CONFIG_DIR", str(roots["variable"]))
    sky.home.mkdir(exist_ok=True)
    (sky.home / "skypilot.yaml").write_text(f"isolated_config_dir: {roots['file']}\n")
    assert npa("skypilot", "verify", "--infra", "slurm/bed", *words).code == 0
    assert [name for name, root in roots.items() if root.exists()] == [how]
