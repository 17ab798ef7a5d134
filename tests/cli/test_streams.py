"""Closed streams, and readers that go away, change nothing about what a command does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli_harness import Run
from cli_specs import FAILS_AT_SECOND, TWO_STEPS, WAITS, write
from npa import __version__
from npa.cli.exit_codes import ExitCode

CLOSED = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]
NPA = [sys.executable, "-m", "npa.cli.main"]


def through(
    shell: str, *words: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """`npa` with `words`, its streams arranged by a shell."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {shell}', "sh", *NPA, *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("closed", CLOSED)
def test_the_version_is_no_failure_with_a_closed_stream(closed: str) -> None:
    done = through(closed, "--version")
    said = "" if " >&-" in f" {closed}" else f"npa {__version__}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_a_command_ends_as_ever_with_a_closed_stream(
    tmp_path: Path, closed: str, options: tuple[str, ...]
) -> None:
    for text, code in ((TWO_STEPS, 0), ("a: [\n", 1)):
        write(tmp_path, text)
        done = through(closed, "workflow", "validate-spec", "p.yaml", *options, folder=tmp_path)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False)


@pytest.mark.parametrize("closed", CLOSED)
def test_a_run_begins_and_ends_with_a_closed_stream(
    npa: Run, tmp_path: Path, own_home: Path, closed: str
) -> None:
    write(tmp_path / "pipe", TWO_STEPS)
    words = ("run", "p.yaml", "--run-id", "r1")
    done = through(closed, *words, folder=tmp_path / "pipe")
    assert done.returncode == 0, done.stderr
    assert npa("workflow", "status", "r1").code == 0
    assert npa("workflow", "logs", "r1", "second").stdout == "second\nlast\n"


@pytest.mark.parametrize("closed", CLOSED)
def test_a_detached_run_begins_with_a_closed_stream(
    npa: Run, tmp_path: Path, own_home: Path, closed: str
) -> None:
    write(tmp_path / "pipe", TWO_STEPS)
    words = ("workflow", "submit", "p.yaml", "--engine", "local", "--detach", "--run-id", "r1")
    done = through(closed, *words, folder=tmp_path / "pipe")
    assert done.returncode == 0, done.stderr
    assert npa("workflow", "status", "r1", "--watch").code == 0


def without_readers(folder: Path, *words: str, of: Sequence[str]) -> int:
    """The exit code of a command whose streams `of` these names nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*NPA, *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=writing if "stdout" in of else subprocess.DEVNULL,
        stderr=writing if "stderr" in of else subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert b"BrokenPipe" not in (done.stderr or b"")
    return done.returncode


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("words", [("--help",), ("exit-codes",), ("workflow", "statsu")])
def test_a_reader_that_went_away_has_a_code_of_its_own(
    tmp_path: Path, words: tuple[str, ...], stream: str
) -> None:
    ends = without_readers(tmp_path, *words, of=[stream])
    writes_to = "stderr" if "statsu" in words else "stdout"
    otherwise = ExitCode.USAGE if "statsu" in words else ExitCode.OK
    assert ends == (ExitCode.BROKEN_PIPE if stream == writes_to else otherwise)


def test_the_version_too_tells_that_nobody_read_it(tmp_path: Path) -> None:
    assert without_readers(tmp_path, "--version", of=["stdout"]) == ExitCode.BROKEN_PIPE


@pytest.mark.parametrize(("text", "code"), [(TWO_STEPS, 0), (FAILS_AT_SECOND, 1)])
def test_a_run_goes_on_when_nobody_reads_its_progress(
    npa: Run, tmp_path: Path, own_home: Path, text: str, code: int
) -> None:
    write(tmp_path / "pipe", text)
    words = ("run", "p.yaml", "--run-id", "r1")
    assert without_readers(tmp_path / "pipe", *words, of=["stderr"]) == code
    shown = npa("workflow", "status", "r1")
    assert (shown.code, "second" in shown.stdout) == (code, True)


def test_a_run_whose_result_nobody_reads_is_driven_to_its_end(
    npa: Run, tmp_path: Path, own_home: Path
) -> None:
    write(tmp_path / "pipe", TWO_STEPS)
    words = ("run", "p.yaml", "--run-id", "r1")
    ends = without_readers(tmp_path / "pipe", *words, of=["stdout", "stderr"])
    assert ends == ExitCode.BROKEN_PIPE
    assert npa("workflow", "status", "r1").code == 0


def test_a_watch_ends_when_nobody_reads_it(npa: Run, tmp_path: Path, own_home: Path) -> None:
    """It shows and drives nothing: without a reader there is nothing left to do."""
    write(tmp_path / "pipe", WAITS)
    words = ("workflow", "submit", "pipe/p.yaml", "--engine", "local", "--detach")
    npa(*words, "--run-id", "r1", "--var", f"folder={tmp_path}")
    watch = ("workflow", "status", "r1", "--watch")
    try:
        assert without_readers(tmp_path, *watch, of=["stdout", "stderr"]) == ExitCode.BROKEN_PIPE
    finally:
        (tmp_path / "go").touch()
    assert npa(*watch).code == 0
