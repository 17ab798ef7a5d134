"""Completion and the table of exit codes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cli_harness import Golden, Run
from npa.cli.exit_codes import ExitCode


def test_exit_codes_are_printed(golden: Golden) -> None:
    golden("exit-codes", "exit-codes")
    document = json.loads(golden("exit-codes-json", "exit-codes", "--json").stdout)
    assert {row["code"] for row in document} == {int(code) for code in ExitCode}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_of_each_shell(npa: Run, shell: str) -> None:
    result = npa("completion", shell)
    assert result.code == 0
    assert "_NPA_COMPLETE" in result.stdout


def test_another_shell_is_a_usage_error(golden: Golden) -> None:
    golden("completion-unknown-shell", "completion", "tcsh")


def test_completing_a_command_imports_no_command() -> None:
    code = (
        "import sys; sys.argv = ['npa']; from npa.cli.main import main; code = main([]);"
        "assert 'npa.cli.submit' not in sys.modules; raise SystemExit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={
            "_NPA_COMPLETE": "bash_complete",
            "COMP_WORDS": "npa workflow va",
            "COMP_CWORD": "2",
        },
    )
    assert done.stdout.splitlines() == ["plain,validate-spec"]
