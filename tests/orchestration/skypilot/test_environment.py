"""A bootstrap is a transaction: whatever happens in it, the environment in use stays usable."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from npa.errors import EngineError
from npa.orchestration.skypilot import environment
from npa.orchestration.skypilot.installer import VERSION, Probe, find_python, lock_digest, lock_text

PYTHON = Path("/usr/bin/python3")


class Crash(BaseException):
    """The process dies here: no handler of ours may count on running."""


def fill(folder: Path) -> None:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "sky").write_text("#!/bin/sh\n")
    (folder / "bin" / "python").write_text("#!/bin/sh\n")


@dataclass
class FakeInstaller:
    """Installs in no time; `at_install` and `at_probe` may fail or crash."""

    at_install: Callable[[], None] = lambda: None
    at_probe: Callable[[], None] = lambda: None
    installs: list[Path] = field(default_factory=list)

    def install(self, python: Path, folder: Path) -> None:
        self.installs.append(folder)
        fill(folder)
        self.at_install()

    def probe(self, folder: Path) -> Probe:
        self.at_probe()
        return Probe(VERSION, "49", "abc", "35.0.0")


def refuse() -> None:
    raise EngineError("the registry said no", code="SKYPILOT_BOOTSTRAP")


def crash() -> None:
    raise Crash


def make(
    path: Path, installer: FakeInstaller | None = None, *, fresh: bool = False
) -> environment.Bootstrapped:
    return environment.bootstrap(
        path, python=PYTHON, installer=installer or FakeInstaller(), protected=(), fresh=fresh
    )


@pytest.mark.req("A-02")
def test_a_second_bootstrap_reuses_the_first(tmp_path: Path) -> None:
    installer = FakeInstaller()
    first = make(tmp_path / "sky", installer)
    second = make(tmp_path / "sky", installer)
    assert (first.reused, second.reused) == (False, True)
    assert len(installer.installs) == 1
    assert second.sky_bin == tmp_path / "sky" / "current" / "bin" / "sky"
    assert second.sky_bin.exists()


@pytest.mark.req("A-02")
@pytest.mark.parametrize("where", ["at_install", "at_probe"])
@pytest.mark.parametrize("fault", [refuse, crash])
def test_a_failure_in_it_leaves_the_old_one_working(
    tmp_path: Path, where: str, fault: Callable[[], None]
) -> None:
    path = tmp_path / "sky"
    old = make(path).installed
    with pytest.raises((EngineError, Crash)):
        make(path, FakeInstaller(**{where: fault}), fresh=True)
    assert environment.status(path) == old
    assert old.sky_bin.exists()


@pytest.mark.req("A-02")
def test_what_a_crash_left_goes_with_the_next_bootstrap(tmp_path: Path) -> None:
    path = tmp_path / "sky"
    with pytest.raises(Crash):
        make(path, FakeInstaller(at_probe=crash))
    assert environment.status(path) is None
    made = make(path)
    assert [entry.name for entry in (path / "envs").iterdir()] == [made.installed.folder.name]


@pytest.mark.req("A-02")
def test_a_crash_before_the_switch_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sky"
    old = make(path).installed
    monkeypatch.setattr(environment, "_point_at", lambda *_: crash())
    with pytest.raises(Crash):
        make(path, fresh=True)
    assert environment.status(path) == old


def test_another_lock_makes_a_new_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sky"
    old = make(path).installed
    marker = json.loads((old.folder / environment.OK).read_text())
    (old.folder / environment.OK).write_text(json.dumps(marker | {"lock_sha256": "0" * 64}))
    new = make(path)
    assert not new.reused
    assert not old.folder.exists()
    assert new.installed.digest == lock_digest()


def test_a_folder_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(EngineError, match="was not made by") as caught:
        make(tmp_path)
    assert caught.value.code == "SKYPILOT_FOREIGN_PATH"
    assert caught.value.hint
    with pytest.raises(EngineError, match="was not made by"):
        environment.uninstall(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


def test_a_link_the_root_and_a_protected_folder_are_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for path in (link, Path("/"), Path("relative")):
        with pytest.raises(EngineError) as caught:
            make(path)
        assert caught.value.code == "SKYPILOT_FOREIGN_PATH"
    with pytest.raises(EngineError, match="holds"):
        environment.bootstrap(
            tmp_path, python=PYTHON, installer=FakeInstaller(), protected=(tmp_path / "home",)
        )


def test_a_marker_alone_does_not_make_a_folder_ours(tmp_path: Path) -> None:
    (tmp_path / environment.OWNER).write_text("{}")
    with pytest.raises(EngineError, match="was not made by"):
        make(tmp_path)


def test_uninstall_removes_all_and_says_when_there_was_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sky"
    assert environment.uninstall(path) is False
    make(path)
    assert environment.uninstall(path) is True
    assert not path.exists()


def test_uninstall_keeps_what_somebody_put_there(tmp_path: Path) -> None:
    path = tmp_path / "sky"
    make(path)
    (path / "notes.txt").write_text("mine")
    with pytest.raises(EngineError, match="not ours"):
        environment.uninstall(path)
    assert [entry.name for entry in path.iterdir()] == ["notes.txt"]


def test_the_environment_in_use_by_a_process_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sky"
    old = make(path).installed
    monkeypatch.setattr(environment, "_users_of", lambda _: [4711])
    with pytest.raises(EngineError, match="process 4711") as caught:
        environment.uninstall(path)
    assert caught.value.hint
    make(path, fresh=True)
    assert old.folder.exists()


def test_the_lock_has_hashes_the_pin_and_no_host_or_path() -> None:
    text = lock_text()
    assert f"skypilot=={VERSION}" in text
    pins = [line for line in text.splitlines() if "==" in line and not line.startswith(" ")]
    assert len(pins) > 100
    assert text.count("--hash=sha256:") > len(pins)
    assert "://" not in text
    assert "--index" not in text


def test_a_python_that_the_lock_was_not_made_for_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    old.write_text("#!/bin/sh\necho 3 8\n")
    old.chmod(0o755)
    with pytest.raises(EngineError) as caught:
        find_python(str(old), {"PATH": "/usr/bin"})
    assert caught.value.code == "SKYPILOT_PYTHON"
