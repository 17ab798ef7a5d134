"""Source staging: what is taken and what is refused."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from npa.errors import UsageError
from npa.orchestration.source import Limits, scan, snapshot
from source_harness import git, names, write

# -- what is source --------------------------------------------------------------------------------


def test_a_plain_folder_is_listed_sorted_with_size_hash_and_executable_bit(folder: Path) -> None:
    tree = scan(folder)
    assert names(tree) == ["pipeline.yaml", "run.sh", "stages/train.py"]
    script = tree.files[1]
    assert script.executable
    assert not tree.files[0].executable
    assert script.size == 10
    assert script.sha256 == hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    assert (tree.commit, tree.dirty, tree.listed_by) == ("", False, "folder")
    assert tree.bytes_total == sum(path.stat().st_size for path in folder.rglob("*.*"))


@pytest.mark.req("B-10")
def test_the_fingerprint_depends_on_names_content_and_mode_and_nothing_else(
    folder: Path, tmp_path: Path
) -> None:
    first = scan(folder).digest
    os.utime(folder / "run.sh", (1, 1))
    assert scan(folder).digest == first
    elsewhere = folder.rename(tmp_path / "elsewhere")
    assert scan(elsewhere).digest == first
    seen = {first}
    (elsewhere / "run.sh").chmod(0o644)
    seen.add(scan(elsewhere).digest)
    (elsewhere / "run.sh").write_text("#!/bin/bash\n")
    seen.add(scan(elsewhere).digest)
    (elsewhere / "run.sh").rename(elsewhere / "go.sh")
    seen.add(scan(elsewhere).digest)
    assert len(seen) == 4


@pytest.mark.req("B-10")
def test_a_work_tree_gives_tracked_and_new_files_but_not_ignored_or_deleted_ones(
    repository: Path,
) -> None:
    write(repository, ".gitignore", "new.py", "data/big.bin")
    (repository / ".gitignore").write_text("data/\n")
    (repository / "stages/train.py").unlink()
    tree = scan(repository)
    assert names(tree) == [".gitignore", "new.py", "pipeline.yaml", "run.sh"]
    assert tree.listed_by == "git"


@pytest.mark.req("B-10")
def test_commit_and_dirtiness_are_recorded(repository: Path) -> None:
    tree = scan(repository)
    assert tree.commit == git(repository, "rev-parse", "HEAD")
    assert not tree.dirty
    write(repository, "new.py")
    assert scan(repository).dirty
    (repository / "new.py").unlink()
    (repository / "run.sh").write_text("changed")
    assert scan(repository).dirty


def test_an_untracked_file_that_is_never_staged_does_not_make_the_source_dirty(
    repository: Path,
) -> None:
    write(repository, ".env")
    tree = scan(repository)
    assert not tree.dirty
    assert tree.excluded == (".env",)


def test_changes_elsewhere_in_the_repository_do_not_make_a_subfolder_dirty(
    repository: Path,
) -> None:
    (repository / "run.sh").write_text("changed")
    tree = scan(repository / "stages")
    assert names(tree) == ["train.py"]
    assert not tree.dirty
    assert tree.commit


def test_a_repository_without_a_commit_is_listed(folder: Path) -> None:
    git(folder, "init", "-q")
    tree = scan(folder)
    assert len(tree.files) == 3
    assert (tree.commit, tree.dirty, tree.listed_by) == ("", True, "git")


def test_a_work_tree_is_walked_when_git_is_missing(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    tree = scan(repository)
    assert names(tree) == ["pipeline.yaml", "run.sh", "stages/train.py"]
    assert tree.listed_by == "folder"
    assert tree.excluded == (".git/",)


def test_a_folder_whose_git_fails_is_walked(folder: Path) -> None:
    write(folder, ".git/HEAD")
    assert len(scan(folder).files) == 3
    assert scan(folder).listed_by == "folder"


def test_variables_of_another_repository_do_not_mislead(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert names(scan(repository)) == ["pipeline.yaml", "run.sh", "stages/train.py"]


def test_a_repository_inside_the_repository_is_taken_whole(repository: Path) -> None:
    write(repository, "vendor/lib/a.py", "vendor/lib/deep/b.py")
    git(repository / "vendor/lib", "init", "-q")
    assert names(scan(repository))[-2:] == ["vendor/lib/a.py", "vendor/lib/deep/b.py"]


@pytest.mark.parametrize(
    "name",
    [
        *(".env", ".env.production", "stages/local.env", "server.pem", "tls.key", "id_rsa"),
        *("id_ed25519.pub", "credentials", "aws_credentials.json", ".netrc", "kubeconfig"),
        *("Credentials.JSON", ".git-credentials"),
    ],
)
@pytest.mark.parametrize("tracked", [False, True])
def test_files_that_hold_secrets_are_never_staged(folder: Path, name: str, tracked: bool) -> None:
    write(folder, name)
    if tracked:
        git(folder, "init", "-q")
        git(folder, "add", "-f", ".")
        git(folder, "commit", "-qm", "first")
    tree = scan(folder)
    assert name not in names(tree)
    assert tree.excluded[-1] == name


@pytest.mark.parametrize("name", ["id_map.py", "stages/credentials.py", "environment.yaml"])
def test_code_with_a_name_that_sounds_secret_is_staged(folder: Path, name: str) -> None:
    write(folder, name)
    assert name in names(scan(folder))


@pytest.mark.parametrize(
    "barred", [".aws/", ".kube/", "deep/.ssh/", ".venv/", "__pycache__/", "node_modules/"]
)
@pytest.mark.parametrize("tracked", [False, True])
def test_folders_of_secrets_environments_and_caches_are_left_out(
    folder: Path, barred: str, tracked: bool
) -> None:
    write(folder, f"{barred}x/y.txt")
    if tracked:
        git(folder, "init", "-q")
        git(folder, "add", "-f", ".")
    tree = scan(folder)
    assert len(tree.files) == 3
    assert barred in tree.excluded


@pytest.mark.parametrize("in_git", [False, True])
def test_a_python_environment_of_any_name_is_left_out(folder: Path, in_git: bool) -> None:
    write(folder, "my-python/pyvenv.cfg", "my-python/lib/site.py")
    if in_git:
        git(folder, "init", "-q")
    tree = scan(folder)
    assert len(tree.files) == 3
    assert "my-python/" in tree.excluded


def test_pipes_are_left_out_and_never_opened(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    tree = scan(folder)
    assert len(tree.files) == 3
    assert tree.excluded == ("pipe",)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside.txt", "stages/../../outside.txt"])
@pytest.mark.parametrize("in_git", [False, True])
def test_a_symlink_that_leaves_the_folder_is_refused(
    folder: Path, target: str, in_git: bool
) -> None:
    write(folder.parent, "outside.txt")
    if in_git:
        git(folder, "init", "-q")
    (folder / "link").symlink_to(target)
    with pytest.raises(UsageError, match="symlink 'link' leaves") as caught:
        scan(folder)
    assert caught.value.code == "SOURCE_LINK"
    assert target in caught.value.hint


def test_a_symlink_that_leaves_through_another_one_is_refused(folder: Path) -> None:
    write(folder.parent, "secret/x.txt")
    (folder / "inside").mkdir()
    (folder / "inside/up").symlink_to("../stages")
    (folder / "a-link").symlink_to("inside/up/../../secret/x.txt")
    with pytest.raises(UsageError, match="a-link"):
        scan(folder)


def test_a_symlink_that_names_its_own_folder_from_outside_is_refused(folder: Path) -> None:
    (folder / "link").symlink_to(f"../{folder.name}/run.sh")
    with pytest.raises(UsageError, match="leaves"):
        scan(folder)


def test_symlinks_inside_are_kept_as_links_and_not_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "again").symlink_to("stages")
    (folder / "stages/up").symlink_to("../run.sh")
    tree = scan(folder)
    assert names(tree) == ["again", "pipeline.yaml", "run.sh", "stages/train.py", "stages/up"]
    place = snapshot(tree, tmp_path / "snapshots")
    assert (place / "again").readlink() == Path("stages")
    assert (place / "again/train.py").read_text() == "content of stages/train.py\n"


def test_too_many_bytes_name_the_large_folder_and_the_way_out(folder: Path) -> None:
    (folder / "data").mkdir()
    for n in range(3):
        (folder / f"data/{n}.bin").write_bytes(bytes(400_000))
    with pytest.raises(UsageError) as caught:
        scan(folder, limits=Limits(bytes_max=1 << 20))
    assert caught.value.code == "SOURCE_TOO_LARGE"
    assert "larger than 1 MiB" in caught.value.message
    assert "'data/' alone has 1.1 MiB" in caught.value.message
    assert ".npaignore" in caught.value.hint


def test_too_many_files_name_the_large_folder(folder: Path) -> None:
    write(folder, *(f"logs/{n}.txt" for n in range(20)))
    with pytest.raises(UsageError, match=r"larger than 10 files: 'logs/' alone has \d+ files"):
        scan(folder, limits=Limits(files_max=10))


def test_a_name_that_is_no_text_is_refused(folder: Path) -> None:
    try:
        (folder / os.fsdecode(b"bad\xff.py")).write_text("x")
    except OSError:
        pytest.skip("this file system takes no such name")
    with pytest.raises(UsageError, match="not UTF-8"):
        scan(folder)


def test_something_that_is_no_folder_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="not a folder"):
        scan(folder / "run.sh")
