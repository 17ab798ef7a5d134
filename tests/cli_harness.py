"""How commands are tested: run in this process, and compared as a whole with a golden file."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from npa.cli.main import main

GOLDEN = Path(__file__).parent / "cli" / "golden"

Run = Callable[..., "Result"]
Golden = Callable[..., "Result"]

# What differs from run to run, and what stands for it; applied in this order.
FILTERS = (
    (r"(?m)^\d\d:\d\d:\d\d  (running|starting) .*\n", ""),  # too short-lived to be seen always
    (r"(?m)^\d\d:\d\d:\d\d ", "<clock> "),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?", "<time>"),
    (r'"(\w+_at|as_of|seconds)": \d+(\.\d+)?', r'"\1": <number>'),
    (r'"(etag|job_id|fingerprint)": "[^"]+"', r'"\1": "<\1>"'),
    (r'"driver_pid": \d+', '"driver_pid": <pid>'),
    (r"\d+@\d+@[0-9a-f-]{36}", "<job ID>"),
    (r"process \d+ on [\w.-]+", "process <pid> on <host>"),
    (r"\bby [\w.-]+@[\w.-]+", "by <user>"),
    (r'"by": "[\w.-]+@[\w.-]+"', '"by": "<user>"'),
    (r"\b[0-9a-f]{64}\b", "<sha256>"),
    (r"-[0-9a-f]{10}\b", "-<key>"),
    (r"\b\d+(\.\d+)? s\b", "<n> s"),
)


@dataclass(frozen=True)
class Result:
    """One invocation as its user saw it."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    def render(self) -> str:
        parts = [f"$ npa {shlex.join(self.argv)}", f"exit {self.code}"]
        for name, text in (("stdout", self.stdout), ("stderr", self.stderr)):
            if text:
                parts += [f"---- {name}", text.removesuffix("\n")]
        return "\n".join(parts) + "\n"


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command depends on the terminal, the CI or a debug switch around it."""
    for name in [name for name in os.environ if name.startswith("NPA_")]:
        if name != "NPA_CONFIG_DIR":
            monkeypatch.delenv(name)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("TERM", raising=False)


@pytest.fixture
def npa(
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    plain_environment: None,
) -> Run:
    """Run a command line in a temp folder, without a terminal, 100 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*argv: str | Path) -> Result:
        words = tuple(str(word) for word in argv)
        capfdbinary.readouterr()
        code = main(words)
        captured = capfdbinary.readouterr()
        out, err = captured.out.decode(), captured.err.decode()
        return Result(argv=words, code=code, stdout=out, stderr=err)

    return run


@pytest.fixture
def golden(npa: Run, request: pytest.FixtureRequest, tmp_path: Path, own_home: Path) -> Golden:
    """Run a command line and compare code, stdout and stderr with `golden/<name>.txt`.

    `hide` are texts that differ from run to run (an ID), each with what stands for it.
    """
    update = request.config.getoption("--update-golden")

    def check(name: str, *argv: str | Path, hide: dict[str, str] | None = None) -> Result:
        result = npa(*argv)
        text = result.render()
        known = {str(tmp_path): "<folder>", str(own_home): "<home>", **(hide or {})}
        for actual, shown in sorted(known.items(), key=lambda item: -len(item[0])):
            text = text.replace(actual, shown)
        for pattern, shown in FILTERS:
            text = re.sub(pattern, shown, text)
        path = GOLDEN / f"{name}.txt"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no golden file: run pytest with --update-golden\n{text}"
        assert text == path.read_text()
        return result

    return check
