"""Commands about the command line itself: completion and exit codes."""

from __future__ import annotations

import click

from npa.cli.exit_codes import MEANING
from npa.cli.options import json_option
from npa.cli.output import Output


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash   eval "$(npa completion bash)"       in ~/.bashrc
    zsh    eval "$(npa completion zsh)"        in ~/.zshrc
    fish   npa completion fish | source        in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    script = kind(ctx.find_root().command, {}, "npa", "_NPA_COMPLETE")
    # Not `.source()`: it starts a bash only to ask for its version.
    Output().text(script.source_template % script.source_vars())


@click.command("exit-codes")
@json_option
def exit_codes(as_json: bool) -> None:
    """List every exit code and what it means."""
    output = Output(as_json=as_json)
    output.table(
        ("CODE", "NAME", "MEANING"),
        [(str(code.value), code.name, meaning) for code, meaning in MEANING.items()],
    )
    output.document(
        [
            {"code": code.value, "name": code.name, "meaning": meaning}
            for code, meaning in MEANING.items()
        ]
    )
