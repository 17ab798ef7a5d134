"""SkyPilot is found by option, environment variable or our file, and never on PATH."""

from __future__ import annotations

from pathlib import Path

import pytest

from npa.errors import EngineError, UsageError
from npa.orchestration.skypilot.resolve import read_config, resolve, write_config


def environment(folder: Path, version: str = "0.12.2") -> Path:
    """A virtual environment as far as the resolution looks at it; returns its `sky`."""
    info = folder / f"lib/python3.11/site-packages/skypilot-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: skypilot\nVersion: {version}\n")
    (folder / "bin").mkdir()
    for name in ("sky", "python"):
        (folder / "bin" / name).write_text("#!/bin/sh\n")
        (folder / "bin" / name).chmod(0o755)
    return folder / "bin" / "sky"


@pytest.mark.req("A-02")
def test_the_option_beats_the_variable_and_that_our_file(tmp_path: Path) -> None:
    bins = {name: environment(tmp_path / name) for name in ("option", "variable", "file")}
    home = tmp_path / "home"
    write_config(home, sky_bin=str(bins["file"]))
    env = {"NPA_SKYPILOT_BIN": str(bins["variable"])}
    assert resolve(str(bins["option"]), env, home).path == bins["option"]
    assert resolve("", env, home).path == bins["variable"]
    assert resolve("", {}, home).path == bins["file"]


@pytest.mark.req("A-02")
def test_sky_on_path_is_never_used(tmp_path: Path) -> None:
    sky = environment(tmp_path / "venv")
    with pytest.raises(EngineError) as caught:
        resolve("", {"PATH": str(sky.parent)}, tmp_path / "home")
    assert caught.value.code == "SKYPILOT_ABSENT"
    assert caught.value.next_command == "npa skypilot bootstrap"


@pytest.mark.req("A-02")
def test_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"0\.12\.1") as caught:
        resolve(str(environment(tmp_path / "old", "0.12.1")), {}, tmp_path)
    assert caught.value.code == "SKYPILOT_VERSION"


def test_a_program_outside_an_environment_is_refused(tmp_path: Path) -> None:
    sky = tmp_path / "sky"
    sky.write_text("#!/bin/sh\n")
    sky.chmod(0o755)
    with pytest.raises(EngineError, match="virtual environment"):
        resolve(str(sky), {}, tmp_path)


def test_a_run_stays_with_the_environment_it_began_with(tmp_path: Path) -> None:
    environment(tmp_path / "envs" / "a")
    (tmp_path / "current").symlink_to("envs/a")
    found = resolve(str(tmp_path / "current/bin/sky"), {}, tmp_path)
    assert found.interpreter == tmp_path / "envs" / "a" / "bin" / "python"


def test_our_file_refuses_a_key_that_it_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "skypilot.yaml").write_text("sky_bim: /x\n")
    with pytest.raises(UsageError, match="sky_bim"):
        read_config(tmp_path)


def test_writing_our_file_keeps_the_other_keys(tmp_path: Path) -> None:
    write_config(tmp_path, isolated_config_dir="/runs")
    path = write_config(tmp_path, sky_bin="/venv/bin/sky")
    assert read_config(tmp_path) == {"isolated_config_dir": "/runs", "sky_bin": "/venv/bin/sky"}
    assert path.stat().st_mode & 0o777 == 0o600
    write_config(tmp_path, sky_bin="")
    assert read_config(tmp_path) == {"isolated_config_dir": "/runs"}
