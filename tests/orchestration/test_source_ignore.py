"""`.npaignore` leaves files out of a pipeline's source, with and without git."""

from __future__ import annotations

from pathlib import Path

import pytest

from npa.errors import UsageError
from npa.orchestration.source import scan
from source_harness import git, names, write

PATTERNS = "# notes\n*.log\n!keep.log\n/data/\nout/**/cache\n!data/keep.txt\nsub/x\\ y\n"
FILES = (
    *("a.log", "keep.log", "data/keep.txt", "data/deep/b.bin", "out/1/cache/c.bin", "out/1/d.txt"),
    *("sub/data/e.txt", "sub/f.log", "sub/x y"),
)


@pytest.mark.req("B-10")
@pytest.mark.parametrize("where", ["folder", "untracked", "tracked"])
def test_patterns_mean_what_they_mean_in_a_gitignore(folder: Path, where: str) -> None:
    write(folder, *FILES)
    (folder / ".npaignore").write_text(PATTERNS)
    if where != "folder":
        git(folder, "init", "-q")
    if where == "tracked":
        git(folder, "add", "-f", ".")
    tree = scan(folder)
    assert tree.listed_by == ("folder" if where == "folder" else "git")
    assert names(tree) == [
        *("keep.log", "out/1/d.txt", "pipeline.yaml", "run.sh", "stages/train.py"),
        "sub/data/e.txt",
    ]
    assert {"a.log", "data/", "out/1/cache/"} <= set(tree.excluded)


def test_git_agrees_on_the_meaning_of_the_patterns(folder: Path) -> None:
    write(folder, *FILES)
    (folder / ".npaignore").write_text(PATTERNS)
    ours = names(scan(folder))
    (folder / ".npaignore").rename(folder / ".gitignore")
    git(folder, "init", "-q")
    listed = git(folder, "ls-files", "--others", "--exclude-standard").split("\n")
    assert sorted(set(listed) - {".gitignore"}) == ours


def test_the_ignore_file_is_not_part_of_the_source_but_is_recorded(folder: Path) -> None:
    before = scan(folder)
    (folder / ".npaignore").write_text("nothing-like-this\n")
    after = scan(folder)
    assert after.digest == before.digest
    assert before.provenance()["ignore_sha256"] == ""
    assert after.provenance()["ignore_sha256"]


def test_an_ignored_new_file_does_not_make_the_source_dirty(repository: Path) -> None:
    write(repository, "notes/today.md")
    assert scan(repository).dirty
    (repository / ".npaignore").write_text("notes/\n")
    assert not scan(repository).dirty


def test_a_folder_that_is_ignored_is_never_read(folder: Path) -> None:
    write(folder, "big/1", "big/2", "big/3")
    (folder / "big/away").symlink_to("/somewhere")
    with pytest.raises(UsageError, match="leaves the pipeline's folder"):
        scan(folder)
    (folder / ".npaignore").write_text("big\n")
    assert "big/" in scan(folder).excluded


@pytest.mark.parametrize("name", [".train.py.swp", "train.py~", ".#train.py", "#train.py#"])
@pytest.mark.parametrize("in_git", [False, True])
def test_what_editors_keep_beside_an_open_file_is_left_out(
    folder: Path, name: str, in_git: bool
) -> None:
    if in_git:
        git(folder, "init", "-q")
    before = scan(folder)
    (folder / name).symlink_to("user@host.1234")
    assert scan(folder).digest == before.digest


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"!\n"])
def test_an_ignore_file_that_cannot_be_understood_is_refused(folder: Path, content: bytes) -> None:
    (folder / ".npaignore").write_bytes(content)
    with pytest.raises(UsageError, match=r"\.npaignore") as caught:
        scan(folder)
    assert caught.value.code == "IGNORE_FILE"


def test_an_ignore_file_that_is_a_link_is_refused(folder: Path) -> None:
    (folder / ".npaignore").symlink_to("run.sh")
    with pytest.raises(UsageError, match="not a plain file"):
        scan(folder)
