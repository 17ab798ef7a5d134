"""Runs the commands of a Markdown page, so that no page shows a command that does not work.

```sh            is run by bash in a temp folder; blocks of a page share the folder
```sh exit=1     is expected to end with 1
```sh e2e        is run by the end-to-end suite only, in a fresh copy of the repository
```yaml file=a.yaml   is written into the folder first (any language with `file=`)
```yaml whole  is a whole pipeline; `pipelines.md` has pipelines without their first lines as well
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK_SECONDS_MAX = 120
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>\w[^\n`]*)\n(?P<body>.*?)^ *```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """One fenced block. `line` is that of its opening fence."""

    language: str
    text: str
    line: int
    exit_code: int = 0
    file: str = ""
    e2e: bool = False


def pages() -> list[Path]:
    """Every page that may show commands."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    """The blocks that are commands or files; an unknown word after the language is an error."""
    found = []
    for match in _FENCE.finditer(text):
        language, *words = match["info"].split()
        options = dict(word.partition("=")[::2] for word in words)
        block = Block(
            language=language,
            text=re.sub(rf"^{match['indent']}", "", match["body"], flags=re.M),
            line=text.count("\n", 0, match.start()) + 1,
            exit_code=int(options.pop("exit", "0")),
            file=options.pop("file", ""),
            e2e=options.pop("e2e", None) is not None,
        )
        options.pop("whole", None)
        if options:
            raise ValueError(f"line {block.line}: unknown words {sorted(options)} after {language}")
        if block.language == "sh" or block.file:
            found.append(block)
    return found


def with_our_python(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which `npa` is the one under test."""
    return {**environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"}


def run_page(
    path: Path,
    folder: Path,
    *,
    e2e: bool = False,
    environ: Mapping[str, str] | None = None,
    seconds_max: float = BLOCK_SECONDS_MAX,
) -> int:
    """Run a page's blocks in `folder` and return how many blocks of commands ran.

    Raises AssertionError with the block's output if it ended otherwise than the page says.
    """
    count = 0
    for block in blocks(path.read_text()):
        if block.file:
            (folder / block.file).write_text(block.text)
        elif block.e2e == e2e:
            run_block(block, path, folder, environ or with_our_python(os.environ), seconds_max)
            count += 1
    return count


def run_block(
    block: Block, path: Path, folder: Path, environ: Mapping[str, str], seconds_max: float
) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds_max,
        check=False,
    )
    assert done.returncode == block.exit_code, (
        f"{path.name}:{block.line} ended with {done.returncode}, the page says {block.exit_code}\n"
        f"{block.text}\n{done.stdout}"
    )
