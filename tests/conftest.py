"""What every test gets: requirement tracing, and a home of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["requirements_plugin", "s3server", "cli_harness", "runs_harness", "sky_harness"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the real home: NPA_CONFIG_DIR and HOME point into a temp folder."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NPA_CONFIG_DIR", str(home / ".npa"))
    for name in ("NPA_DEBUG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return home
