"""Working folders: private to a job, and given on only when nothing in them was touched."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from npa.orchestration.local import workplace
from npa.orchestration.local.workplace import Places, copy_tree, marks_of


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "source"
    (top / "sub").mkdir(parents=True)
    (top / "a.py").write_text("print(1)\n")
    (top / "run.sh").write_text("exit 0\n")
    (top / "run.sh").chmod(0o755)
    (top / "sub" / "b.txt").write_text("b")
    (top / "link").symlink_to("a.py")
    return top


@pytest.fixture
def first(source: Path, tmp_path: Path) -> tuple[Places, Path]:
    """A shim's places after one job that left its folder alone so far."""
    places, one = Places(), tmp_path / "one"
    places.make(str(source), str(one))
    return places, one


def contents(top: Path) -> dict[str, str]:
    return {str(p.relative_to(top)): p.read_text() for p in top.rglob("*") if p.is_file()}


def rewrite_with_the_old_time(top: Path) -> None:
    was = (top / "a.py").stat()
    (top / "a.py").write_text("print(2)\n")
    os.utime(top / "a.py", ns=(was.st_atime_ns, was.st_mtime_ns))


def replace_with_the_same_time(top: Path) -> None:
    was = (top / "a.py").stat()
    (top / "new").write_text("print(2)\n")
    os.utime(top / "new", ns=(was.st_atime_ns, was.st_mtime_ns))
    (top / "new").chmod(0o600)
    (top / "new").rename(top / "a.py")


def write_in_place(top: Path) -> None:
    with (top / "sub" / "b.txt").open("r+") as file:
        file.write("c")


def write_through_a_map(top: Path) -> None:
    with (top / "sub" / "b.txt").open("r+") as file, mmap.mmap(file.fileno(), 1) as memory:
        memory[0] = ord("c")


TOUCHES: dict[str, Callable[[Path], object]] = {
    "a file is written": lambda top: (top / "a.py").write_text("print(2)\n"),
    "one byte is written in place": write_in_place,
    "one byte is written through a map": write_through_a_map,
    "a file is made": lambda top: (top / "new").touch(),
    "a file is made below": lambda top: (top / "sub" / "new").touch(),
    "a file is made and removed": lambda top: ((top / "x").touch(), (top / "x").unlink()),
    "a file is removed": lambda top: (top / "sub" / "b.txt").unlink(),
    "a folder is made": lambda top: (top / "cache").mkdir(),
    "a mode is changed": lambda top: (top / "a.py").chmod(0o400),
    "the folder's mode is changed": lambda top: top.chmod(0o500),
    "a link is turned": lambda top: ((top / "link").unlink(), (top / "link").symlink_to("run.sh")),
    "a file is replaced by one of the same age": replace_with_the_same_time,
    "all is gone": lambda top: workplace.remove_tree(str(top)),
}


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES.keys())
def test_a_touched_folder_is_never_given_on(
    first: tuple[Places, Path], source: Path, tmp_path: Path, touch: Callable[[Path], object]
) -> None:
    places, one = first
    touch(one)
    places.release(str(one), again=True)
    assert not one.exists()
    places.make(str(source), str(tmp_path / "two"))
    assert contents(tmp_path / "two") == contents(source)


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES.keys())
def test_a_spare_that_is_touched_after_the_job_is_not_given_on(
    first: tuple[Places, Path], source: Path, tmp_path: Path, touch: Callable[[Path], object]
) -> None:
    places, one = first
    places.release(str(one), again=True)
    touch(one)
    places.make(str(source), str(tmp_path / "two"))
    assert contents(tmp_path / "two") == contents(source)
    assert not one.exists()


def test_a_write_that_hides_its_time_is_seen_by_the_time_of_change(
    first: tuple[Places, Path], source: Path, tmp_path: Path
) -> None:
    places, one = first
    was = os.lstat(one / "a.py").st_ctime_ns
    while os.lstat(one / "a.py").st_ctime_ns == was:  # until the file system's clock ticks
        rewrite_with_the_old_time(one)
    places.release(str(one), again=True)
    places.make(str(source), str(tmp_path / "two"))
    assert contents(tmp_path / "two") == contents(source)


def test_a_change_of_the_folder_that_only_its_time_of_change_shows_is_seen(
    first: tuple[Places, Path], source: Path, tmp_path: Path
) -> None:
    places, one = first
    was = os.lstat(one)
    while os.lstat(one).st_ctime_ns == was.st_ctime_ns:  # until the file system's clock ticks
        os.utime(one, ns=(1, was.st_mtime_ns))  # so do a new owner, or an extended attribute
    places.release(str(one), again=True)
    assert not one.exists()


def test_an_untouched_folder_moves_on_to_the_next_job(
    first: tuple[Places, Path], source: Path, tmp_path: Path
) -> None:
    places, one = first
    inode = (one / "a.py").stat().st_ino
    for number in range(3):
        places.release(str(one), again=True)
        two = tmp_path / f"next-{number}"
        places.make(str(source), str(two))
        assert not one.exists()
        assert (two / "a.py").stat().st_ino == inode
        one = two


def test_reading_is_no_touch(first: tuple[Places, Path], source: Path, tmp_path: Path) -> None:
    places, one = first
    assert contents(one) == contents(source)
    places.release(str(one), again=True)
    assert one.exists()


def test_a_copy_of_another_source_is_not_taken(first: tuple[Places, Path], tmp_path: Path) -> None:
    places, one = first
    (tmp_path / "other").mkdir()
    places.release(str(one), again=True)
    places.make(str(tmp_path / "other"), str(tmp_path / "two"))
    assert contents(tmp_path / "two") == {}


def test_a_folder_in_use_is_not_given_to_another(
    first: tuple[Places, Path], source: Path, tmp_path: Path
) -> None:
    places, one = first
    places.make(str(source), str(tmp_path / "two"))
    assert one.exists()
    assert (one / "a.py").stat().st_ino != (tmp_path / "two" / "a.py").stat().st_ino


def test_a_folder_kept_for_people_is_left_alone(
    first: tuple[Places, Path], source: Path, tmp_path: Path
) -> None:
    places, one = first
    places.forget(str(one))
    places.make(str(source), str(tmp_path / "two"))
    places.clear()
    assert contents(one) == contents(source)


def test_nothing_is_kept_when_the_shim_goes(first: tuple[Places, Path]) -> None:
    places, one = first
    places.release(str(one), again=True)
    places.clear()
    assert not one.exists()


def test_no_copy_is_watched_beyond_the_bound(
    first: tuple[Places, Path], monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path
) -> None:
    places, _one = first
    monkeypatch.setattr(workplace, "ENTRIES_MAX", 2)
    two = tmp_path / "two"
    places.make(str(source), str(two))
    places.release(str(two), again=True)
    assert not two.exists()


def test_a_copy_is_as_old_as_its_source(source: Path, tmp_path: Path) -> None:
    for path in (source / "a.py", source / "sub", source):
        os.utime(path, ns=(10**18, 10**18))
    copy_tree(str(source), str(tmp_path / "copy"))
    for name in ("a.py", "sub", ""):
        assert (tmp_path / "copy" / name).stat().st_mtime_ns == 10**18
    assert len(marks_of(str(tmp_path / "copy"))) == 6


def test_a_link_that_a_step_put_in_the_place_of_its_folder_goes_and_its_target_stays(
    first: tuple[Places, Path], tmp_path: Path
) -> None:
    places, one = first
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "sub" / "precious").write_text("1")
    shutil.rmtree(one)
    one.symlink_to(tmp_path / "data")

    places.release(str(one), again=True)

    assert contents(tmp_path / "data") == {"sub/precious": "1"}
    assert not one.is_symlink()


def test_what_a_step_mounted_in_its_folder_is_not_removed(tmp_path: Path) -> None:
    inside, data = tmp_path / "one" / "sub" / "mounted", tmp_path / "data"
    inside.mkdir(parents=True)
    data.mkdir()
    (data / "precious").write_text("1")
    (tmp_path / "one" / "other").write_text("2")
    script = (
        "import subprocess, sys; from npa.orchestration.local.workplace import remove_tree\n"
        "subprocess.run(['mount', '--bind', sys.argv[1], sys.argv[2]], check=True)\n"
        "print('mounted', flush=True); remove_tree(sys.argv[3])"
    )
    argv = [sys.executable, "-c", script, str(data), str(inside), str(tmp_path / "one")]
    unshare = ["unshare", "--mount", "--map-root-user"]
    try:
        done = subprocess.run([*unshare, *argv], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no `unshare` here")
    if not done.stdout.startswith("mounted"):
        pytest.skip(f"nothing may be mounted here: {done.stderr[-200:]}")

    assert done.returncode == 0, done.stderr
    assert contents(data) == {"precious": "1"}
    assert contents(tmp_path / "one") == {}
