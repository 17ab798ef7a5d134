"""Every command that a page shows works, and ends as the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

import snippets

PAGES = [
    path
    for path in snippets.pages()
    if any(not block.e2e for block in snippets.blocks(path.read_text()))
]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_commands_of_a_page_work(path: Path, tmp_path: Path) -> None:
    assert snippets.run_page(path, tmp_path) > 0


def page(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "page.md"
    path.write_text(text)
    return path


def test_blocks_share_a_folder_and_files_are_written(tmp_path: Path) -> None:
    text = "```yaml file=a.yaml\nx: 1\n```\n\n```sh\ncp a.yaml b\n```\n\n```sh\ngrep x b\n```\n"
    assert snippets.run_page(page(tmp_path, text), tmp_path) == 2


def test_a_command_that_ends_otherwise_than_the_page_says_fails(tmp_path: Path) -> None:
    path = page(tmp_path, "text\n\n```sh exit=3\necho why; exit 4\n```\n")
    with pytest.raises(AssertionError, match=r"page.md:3 ended with 4, the page says 3(?s:.*)why"):
        snippets.run_page(path, tmp_path)


def test_a_misspelt_mark_is_not_taken_for_a_plain_block() -> None:
    with pytest.raises(ValueError, match="exti"):
        snippets.blocks("```sh exti=1\nfalse\n```\n")


def test_other_languages_are_not_run() -> None:
    assert snippets.blocks("```console\n$ false\n```\n") == []
