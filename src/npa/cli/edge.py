"""The edge: runs a command and turns every way to fail into one message and one exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence

import click

from npa.cli.exit_codes import ExitCode, exit_code_of
from npa.cli.output import Output
from npa.cli.streams import drop_unread
from npa.errors import NpaError

COMPLETE = "_NPA_COMPLETE"
"""Set by the completion script of a shell, with what it asks for."""


def run(root: Callable[[], click.Group], arguments: Sequence[str]) -> int:
    """Run `arguments` and return the exit code. Nothing is raised."""
    try:
        return _run(root, arguments)
    except BrokenPipeError:
        drop_unread()
        return ExitCode.BROKEN_PIPE


def _run(root: Callable[[], click.Group], arguments: Sequence[str]) -> int:
    output = Output(as_json=_wants_json(arguments))
    try:
        code = _invoke(root(), arguments)
        sys.stdout.flush()
    except click.UsageError as error:
        return _usage(output, error)
    except click.ClickException as error:
        output.error(NpaError(_sentence(error.format_message())), ExitCode.FAILED)
        return ExitCode.FAILED
    except NpaError as error:
        _show_traceback()
        output.error(error, exit_code_of(error))
        return exit_code_of(error)
    except (KeyboardInterrupt, click.Abort):
        output.note("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        _show_traceback()
        output.error(_unexpected(error), ExitCode.UNVERIFIED)
        return ExitCode.UNVERIFIED
    return code if isinstance(code, int) else ExitCode.OK


def _invoke(group: click.Group, arguments: Sequence[str]) -> object:
    """What the command returned. Not `group.main`: it makes an exit with 1 of a broken pipe."""
    if COMPLETE in os.environ:
        return group.main(args=list(arguments), prog_name="npa", complete_var=COMPLETE)
    try:
        with group.make_context("npa", list(arguments)) as context:
            return group.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, EOFError) as error:
        sys.stderr.write("\n")  # behind the terminal's `^C`
        raise click.Abort from error


def _wants_json(arguments: Sequence[str]) -> bool:
    """Known before the command line is parsed, so that a usage error is a document too."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options or "--format=json" in options


def _usage(output: Output, error: click.UsageError) -> int:
    path = error.ctx.command_path if error.ctx else "npa"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        output.note(error.format_message())
        return ExitCode.USAGE
    message = _sentence(error.format_message())
    hint = f"`{path} --help` lists what it takes"
    output.error(NpaError(message, hint=hint, code="USAGE"), ExitCode.USAGE)
    return ExitCode.USAGE


def _sentence(message: str) -> str:
    """click's sentence in our style: lower case at the start, no full stop at the end."""
    message = message.rstrip()
    if "\n" not in message:
        message = message.removesuffix(".")
    return message[:1].lower() + message[1:] if message[1:2].islower() else message


def _unexpected(error: Exception) -> NpaError:
    return NpaError(
        f"unexpected {type(error).__name__}",
        hint="`NPA_DEBUG=1` in front of the same command shows where it happened",
        code="UNEXPECTED",
    )


def _show_traceback() -> None:
    if os.environ.get("NPA_DEBUG") == "1":
        traceback.print_exc()
