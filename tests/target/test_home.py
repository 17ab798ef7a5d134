"""Where npa keeps its things."""

from __future__ import annotations

from pathlib import Path

import pytest

from npa.errors import UsageError
from npa.target.home import Home


def test_the_variable_wins_over_the_default(tmp_path: Path) -> None:
    chosen = Home.find({"NPA_CONFIG_DIR": str(tmp_path / "x"), "HOME": "/home/u"})
    assert chosen.path == tmp_path / "x"


@pytest.mark.parametrize(
    "environ", [{"HOME": "/home/u"}, {"HOME": "/home/u", "NPA_CONFIG_DIR": ""}]
)
def test_the_default_is_a_folder_of_the_user(environ: dict[str, str]) -> None:
    home = Home.find(environ)
    assert home.path == Path("/home/u/.npa")
    assert home.runs == Path("/home/u/.npa/runs")


def test_a_relative_choice_becomes_absolute() -> None:
    assert Home.find({"NPA_CONFIG_DIR": "here"}).path == Path.cwd() / "here"


def test_the_folder_is_private(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "b").make()
    assert home.path.stat().st_mode & 0o777 == 0o700
    assert home.path.parent.stat().st_mode & 0o777 == 0o700
    assert home.make() == home


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot create the folder"):
        Home(tmp_path / "file" / "home").make()
