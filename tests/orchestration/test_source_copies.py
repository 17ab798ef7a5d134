"""Copies of source: snapshots that stay what they were, archives that are the same everywhere."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
import threading
from pathlib import Path

import pytest

from npa.errors import StorageError, UsageError
from npa.orchestration.source import archive, hand_set_provenance, scan, snapshot
from npa.orchestration.source_package import own_package, pack
from source_harness import git, names, write

# -- snapshots -------------------------------------------------------------------------------------


@pytest.mark.req("B-10")
def test_a_snapshot_keeps_content_and_is_not_writable_after_the_source_changed(
    folder: Path, tmp_path: Path
) -> None:
    tree = scan(folder)
    place = snapshot(tree, tmp_path / "snapshots")
    assert place == tmp_path / "snapshots" / tree.digest
    (folder / "pipeline.yaml").write_text("changed")
    (folder / "run.sh").unlink()
    assert (place / "pipeline.yaml").read_text() == "content of pipeline.yaml\n"
    modes = [stat.S_IMODE((place / name).stat().st_mode) for name in names(tree)]
    assert modes == [0o444, 0o555, 0o444]
    assert stat.S_IMODE((tmp_path / "snapshots").stat().st_mode) == 0o700
    assert scan(place).digest == tree.digest


def test_an_intact_snapshot_is_reused_even_with_files_that_a_task_added(
    folder: Path, tmp_path: Path
) -> None:
    tree = scan(folder)
    place = snapshot(tree, tmp_path / "snapshots")
    before = (place / "run.sh").stat().st_ino
    write(place, "stages/__pycache__/train.pyc")
    assert snapshot(tree, tmp_path / "snapshots") == place
    assert (place / "run.sh").stat().st_ino == before
    assert [entry.name for entry in (tmp_path / "snapshots").iterdir()] == [tree.digest]


@pytest.mark.parametrize("damage", ["missing", "shorter", "same length", "mode"])
def test_a_damaged_snapshot_is_set_aside_and_made_again(
    folder: Path, tmp_path: Path, damage: str
) -> None:
    tree = scan(folder)
    place = snapshot(tree, tmp_path / "snapshots")
    target = place / "run.sh"
    content = target.read_bytes()
    target.chmod(0o755)
    match damage:
        case "missing":
            target.unlink()
        case "shorter":
            target.write_bytes(content[:-1])
        case "same length":
            target.write_bytes(content.upper())
        case "mode":
            target.chmod(0o444)
    assert snapshot(tree, tmp_path / "snapshots") == place
    assert target.read_bytes() == content
    assert scan(place).digest == tree.digest
    aside = [e.name for e in (tmp_path / "snapshots").iterdir() if e.name != tree.digest]
    assert len(aside) == 1
    assert aside[0].startswith(".damaged-")


def test_callers_that_race_get_one_snapshot(folder: Path, tmp_path: Path) -> None:
    tree = scan(folder)
    start = threading.Barrier(4)
    places: list[Path] = []

    def take() -> None:
        start.wait(timeout=20)
        places.append(snapshot(tree, tmp_path / "snapshots"))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert places == [tmp_path / "snapshots" / tree.digest] * 4
    assert [entry.name for entry in (tmp_path / "snapshots").iterdir()] == [tree.digest]


def test_what_a_crash_left_does_not_stop_a_snapshot(folder: Path, tmp_path: Path) -> None:
    tree = scan(folder)
    write(tmp_path / "snapshots", f".making-{tree.digest[:16]}-00/pipeline.yaml")
    assert scan(snapshot(tree, tmp_path / "snapshots")).digest == tree.digest


@pytest.mark.parametrize("use", ["snapshot", "archive"])
def test_a_file_that_changed_since_the_scan_stops_the_staging(
    folder: Path, tmp_path: Path, use: str
) -> None:
    tree = scan(folder)
    (folder / "run.sh").write_text("#!/bin/ba\n")
    with pytest.raises(UsageError, match=r"'run.sh' changed while"):
        archive(tree) if use == "archive" else snapshot(tree, tmp_path / "snapshots")
    assert not list((tmp_path / "snapshots").glob("*"))


def test_a_place_that_cannot_be_written_is_a_storage_error(folder: Path) -> None:
    with pytest.raises(StorageError, match="cannot copy the source"):
        snapshot(scan(folder), folder / "run.sh" / "below-a-file")


# -- archives --------------------------------------------------------------------------------------


@pytest.mark.req("B-10")
def test_equal_trees_give_equal_archives(folder: Path, tmp_path: Path) -> None:
    first = archive(scan(folder))
    os.utime(folder / "run.sh", (5, 5))
    moved = folder.rename(tmp_path / "moved")
    assert archive(scan(moved)) == first
    tree = scan(moved)
    place = snapshot(tree, tmp_path / "snapshots")
    assert archive(tree, place).sha256 == first.sha256


@pytest.mark.req("B-10")
def test_an_archive_holds_the_files_with_nothing_of_this_machine(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "link").symlink_to("run.sh")
    write(folder, "deep/" + "d" * 120 + "/naïve.py")
    tree = scan(folder)
    packed = archive(tree)
    with tarfile.open(fileobj=io.BytesIO(packed.data)) as tar:
        members = tar.getmembers()
        assert [member.name for member in members] == names(tree)
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}
        tar.extractall(tmp_path / "out", filter="data")
    assert scan(tmp_path / "out").digest == tree.digest
    assert str(folder).encode() not in packed.data


@pytest.mark.req("B-10")
def test_the_manifest_names_fingerprint_files_and_commit(repository: Path) -> None:
    write(repository, ".env")
    tree = scan(repository)
    packed = archive(tree)
    assert packed.sha256 == hashlib.sha256(packed.data).hexdigest()
    assert packed.manifest["fingerprint"] == tree.digest
    assert packed.manifest["commit"] == git(repository, "rev-parse", "HEAD")
    assert packed.manifest["dirty"] is False
    assert packed.manifest["excluded"] == [".env"]
    assert packed.manifest["archive"] == {"bytes": len(packed.data), "sha256": packed.sha256}
    assert packed.manifest["files"][1] == {  # type: ignore[index]
        "path": "run.sh",
        "executable": True,
        "bytes": 10,
        "sha256": hashlib.sha256(b"#!/bin/sh\n").hexdigest(),
    }
    assert str(repository) not in str(packed.manifest)


@pytest.mark.req("B-10")
def test_a_source_set_by_hand_has_no_provenance() -> None:
    manifest = hand_set_provenance("s3://bucket/src.tar.gz")
    assert manifest["uri"] == "s3://bucket/src.tar.gz"
    assert not manifest["fingerprint"]
    assert not manifest["commit"]


# -- our own package -------------------------------------------------------------------------------


@pytest.mark.req("B-10")
def test_our_own_package_is_one_archive_with_what_it_requires() -> None:
    packed = own_package()
    with tarfile.open(fileobj=io.BytesIO(packed.data)) as tar:
        found = tar.getnames()
        required = tar.extractfile("requirements.txt")
        assert required is not None
        lines = required.read().decode().splitlines()
    assert "npa/__init__.py" in found
    assert "npa/orchestration/skypilot/scripts/setup.sh" in found
    assert all(name == "requirements.txt" or name.startswith("npa/") for name in found)
    assert any(line.startswith("obstore") for line in lines)
    assert not any("extra ==" in line or "scikit-learn" in line for line in lines)


@pytest.mark.req("B-10")
def test_the_fingerprint_of_a_package_covers_its_requirements(folder: Path) -> None:
    first, other = pack(folder, ["a>=1", "b"]), pack(folder, ["a>=2", "b"])
    assert first == pack(folder, ["b", "a>=1"])
    assert first.manifest["fingerprint"] != other.manifest["fingerprint"]
    assert first.sha256 != other.sha256
