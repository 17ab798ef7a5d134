"""`npa artifact`, as its users run it: exit codes, one document on stdout, progress on stderr."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from s3server import S3


def npa(*arguments: str, s3: S3 | None = None, **options: Any) -> subprocess.CompletedProcess[Any]:
    environment = {name: os.environ[name] for name in ("HOME", "NPA_CONFIG_DIR", "PATH")}
    options.setdefault("text", True)
    return subprocess.run(
        [sys.executable, "-m", "npa.cli.artifact", *arguments],
        env={**environment, **(s3.environment if s3 else {})},
        capture_output=True,
        check=False,
        **options,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "deep").mkdir(parents=True)
    (root / "a.txt").write_text("alpha")
    (root / "deep" / "b.txt").write_text("beta!")
    return root


@pytest.fixture(params=["file", "s3"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, S3 | None]:
    if request.param == "file":
        return f"file://{tmp_path}/store/", None
    s3: S3 = request.getfixturevalue("s3")
    return s3.uri, s3


def test_a_folder_goes_up_and_comes_down(
    remote: tuple[str, S3 | None], tree: Path, tmp_path: Path
) -> None:
    uri, s3 = remote
    up = npa("put", str(tree), uri + "x/", "--json", s3=s3)
    assert up.returncode == 0, up.stderr
    assert json.loads(up.stdout)["count"] == 2
    assert "a.txt" in up.stderr
    listing = npa("ls", uri + "x", "--json", s3=s3)
    rows = json.loads(listing.stdout)["objects"]
    assert [(row["name"], row["size"]) for row in rows] == [("a.txt", 5), ("deep/b.txt", 5)]
    down = npa("get", uri + "x/", str(tmp_path / "copy"), s3=s3)
    assert down.returncode == 0, down.stderr
    assert down.stdout == ""
    assert (tmp_path / "copy" / "deep" / "b.txt").read_text() == "beta!"


def test_an_object_goes_to_a_file_a_folder_or_stdout(
    remote: tuple[str, S3 | None], tree: Path, tmp_path: Path
) -> None:
    uri, s3 = remote
    assert npa("put", str(tree / "a.txt"), uri, s3=s3).returncode == 0
    assert npa("get", uri + "a.txt", str(tmp_path / "named"), s3=s3).returncode == 0
    assert (tmp_path / "named").read_text() == "alpha"
    assert npa("get", uri + "a.txt", f"{tmp_path}/new/", s3=s3).returncode == 0
    assert (tmp_path / "new" / "a.txt").read_text() == "alpha"
    assert npa("get", uri + "a.txt", cwd=tmp_path, s3=s3).returncode == 0
    assert (tmp_path / "a.txt").read_text() == "alpha"
    assert npa("get", uri + "a.txt", "-", s3=s3).stdout == "alpha"


def test_stdin_becomes_an_object_with_its_bytes(remote: tuple[str, S3 | None]) -> None:
    uri, s3 = remote
    data = bytes(range(256))
    assert npa("put", "-", uri + "raw", s3=s3, input=data, text=False).returncode == 0
    assert npa("get", uri + "raw", "-", s3=s3, text=False).stdout == data
    facts = json.loads(npa("head", uri + "raw", "--json", s3=s3).stdout)
    assert (facts["kind"], facts["bytes"]) == ("object", 256)


def test_head_of_a_prefix_counts(remote: tuple[str, S3 | None], tree: Path) -> None:
    uri, s3 = remote
    npa("put", str(tree), uri + "x/", s3=s3)
    assert npa("head", uri + "x/", s3=s3).stdout == "2 objects, 10 bytes\n"
    assert json.loads(npa("ls", uri, "--limit", "1", "--json", s3=s3).stdout)["count"] == 1


@pytest.mark.parametrize(
    "arguments", [("get", "none"), ("get", "none/"), ("ls", "none"), ("head", "none")]
)
def test_what_is_absent_exits_1(
    remote: tuple[str, S3 | None], arguments: tuple[str, str], tmp_path: Path
) -> None:
    uri, s3 = remote
    done = npa(arguments[0], uri + arguments[1], "--json", s3=s3, cwd=tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stdout)["code"] == "ABSENT"


@pytest.mark.parametrize("command", ["get", "ls", "head"])
def test_what_cannot_be_seen_exits_2_and_says_nothing_of_absence(
    s3: S3, command: str, tmp_path: Path
) -> None:
    done = npa(command, "s3://no-such-bucket/key", "--json", s3=s3, cwd=tmp_path)
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert document["code"] == "UNVERIFIED"
    assert "no_bucket" in document["error"]
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_cannot_be_uploaded(remote: tuple[str, S3 | None]) -> None:
    uri, s3 = remote
    assert npa("put", "/no/such/file", uri + "x", s3=s3).returncode == 1


@pytest.mark.parametrize(
    "arguments", [("ls", "not-a-uri"), ("get", "ftp://h/x"), ("put", ".", "file:///x/y")]
)
def test_a_wrong_command_line_exits_64(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert npa(*arguments, cwd=tmp_path).returncode == 64
