"""Each reserved exit code, by the rendered programs of a task in dash and in bash."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from node_harness import PYTHON, Node, launch, stage
from npa.observation import Absent, Found
from npa.orchestration.skypilot.options import RenderOptions, StagedSource
from npa.orchestration.skypilot.task_codes import TaskCode
from s3server import S3

KEY = "k" * 64
Given = tuple[RenderOptions, Mapping[str, str]]


def fenced(s3: S3, **more: object) -> RenderOptions:
    claims = f"{s3.uri}attempts/"
    return RenderOptions(claims_uri=claims, provider="server-1", **more)  # type: ignore[arg-type]


def no_package(node: Node, s3: S3, _: Path) -> Given:
    """A command of ours, and nothing brings the package."""
    if Path("/opt/nebius-physical-ai/npa").exists():
        pytest.skip("this machine has a baked package")
    refuses = 'case "$*" in *"import npa.cli"*) exit 1 ;; esac\n'
    node.tool("python3", f'{refuses}exec "{PYTHON}" "$@"')
    return fenced(s3), s3.environment


def declined(_: Node, s3: S3, __: Path) -> Given:
    return fenced(s3, accept_eula=False), s3.environment


def other_source(_: Node, s3: S3, folder: Path) -> Given:
    (folder / "a.py").write_text("")
    there = stage(s3, folder)
    return fenced(s3, source=StagedSource(there.uri, "0" * 64, there.fingerprint)), s3.environment


def claimed(_: Node, s3: S3, __: Path) -> Given:
    """Another job of the same attempt was first."""
    taken = json.dumps({"job": "6", "provider": "server-1"}).encode()
    s3.store().put(f"attempts/{KEY}/claim", taken)
    return fenced(s3), s3.environment


def unclaimable(_: Node, s3: S3, __: Path) -> Given:
    """The store cannot be reached, so nobody knows whose the attempt is."""
    return fenced(s3), {**s3.environment, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}


CASES: Mapping[TaskCode, tuple[Callable[[Node, S3, Path], Given], str]] = {
    TaskCode.NODE: (no_package, ""),
    TaskCode.LICENCE: (declined, "workbench.rl.policy_train"),
    TaskCode.SOURCE: (other_source, ""),
    TaskCode.CLAIMED: (claimed, ""),
    TaskCode.CLAIM_UNKNOWN: (unclaimable, ""),
}


@pytest.mark.req("E-02")
@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize("code", list(TaskCode), ids=lambda code: code.name.lower())
def test_a_reserved_code_ends_the_task_before_its_payload_and_says_why(
    node: Node, s3: S3, tmp_path: Path, code: TaskCode, shell: str
) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    folder = tmp_path / "source"
    folder.mkdir()
    trouble, tool = CASES[code]
    options, env = trouble(node, s3, folder)
    proof = node.root / "payload-ran"
    argv = ("npa", "status") if code is TaskCode.NODE else ("touch", str(proof))
    done = launch(
        node, argv=argv, tool=tool, options=options, env=env, key=KEY, shell=found, staged=False
    )
    assert (done.returncode, done.stdout) == (code.value, ""), done.stderr
    assert done.stderr.strip()
    assert not proof.exists()
    if code is not TaskCode.CLAIM_UNKNOWN:  # there is no store to write it to
        listed = s3.store().list(f"attempts/{KEY}/")
        assert not isinstance(listed, Absent)
        names = [info.key for info in listed.value] if isinstance(listed, Found) else []
        (why,) = [name for name in names if "/ended-" in f"/{name}"]
        left = s3.store().get(why)
        assert isinstance(left, Found)
        assert json.loads(left.value.data) == {"code": code.value}
