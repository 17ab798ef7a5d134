"""What a child process inherits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from npa.errors import UsageError
from npa.target.environment import child_environment, is_inherited, named_secrets
from npa.target.secret import Secret

CANARY = "canary-4711"


@pytest.mark.parametrize(
    "name",
    ["HOME", "LANG", "LC_ALL", "TZ", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "https_proxy"],
)
def test_what_programs_need_is_inherited(name: str) -> None:
    assert is_inherited(name)


@pytest.mark.req("A-11")
@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "HF_TOKEN",
        "NEBIUS_IAM_TOKEN",
        "CONDA_TOKEN",
        "NVIDIA_API_KEY",
        "GITHUB_TOKEN",
        "KUBECONFIG",
        "PYTHONPATH",
        "LD_PRELOAD",
        "ANYTHING_ELSE",
    ],
)
def test_secrets_and_unknown_variables_are_not_inherited(name: str) -> None:
    assert name not in child_environment({name: CANARY, "PATH": "/bin"})


def test_a_secret_comes_by_name_only() -> None:
    environment = child_environment({"PATH": "/bin"}, secrets={"HF_TOKEN": Secret(CANARY)})
    assert environment["HF_TOKEN"] == CANARY


def test_extra_variables_win_over_inherited_ones() -> None:
    environment = child_environment({"TZ": "a", "PATH": "/bin"}, extra={"TZ": "b"})
    assert environment["TZ"] == "b"


def test_our_interpreter_comes_first_and_once() -> None:
    environment = child_environment(
        {"PATH": os.pathsep.join(["/bin", "/venv/bin"])}, python="/venv/bin/python"
    )
    assert environment["PATH"] == os.pathsep.join(["/venv/bin", "/bin"])


def test_a_child_finds_the_same_python_and_the_parent_is_unchanged() -> None:
    before = dict(os.environ)
    program = ["python", "-c", "import sys; print(sys.executable)"]
    found = subprocess.run(
        program, env=child_environment(), capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).parent == Path(sys.executable).parent
    assert dict(os.environ) == before


def test_missing_secrets_are_named_and_present_ones_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        named_secrets(["HF_TOKEN", "OTHER_TOKEN"], {"HF_TOKEN": CANARY})
    assert "OTHER_TOKEN" in caught.value.message
    assert CANARY not in caught.value.message


def test_a_value_given_instead_of_a_name_is_not_echoed() -> None:
    with pytest.raises(UsageError) as caught:
        named_secrets([f"{CANARY}=value"], {})
    assert CANARY not in caught.value.message
