"""`npa skypilot`: what it prints, what it saves, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from npa.cli.main import main
from npa.orchestration.skypilot import installer
from npa.orchestration.skypilot.installer import LOCK_NAME
from npa.orchestration.skypilot.resolve import read_config, write_config
from orchestration.skypilot.test_environment import FakeInstaller
from orchestration.skypilot.test_resolve import environment as make_environment


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NPA_SKYPILOT_BIN", "NPA_SKYPILOT_VENV_PATH", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home() -> Path:
    return Path(os.environ["NPA_CONFIG_DIR"])


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeInstaller:
    made = FakeInstaller()
    monkeypatch.setattr(installer, "RealInstaller", lambda _env: made)
    return made


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, object]]:
    code = main([*argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.req("A-02")
def test_bootstrap_saves_what_it_made_and_does_it_once(
    home: Path, fake: FakeInstaller, capsys: pytest.CaptureFixture[str]
) -> None:
    code, first = run(capsys, "skypilot", "bootstrap")
    assert code == 0
    assert first["reused"] is False
    assert read_config(home)["sky_bin"] == first["sky_bin"]
    _, second = run(capsys, "skypilot", "bootstrap")
    assert second["reused"] is True
    assert len(fake.installs) == 1


@pytest.mark.req("A-02")
def test_status_with_bin_path_prints_the_path_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sky = make_environment(tmp_path / "venv")
    monkeypatch.setenv("NPA_SKYPILOT_BIN", str(sky))
    assert main(["skypilot", "status", "--bin-path"]) == 0
    assert capsys.readouterr().out == f"{sky}\n"


def test_status_without_a_skypilot_says_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run(capsys, "skypilot", "status")
    assert code == 1
    assert document["next_command"] == "npa skypilot bootstrap"


def test_status_says_who_named_it(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(home, sky_bin=str(make_environment(tmp_path / "venv")))
    code, document = run(capsys, "skypilot", "status")
    assert code == 0
    assert document["source"] == "skypilot.yaml"
    assert document["made_by_npa"] is False


def test_uninstall_removes_and_forgets(
    home: Path, fake: FakeInstaller, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "skypilot", "bootstrap")
    assert fake.installs
    code, document = run(capsys, "skypilot", "uninstall", "--yes")
    assert (code, document["removed"]) == (0, True)
    assert read_config(home) == {}
    code, document = run(capsys, "skypilot", "uninstall", "--yes")
    assert (code, document["removed"]) == (0, False)


def test_uninstall_in_json_asks_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skypilot", "uninstall", "--json"]) == 64
    capsys.readouterr()


@pytest.mark.req("A-05", "A-11")
def test_verify_takes_exactly_one_kubeconfig(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPA_SKYPILOT_BIN", str(make_environment(tmp_path / "venv")))
    monkeypatch.setenv("KUBECONFIG", "/a:/b")
    code, document = run(capsys, "skypilot", "verify", "--cluster", "ctx")
    assert code == 64
    assert document["not_done"] == "nothing was started"
    code, _ = run(capsys, "skypilot", "verify", "--kubeconfig", str(tmp_path / "none"))
    assert code == 64


@pytest.mark.parametrize(("code", "status"), [(0, "ok"), (1, "failed")])
def test_bare_verify_asks_skypilots_own_check(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    status: str,
) -> None:
    sky = make_environment(tmp_path / "venv")
    sky.write_text(f'#!/bin/sh\n[ "$*" = "check kubernetes" ] && exit {code}\nexit 9\n')
    monkeypatch.setenv("NPA_SKYPILOT_BIN", str(sky))
    ended, document = run(capsys, "skypilot", "verify")
    assert (ended, document["status"], document["server"]) == (code, status, "ambient")


def test_the_lock_is_named_after_the_version() -> None:
    assert LOCK_NAME == "requirements-skypilot-0.12.2.txt"
