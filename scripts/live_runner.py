"""What the runner scripts share: a worktree that is named, flags as config, one JSON summary.

A runner is a thin wrapper around `npa.orchestration.skypilot.submit_workflow`. It runs from one
worktree that the operator names in NPA_LIVE_WT, and from no other: a checkout that stepped in for a
vanished one would be tested, and reported, in its place.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import npa
from npa.cli.exit_codes import ExitCode, exit_code_of
from npa.errors import NpaError, UsageError
from npa.orchestration.driver import Snapshot
from npa.orchestration.skypilot import RunResult, submit_workflow

WORKTREE = "NPA_LIVE_WT"
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run", tempfile.gettempdir())  # noqa: S108
ENDED: Mapping[str, ExitCode] = {
    "succeeded": ExitCode.OK,
    "failed": ExitCode.FAILED,
    "cancelled": ExitCode.FAILED,
    "held": ExitCode.HELD,
    "superseded": ExitCode.DRIVEN_ELSEWHERE,
    "left": ExitCode.INTERRUPTED,
}


@dataclass(frozen=True)
class Flag:
    """A flag of a runner that sets one config key of the pipeline."""

    name: str
    key: str
    help: str


@dataclass(frozen=True)
class Runner:
    """One runner script. Paths are relative to the worktree; an empty `spec` must be given."""

    name: str
    summary: str
    flags: tuple[Flag, ...]
    spec: str = ""
    catalog: str = ""
    secrets: tuple[str, ...] = ()


def live_worktree(environ: Mapping[str, str], temporary: Sequence[str] = TEMPORARY) -> Path:
    """The worktree that NPA_LIVE_WT names: it is there, it lasts, and this program comes from it.

    Raises UsageError (code LIVE_WORKTREE) otherwise.
    """
    named = environ.get(WORKTREE, "")
    if not named:
        raise _no_worktree(f"{WORKTREE} is not set")
    path = Path(named)
    if not path.is_absolute() or not path.is_dir():
        raise _no_worktree(f"{WORKTREE} names `{named}`, which is no folder that exists")
    real = path.resolve()
    if any(real.is_relative_to(Path(folder).resolve()) for folder in temporary):
        raise _no_worktree(f"`{real}` lies in a temporary folder, so it may vanish under the run")
    if _git(real, "rev-parse", "--show-toplevel") != str(real):
        raise _no_worktree(f"`{real}` is not the top of a Git worktree")
    program = Path(npa.__file__).resolve()
    if not program.is_relative_to(real):
        raise _no_worktree(f"this program comes from `{program.parent}`, which is another checkout")
    return real


def _no_worktree(message: str) -> UsageError:
    return UsageError(
        message,
        not_done="nothing was submitted",
        hint=f"name the checkout that is to be tested: `export {WORKTREE}=/path/of/the/worktree`",
        code="LIVE_WORKTREE",
    )


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def main(
    runner: Runner,
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] = os.environ,
    temporary: Sequence[str] = TEMPORARY,
) -> int:
    """Submit, wait, print one JSON document; the exit code is one of `npa exit-codes`."""
    options = _parser(runner).parse_args(argv)
    summary: dict[str, object] = {"runner": runner.name}
    try:
        worktree = live_worktree(environ, temporary)
        summary |= {
            "worktree": str(worktree),
            "commit": _git(worktree, "rev-parse", "HEAD"),
            "changed_files": len(_git(worktree, "status", "--porcelain").splitlines()),
        }
        result = _submit(runner, options, worktree, environ)
        summary |= result.to_json()
        code = ENDED[result.status]
    except NpaError as error:
        code = exit_code_of(error)
        summary |= {
            "status": "not submitted",
            "error": error.message,
            "error_code": error.code,
            "not_done": error.not_done,
            "hint": error.hint,
        }
    text = json.dumps(summary, indent=2, sort_keys=True)
    print(text)
    if options.output_json:
        options.output_json.write_text(f"{text}\n")
    return int(code)


def _parser(runner: Runner) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=runner.name, description=runner.summary, allow_abbrev=False
    )
    required = not runner.spec
    shown = f"  [default: {runner.spec}]" if runner.spec else ""
    parser.add_argument("--spec", required=required, help=f"the pipeline{shown}")
    parser.add_argument("--catalog", action="append", default=[], help="tools of your own")
    parser.add_argument("--engine", choices=["skypilot", "local"], default="skypilot")
    parser.add_argument("--run-id", help="name of the run  [default: generated]")
    parser.add_argument("--store", default="", help="where runs are kept")
    parser.add_argument("--var", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--secret-env", action="append", default=list(runner.secrets))
    parser.add_argument("--retries", type=int, default=0)
    parser.add_argument("--max-infrastructure-recoveries", type=int, default=1)
    parser.add_argument("--max-wait-seconds", type=float, default=0.0)
    parser.add_argument("--output-json", type=Path, help="write the summary there as well")
    for flag in runner.flags:
        parser.add_argument(flag.name, dest=flag.key, help=flag.help)
    return parser


def _submit(
    runner: Runner, options: argparse.Namespace, worktree: Path, environ: Mapping[str, str]
) -> RunResult:
    catalogs = list(options.catalog)
    if not options.spec and runner.catalog:
        catalogs.append(runner.catalog)
    return submit_workflow(
        worktree / (options.spec or runner.spec),
        engine=options.engine,
        run_id=options.run_id,
        overrides=_overrides(runner, options),
        secrets=[name for name in options.secret_env if environ.get(name)],
        catalogs=[worktree / path for path in catalogs],
        store=options.store,
        retries=options.retries,
        max_infrastructure_recoveries=options.max_infrastructure_recoveries,
        max_wait_seconds=options.max_wait_seconds,
        environ=environ,
        observer=_Progress(),
    )


def _overrides(runner: Runner, options: argparse.Namespace) -> dict[str, str]:
    given = {flag.key: getattr(options, flag.key) for flag in runner.flags}
    found = {key: value for key, value in given.items() if value is not None}
    for word in options.var:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"`--var {word}` is not KEY=VALUE", not_done="nothing was submitted")
        found[key] = value
    return found


class _Progress:
    """One line on stderr for each step that ended."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, snapshot: Snapshot) -> None:
        for path, attempt in snapshot.state.latest.items():
            if attempt.end is not None and attempt.key + path not in self._told:
                self._told.add(attempt.key + path)
                print(f"{path}: {attempt.end.members[path].result.value}", file=sys.stderr)
